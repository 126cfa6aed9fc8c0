"""Reads and writes the records of manifests, manifest lists and index manifests in Avro, Parquet or ORC.

The table option `manifest.format` says which format is written; Avro is the default. A reader recognizes the format by
the first bytes of the file. Metadata is small, so records are Python dicts.
Source: Paimon 2.0 ObjectsFile, `manifest.format`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from bucketline.conf.table.choices import FileFormat
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.container import (
    DEFAULT_CODEC,
    Record,
    RecordBlock,
    encode_records,
    iterate_records,
    record_blocks,
)
from bucketline.state.format.avro.schema import AvroRecordFormat, Json


@dataclass(frozen=True, slots=True)
class Encoding:
    """How metadata files are written: their format, and the compression codec, by the name that the library for this
    format uses.
    """

    form: FileFormat = FileFormat.AVRO
    codec: str = DEFAULT_CODEC


AVRO = Encoding()

_EPOCH = datetime(1970, 1, 1)
_MILLI = timedelta(milliseconds=1)
_READERS: Mapping[bytes, Callable[[pa.NativeFile], pa.Table]] = {
    b"PAR1": lambda source: pq.read_table(source, page_checksum_verification=True),
    b"ORC": lambda source: orc.ORCFile(source).read(),
}
_ARROW: Mapping[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_BYTES = ("_KIND", "_FILE_SOURCE")
"""The fields that have the type TINYINT in Paimon. Avro has no such type."""
_TYPES: Mapping[str, type] = {"int": int, "long": int, "bytes": bytes, "string": str}
_UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError)


def read_records(data: bytes, form: AvroRecordFormat) -> Iterable[Record]:
    """Returns the records of a file as dicts, as `avro.iterate_records` does. Raises CorruptFileError if the file is
    damaged, either at once or while the caller iterates.
    """
    read = next((read for magic, read in _READERS.items() if data.startswith(magic)), None)
    if read is None:
        return iterate_records(data, form)
    try:
        table = read(pa.BufferReader(data))
        schema = pa.schema([f.with_type(_in_millis(f.type)) for f in table.schema])
        rows = table.cast(schema).to_pylist()
    except _UNREADABLE as e:
        raise CorruptFileError(f"the records cannot be read: {e!r}", offset=0) from e
    return [_record(row, form.schema, f"record {i}") for i, row in enumerate(rows)]


def avro_blocks(data: bytes, form: AvroRecordFormat) -> Iterator[RecordBlock] | None:
    """Returns the blocks of an Avro file whose records have the format `form`; None for a Parquet or ORC file. If the
    file is damaged, CorruptFileError is raised while the caller iterates.
    """
    return None if data.startswith(tuple(_READERS)) else record_blocks(data, form)


def write_records(records: Sequence[Record], form: AvroRecordFormat, encoding: Encoding) -> bytes:
    """Returns the bytes of a file with these records. In Parquet and ORC, the columns have the names of the Avro
    fields.
    """
    if encoding.form is FileFormat.AVRO:
        return encode_records(records, form, encoding.codec)
    table = pa.Table.from_pylist(list(records), schema=pa.schema(_arrow_fields(form.schema)))
    sink = pa.BufferOutputStream()
    if encoding.form is FileFormat.PARQUET:
        pq.write_table(table, sink, compression=encoding.codec, write_page_checksum=True, coerce_timestamps="ms")
    else:
        orc.write_table(table, sink, compression=encoding.codec)
    return bytes(sink.getvalue())


def _arrow_fields(schema: Mapping[str, Json]) -> list[pa.Field]:
    fields = schema["fields"]
    assert isinstance(fields, list)
    return [_arrow_field(str(field["name"]), field["type"]) for field in fields if isinstance(field, dict)]


def _arrow_field(name: str, kind: Json) -> pa.Field:
    is_nullable = isinstance(kind, list)
    if isinstance(kind, list):
        kind = next(k for k in kind if k != "null")
    if isinstance(kind, dict) and kind["type"] == "record":
        found = pa.struct(_arrow_fields(kind))
    elif isinstance(kind, dict) and kind["type"] == "array":
        found = pa.list_(_arrow_field("element", kind["items"]))
    elif isinstance(kind, dict) and kind.get("logicalType") == "timestamp-millis":
        found = pa.timestamp("ms")
    elif name in _BYTES:
        found = pa.int8()
    else:
        found = _ARROW[str(kind["type"] if isinstance(kind, dict) else kind)]
    return pa.field(name, found, nullable=is_nullable)


def _in_millis(data_type: pa.DataType) -> pa.DataType:
    """Returns the type with all timestamps in milliseconds, because Python's datetime has no nanoseconds."""
    if pa.types.is_timestamp(data_type):
        return pa.timestamp("ms")
    if pa.types.is_struct(data_type):
        return pa.struct([f.with_type(_in_millis(f.type)) for f in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_in_millis(data_type.value_type)))
    return data_type


def _record(row: object, schema: Mapping[str, Json], place: str) -> Record:
    """Returns the fields of a row that are in the schema. A nullable field of the schema may be missing in the row.
    `place` names the record in errors.
    """
    fields = schema["fields"]
    if not isinstance(row, dict) or not isinstance(fields, list):
        raise CorruptFileError(f"{place} is null where a record is required", offset=0)
    kept: Record = {}
    for field in fields:
        assert isinstance(field, dict)
        name = str(field["name"])
        kept[name] = _value(row.get(name), field["type"], f"{place}, {name}")
    return kept


def _value(value: object, kind: Json, place: str) -> object:
    if isinstance(kind, list):
        if value is None:
            return None
        kind = next(k for k in kind if k != "null")
    if isinstance(kind, dict) and kind["type"] == "record":
        return _record(value, kind, place)
    if isinstance(kind, dict) and kind["type"] == "array" and isinstance(value, list):
        return [_value(item, kind["items"], place) for item in value]
    if isinstance(value, datetime):
        value = (value - _EPOCH) // _MILLI
    wanted = _TYPES.get(str(kind["type"] if isinstance(kind, dict) else kind))
    if wanted is None or type(value) is not wanted:
        raise CorruptFileError(f"{place} has the type {type(value).__name__}, not {kind}", offset=0)
    return value
