"""Translates an Avro schema into a Kafka Connect schema, which the decoders of JSON understand.

Connect's converter adds properties of its own to Avro's types: `connect.name`, `connect.type`, `connect.parameters`.
For example, Debezium writes into `connect.name` which kind of time a number is. If these properties are missing, Avro's
logical types say the same. Source: Avro 1.12 specification, logical types; Confluent 7.6 AvroData; Debezium 3 data type
mappings.
"""

from collections.abc import Mapping, Sequence

from bucketline.streaming.decode.avro.avro_schema import AvroKind, AvroSchema, Node
from bucketline.streaming.decode.json_values.json_shape import MAP_ENTRIES, SourceSchema

_PRECISION, _PRECISION_OF_CONNECT = "connect.decimal.precision", 64
"""Connect's converters write the precision 64 for a decimal whose precision they do not know."""
_MAP_ENTRY = "io.confluent.connect.avro.MapEntry"
_TYPES = {
    AvroKind.BOOLEAN: "boolean",
    AvroKind.INT: "int32",
    AvroKind.LONG: "int64",
    AvroKind.FLOAT: "float",
    AvroKind.DOUBLE: "double",
    AvroKind.BYTES: "bytes",
    AvroKind.FIXED: "bytes",
}
_LOGICAL = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "decimal": "org.apache.kafka.connect.data.Decimal",
}
_BASE = {
    "date": (AvroKind.INT,),
    "time-millis": (AvroKind.INT,),
    "decimal": (AvroKind.BYTES, AvroKind.FIXED),
}
"""The Avro types that a logical type may have; long if it is not listed. With any other type the logical type is
ignored, as Avro demands.
"""


def source_of(schema: AvroSchema) -> SourceSchema:
    """Returns the node of a Connect schema for the values of an Avro schema."""
    return _source(schema.root)


def value_node(node: Node) -> Node:
    """Takes a type in an Avro schema. If the type is a union of null and one other type, returns the other type;
    otherwise returns the type itself.
    """
    if node.kind is not AvroKind.UNION or node.is_text:
        return node
    present = [child for child in node.children if child.kind is not AvroKind.NULL]
    return present[-1] if len(present) == 1 else node


def _source(node: Node) -> SourceSchema:
    is_optional = node.kind is AvroKind.NULL or any(child.kind is AvroKind.NULL for child in node.children)
    return {**_of_values(value_node(node)), "optional": is_optional and node.kind in (AvroKind.NULL, AvroKind.UNION)}


def _of_values(node: Node) -> SourceSchema:
    if node.is_text:
        return {"type": "string"}
    if node.kind is AvroKind.UNION:
        return _of_branches([child for child in node.children if child.kind is not AvroKind.NULL])
    if node.kind is AvroKind.RECORD:
        fields = [{"field": name, **_source(child)} for name, child in zip(node.names, node.children, strict=True)]
        return {"type": "struct", "name": node.properties.get("connect.name", node.name), "fields": fields}
    if _is_entries(node):
        keys, values = (_source(child) for child in node.children[0].children)
        return {"type": "map", "name": MAP_ENTRIES, "keys": keys, "values": values}
    if node.kind is AvroKind.ARRAY:
        return {"type": "array", "items": _source(node.children[0])}
    if node.kind is AvroKind.MAP:
        return {"type": "map", "keys": {"type": "string"}, "values": _source(node.children[0])}
    if node.is_uuid:
        return {"type": "string"}
    if node.kind is AvroKind.BYTES and node.properties.get("logicalType") == "big-decimal":
        return {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    kind = node.properties.get("connect.type", _TYPES.get(node.kind, "string"))
    return {"type": kind, "name": _name(node), "parameters": _parameters(node)}


def _of_branches(branches: Sequence[Node]) -> SourceSchema:
    """Takes the branches of an Avro union whose values are read as one Arrow type, and returns the type of these values
    as a Kafka Connect schema. For example, a union of int and long gives `{"type": "int64"}`.
    """
    kinds = {branch.kind for branch in branches}
    if kinds == {AvroKind.RECORD}:
        return {**_of_values(branches[0]), "name": None}
    if kinds & {AvroKind.BYTES, AvroKind.FIXED}:
        return {"type": "bytes"}
    return {"type": "int64" if AvroKind.LONG in kinds else "double" if AvroKind.DOUBLE in kinds else "string"}


def _is_entries(node: Node) -> bool:
    """Returns True if an array is a map of Connect whose keys are not strings, or may be null. (Avro's own maps have
    only strings as keys.)
    """
    entry = node.children[0] if node.kind is AvroKind.ARRAY else node
    if entry is node or entry.kind is not AvroKind.RECORD or entry.names != ("key", "value"):
        return False
    return entry.name == _MAP_ENTRY or entry.properties.get("connect.internal.type") == "MapEntry"


def _name(node: Node) -> object:
    name = node.properties.get("connect.name")
    if name is not None:
        return name
    logical = str(node.properties.get("logicalType"))
    return _LOGICAL.get(logical) if node.kind in _BASE.get(logical, (AvroKind.LONG,)) else None


def _parameters(node: Node) -> Mapping[str, object]:
    declared = node.properties.get("connect.parameters")
    parameters = dict(declared) if isinstance(declared, Mapping) else {}
    if node.properties.get("logicalType") == "decimal":
        precision = node.properties.get("precision")
        if precision != _PRECISION_OF_CONNECT or _PRECISION in parameters or "scale" not in parameters:
            parameters[_PRECISION] = str(precision)
        parameters["scale"] = str(node.properties.get("scale", 0))
    return parameters
