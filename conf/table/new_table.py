"""Checks that the columns, keys and options of a new table fit together.

Messages that Paimon's users know are the same as Paimon's.
Source: Paimon 2.0 SchemaValidation, Schema, TableSchema.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from bucketline.conf.errors import OptionError
from bucketline.conf.table.changelog_options import check_changelog_options
from bucketline.conf.table.merge_options import ROWKIND_FIELD, SEQUENCE_FIELD
from bucketline.conf.table.read_options import BRANCH, ROW_TRACKING_ENABLED
from bucketline.conf.table.table_options import (
    BUCKET,
    BUCKET_KEY,
    PARTITION,
    PRIMARY_KEY,
    listed,
    refuse,
    write_checks,
)

SYSTEM_COLUMNS = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID")
KEY_COLUMN_PREFIX = "_KEY_"


def check_new_table(
    options: Mapping[str, str],
    *,
    columns: Sequence[str],
    nested: Collection[str],
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
) -> None:
    """Checks that Paimon would accept this new table and that bucketline can write it.

    `nested` are the columns with nested types. The caller must have removed the options that declare keys, with
    `lift_keys`. Raises the errors of `check_write_options`, and OptionError for keys that are empty, repeated, nested
    or not among the columns.
    """
    for check in _checks(options, columns, nested, primary_key, partition_keys):
        check()


def table_problems(
    options: Mapping[str, str],
    *,
    columns: Sequence[str],
    nested: Collection[str],
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
) -> Iterator[OptionError]:
    """Yields the errors that `check_new_table` would raise: the first error of each check."""
    for check in _checks(options, columns, nested, primary_key, partition_keys):
        try:
            check()
        except OptionError as e:
            yield e


def _checks(
    options: Mapping[str, str],
    columns: Sequence[str],
    nested: Collection[str],
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
) -> Iterator[Callable[[], object]]:
    yield partial(_check_columns, columns)
    yield partial(_check_key, "primary key", primary_key, columns, nested)
    yield partial(_check_key, "partition", partition_keys, columns, nested)
    yield partial(_check_one_row_a_partition, primary_key, partition_keys)
    yield partial(_check_branch, options)
    yield from write_checks(options, primary_key, partition_keys)
    yield partial(check_changelog_options, options, primary_key, columns)
    yield partial(_check_bucket_key, options, columns, nested, primary_key, partition_keys)
    yield partial(_check_row_tracking, options, primary_key)
    yield partial(_check_sequence, options, columns)
    yield partial(_check_row_kind, options, columns)


def lift_keys(
    options: Mapping[str, str], primary_key: Sequence[str], partition_keys: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Removes `primary-key` and `partition` from the options. Returns the other options, the primary key and the
    partition columns.

    Raises OptionError if a key is declared both by an option and by an argument.
    """
    rest = {k: v for k, v in options.items() if k not in (PRIMARY_KEY.key, PARTITION.key)}
    keys = _either(PRIMARY_KEY.key, "primary key", primary_key, PRIMARY_KEY.find(options))
    partition = _either(PARTITION.key, "partition", partition_keys, PARTITION.find(options))
    return rest, keys, partition


def _either(key: str, role: str, declared: Sequence[str], optioned: tuple[str, ...] | None) -> tuple[str, ...]:
    if declared and optioned is not None:
        refuse(key, f"Cannot define {role} on DDL and table options at the same time.")
    return tuple(declared) if optioned is None else optioned


def _check_one_row_a_partition(primary_key: Sequence[str], partition_keys: Sequence[str]) -> None:
    if primary_key and set(primary_key) <= set(partition_keys):
        refuse(
            PRIMARY_KEY.key,
            f"Primary key constraint {listed(primary_key)} should not be same with partition fields "
            f"{listed(partition_keys)}, this will result in only one record in a partition",
        )


def _check_branch(options: Mapping[str, str]) -> None:
    branch = options.get(BRANCH.key)
    if branch is not None and branch.strip() != BRANCH.default:
        refuse(BRANCH.key, "a branch is chosen when a table is opened, and cannot be an option of the table; remove it")


def _check_sequence(options: Mapping[str, str], columns: Sequence[str]) -> None:
    sequence = SEQUENCE_FIELD.get(options)
    for name in sequence:
        if name not in columns:
            refuse(SEQUENCE_FIELD.key, f"Sequence field: '{name}' can not be found in table schema.")
        if sequence.count(name) > 1:
            refuse(SEQUENCE_FIELD.key, f"Sequence field '{name}' is defined repeatedly.")


def _check_row_kind(options: Mapping[str, str], columns: Sequence[str]) -> None:
    row_kind = ROWKIND_FIELD.find(options)
    if row_kind is not None and row_kind not in columns:
        refuse(ROWKIND_FIELD.key, f"Rowkind field: '{row_kind}' can not be found in table schema.")


def _check_bucket_key(
    options: Mapping[str, str],
    columns: Sequence[str],
    nested: Collection[str],
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
) -> None:
    bucket_key = BUCKET_KEY.find(options) or ()
    missing = [name for name in bucket_key if name not in columns]
    if missing:
        refuse(
            BUCKET_KEY.key,
            f"Field names {listed(columns)} should contain all bucket keys {listed(bucket_key)}; names are not trimmed",
        )
    if any(name in partition_keys for name in bucket_key):
        refuse(
            BUCKET_KEY.key,
            f"Bucket keys {listed(bucket_key)} should not in partition keys {listed(partition_keys)}.",
        )
    if primary_key and not set(bucket_key) <= set(primary_key):
        refuse(
            BUCKET_KEY.key,
            f"Primary keys {listed(primary_key)} should contain all bucket keys {listed(bucket_key)}.",
        )
    nested_keys = [name for name in bucket_key if name in nested]
    if nested_keys:
        refuse(BUCKET_KEY.key, f"nested type can not in bucket-key, in your table these key are {listed(nested_keys)}")


def _check_row_tracking(options: Mapping[str, str], primary_key: Sequence[str]) -> None:
    """Raises OptionError if a table with row tracking has a primary key or buckets. Source: Paimon 2.0
    SchemaValidation.validateRowTracking.
    """
    if not ROW_TRACKING_ENABLED.get(options):
        return
    if BUCKET.get(options) != -1:
        refuse(BUCKET.key, "Cannot define bucket for row tracking table, it only support bucket = -1")
    if primary_key:
        refuse(PRIMARY_KEY.key, "Cannot define primary-key for row tracking table.")


def _check_columns(columns: Sequence[str]) -> None:
    for name in columns:
        if name in SYSTEM_COLUMNS:
            refuse("schema", f"Field name[{name}] in schema cannot be exist in {listed(SYSTEM_COLUMNS)}")
        if name.startswith(KEY_COLUMN_PREFIX):
            refuse("schema", f"Field name[{name}] in schema cannot start with [{KEY_COLUMN_PREFIX}]")
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        refuse("schema", f"Table column {listed(columns)} must not contain duplicate fields. Found: {listed(twice)}")


def _check_key(role: str, key: Sequence[str], columns: Sequence[str], nested: Collection[str]) -> None:
    option = (PRIMARY_KEY if role == "primary key" else PARTITION).key
    missing = [name for name in key if name not in columns]
    if missing:
        refuse(option, f"Table column {listed(columns)} should include all {role} fields {listed(key)}")
    if len(set(key)) != len(key):
        refuse(option, f"{role} {listed(key)} must not contain duplicate columns")
    for name in key:
        if name in nested:
            refuse(option, f"The type of column '{name}' in {role} is not supported: it must be an atomic type")
