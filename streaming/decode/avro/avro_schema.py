"""An Avro schema as a tree of nodes, each with the Arrow type of its values in the bytes.

Logical types change nothing here, except for UUIDs of 16 bytes, whose Arrow type distinguishes them from other bytes: a
date is the int that was written, a decimal its bytes. `Node.properties` keeps what the schema says about a value in
addition to its type (`logicalType`, `precision`, `connect.name`, ...).

A union of unlike types, and a record that contains itself, have no Arrow type of their own. The values of both are read
as strings: a string unchanged, anything else as JSON with bytes in base64.
Source: Avro 1.12 specification, schema declaration; fastavro checks the schema and resolves its names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from bucketline.conf.wording import counted
from bucketline.state.errors import SchemaMismatchError


class AvroKind(Enum):
    """How a value is written in the bytes."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    RECORD = "record"
    NAME = "name"  # a record that contains this node


_PLAIN = {
    AvroKind.NULL: pa.null(),
    AvroKind.BOOLEAN: pa.bool_(),
    AvroKind.INT: pa.int32(),
    AvroKind.LONG: pa.int64(),
    AvroKind.FLOAT: pa.float32(),
    AvroKind.DOUBLE: pa.float64(),
    AvroKind.BYTES: pa.binary(),
    AvroKind.STRING: pa.string(),
    AvroKind.FIXED: pa.binary(),
    AvroKind.ENUM: pa.string(),
    AvroKind.NAME: pa.string(),
}
UUID_BYTES = pa.binary(16)
"""The Arrow type of UUIDs in bytes."""
_LOGICAL, _UNJUDGED_LOGICAL = "logicalType", "bucketline.logicalType"
_TYPES_INSIDE = frozenset({"type", "fields", "items", "values"})
_WIDER = ((AvroKind.INT, AvroKind.LONG), (AvroKind.FLOAT, AvroKind.DOUBLE))
_MOST_NODES, _MOST_DEPTH, _MOST_BYTES = 20_000, 100, 2**31
_STRUCTURE = frozenset(
    {"type", "name", "namespace", "aliases", "fields", "symbols", "items", "values", "size", "doc", "order"}
)


@dataclass(frozen=True, slots=True)
class Node:
    """A type in a schema.

    `children` are the fields of a record, the branches of a union, or the type of the items of an array or of the
    values of a map. `names` are the names of the fields, or an enum's symbols. `size` is the number of bytes of a value
    of Avro's type fixed. `is_read` is false for a field that the caller does not need. `is_text` is true if the values
    are read as strings. `fewest_bytes` is the size of the shortest value.
    """

    kind: AvroKind
    name: str = ""
    children: tuple["Node", ...] = ()
    names: tuple[str, ...] = ()
    size: int = 0
    is_read: bool = True
    properties: Mapping[str, object] = field(default_factory=dict, compare=False)
    fewest_bytes: int = 1
    is_text: bool = False

    @property
    def read_fields(self) -> tuple[tuple[str, "Node"], ...]:
        """The fields of a record that the caller needs."""
        return tuple((name, child) for name, child in zip(self.names, self.children, strict=True) if child.is_read)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values; all of its parts are nullable."""
        if self.is_text:
            return pa.string()
        if self.kind is AvroKind.RECORD:
            return pa.struct([(name, child.arrow) for name, child in self.read_fields])
        if self.kind is AvroKind.ARRAY:
            return pa.list_(self.children[0].arrow)
        if self.kind is AvroKind.MAP:
            return pa.map_(pa.string(), self.children[0].arrow)
        if self.kind is AvroKind.UNION:
            types = [child.arrow for child in self.children if child.kind is not AvroKind.NULL]
            return types[-1] if len(set(types)) == 1 else _widest(self.children) if types else pa.null()
        return UUID_BYTES if self.is_uuid else _PLAIN[self.kind]

    @property
    def is_uuid(self) -> bool:
        """True if the values are the 16 bytes of UUIDs."""
        return (
            self.kind is AvroKind.FIXED
            and self.size == UUID_BYTES.byte_width
            and self.properties.get(_LOGICAL) == "uuid"
        )

    @property
    def is_parallel(self) -> bool:
        """True if many values can be read in parallel (`avro_columns`)."""
        return not self.is_text and all(child.is_parallel for child in self.children)


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema: the type of the whole value (`root`), and the records that contain themselves, by full name."""

    root: Node
    records: Mapping[str, Node]


