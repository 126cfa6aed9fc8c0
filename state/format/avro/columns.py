"""Reads Avro data files as Arrow columns, one block at a time. Columns have the types that the file stores; the caller
converts them to the types of the table.

fastavro decodes a block into records, and Arrow builds columns from the records; both are compiled code. No Python code
looks at single rows. Values stay as they are stored: a decimal as bytes, a timestamp as an integer in the unit that the
Avro schema names. Source: Avro 1.11 specification; Paimon 2.0 AvroSchemaConverter (a map whose keys are not strings is
stored as an array of entries).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO

import fastavro
import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.format.avro.container import BlockReader, encode_varint
from bucketline.state.format.avro.schema import ANNOTATION, DIGITS, MALFORMED, NAMESPACE, Json, inline_schema

_MOST_DIGITS = 38
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_ANNOTATED = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    # Paimon has swapped `timestamp-*` and `local-timestamp-*`, so the name does not say whether there is a time zone.
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


@dataclass(frozen=True, slots=True)
class _Layout:
    """The schema of a file in two forms: `items` is fastavro's parsed schema of an array of the file's records, and
    `record` is the Arrow type of one record as it is stored.
    """

    items: object
    record: pa.DataType
    declared: Mapping[str, pa.DataType]
    """The Arrow types that the annotations of the Avro schema give to the columns. It is empty if no Paimon writer made
    the file.
    """


class AvroColumns:
    """Reads the columns of an Avro container from front to back. `read(n)` returns the next n bytes, and `size` is the
    length of the container in bytes.
    """

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self._blocks = BlockReader(read, size)
        self._layout = _layout(self._blocks.schema_text)

    @property
    def names(self) -> list[str]:
        """Returns the names of the record's fields."""
        return [f.name for f in self._layout.record]

    @property
    def declared(self) -> dict[str, pa.DataType]:
        """Returns the Arrow types that the annotations of the Avro schema give to the columns; empty if no Paimon
        writer made the file.
        """
        return dict(self._layout.declared)

    @property
    def offset(self) -> int:
        """Returns the position, in bytes, of the start of the block that is being read."""
        return self._blocks.offset

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the named columns, one batch for each block. Names that the file does not have are left out.

        Raises CorruptFileError, which names the offset of the block, if a block is damaged.
        """
        wanted = pa.struct([f for f in self._layout.record if f.name in columns])
        for block in self._blocks:
            try:
                source = BytesIO(encode_varint(block.count) + block.body + b"\0")
                records = fastavro.schemaless_reader(source, self._layout.items)
                if len(records) != block.count or None in records or source.tell() != len(source.getbuffer()):
                    raise ValueError(f"the block does not hold exactly {counted(block.count, 'record')}, as it says")
                structs = pa.array(records, wanted)
            except (*MALFORMED, pa.ArrowException) as e:
                raise CorruptFileError(
                    f"the block at offset {block.offset} holds no valid Avro records: {e!r}", offset=block.offset
                ) from e
            yield pa.RecordBatch.from_struct_array(structs)


@lru_cache(maxsize=64)
def _layout(text: bytes) -> _Layout:
    schema = inline_schema(text)
    record = _arrow_of(schema, "the record")
    if not pa.types.is_struct(record):
        raise CorruptFileError("the Avro schema is not that of a record")
    try:
        declared: dict[str, pa.DataType] = {}
        if f'"{NAMESPACE}"'.encode() in text:
            declared = {f.name: f.type for f in _arrow_of(schema, "the record", has_decimals=True)}
        return _Layout(fastavro.parse_schema({"type": "array", "items": schema}), record, declared)
    except MALFORMED as e:
        raise CorruptFileError(f"the schema in the Avro header cannot be parsed: {e!r}") from e


def _arrow_of(schema: Json, path: str, *, has_decimals: bool = False) -> pa.DataType:
    """Returns the Arrow type of values as they are stored. Decimals are stored as bytes; if `has_decimals` is true,
    decimals get a decimal type instead.
    """
    if isinstance(schema, list):
        branches = [b for b in schema if b != "null"]
        if len(branches) != 1:
            raise UnsupportedTableError(f"{path} is an Avro union of several types", field=path)
        return _arrow_of(branches[0], path, has_decimals=has_decimals)
    if isinstance(schema, str):
        return _PLAIN[schema]
    assert isinstance(schema, dict)
    kind, annotation = str(schema["type"]), schema.get(ANNOTATION)
    if kind == "record":
        fields = schema["fields"]
        assert isinstance(fields, list)
        inner = [(str(f["name"]), f["type"]) for f in map(_as_dict, fields)]
        return pa.struct([pa.field(n, _arrow_of(t, n, has_decimals=has_decimals)) for n, t in inner])
    if kind == "array":
        items = _arrow_of(schema["items"], path, has_decimals=has_decimals)
        is_entry = pa.types.is_struct(items) and [f.name for f in items] == ["key", "value"]
        return pa.map_(items[0].type, items[1].type) if annotation == "map" and is_entry else pa.list_(items)
    if kind == "fixed":
        return pa.binary(int(str(schema["size"])))
    if kind == "enum":
        return pa.string()
    if has_decimals and annotation == "decimal":
        return _decimal(schema[DIGITS])
    return _ANNOTATED.get((kind, str(annotation)), _PLAIN[kind])


def _decimal(digits: Json) -> pa.DataType:
    match digits:
        case [int(precision), int(scale)] if 1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    return pa.binary()


def _as_dict(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value
