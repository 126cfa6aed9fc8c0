"""Reads one Avro value at a time into Python values, for values that cannot be read in parallel.

The checks are the same as in `avro_columns`, so whether a record is bad does not depend on the other records. Tests
compare the result with fastavro. fastavro is not used here because a record that contains itself a few thousand times
ends the process, and because fastavro takes the index -1 of a union for its last branch.
Source: Avro 1.12 specification, binary encoding.
"""

import base64
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping

from bucketline.streaming.decode.avro.avro_schema import AvroKind, AvroSchema, Node

MOST_DEPTH = 200
"""The deepest nesting of values. Only records that contain themselves can be nested deeper than their schema."""

LEFT_OVER = "bytes remain after the value; was it written with another schema?"
_ENDS_EARLY = "the record ends too early"


class DamagedRecord(ValueError):
    """Raised for a record that cannot be read; the message says why, for people."""


def read_value(body: bytes, schema: AvroSchema) -> object:
    """Decodes one Avro record. `body` are the bytes of the record after the id of its schema. Returns the value in a
    form that `pa.array` takes with the Arrow type of the schema's root.

    Raises DamagedRecord if the bytes cannot be read, or if some bytes are left over.
    """
    reading = _Reading(body, schema.records)
    value = reading.value(schema.root, "")
    if reading.at != len(body):
        raise DamagedRecord(LEFT_OVER)
    return value


