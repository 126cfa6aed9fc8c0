"""Avro schemas for writing records, and the check whether records of another writer's schema can be read.

As in Paimon, a reader finds fields by name. The names of records, the order of fields and unknown fields do not matter.
A missing nullable field is read as null, and a missing required field is an error.

Source: Avro 1.11 specification, schema declaration; Paimon 2.0 AvroSchemaConverter, FieldReaderFactory.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import fastavro
import fastavro.schema

from bucketline.state.errors import CorruptFileError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

NAMESPACE = "org.apache.paimon.avro.generated"
"""The namespace that Paimon's Java code writes. Readers ignore it."""

MAX_SCHEMA_DEPTH = 64
MAX_SCHEMA_NODES = 4096

_PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
"""The types that a field may have by itself. Null is allowed only inside a union, because a field of type null takes no
bytes.
"""
_READ_AS = {"int": ("int", "long"), "long": ("int", "long")}
MALFORMED = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    RecursionError,
    StopIteration,
    fastavro.schema.SchemaParseException,
    fastavro.schema.UnknownType,
)
"""The errors that json and fastavro raise for malformed bytes."""


@dataclass(frozen=True, eq=False)
class AvroRecordFormat:
    """The Avro schema with which records are written, and against which the schema of a file is checked. Two formats
    are equal only if they are the same object.
    """

    schema: dict[str, Json]
    text: bytes = field(init=False)
    items: object = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", json.dumps(self.schema, separators=(",", ":")).encode())
        object.__setattr__(self, "items", fastavro.parse_schema({"type": "array", "items": self.schema}))


def nullable(name: str, kind: Json) -> dict[str, Json]:
    """Returns the schema of a nullable field. Null comes first in its union, because Paimon's Java code cannot read the
    other order.
    """
    return {"name": name, "type": ["null", kind], "default": None}


@lru_cache(maxsize=64)
def reading_schema(text: bytes, form: AvroRecordFormat) -> tuple[object, bool]:
    """Returns two values: the parsed schema of an array of the writer's records, and True if the writer's schema has
    null as an alternative to a record that is required in `form`.

    Writers up to Paimon 0.9 have such schemas, but never write a null for such a record. So if the second value is
    True, the caller must check the decoded values with `holds_records`.
    """
    try:
        schema = _Inliner().inline(json.loads(text), 0)
        may_lack = _match(schema, form.schema, "")
        return fastavro.parse_schema({"type": "array", "items": schema}), may_lack
    except MALFORMED as e:
        raise CorruptFileError(f"the schema in the Avro header does not parse: {e!r}") from e


def record_fields(items: object) -> list[tuple[str, object]]:
    """Returns the names and types of the fields of a record, in order. `items` is the parsed schema of an array of such
    records. Returns an empty list if the items are not always records.
    """
    record = items["items"] if isinstance(items, dict) else None
    return [(str(f["name"]), f["type"]) for f in _fields(record)] if isinstance(record, dict) else []


def holds_records(value: object, wanted: Json) -> bool:
    """Returns True if a decoded value has a record, and not a null, wherever the schema `wanted` requires a record."""
    if isinstance(wanted, list):
        return value is None or holds_records(value, wanted[1])
    if not isinstance(wanted, dict) or wanted["type"] not in ("record", "array"):
        return True
    if isinstance(value, list):
        return all(holds_records(v, wanted["items"]) for v in value)
    if isinstance(value, dict):
        return all(holds_records(value.get(f["name"]), f["type"]) for f in _fields(wanted))
    return False


DIGITS = "digits"
"""The key under which `inline_schema` stores the precision and scale of a decimal."""

ANNOTATION = "annotation"
"""The key under which `inline_schema` stores a logical type. fastavro does not know the key, so it returns the values
as they are stored.
"""


def inline_schema(text: bytes) -> Json:
    """Returns the Avro schema with each reference replaced by the type it refers to. Logical types are stored under the
    key `ANNOTATION`, and a map becomes an array of its entries.

    An entry is a record with the fields `key` and `value`, and has the same bytes as an entry of a map. Raises
    CorruptFileError for a schema that is not valid.
    """
    try:
        return _Inliner(annotated=True).inline(json.loads(text), 0)
    except MALFORMED as e:
        raise CorruptFileError(f"the schema in the Avro header does not parse: {e!r}") from e


