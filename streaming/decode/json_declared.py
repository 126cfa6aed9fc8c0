"""The Arrow types that a Kafka Connect schema declares for values in JSON, as table columns are to hold them.

What JSON cannot express exactly, or the schema does not declare, is text. Times of day are milliseconds, the only unit
of Paimon's TIME; nanoseconds since 1970 become microseconds, because a table with timestamps of both kinds cannot be
written as Parquet.

Source: Debezium 3 data type mappings; Kafka 4.0 Connect ConnectSchema and JsonConverter.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from bucketline.conf.message_options import SourceKind, SourceType
from bucketline.streaming.decode.json_shape import (
    DATES,
    SIGNED,
    STAMP_UNITS,
    TEXT,
    TIME_UNITS,
    UNSIGNED,
    SourceSchema,
    is_unsigned,
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
_MOST_DIGITS = 38
_NO_NODE: SourceSchema = {}


def declared_type(source: SourceSchema) -> pa.DataType:
    """The type of one node of a schema; null for a struct without fields."""
    name, kind = source.get("name"), source.get("type")
    if name in DATES:
        return pa.date32()
    if name in TIME_UNITS:
        return pa.time32("ms")
    if name in STAMP_UNITS:
        return pa.timestamp("ms" if STAMP_UNITS[str(name)] == "ms" else "us")
    if name == "io.debezium.time.ZonedTimestamp":
        return pa.timestamp("us", "UTC")
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(source)
    if name == "io.debezium.data.VariableScaleDecimal":
        return pa.string()
    if is_unsigned(source):
        return pa.decimal128(20, 0)
    if kind == "struct":
        fields = [(n, declared_type(node)) for n, node in source_fields(source).items()]
        kept = [(n, field_type) for n, field_type in fields if not pa.types.is_null(field_type)]
        return pa.struct(kept) if kept else pa.null()
    if kind == "array":
        element = declared_type(_node(source, "items"))
        return element if pa.types.is_null(element) else pa.list_(element)
    if kind == "map" and _node(source, "keys").get("type") == "string":
        value = declared_type(_node(source, "values"))
        return value if pa.types.is_null(value) else pa.map_(pa.string(), value)
    return _PLAIN.get(str(kind), pa.string())


def nodes_of(types: Sequence[tuple[str, SourceType]]) -> SourceSchema:
    """The schema that a job declares for rows whose messages have none; empty without types."""
    return {"fields": [{"field": name, **_node_of(known)} for name, known in types]} if types else _NO_NODE


def as_declared(need: pa.DataType, types: Sequence[tuple[str, SourceType]]) -> pa.DataType:
    """The need with the types that the job declares, in place of those that values look like."""
    if not types or not pa.types.is_struct(need):
        return need
    known = {name: declared_type(_node_of(one)) for name, one in types}
    return pa.struct([(f.name, known.get(f.name, f.type)) for f in need])


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
