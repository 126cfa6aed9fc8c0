"""Drawn Avro schemas and values of them, for tests."""

import io
import json
from collections.abc import Mapping, Sequence
from random import Random

import fastavro

_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NUMBERS = (0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31))
_LONGS = (*_NUMBERS, 2**31, 2**62, 2**63 - 1, -(2**63))


def drawn_schema(random: Random, depth: int = 3) -> dict[str, object]:
    """The schema of a record; every name in it is used once."""
    names = iter(f"n{i}" for i in range(10_000))
    return _record(random, depth, names)


def _record(random, depth, names):
    fields = [{"name": f"f{i}", "type": _type(random, depth - 1, names)} for i in range(random.randrange(1, 6))]
    return {"type": "record", "name": next(names), "fields": fields}


def _type(random, depth, names):
    if depth <= 0 or random.random() < 0.4:
        return random.choice(_PLAIN)
    form = random.choice(("record", "array", "map", "optional", "optional", "enum", "fixed", "numbers", "logical"))
    if form == "record":
        return _record(random, depth, names)
    if form == "array":
        item = _type(random, depth - 1, names)
        return {"type": "array", "items": "int" if item == "null" else _with_bytes(item)}
    if form == "map":
        return {"type": "map", "values": _type(random, depth - 1, names)}
    if form == "optional":
        inner = _type(random, depth - 1, names)
        inner = "string" if inner == "null" or isinstance(inner, list) else inner
        return random.choice((["null", inner], [inner, "null"]))
    if form == "enum":
        return {"type": "enum", "name": next(names), "symbols": ["A", "B", "C"][: random.randrange(1, 4)]}
    if form == "fixed":
        return {"type": "fixed", "name": next(names), "size": random.randrange(1, 20)}
    if form == "numbers":
        return random.choice((["null", "int", "long"], ["float", "double"], ["long", "null", "int"]))
    return {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


def _with_bytes(item):
    """An item that takes a byte at least: a record of nulls alone takes none."""
    if isinstance(item, dict) and item["type"] == "record":
        return {**item, "fields": [*item["fields"], {"name": "last", "type": "int"}]}
    return item


def odd_schema(random: Random) -> dict[str, object]:
    """As `drawn_schema`, with what has no Arrow type of its own: records inside themselves, and unions of unlike types.
    Types are named again, too.
    """
    schema = drawn_schema(random)
    _make_odd(random, schema, [])
    return schema


def _make_odd(random, schema, known):
    if isinstance(schema, list):
        for branch in schema:
            _make_odd(random, branch, known)
    if not isinstance(schema, dict):
        return
    if "name" in schema:
        known.append(schema["name"])
    for part in ("items", "values"):
        _make_odd(random, schema.get(part), known)
    for field in schema.get("fields", ()):
        if random.random() < 0.3:
            unlike = random.sample(["null", "string", "long", "bytes", "double", {"type": "map", "values": "float"}], 3)
            field["type"] = random.choice((["null", random.choice(known)], unlike))
        else:
            _make_odd(random, field["type"], known)


def _named(schema: object, known: dict[str, object]) -> dict[str, object]:
    """The types that a schema defines, by name."""
    parts = schema if isinstance(schema, list) else list(schema.values()) if isinstance(schema, dict) else []
    if isinstance(schema, dict) and schema.get("type") in ("record", "enum", "fixed"):
        known[schema["name"]] = schema
    for part in parts:
        _named(part, known)
    return known


def drawn_value(random: Random, schema: object, known: Mapping[str, object] | None = None) -> object:
    """A value of the schema, for `body_of`. `known` are the types that its names stand for."""
    known = _named(schema, {}) if known is None else known
    if isinstance(schema, list):
        branch = random.choice(schema)
        is_named = isinstance(branch, str) and branch in known
        return None if is_named and random.random() < 0.7 else drawn_value(random, branch, known)
    if isinstance(schema, str) and schema in known:
        return drawn_value(random, known[schema], known)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {f["name"]: drawn_value(random, f["type"], known) for f in schema["fields"]}
    if kind == "array":
        return [drawn_value(random, schema["items"], known) for _ in range(_size(random))]
    if kind == "map":
        return {f"k{random.randrange(9)}": drawn_value(random, schema["values"], known) for _ in range(_size(random))}
    if kind == "enum":
        return random.choice(schema["symbols"])
    if kind == "fixed":
        return random.randbytes(schema["size"])
    return {
        "null": lambda: None,
        "boolean": lambda: random.random() < 0.5,
        "int": lambda: random.choice(_NUMBERS),
        "long": lambda: random.choice(_LONGS),
        "float": lambda: random.choice((0.0, -0.0, 1.5, -2.25, float("inf"))),
        "double": lambda: random.choice((0.0, 1e300, -1e-300, 0.1, float("-inf"))),
        "bytes": lambda: random.randbytes(random.randrange(9)),
        "string": lambda: random.choice(("", "a", "grün", "x" * 70, "😀")),
    }[kind]()


def _size(random):
    return random.choice((0, 0, 1, 2, 3, 100 if random.random() < 0.05 else 4))


def body_of(schema: object, value: object) -> bytes:
    """The bytes that fastavro writes. Values with a logical type are those of the type below it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, without_logical_types(schema), value)
    return out.getvalue()


def bodies_of(random: Random, schema: object, count: int) -> list[bytes]:
    plain = fastavro.parse_schema(without_logical_types(schema))
    known = _named(schema, {})
    return [body_of(plain, drawn_value(random, schema, known)) for _ in range(count)]


def read_by_fastavro(schema: object, bodies: Sequence[bytes]) -> list[object]:
    plain = fastavro.parse_schema(without_logical_types(schema))
    return [fastavro.schemaless_reader(io.BytesIO(body), plain) for body in bodies]


def without_logical_types(schema: object) -> object:
    """The schema with the types that the bytes have."""
    kept = json.loads(json.dumps(schema))
    return _stripped(kept)


def _stripped(schema):
    if isinstance(schema, list):
        return [_stripped(branch) for branch in schema]
    if isinstance(schema, dict):
        return {
            k: _stripped(v) if k in ("type", "items", "values", "fields") else v
            for k, v in schema.items()
            if k not in ("logicalType", "precision", "scale")
        }
    return schema