def parse_avro_schema(schema: object, references: Iterable[object] = ()) -> AvroSchema:
    """Returns the schema in parsed JSON. `references` are the other schemas whose types this schema uses. If a
    reference itself uses types of another reference, that other reference comes first.

    Raises SchemaMismatchError for JSON that is not an Avro schema, that has more than 20,000 types with all names
    resolved, or that nests types more than 100 deep.
    """
    named: dict[str, object] = {}
    try:
        for reference in references:
            fastavro.parse_schema(_bare(reference), named_schemas=named)
        parsed = fastavro.parse_schema(_bare(schema), named_schemas=named)
        building = _Building(named)
        root = building.node(parsed)
    except UnknownType as e:
        raise _no_schema(f"it names a type that it does not define: {e.name}") from e
    except (SchemaParseException, KeyError, ValueError, TypeError, AttributeError, RecursionError) as e:
        raise _no_schema(str(e) or type(e).__name__) from e
    return AvroSchema(root, MappingProxyType(building.recursive))


def only_fields(schema: AvroSchema, wanted: Mapping[str, object]) -> AvroSchema:
    """Returns the schema that reads only some fields of its record.

    `wanted` maps the names of fields to the wanted fields of their own records; an empty value means the whole field.
    Other fields are skipped in the bytes, and checked only as far as skipping needs it.
    """
    return replace(schema, root=_only(schema.root, wanted))


def _only(node: Node, wanted: Mapping[str, object]) -> Node:
    if not wanted or node.is_text:
        return node
    if node.kind is AvroKind.UNION:
        return replace(node, children=tuple(_only(child, wanted) for child in node.children))
    if node.kind is not AvroKind.RECORD:
        return node
    children = []
    for name, child in zip(node.names, node.children, strict=True):
        inner = wanted.get(name)
        kept = _only(child, inner) if isinstance(inner, Mapping) else child
        children.append(kept if name in wanted else replace(child, is_read=False))
    return replace(node, children=tuple(children))


def _bare(schema: object) -> object:
    """Returns the schema without defaults, and with logical types under another key, so that fastavro does not check
    them.

    Defaults and logical types change no byte of a record. In practice they are sometimes wrong, such as a default of
    another type, or a decimal with a negative scale.
    """
    if isinstance(schema, Mapping):
        return {
            (_UNJUDGED_LOGICAL if key == _LOGICAL else key): _bare(value) if key in _TYPES_INSIDE else value
            for key, value in schema.items()
            if key != "default" and not key.startswith("__")
        }
    return [_bare(one) for one in schema] if isinstance(schema, list) else schema


def _no_schema(why: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"not an Avro schema: {why}")


