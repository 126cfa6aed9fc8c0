"""Finds the source table of each record before its row is read, so that records of other tables are left out."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import MessageOptions
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.avro.avro_reader import AvroReader
from bucketline.streaming.decode.flat_records import FLAT_PARTS
from bucketline.streaming.decode.json_values.json_blocks import read_objects
from bucketline.streaming.decode.json_values.json_shape import SOURCE_PARTS, Shape, row_shape
from bucketline.streaming.decode.row_changes import as_binary, has_text, true_of

BINLOG_PARTS = ("database", "table")
"""The fields of a message of Canal or Maxwell that contain the name of its table."""

MARK = "\0"
"""The separator between the parts of a name."""
_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)


def without_other_tables(
    values: pa.Array | pa.ChunkedArray, decode: RecordFormat, messages: MessageOptions, reader: AvroReader | None = None
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Returns the values, with null for records of tables other than `source-table`, and a mask that is true for these
    records.

    A record that contains no table name, or cannot be read, is left unchanged. `reader` reads Avro records.
    """
    data = as_binary(values)
    others = np.zeros(len(data), dtype=bool)
    for at, names in _names(data, decode, reader):
        is_other = [_names_other(text.split(MARK), messages) for text in names.dictionary.to_pylist()]
        others[at] |= true_of(pc.take(pa.array(is_other, pa.bool_()), names.indices))
    if not others.any():
        return data, others
    return if_else(pa.array(others), pa.scalar(None, data.type), data), others


def source_names(
    values: pa.Array | pa.ChunkedArray, decode: RecordFormat, reader: AvroReader | None = None
) -> tuple[list[tuple[str, ...]], npt.NDArray[np.int32]]:
    """Returns a list of the source tables of the records, and for each record the position of its table in this list.

    A table is a tuple with the parts of its name (`name_parts`); a missing part is an empty string. The position is -1
    if the record contains no table name, or cannot be read.
    """
    data = as_binary(values)
    found: dict[tuple[str, ...], int] = {}
    codes = np.full(len(data), -1, np.int32)
    for at, names in _names(data, decode, reader):
        parts = [tuple(text.split(MARK)) for text in names.dictionary.to_pylist()]
        numbers = np.array([found.setdefault(p, len(found)) if p[-1] else -1 for p in parts], np.int32)
        if len(numbers):
            named = numbers[np.asarray(names.indices)]
            codes[at] = np.where(codes[at] < 0, named, codes[at])
    return list(found), codes


def tables_named(values: pa.Array, decode: RecordFormat, reader: AvroReader | None = None) -> pa.Array:
    """Returns the name of the source table in each record: its parts, joined by dots.

    The name is null if a record contains no table name, or cannot be read. `reader` reads Avro records.
    """
    names, codes = source_names(values, decode, reader)
    shown = [".".join(part for part in parts if part) for parts in names]
    return pa.array(shown, pa.string()).take(pa.array(codes, mask=codes < 0))


def name_parts(decode: RecordFormat) -> tuple[str, ...]:
    """Returns the names of the fields that contain the parts of a table's name in records of this format. The last
    field contains the name of the table itself.
    """
    return _READ[decode][1]


def _names(
    data: pa.Array, decode: RecordFormat, reader: AvroReader | None
) -> Iterator[tuple[npt.NDArray[np.int64], pa.DictionaryArray]]:
    """Yields pairs of arrays: the positions of some records, and the name of the source table of each of these records.
    A name is one string, the parts of the name joined by MARK, for example database and table. A part that is not found
    is empty. A record may be in several of the pairs.
    """
    positions = np.flatnonzero(has_text(data))
    shape, parts = _READ[decode]
    records = data.take(pa.array(positions))
    found = read_objects(records, shape) if reader is None else reader.sources(records, shape)
    at = positions[found.positions]
    for events in (
        (found.structs, found.structs.field("payload")) if decode.is_debezium and reader is None else (found.structs,)
    ):
        named = pc.struct_field(events, "source") if parts is SOURCE_PARTS else events
        columns = [pc.fill_null(pc.struct_field(named, part), "") for part in parts]
        yield at, pc.binary_join_element_wise(*columns, MARK).dictionary_encode()


def _names_other(parts: Sequence[str], wanted: MessageOptions) -> bool:
    given = [part for part in parts if part]
    return bool(parts[-1]) and not wanted.reads_table(".".join(given), ".".join(given[-2:]))


def _texts(names: Sequence[str]) -> tuple[DataField, ...]:
    return tuple(DataField(0, name, _TEXT) for name in names)


def _with_payload(*fields: DataField) -> Shape:
    return row_shape((*fields, DataField(0, "payload", DataType(TypeRoot.ROW, fields=fields))))


_EVENT = (DataField(0, "source", DataType(TypeRoot.ROW, fields=_texts(SOURCE_PARTS))),)
_BINLOG = (row_shape(_texts(BINLOG_PARTS)), BINLOG_PARTS)
_READ = {
    RecordFormat.DEBEZIUM_JSON: (_with_payload(*_EVENT), SOURCE_PARTS),
    RecordFormat.DEBEZIUM_AVRO: (row_shape(_EVENT), SOURCE_PARTS),
    RecordFormat.DEBEZIUM_FLAT_JSON: (_with_payload(*_texts(FLAT_PARTS)), FLAT_PARTS),
    RecordFormat.CANAL_JSON: _BINLOG,
    RecordFormat.MAXWELL_JSON: _BINLOG,
}