class _Reading:
    """Decodes the bytes of one Avro record (`body`). `at` is the position of the next byte to read. There is a function
    for each kind of value.
    """

    def __init__(self, body: bytes, records: Mapping[str, Node]) -> None:
        self.body = body
        self.at = 0
        self._records = records
        self._depth = 0
        self._in_text = False
        self._readers: dict[AvroKind, Callable[[Node, str], object]] = {
            AvroKind.NULL: lambda node, path: None,
            AvroKind.BOOLEAN: self._boolean,
            AvroKind.INT: self._int,
            AvroKind.LONG: lambda node, path: self._number(path),
            AvroKind.FLOAT: lambda node, path: struct.unpack("<f", self._bytes(4, path))[0],
            AvroKind.DOUBLE: lambda node, path: struct.unpack("<d", self._bytes(8, path))[0],
            AvroKind.BYTES: lambda node, path: self._bytes(self._length(path), path),
            AvroKind.STRING: self._string,
            AvroKind.FIXED: lambda node, path: self._bytes(node.size, path),
            AvroKind.ENUM: self._enum,
            AvroKind.ARRAY: self._array,
            AvroKind.MAP: self._map,
            AvroKind.UNION: self._union,
            AvroKind.RECORD: self._record,
            AvroKind.NAME: lambda node, path: self.value(self._records[node.name], path),
        }

    def value(self, node: Node, path: str) -> object:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise DamagedRecord(f"{path}the value is nested more than {MOST_DEPTH} deep")
        begins_text = node.is_text and not self._in_text
        self._in_text |= begins_text
        value = self._readers[node.kind](node, path)
        self._depth -= 1
        if not begins_text:
            return value
        self._in_text = False
        return as_text(value)

    def _bytes(self, count: int, path: str) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self.body):
            raise DamagedRecord(path + _ENDS_EARLY)
        return self.body[start : self.at]

    def _number(self, path: str) -> int:
        value = shift = 0
        while True:
            (byte,) = self._bytes(1, path)
            if shift == 63 and byte > 1:
                raise DamagedRecord(f"{path}a number has more than 64 bits")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def _length(self, path: str) -> int:
        count = self._number(path)
        if count < 0:
            raise DamagedRecord(f"{path}a length is negative")
        return count

    def _boolean(self, node: Node, path: str) -> bool:
        (byte,) = self._bytes(1, path)
        if byte > 1:
            raise DamagedRecord(f"{path}a boolean is neither 0 nor 1")
        return bool(byte)

    def _int(self, node: Node, path: str) -> int:
        number = self._number(path)
        if not -(2**31) <= number < 2**31:
            raise DamagedRecord(f"{path}an int has more than 32 bits")
        return number

    def _string(self, node: Node, path: str) -> str:
        text = self._bytes(self._length(path), path)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise DamagedRecord(f"{path}a text is not UTF-8") from None

    def _one_of(self, count: int, path: str, what: str) -> int:
        at = self._number(path)
        if not 0 <= at < count:
            raise DamagedRecord(f"{path}the {what}, and the record names one beyond them")
        return at

    def _enum(self, node: Node, path: str) -> str:
        return node.names[self._one_of(len(node.names), path, f"enum has {len(node.names)} symbols")]

    def _union(self, node: Node, path: str) -> object:
        branches = node.children
        return self.value(branches[self._one_of(len(branches), path, f"union has {len(branches)} branches")], path)

    def _record(self, node: Node, path: str) -> dict[str, object]:
        row = {}
        for name, child in zip(node.names, node.children, strict=True):
            inside = inside_of(path, name)
            if child.is_read:
                row[name] = self.value(child, inside)
            else:
                self._skip(child, inside)
        return row

    def _array(self, node: Node, path: str) -> list[object]:
        return [self.value(node.children[0], path) for _ in self._items(node, path)]

    def _map(self, node: Node, path: str) -> object:
        entries: dict[str, object] = {}
        for _ in self._items(node, path):
            name = self._string(node, path)
            entries.pop(name, None)
            entries[name] = self.value(node.children[0], path)
        return entries

    def _items(self, node: Node, path: str) -> Iterator[None]:
        """Yields None once for each item of the array or map that follows. The caller reads the item before it asks for
        the next.
        """
        fewest = node.children[0].fewest_bytes + (node.kind is AvroKind.MAP)
        while count := self._number(path):
            if count < 0:
                count = -count
                if self._length(path) > len(self.body) - self.at:
                    raise DamagedRecord(f"{path}a block is longer than the record")
            if count > (len(self.body) - self.at) // fewest:
                raise DamagedRecord(f"{path}there are more items than bytes")
            for _ in range(count):
                yield

    def _skip(self, node: Node, path: str) -> None:
        """Skips a value as `avro_columns.skip_column` does. Strings in it need not be UTF-8."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise DamagedRecord(f"{path}the value is nested more than {MOST_DEPTH} deep")
        if node.kind is AvroKind.NAME:
            self._skip(self._records[node.name], path)
        elif node.kind in (AvroKind.STRING, AvroKind.BYTES):
            self._bytes(self._length(path), path)
        elif node.kind is AvroKind.RECORD:
            for name, child in zip(node.names, node.children, strict=True):
                self._skip(child, inside_of(path, name))
        elif node.kind is AvroKind.UNION:
            branches = node.children
            self._skip(branches[self._one_of(len(branches), path, f"union has {len(branches)} branches")], path)
        elif node.kind in (AvroKind.ARRAY, AvroKind.MAP):
            for _ in self._items(node, path):
                if node.kind is AvroKind.MAP:
                    self._bytes(self._length(path), path)
                self._skip(node.children[0], path)
        else:
            self._readers[node.kind](node, path)
        self._depth -= 1


def inside_of(path: str, name: str) -> str:
    """Returns the beginning of a reason why field `name` is bad, for example `field a.b: `. `path` is the beginning of
    a reason for the record that contains the field, in the example `field a: `; it is empty for the outermost record.
    """
    return f"field {name}: " if not path else f"{path[:-2]}.{name}: "


def as_text(value: object) -> str | None:
    """Returns as a string a value that has no Arrow type of its own: a string unchanged, any other value as JSON with
    bytes in base64.
    """
    if value is None or isinstance(value, str):
        return value
    try:
        return _json(value)
    except ValueError:
        finite = _finite(value)
        return finite if isinstance(finite, str) else _json(finite)


def _json(value: object) -> str:
    """Returns a value as compact JSON. Raises ValueError for infinity and NaN, which JSON does not have."""
    return json.dumps(value, default=_json_bytes, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finite(value: object) -> object:
    """Returns the value with a string in place of NaN and of each infinity: 'NaN', 'Infinity' or '-Infinity', as Avro's
    JSON encoding writes them.
    """
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _json_bytes(value: object) -> str:
    assert isinstance(value, bytes), "Avro has no other value without JSON"
    return base64.b64encode(value).decode()
