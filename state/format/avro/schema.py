"""Avro schemas: the one for writing records, and which others can be read.

A reader resolves by field name, as Paimon's does: record names, field order and unknown fields do not matter, a missing
nullable field is null, a missing required one is an error.

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
"""The namespace Java writes; readers do not look at it."""

MAX_SCHEMA_DEPTH = 64
MAX_SCHEMA_NODES = 4096

_PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
"""Types a value may have by itself; null is one only inside a union, since by itself it takes no bytes."""
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
"""What json and fastavro raise for bytes that are not what they should be."""


@dataclass(frozen=True, eq=False)
class AvroRecordFormat:
    """The Avro schema for writing records, and for checking those that are read; compared by identity."""

    schema: dict[str, Json]
    text: bytes = field(init=False)
    items: object = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", json.dumps(self.schema, separators=(",", ":")).encode())
        object.__setattr__(self, "items", fastavro.parse_schema({"type": "array", "items": self.schema}))


def nullable(name: str, kind: Json) -> dict[str, Json]:
    """Returns a nullable field. Null comes first in the union: Java cannot read it in the other order."""
    return {"name": name, "type": ["null", kind], "default": None}


@lru_cache(maxsize=64)
def reading_schema(text: bytes, form: AvroRecordFormat) -> tuple[object, bool]:
    """Returns the parsed schema of an array of the writer's records, and whether it makes records nullable that are
    required in `form`.

    Writers up to Paimon 0.9 make them nullable, but never write a null there. So the caller checks with `holds_records`
    what it has read.
    """
    try:
        schema = _Inliner().inline(json.loads(text), 0)
        may_lack = _match(schema, form.schema, "")
        return fastavro.parse_schema({"type": "array", "items": schema}), may_lack
    except MALFORMED as e:
        raise CorruptFileError(f"the schema in the Avro header does not parse: {e!r}") from e


def holds_records(value: object, wanted: Json) -> bool:
    """Whether a decoded value has no null in the place of a record that the schema `wanted` requires."""
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
"""Where `inline_schema` puts precision and scale."""

ANNOTATION = "annotation"
"""Where `inline_schema` puts a logical type: fastavro does not look there, and so returns what is stored."""


def inline_schema(text: bytes) -> Json:
    """Returns the schema without references; logical types are under `ANNOTATION`, a map is an array of its entries.

    An entry is a record of `key` and `value`, which has the same bytes. Raises CorruptFileError.
    """
    try:
        return _Inliner(annotated=True).inline(json.loads(text), 0)
    except MALFORMED as e:
        raise CorruptFileError(f"the schema in the Avro header does not parse: {e!r}") from e


class _Inliner:
    """Turns a schema into one without references, logical types, defaults or values that take no bytes.

    fastavro then returns plain longs. A damaged schema cannot make it recurse without end, and a damaged number of
    items cannot make it return millions of items that take no bytes.
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
    """Whether the schema `stored` makes records nullable that `wanted` does not.

    Raises CorruptFileError unless every other value of `stored` can be used where `wanted` is expected.
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
        raise CorruptFileError("an Avro record without fields")
    if not all(isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields):
        raise CorruptFileError("a field of an Avro record has no name or no type")
    return [f for f in fields if isinstance(f, dict)]