class _Inliner:
    """Rewrites a schema so that it has no references, logical types, defaults, or types whose values take no bytes.

    With the result, fastavro returns timestamps as integers. A damaged schema cannot make fastavro recurse without end,
    and a damaged item count cannot make fastavro return millions of items that take no bytes.
    """

    def __init__(self, *, annotated: bool = False) -> None:
        self._names: dict[str, dict[str, Json]] = {}
        self._nodes = 0
        self._annotated = annotated

    def inline(self, schema: Json, depth: int) -> Json:
        self._nodes += 1
        if depth > MAX_SCHEMA_DEPTH or self._nodes > MAX_SCHEMA_NODES:
            raise CorruptFileError(f"the Avro schema is recursive, or larger than {MAX_SCHEMA_NODES} nodes")
        if isinstance(schema, list):
            return [b if b == "null" else self.inline(b, depth + 1) for b in schema]
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema
            if schema in self._names:
                return self.inline(self._names[schema], depth + 1)
        if not isinstance(schema, dict):
            raise CorruptFileError(f"{schema!r} is no Avro type")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)) or kind in _PRIMITIVES:
            plain = self.inline(kind, depth + 1)
            return self._annotate({"type": plain}, schema) if isinstance(plain, str) else plain
        if kind == "array":
            return self._annotate({"type": kind, "items": self.inline(schema.get("items"), depth + 1)}, schema)
        if kind == "map":
            return self._inline_map(self.inline(schema.get("values"), depth + 1))
        return self._inline_named(schema, depth)

    def _annotate(self, plain: dict[str, Json], schema: dict[str, Json]) -> Json:
        if self._annotated:
            digits = [schema.get("precision"), schema.get("scale", 0)]
            return plain | {ANNOTATION: schema.get("logicalType"), DIGITS: digits}
        return plain if "items" in plain else plain["type"]

    def _inline_map(self, values: Json) -> Json:
        if not self._annotated:
            return {"type": "map", "values": values}
        entry: list[Json] = [{"name": "key", "type": "string"}, {"name": "value", "type": values}]
        self._nodes += 1
        record: Json = {"type": "record", "name": f"r{self._nodes}", "fields": entry}
        return {"type": "array", "items": record, ANNOTATION: "map"}

    def _inline_named(self, schema: dict[str, Json], depth: int) -> Json:
        name, space = schema.get("name"), schema.get("namespace")
        if not isinstance(name, str):
            raise CorruptFileError(f"{schema.get('type')!r} is no Avro type")
        for alias in (name, name.rpartition(".")[2], f"{space}.{name}"):
            self._names[alias] = schema
        plain: dict[str, Json] = {"type": schema["type"], "name": f"r{self._nodes}"}
        match schema["type"]:
            case "record":
                plain["fields"] = [
                    {"name": f["name"], "type": self.inline(f["type"], depth + 1)} for f in _fields(schema)
                ]
            case "enum":
                plain["symbols"] = schema["symbols"]
            case "fixed" if isinstance(schema["size"], int) and schema["size"] > 0:
                plain["size"] = schema["size"]
            case kind:
                raise CorruptFileError(f"{kind!r} is no Avro type")
        return plain


def _match(stored: Json, wanted: Json, path: str) -> bool:
    """Returns True if the schema `stored` has null as an alternative to a record that is required in `wanted`.

    Raises CorruptFileError if the schemas differ in another way, so that a value of `stored` cannot be read as a value
    of `wanted`. `path` names the field for errors.
    """
    if isinstance(wanted, list):
        branches = stored if isinstance(stored, list) else [stored]
        return any([_match(branch, wanted[1], path) for branch in branches if branch != "null"])
    is_record = isinstance(wanted, dict) and wanted["type"] == "record"
    if is_record and isinstance(stored, list) and len(stored) == 2 and "null" in stored:
        _match(stored[0] if stored[1] == "null" else stored[1], wanted, path)
        return True
    kind = stored.get("type") if isinstance(stored, dict) else stored
    wanted_kind = wanted.get("type") if isinstance(wanted, dict) else wanted
    assert isinstance(wanted_kind, str)
    if not isinstance(kind, str) or kind not in _READ_AS.get(wanted_kind, (wanted_kind,)):
        raise CorruptFileError(f"{path or 'the record'} has the Avro type {kind!r}, not {wanted_kind}", field=path)
    if isinstance(stored, dict) and isinstance(wanted, dict):
        if kind == "array":
            return _match(stored["items"], wanted["items"], path)
        if kind == "record":
            return _match_fields(stored, wanted, path)
    return False


def _match_fields(stored: dict[str, Json], wanted: dict[str, Json], path: str) -> bool:
    have = {f["name"]: f["type"] for f in _fields(stored)}
    may_lack = False
    for want in _fields(wanted):
        inner = f"{path}.{want['name']}".lstrip(".")
        if want["name"] in have:
            may_lack |= _match(have[want["name"]], want["type"], inner)
        elif not isinstance(want["type"], list):
            raise CorruptFileError(f"the Avro schema has no field {inner}", field=inner)
    return may_lack


def _fields(record: dict[str, Json]) -> list[dict[str, Any]]:
    fields = record.get("fields")
    if not isinstance(fields, list) or not fields:
        raise CorruptFileError("a record in the Avro schema is without fields")
    if not all(isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields):
        raise CorruptFileError("a field in the Avro schema has no name or no type")
    return [f for f in fields if isinstance(f, dict)]
