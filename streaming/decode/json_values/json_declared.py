"""Finds the Arrow types, for table columns, that a Kafka Connect schema declares for values in JSON.

Values that JSON cannot express exactly, or that the schema does not declare, become strings. Times of day are
milliseconds, the only unit of Paimon's TIME. Nanoseconds since 1970 become microseconds, because a table with
timestamps of both kinds cannot be written as Parquet.
Source: Debezium 3 data type mappings; Kafka 4.0 Connect ConnectSchema and JsonConverter.
"""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from bucketline.conf.sources.message_options import (
    SAME_TYPES,
    MessageOptions,
    SourceKind,
    SourceType,
    TypeMapping,
    TypeMappings,
)
from bucketline.streaming.decode.json_values.json_shape import (
    DATES,
    LONGTEXT,
    MAP_ENTRIES,
    SIGNED,
    STAMP_UNITS,
    TEXT,
    TIME_UNITS,
    UNSIGNED,
    SourceSchema,
    column_in_source,
    is_unsigned,
    name_of,
    source_fields,
)

_PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}
_OF_KINDS = {
    SourceKind.TEXT: ("string", TEXT),
    SourceKind.SIGNED: ("int64", SIGNED),
    SourceKind.UNSIGNED: ("int64", UNSIGNED),
    SourceKind.BITS: ("bytes", "io.debezium.data.Bits"),
    SourceKind.EPOCH_DAYS: ("int32", "io.debezium.time.Date"),
    SourceKind.EPOCH_MILLIS: ("int64", "io.debezium.time.Timestamp"),
    SourceKind.EPOCH_MICROS: ("int64", "io.debezium.time.MicroTimestamp"),
    SourceKind.EPOCH_NANOS: ("int64", "io.debezium.time.NanoTimestamp"),
    SourceKind.DAY_MILLIS: ("int32", "io.debezium.time.Time"),
    SourceKind.DAY_MICROS: ("int64", "io.debezium.time.MicroTime"),
    SourceKind.DAY_NANOS: ("int64", "io.debezium.time.NanoTime"),
}
_TEXT_TIMES = {
    "io.debezium.time.ZonedTimestamp": pa.timestamp("us", "UTC"),
    "io.debezium.time.IsoTimestamp": pa.timestamp("us"),
    "io.debezium.time.IsoDate": pa.date32(),
    "io.debezium.time.IsoTime": pa.time32("ms"),
}
_PART_TIMES = {
    "io.debezium.time.StructuredZonedTimestamp": pa.timestamp("us", "UTC"),
    "io.debezium.time.StructuredTimestamp": pa.timestamp("us"),
    "io.debezium.time.StructuredDate": pa.date32(),
    "io.debezium.time.StructuredZonedTime": pa.time32("ms"),
    "io.debezium.time.StructuredTime": pa.time32("ms"),
    "io.debezium.time.StructuredDuration": pa.string(),
}
"""Beginnings of type names; a precision and the type of the source's column may follow. Durations are not times
of day.
"""
_UNSIGNED_COLUMNS = ("BIGINT UNSIGNED", "SERIAL")
_MOST_DIGITS = 38
_NO_NODE: SourceSchema = {}


def declared_type(source: SourceSchema, mapping: TypeMappings = SAME_TYPES) -> pa.DataType:
    """Returns the type of one node of a schema; the null type for a struct without fields. `mapping` is the job's
    `type-mapping`.
    """
    if TypeMapping.TO_STRING in mapping:
        return pa.string()
    column = column_in_source(source)
    if TypeMapping.TINYINT1_NOT_BOOL in mapping and column == "TINYINT(1)":
        return pa.int8()
    if TypeMapping.LONGTEXT_TO_BYTES in mapping and column.startswith(LONGTEXT):
        return pa.binary()
    if TypeMapping.BIGINT_UNSIGNED_TO_BIGINT in mapping and column.startswith(_UNSIGNED_COLUMNS):
        return pa.int64()
    return _declared_type(source)


