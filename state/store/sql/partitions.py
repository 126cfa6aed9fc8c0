"""Reads the partitions that an argument of a procedure names: `dt=2026-01-01,hr=7;dt=2026-01-02`, a condition, or the
time since the last write.

Source: Paimon 2.0 SparkProcedureUtils, ParameterUtils.
"""

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_options import listed
from bucketline.state.format.entries import ManifestEntry
from bucketline.state.format.paths import escape, is_blank, partition_values
from bucketline.state.sql.compute.filters import translate_filter
from bucketline.state.sql.dialect import DIALECT
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.read.views import value_text
from bucketline.state.store.sql.relation import bind_columns
from bucketline.state.store.table.partition_choice import choose_partitions, short_text
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataType
from bucketline.state.types.timestamp_text import plain_value
from bucketline.state.types.values import to_scalar


def partitions_of_text(table: Table, text: str) -> list[Mapping[str, object]]:
    """Returns the partitions that a string lists. Raises OptionError if a column is not a partition column."""
    _require_partitions(table)
    choices: list[Mapping[str, object]] = []
    for part in text.split(";"):
        choice = {}
        for pair in part.split(","):
            name, equals, value = pair.partition("=")
            if not equals:
                raise OptionError(
                    f"partitions {text!r} must have the form column=value,column=value;...", key="partitions"
                )
            choice[name.strip()] = value.strip().strip("'\"")
        choices.append(choice)
    wrong = dict.fromkeys(name for choice in choices for name in choice if name not in table.partition_by)
    if wrong:
        raise OptionError(
            f"Partition keys {listed(wrong)} are invalid. Available partition keys are {listed(table.partition_by)}",
            key="partitions",
        )
    return choices


def partitions_where(
    table: Table, condition: exp.Expression | None, before_local_ms: int | None
) -> list[Mapping[str, object]]:
    """Returns the partitions that meet a condition on their columns (None: all), and to which no file was written since
    the local time `before_local_ms` (None: any time).

    Raises OptionError for a condition on other columns.
    """
    _require_partitions(table)
    handle = handle_of(table)
    schema = handle.table_schema
    fields = schema.select(schema.partition_keys)
    newest = handle.snapshot_store.latest()
    newest_ms: dict[bytes, int] = {}
    for entry in [] if newest is None else handle.manifests.live_entries(newest):
        newest_ms[entry.partition] = max(newest_ms.get(entry.partition, 0), _written_ms(entry))
    keys = [p for p, written in newest_ms.items() if before_local_ms is None or written < before_local_ms]
    if condition is not None:
        columns = {c.name.lower() for c in condition.find_all(exp.Column)}
        if not columns <= {name.lower() for name in schema.partition_keys} or not columns:
            raise OptionError(
                f"Only partition predicate is supported, your predicate is {condition.sql(DIALECT)}, but partition "
                f"keys are {listed(schema.partition_keys)}",
                key="where",
            )
        rows = [decode_row(key, [f.type for f in fields]) for key in keys]
        arrays = [
            pa.array([plain_value(to_scalar(row[i], f.type)) for row in rows], arrow_type(f.type))
            for i, f in enumerate(fields)
        ]
        shown = pa.table([*arrays, pa.array(range(len(keys)))], names=[*(f.name for f in fields), ""])
        passing = shown.filter(translate_filter(bind_columns(condition, fields, table.path), fields))
        keys = [keys[i] for i in passing.column("").to_pylist()]
    return [dict(partition_values(schema, key)) for key in keys]


def shown_partitions(table: Table, wanted: Mapping[str, object]) -> list[str]:
    """Returns the partitions that have the values `wanted`, as Spark's SHOW PARTITIONS shows them: with values as Spark
    writes them, escaped as in the names of folders, and with `null` for a missing value. Rows in the postpone bucket do
    not count.

    Source: Spark 4.0 ShowPartitionsExec.
    """
    handle = handle_of(table)
    schema = handle.table_schema
    passes = choose_partitions(schema, [wanted] if wanted else None)
    fields = schema.select(schema.partition_keys)
    shown = []
    for key in stored_partitions(handle):
        if not passes(key):
            continue
        values = zip(fields, decode_row(key, [f.type for f in fields]), strict=True)
        shown.append("/".join(f"{escape(f.name)}={escape(_in_spark(value, f.type))}" for f, value in values))
    return sorted(shown)


def stored_partitions(table: TableHandle) -> set[bytes]:
    """Returns the partitions that have files in the newest snapshot, each as a serialized row. Files in the postpone
    bucket do not count.
    """
    newest = table.snapshot_store.latest()
    return {e.partition for e in ([] if newest is None else table.manifests.live_entries(newest)) if e.bucket >= 0}


def _in_spark(value: object, data_type: DataType) -> str:
    text = "" if value is None else value_text(value, data_type)
    return "null" if is_blank(text) else short_text(text, data_type)


def _written_ms(entry: ManifestEntry) -> int:
    return entry.file.creation_time_ms or 0


def _require_partitions(table: Table) -> None:
    if not table.partition_by:
        raise OptionError("Table should be a partitioned table when using partition predicate.", key="partitions")