class _Building:
    """Builds the nodes (types) of one schema. Each named type becomes a node only once. If a record contains a field of
    its own type, this inner field has only the name of the type, so that building ends.
    """

    def __init__(self, named: Mapping[str, object]) -> None:
        self.named = named
        self.recursive: dict[str, Node] = {}
        self._ready: dict[str, Node] = {}
        self._sizes: dict[str, int] = {}
        self._open: list[str] = []
        self._again: set[str] = set()
        self._nodes = 0
        self._depth = 0

    def node(self, schema: object) -> Node:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ValueError(f"its types are nested more than {_MOST_DEPTH} deep")
        node = self._node(schema)
        self._depth -= 1
        return node

    def _node(self, schema: object) -> Node:
        if isinstance(schema, str):
            return self._of_name(schema)
        if isinstance(schema, Sequence):
            return self._union([self.node(branch) for branch in schema])
        assert isinstance(schema, Mapping), "fastavro has checked the schema"
        kind = schema["type"]
        properties = _properties(schema)
        if kind in ("record", "error", "enum", "fixed"):
            return replace(self._named(str(schema["name"])), properties=properties)
        self._count(1)
        if kind == "array":
            return self._of_items(AvroKind.ARRAY, schema["items"], properties)
        if kind == "map":
            return self._of_items(AvroKind.MAP, schema["values"], properties)
        return replace(self.node(kind), properties=properties)

    def _of_name(self, name: str) -> Node:
        if name in self.named:
            return self._named(name)
        self._count(1)
        kind = AvroKind(name)
        return Node(kind, fewest_bytes={AvroKind.NULL: 0, AvroKind.FLOAT: 4, AvroKind.DOUBLE: 8}.get(kind, 1))

    def _of_items(self, kind: AvroKind, items: object, properties: Mapping[str, object]) -> Node:
        child = self.node(items)
        if kind is AvroKind.ARRAY and child.fewest_bytes == 0:
            raise ValueError("the items of an array take no bytes, so that a few bytes could mean any number of items")
        return Node(kind, children=(child,), properties=properties, is_text=False)

    def _union(self, branches: list[Node]) -> Node:
        types = {branch.arrow for branch in branches if branch.kind is not AvroKind.NULL}
        is_text = len(types) > 1 and _widest(branches) == pa.string()
        is_text |= any(branch.kind is AvroKind.NAME for branch in branches)
        return Node(AvroKind.UNION, children=tuple(branches), is_text=is_text)

    def _named(self, name: str) -> Node:
        if name in self._open:
            self._again.add(name)
            self._count(1)
            return Node(AvroKind.NAME, name=name, is_text=True)
        if name in self._ready:
            self._count(self._sizes[name])
            return self._ready[name]
        before = self._nodes
        self._open.append(name)
        node = self._define(name)
        self._open.pop()
        if name in self._again:
            self.recursive[name] = node
        if not (self._again & set(self._open)):
            self._ready[name], self._sizes[name] = node, self._nodes - before
        return node

    def _define(self, name: str) -> Node:
        schema = self.named[name]
        assert isinstance(schema, Mapping)
        self._count(1)
        if schema["type"] == "enum":
            return Node(AvroKind.ENUM, name=name, names=tuple(schema["symbols"]))
        if schema["type"] == "fixed":
            size = int(schema["size"])
            if not 0 <= size < _MOST_BYTES:
                raise ValueError(f"the fixed type {name} has {counted(size, 'byte')}")
            return Node(AvroKind.FIXED, name=name, size=size, fewest_bytes=size)
        fields = list(schema["fields"])
        children = tuple(_with_field(self.node(f["type"]), f) for f in fields)
        names = tuple(str(f["name"]) for f in fields)
        if len(set(names)) < len(names):
            raise ValueError(f"the record {name} has two fields of the same name")
        fewest = sum(child.fewest_bytes for child in children)
        return Node(AvroKind.RECORD, name=name, children=children, names=names, fewest_bytes=fewest)

    def _count(self, more: int) -> None:
        self._nodes += more
        if self._nodes > _MOST_NODES:
            raise ValueError(f"it has more than {_MOST_NODES} types")


def _properties(declared: Mapping[str, object]) -> dict[str, object]:
    """Returns the additional properties of a type or a field in an Avro schema, such as `logicalType`. Left out are
    keys of Avro's own structure, such as `type`, and the keys that fastavro adds (they begin with `__`).
    """
    return {
        (_LOGICAL if key == _UNJUDGED_LOGICAL else key): value
        for key, value in declared.items()
        if key not in _STRUCTURE and key[:2] != "__"
    }


def _with_field(node: Node, declared: Mapping[str, object]) -> Node:
    """Takes the node (the parsed type) of a field and the declaration of the field. Some writers put a type's
    properties next to the field's name. Returns the node with these properties; the properties of the type itself take
    precedence.
    """
    others = _properties(declared)
    return replace(node, properties={**others, **node.properties}) if others else node


def _widest(branches: Sequence[Node]) -> pa.DataType:
    """Returns the type that holds the values of all branches; string if no other type holds them exactly."""
    kinds = {branch.kind for branch in branches} - {AvroKind.NULL}
    for narrow, wide in _WIDER:
        if kinds <= {narrow, wide} and not any(branch.is_text for branch in branches):
            return _PLAIN[wide]
    return pa.string()
