"""Converts Paimon's logical types to Arrow types and back, defines the columns of data files, and checks incoming
batches.

Source: Paimon 2.0 ParquetSchemaConverter, SpecialFields, KeyValue.createKeyValueFields.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Protocol, TypeVar

import pyarrow as pa

from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.types.fit import fit_array, map_types
from bucketline.state.types.logical import MAX_LENGTH, DataField, DataType, TypeRoot

KEY_PREFIX = "_KEY_"
SEQUENCE = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"
UNAVAILABLE = "\0unavailable"
"""The name of an internal column that rows carry while they are written. It records which values of the row the source
did not send. It is never stored.
"""

KEY_FIELD_ID_START = 2**30 - 1
SEQUENCE_FIELD_ID = 2**31 - 2
VALUE_KIND_FIELD_ID = 2**31 - 3
_ELEMENT_FIELD_ID_START = 2**29 - 1
_ELEMENT_FIELD_ID_STEP = 1024

SYSTEM_FIELDS = (
    DataField(SEQUENCE_FIELD_ID, SEQUENCE, DataType(TypeRoot.BIGINT, nullable=False)),
    DataField(VALUE_KIND_FIELD_ID, VALUE_KIND, DataType(TypeRoot.TINYINT, nullable=False)),
)
"""The two columns that follow the key columns in a data file: the sequence number and the row kind."""

AnyRows = TypeVar("AnyRows", pa.RecordBatch, pa.Table)

_FIELD_ID = b"PARQUET:field_id"
_SIMPLE: dict[TypeRoot, pa.DataType] = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
}


class TableColumns(Protocol):
    """The part of a table schema that this module reads: the columns, and the names of the columns that form the key
    within a bucket.
    """

    @property
    def fields(self) -> tuple[DataField, ...]: ...

    @property
    def trimmed_primary_key(self) -> tuple[str, ...]: ...


def arrow_type(data_type: DataType) -> pa.DataType:
    """Returns the Arrow type that holds values of a logical type exactly; nested fields carry no field ids.

    Raises UnsupportedTableError for VARIANT and BLOB.
    """
    return _arrow_type(data_type, None, 0)


@lru_cache(4096)
def arrow_field(field: DataField) -> pa.Field:
    """Returns the column as an Arrow field with its name, type and nullability.
    The field and all fields nested in it carry their Parquet field ids as metadata.

    Source: Paimon 2.0 ParquetSchemaConverter, SpecialFields.getArrayElementFieldId and its map siblings.
    """
    try:
        arrow = _arrow_type(field.type, field.id, 0)
    except UnsupportedTableError as e:
        raise e.reworded(f"column {field.name}: {e.message}", column=field.name) from e
    return pa.field(field.name, arrow, nullable=field.type.nullable, metadata={_FIELD_ID: str(field.id).encode()})


def representable(fields: Sequence[DataField]) -> tuple[DataField, ...]:
    """Returns the columns whose types exist in Arrow; leaves out VARIANT and BLOB columns."""
    return tuple(f for f in fields if _is_representable(f.type))


def arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    """Returns the Arrow schema of the given columns, in the given order."""
    return _arrow_schema(tuple(fields))


@lru_cache(512)
def _arrow_schema(fields: tuple[DataField, ...]) -> pa.Schema:
    return pa.schema([arrow_field(f) for f in fields])


def key_value_fields(schema: TableColumns) -> tuple[DataField, ...]:
    """Returns the columns that precede a table's own columns in a data file: a `_KEY_` column for each key column, then
    the sequence number and the row kind.
    """
    return _key_value_fields(schema.fields, schema.trimmed_primary_key)


@lru_cache(512)
def _key_value_fields(fields: tuple[DataField, ...], key: tuple[str, ...]) -> tuple[DataField, ...]:
    by_name = {f.name: f for f in fields}
    keys = tuple(DataField(KEY_FIELD_ID_START + by_name[k].id, KEY_PREFIX + k, by_name[k].type.not_null()) for k in key)
    return (*keys, *SYSTEM_FIELDS)


def logical_type(arrow: pa.DataType, nullable: bool, *, ids: Iterator[int] | None = None) -> DataType:
    """Returns the logical type that a new table uses for an Arrow type. An unsigned integer becomes a wider signed one.

    `ids` yields the ids of sub-fields of ROWs, depth first; if `ids` is None, the ids start at 0. Raises
    SchemaMismatchError for a type that Paimon cannot hold (uint64, durations, null, decimals beyond 38 digits).
    """
    ids = count() if ids is None else ids
    for matches, logical in _LOGICAL:
        if matches(arrow):
            return logical if nullable else logical.not_null()
    if pa.types.is_dictionary(arrow):
        return logical_type(arrow.value_type, nullable, ids=ids)
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DataType(TypeRoot.DECIMAL, nullable, precision=arrow.precision, scale=arrow.scale)
    if pa.types.is_timestamp(arrow):
        root = TypeRoot.TIMESTAMP if arrow.tz is None else TypeRoot.TIMESTAMP_LTZ
        return DataType(root, nullable, precision=_DIGITS[arrow.unit])
    if pa.types.is_time(arrow):
        # Paimon stores milliseconds of the day whatever the precision says.
        return DataType(TypeRoot.TIME, nullable, precision=min(_DIGITS[arrow.unit], 3))
    if pa.types.is_fixed_size_binary(arrow):
        return DataType(TypeRoot.BINARY, nullable, length=arrow.byte_width)
    if _is_list(arrow):
        element = arrow.value_field
        return DataType(TypeRoot.ARRAY, nullable, element=logical_type(element.type, element.nullable, ids=ids))
    if pa.types.is_map(arrow):
        key = logical_type(arrow.key_type, False, ids=ids)
        value = logical_type(arrow.item_type, arrow.item_field.nullable, ids=ids)
        return DataType(TypeRoot.MAP, nullable, key=key, value=value)
    if pa.types.is_struct(arrow):
        return DataType(TypeRoot.ROW, nullable, fields=_logical_fields(list(arrow), ids))
    raise SchemaMismatchError(
        f"Arrow type {arrow} has no Paimon type; cast the column to another type", found=str(arrow)
    )


def logical_fields(schema: pa.Schema) -> tuple[DataField, ...]:
    """Returns the columns of a new table that is created from an Arrow schema.

    Ids start at 0, and a ROW gets its id before its sub-fields.
    Raises SchemaMismatchError, which names the column, for a type that Paimon cannot hold.
    Source: Paimon 2.0 ReassignFieldId.
    """
    return _logical_fields(list(schema), count())


def conform(batch: AnyRows, schema: TableColumns, *, extra: Collection[str] = ()) -> AnyRows:
    """Returns the rows with exactly the table's columns, in the table's order and types. A record batch gives a record
    batch, and a table gives a table.

    Columns are matched by name. Columns that are named in `extra` follow unchanged, if they are present. The schema of
    the result is `arrow_schema(schema.fields)`, with nullability and field ids.
    Only changes that lose nothing are made: wider and narrower numbers that fit, decimals of another scale that fit,
    other Arrow layouts of the same value, other zones of the same instant. Text is never parsed.
    Raises SchemaMismatchError, with `column`, `expected` and `found`, for an unknown, missing or doubled column, a null
    in a NOT NULL column, a value that does not fit, text or bytes longer than declared.
    """
    names: list[str] = batch.schema.names
    _check_names(names, [f.name for f in schema.fields], extra)
    given: dict[str, pa.Array | pa.ChunkedArray] = dict(zip(names, batch.columns, strict=True))
    targets: pa.Schema = arrow_schema(schema.fields)
    columns: list[pa.Array] = [
        _fit_column(given[f.name], f, t.type) for f, t in zip(schema.fields, targets, strict=True)
    ]
    more: list[str] = [name for name in names if name in extra]
    if more:
        targets = pa.schema([*targets, *(batch.schema.field(name) for name in more)])
    return type(batch).from_arrays([*columns, *(given[name] for name in more)], schema=targets)


def with_types(rows: AnyRows, schema: pa.Schema) -> AnyRows:
    """Returns the rows with the types of `schema`, which has the same columns in the same order. A record batch gives a
    record batch, and a table gives a table.

    A column that already has the wanted type is not cast, because Arrow cannot cast a list with a null struct whose
    fields are NOT NULL, even to the same type.
    """
    pairs = zip(rows.columns, schema, strict=True)
    return type(rows).from_arrays([c if c.type == f.type else c.cast(f.type) for c, f in pairs], schema=schema)


def _check_names(names: Sequence[str], expected: Sequence[str], extra: Collection[str]) -> None:
    wanted, times = frozenset(expected), Counter(names)
    for name in names:
        if name not in wanted and name not in extra:
            raise SchemaMismatchError(
                f"column {name}: unknown to the table, whose columns are {', '.join(expected)}",
                column=name,
                expected=list(expected),
                found=list(names),
            )
        if times[name] > 1:
            raise SchemaMismatchError(
                f"column {name}: given {times[name]} times; keep only one of these columns",
                column=name,
                expected=1,
                found=times[name],
            )
    for name in expected:
        if name not in times:
            raise SchemaMismatchError(
                f"column {name}: missing from the input, whose columns are {', '.join(names)}",
                column=name,
                expected=list(expected),
                found=list(names),
            )


def _fit_column(column: pa.Array | pa.ChunkedArray, field: DataField, target: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        chunks = [fit_array(c, field.type, target, field.name) for c in column.chunks]
        if not chunks:
            # The column of nulls has no values, but its type is checked all the same.
            fit_array(pa.array([], column.type), field.type, target, field.name)
        return pa.chunked_array(chunks, target)
    return fit_array(column, field.type, target, field.name)


def _is_representable(data_type: DataType) -> bool:
    try:
        arrow_type(data_type)
    except UnsupportedTableError:
        return False
    return True


def _arrow_type(data_type: DataType, field_id: int | None, depth: int) -> pa.DataType:
    root = data_type.root
    if root in _SIMPLE:
        return _SIMPLE[root]
    if root is TypeRoot.DECIMAL:
        return pa.decimal128(data_type.precision, data_type.scale)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        assert data_type.precision is not None
        unit = "ms" if data_type.precision <= 3 else "us" if data_type.precision <= 6 else "ns"
        return pa.timestamp(unit, "UTC" if root is TypeRoot.TIMESTAMP_LTZ else None)
    if root is TypeRoot.ROW:
        if field_id is not None:
            return pa.struct([arrow_field(f) for f in data_type.fields])
        return pa.struct([pa.field(f.name, arrow_type(f.type), nullable=f.type.nullable) for f in data_type.fields])
    if root in (TypeRoot.ARRAY, TypeRoot.VECTOR):
        assert data_type.element is not None
        element = _element("element", data_type.element, field_id, depth + 1, 1)
        return pa.list_(element) if root is TypeRoot.ARRAY else pa.list_(element, data_type.length)
    if root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key_type, value_type = map_types(data_type)
        key = _element("key", key_type.not_null(), field_id, depth + 1, -1)
        return pa.map_(key, _element("value", value_type, field_id, depth + 1, 1))
    raise UnsupportedTableError(f"columns of type {data_type} are not supported", type=str(data_type))


def _element(name: str, data_type: DataType, field_id: int | None, depth: int, sign: int) -> pa.Field:
    arrow = _arrow_type(data_type, field_id, depth)
    if field_id is None:
        return pa.field(name, arrow, nullable=data_type.nullable)
    element_id = _ELEMENT_FIELD_ID_START + sign * (_ELEMENT_FIELD_ID_STEP * field_id + depth)
    return pa.field(name, arrow, nullable=data_type.nullable, metadata={_FIELD_ID: str(element_id).encode()})


def _logical_fields(arrow: Sequence[pa.Field], ids: Iterator[int]) -> tuple[DataField, ...]:
    fields = []
    for field in arrow:
        field_id = next(ids)
        try:
            fields.append(DataField(field_id, field.name, logical_type(field.type, field.nullable, ids=ids)))
        except SchemaMismatchError as e:
            raise e.reworded(f"column {field.name}: {e.message}", column=field.name) from e
    return tuple(fields)


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow))


def _one_of(*types: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda arrow: arrow in types


_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_LOGICAL: tuple[tuple[Callable[[pa.DataType], bool], DataType], ...] = (
    (pa.types.is_boolean, DataType(TypeRoot.BOOLEAN)),
    (_one_of(pa.int8()), DataType(TypeRoot.TINYINT)),
    (_one_of(pa.int16(), pa.uint8()), DataType(TypeRoot.SMALLINT)),
    (_one_of(pa.int32(), pa.uint16()), DataType(TypeRoot.INT)),
    (_one_of(pa.int64(), pa.uint32()), DataType(TypeRoot.BIGINT)),
    (_one_of(pa.float16(), pa.float32()), DataType(TypeRoot.FLOAT)),
    (_one_of(pa.float64()), DataType(TypeRoot.DOUBLE)),
    (_one_of(pa.string(), pa.large_string(), pa.string_view()), DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)),
    (_one_of(pa.binary(), pa.large_binary(), pa.binary_view()), DataType(TypeRoot.VARBINARY, length=MAX_LENGTH)),
    (pa.types.is_date, DataType(TypeRoot.DATE)),
)