def _declared_type(source: SourceSchema) -> pa.DataType:
    name, kind = name_of(source), source.get("type")
    if name in DATES:
        return pa.date32()
    if name in TIME_UNITS:
        return pa.time32("ms")
    if name in STAMP_UNITS:
        return pa.timestamp("ms" if STAMP_UNITS[str(name)] == "ms" else "us")
    if name in _TEXT_TIMES:
        return _TEXT_TIMES[str(name)]
    of_parts = next((kind for prefix, kind in _PART_TIMES.items() if str(name).startswith(prefix)), None)
    if of_parts is not None:
        return of_parts
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(source)
    if name == "io.debezium.data.VariableScaleDecimal":
        return pa.string()
    if is_unsigned(source):
        return pa.decimal128(20, 0)
    if kind == "struct":
        fields = [(n, _declared_type(node)) for n, node in source_fields(source).items()]
        kept = [(n, field_type) for n, field_type in fields if not pa.types.is_null(field_type)]
        return pa.struct(kept) if kept else pa.null()
    if kind == "array":
        element = _declared_type(_node(source, "items"))
        return element if pa.types.is_null(element) else pa.list_(element)
    if kind == "map" and (_node(source, "keys").get("type") == "string" or name == MAP_ENTRIES):
        key, value = _declared_type(_node(source, "keys")), _declared_type(_node(source, "values"))
        return value if pa.types.is_null(value) or pa.types.is_null(key) else pa.map_(key, value)
    return _PLAIN.get(str(kind), pa.string())


def nodes_of(types: Sequence[tuple[str, SourceType]]) -> SourceSchema:
    """Returns the schema that a job declares (`types`) for rows whose messages have no schema; empty without types."""
    return {"fields": [{"field": name, **_node_of(known)} for name, known in types]} if types else _NO_NODE


def with_signs(source: SourceSchema, types: Sequence[tuple[str, SourceType]]) -> SourceSchema:
    """Returns the schema of a row, in which the unsigned 64-bit numbers are marked. The job says which numbers are
    unsigned, because a schema cannot.
    """
    signs = {name: _node_of(one) for name, one in types if one.kind in (SourceKind.SIGNED, SourceKind.UNSIGNED)}
    if not signs or not source:
        return source
    fields = [
        {**node, **signs[name]} if name in signs and node.get("type") == "int64" and not node.get("name") else node
        for name, node in source_fields(source).items()
    ]
    return {**source, "fields": fields}


def as_declared(need: pa.DataType, messages: MessageOptions, columns: Collection[str]) -> pa.DataType:
    """Takes the columns that values need (`need`), and returns them with the types that the job asks for, instead of
    the types that the values look like.

    `columns` are the names of the table's columns; the type mapping does not change the types of these columns.
    """
    types, mapping = messages.types, messages.type_mapping
    if not (types or mapping) or not pa.types.is_struct(need):
        return need
    known = {name: declared_type(_node_of(one), mapping) for name, one in types}
    others = {f.name: f.type if f.name in columns else _mapped(f.type, mapping) for f in need}
    return pa.struct([(name, known.get(name, kind)) for name, kind in others.items()])


def _mapped(kind: pa.DataType, mapping: TypeMappings) -> pa.DataType:
    """Returns the type for a new column whose values look like `kind`, by the job's type mapping."""
    if pa.types.is_null(kind):
        return kind
    if TypeMapping.TO_STRING in mapping:
        return pa.string()
    is_giant = pa.types.is_decimal(kind) and kind.scale == 0
    return pa.int64() if is_giant and TypeMapping.BIGINT_UNSIGNED_TO_BIGINT in mapping else kind


def _node_of(known: SourceType) -> SourceSchema:
    if known.kind is SourceKind.DECIMAL:
        digits = {"scale": str(known.scale), "connect.decimal.precision": str(known.precision)}
        return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": digits}
    kind, name = _OF_KINDS[known.kind]
    return {"type": kind, "name": name}


def _decimal(source: SourceSchema) -> pa.DataType:
    parameters = source.get("parameters")
    settings = parameters if isinstance(parameters, Mapping) else {}
    try:
        scale = int(str(settings.get("scale")))
        precision = int(str(settings.get("connect.decimal.precision", _MOST_DIGITS)))
    except ValueError:
        return pa.string()
    return pa.decimal128(precision, scale) if 0 <= scale <= precision <= _MOST_DIGITS and precision else pa.string()


def _node(source: SourceSchema, name: str) -> SourceSchema:
    node = source.get(name)
    return node if isinstance(node, Mapping) else _NO_NODE
