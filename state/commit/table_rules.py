"""Paimon's rules for combinations of columns, keys and options of a table. Paimon cannot open or cannot write a table
that breaks one of these rules.

A rule is a function that takes a schema and yields an error for each problem. A new table must not break any rule, and
a change must not break a rule that the table follows so far. An existing table that breaks a rule can still be read,
and `doctor` says what to change.
Source: Paimon 1.4 and 2.0 SchemaValidation, FileIndexOptions, RowKindGenerator.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.conf.table.choices import CODECS, FileFormat
from bucketline.conf.table.field_options import DEFAULT_FUNCTION, PREFIX
from bucketline.conf.table.file_options import FILE_COMPRESSION, FILE_COMPRESSION_PER_LEVEL
from bucketline.conf.table.index_options import IndexedColumn, indexed_columns, parameter_problems
from bucketline.conf.table.merge_options import ROWKIND_FIELD, SEQUENCE_FIELD
from bucketline.conf.table.option_rules import manifest_sort_problems, sequence_number_problems
from bucketline.conf.table.read_options import SCAN_FALLBACK_BRANCH, SCAN_PRIMARY_BRANCH
from bucketline.conf.table.scan_rules import branch_name_problems, scan_problems
from bucketline.conf.table.table_options import listed
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.types.logical import DataField, DataType, TypeRoot

TableRule = Callable[[TableSchema], Iterator[OptionError]]

_TEXT = frozenset((TypeRoot.CHAR, TypeRoot.VARCHAR))
_BYTES = frozenset((TypeRoot.BINARY, TypeRoot.VARBINARY))
_WHOLE = frozenset((TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT))
_FLOATING = frozenset((TypeRoot.FLOAT, TypeRoot.DOUBLE))
_TIMES = frozenset((TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ))
_BOOLEAN, _DECIMAL = frozenset((TypeRoot.BOOLEAN,)), frozenset((TypeRoot.DECIMAL,))
_INDEXABLE: Mapping[str, frozenset[TypeRoot]] = {
    "bloom-filter": _TEXT | _BYTES | _WHOLE | _FLOATING | _TIMES,
    "bitmap": _TEXT | _BOOLEAN | _WHOLE | _FLOATING | _TIMES,
    "bsi": _DECIMAL | _WHOLE | _TIMES,
    "range-bitmap": _TEXT | _BOOLEAN | _DECIMAL | _WHOLE | _FLOATING | _TIMES,
}
"""The kinds of file indexes, each with the column types for which Paimon can build it."""

_AVRO_CODECS = ("zstandard", *CODECS[FileFormat.AVRO])


def rule_problems(schema: TableSchema) -> Iterator[OptionError]:
    """Checks a schema against the rules of this module (`RULES`), and yields an error for each problem. The rule
    `branches_exist` is not checked.
    """
    for rule in RULES:
        try:
            yield from rule(schema)
        except OptionError as e:
            # An option has a value that cannot be parsed.
            yield e


def scans_start_in_one_way(schema: TableSchema) -> Iterator[OptionError]:
    yield from scan_problems(schema.options)
    yield from branch_name_problems(schema.options)


def indexed_columns_suit(schema: TableSchema) -> Iterator[OptionError]:
    """Rule: each file index has a kind that Paimon knows, and a column that exists and has a suitable type."""
    columns = {field.name: field for field in schema.fields}
    for indexed in indexed_columns(schema.options):
        why = _index_problem(indexed, columns)
        if why is not None:
            yield OptionError(
                f"'{indexed.key}' = '{schema.options[indexed.key]}': {why}; Paimon cannot write such a table; take the "
                "column out of the option",
                key=indexed.key,
                column=indexed.column,
            )
    yield from parameter_problems(schema.options)


def _index_problem(indexed: IndexedColumn, columns: Mapping[str, DataField]) -> str | None:
    indexable = _INDEXABLE.get(indexed.index)
    if indexable is None:
        near = did_you_mean(indexed.index, _INDEXABLE)
        return f"there is no index {indexed.index!r}{near}; there are {', '.join(_INDEXABLE)}"
    field = columns.get(indexed.column)
    if field is None:
        return f"there is no column {indexed.column!r}; there are {', '.join(columns)}"
    kind: DataType | None = field.type
    if indexed.map_key is not None:
        if field.type.root is not TypeRoot.MAP or field.type.key is None or field.type.key.root not in _TEXT:
            return (
                f"column {field.name!r} is {field.type}, but only a MAP with string keys can have an index for one key"
            )
        kind = field.type.value
    assert kind is not None
    if kind.root not in indexable or (indexed.index == "range-bitmap" and not _has_short_values(kind)):
        return f"the index {indexed.index!r} does not support column {field.name!r}, which is {field.type}"
    return None


def _has_short_values(kind: DataType) -> bool:
    """Returns True if Paimon's `range-bitmap` index supports the type. The index does not support decimals of more than
    18 digits, and timestamps finer than microseconds.
    """
    if kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return (kind.precision or 0) <= 6
    return kind.root is not TypeRoot.DECIMAL or (kind.precision or 0) <= 18


def column_options_name_columns(schema: TableSchema) -> Iterator[OptionError]:
    """Rule: in the key of each option that begins with `fields.`, the next part has names of existing columns, even if
    the option is unknown. Paimon reads the names up to the next dot.
    """
    columns = [field.name for field in schema.fields]
    for key in schema.options:
        if not key.startswith(PREFIX) or key == DEFAULT_FUNCTION:
            continue
        for name in key[len(PREFIX) :].partition(".")[0].split(","):
            if name not in columns:
                yield OptionError(
                    f"'{key}': Field {name} can not be found in table schema. After 'fields.', Paimon expects column "
                    f"names up to the next dot; the columns are {', '.join(columns)}",
                    key=key,
                    column=name,
                )


def sequence_fields_suit(schema: TableSchema) -> Iterator[OptionError]:
    """Rule: a sequence field (a column that orders the rows of a key) has no aggregate function. And a table with
    sequence fields does not move keys to other partitions.
    """
    sequence = schema.settings.merge.sequence_fields
    for name in sequence:
        function = schema.settings.columns.own_function_key(name)
        if function is not None:
            yield OptionError(
                f"'{function}': Should not define aggregation on sequence field: '{name}'; remove this option",
                key=function,
            )
    keys, partition = schema.primary_keys, schema.partition_keys
    if sequence and keys and not set(partition) <= set(keys):
        yield OptionError(
            f"You can not use sequence.field in cross partition update case (Primary key constraint '{listed(keys)}' "
            f"not include all partition fields '{listed(partition)}'); remove sequence.field, or add the "
            "partition fields to the primary key.",
            key=SEQUENCE_FIELD.key,
        )


def row_kinds_are_text(schema: TableSchema) -> Iterator[OptionError]:
    """Rule: the column in the option `rowkind.field` has a string type."""
    name = schema.settings.merge.row_kind_field
    field = next((f for f in schema.fields if f.name == name), None)
    if field is not None and field.type.root not in _TEXT:
        yield OptionError(
            f"'{ROWKIND_FIELD.key}' = '{name}': row kinds are strings (+I, -U, +U, -D), but the column is "
            f"{field.type}; "
            "choose a STRING column",
            key=ROWKIND_FIELD.key,
            column=name,
        )


def options_suit_the_keys(schema: TableSchema) -> Iterator[OptionError]:
    """Rule: an option that needs a primary key or partition columns is set only on a table that has them."""
    yield from sequence_number_problems(schema.options, schema.primary_keys)
    yield from manifest_sort_problems(schema.options, schema.partition_keys)


def postponed_files_have_a_codec(schema: TableSchema) -> Iterator[OptionError]:
    """Rule: the compression codec of a postpone table is one that Avro has, because files in the postpone bucket are
    always Avro.
    """
    files, settings = schema.settings.files, schema.settings
    codec = files.codec_per_level.get(0, files.codec).lower()
    if settings.bucket.count == POSTPONE_BUCKET and schema.primary_keys and codec not in _AVRO_CODECS:
        option = FILE_COMPRESSION_PER_LEVEL if 0 in files.codec_per_level else FILE_COMPRESSION
        yield OptionError(
            f"'{option.key}' = {codec!r}: postponed rows are stored in Avro files, which Paimon cannot write with "
            "this codec; set it to 'zstd' or 'snappy', or to 'null' for none",
            key=option.key,
        )


def branches_read(schema: TableSchema) -> dict[str, str]:
    """Returns the other branches from which reads of the table also take rows. The result maps the key of each option
    that names a branch to the branch.
    """
    named = {o.key: schema.options.get(o.key, "") for o in (SCAN_FALLBACK_BRANCH, SCAN_PRIMARY_BRANCH)}
    return {key: name for key, name in named.items() if name.strip()}


def branches_exist(schema: TableSchema, branches: Collection[str]) -> Iterator[OptionError]:
    """Rule: every branch that an option names for reads exists. `branches` are the existing branches."""
    for key, name in branches_read(schema).items():
        if name not in branches:
            yield OptionError(
                f"Cannot set '{key}' = '{name}' because the branch '{name}' does not exist: Paimon does not open such "
                "a table; create the branch first, or remove the option",
                key=key,
                value=name,
            )


RULES: tuple[TableRule, ...] = (
    scans_start_in_one_way,
    indexed_columns_suit,
    column_options_name_columns,
    sequence_fields_suit,
    row_kinds_are_text,
    options_suit_the_keys,
    postponed_files_have_a_codec,
)
"""All rules that only need the schema."""
