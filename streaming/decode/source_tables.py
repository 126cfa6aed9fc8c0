"""Which table of the source a record is of, read before its row: records of other tables are left out."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.conf.message_options import MessageOptions
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.avro.avro_reader import AvroReader
from bucketline.streaming.decode.flat_records import FLAT_PARTS
from bucketline.streaming.decode.json_blocks import read_objects
from bucketline.streaming.decode.json_shape import SOURCE_PARTS, Shape, row_shape
from bucketline.streaming.decode.row_changes import as_binary, has_text, true_of

BINLOG_PARTS = ("database", "table")
"""The fields of a message of Canal or Maxwell that say which table it is of."""

_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)


def without_other_tables(
    values: pa.Array | pa.ChunkedArray, decode: RecordFormat, messages: MessageOptions, reader: AvroReader | None = None
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The values, those of other tables than `source-table` as null; and which these are. What names no table, or
    cannot be read, is left as it is. `reader` reads records of Avro."""
    data = as_binary(values)
    positions = np.flatnonzero(has_text(data))
    shape, parts = _READ[decode]
    records = data.take(pa.array(positions))
    found = read_objects(records, shape) if reader is None else reader.sources(records, shape)
    others = np.zeros(len(data), dtype=bool)
    at = positions[found.positions]
    for events in (
        (found.structs, found.structs.field("payload")) if decode.is_debezium and reader is None else (found.structs,)
    ):
        named = pc.struct_field(events, "source") if parts is SOURCE_PARTS else events
        others[at] |= _is_other(named, parts, messages)
    if not others.any():
        return data, others
    return if_else(pa.array(others), pa.scalar(None, data.type), data), others


def _is_other(messages: pa.Array, parts: Sequence[str], wanted: MessageOptions) -> npt.NDArray[np.bool_]:
    """True for messages that name a table that is not read."""
    columns = [pc.struct_field(messages, part) for part in parts]
    joined = pc.binary_join_element_wise(*[pc.fill_null(c, "") for c in columns], "\0").dictionary_encode()
    is_other = [_names_other(text.split("\0"), wanted) for text in joined.dictionary.to_pylist()]
    return true_of(pc.take(pa.array(is_other, pa.bool_()), joined.indices))


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
