"""Which table of the source a record is of, read before its row: records of other tables are left out."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.conf.message_options import MessageOptions
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.json_blocks import read_objects
from bucketline.streaming.decode.json_shape import SOURCE_PARTS, row_shape
from bucketline.streaming.decode.row_changes import as_binary, has_text, true_of

BINLOG_PARTS = ("database", "table")
"""The fields of a message of Canal or Maxwell that say which table it is of."""

_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)


def without_other_tables(
    values: pa.Array | pa.ChunkedArray, decode: RecordFormat, messages: MessageOptions
) -> tuple[pa.Array, int]:
    """The values, those of other tables than `source-table` as null; and how many these are. What names no table, or
    cannot be read, is left as it is."""
    data = as_binary(values)
    positions = np.flatnonzero(has_text(data))
    is_debezium = decode is RecordFormat.DEBEZIUM_JSON
    found = read_objects(data.take(pa.array(positions)), _DEBEZIUM if is_debezium else _BINLOG)
    others = np.zeros(len(data), dtype=bool)
    at = positions[found.positions]
    if is_debezium:
        for events in (found.structs, found.structs.field("payload")):
            others[at] |= _is_other(events.field("source"), SOURCE_PARTS, messages)
    else:
        others[at] = _is_other(found.structs, BINLOG_PARTS, messages)
    if not others.any():
        return data, 0
    return pc.if_else(pa.array(others), pa.scalar(None, data.type), data), int(others.sum())


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


_EVENT = (DataField(0, "source", DataType(TypeRoot.ROW, fields=_texts(SOURCE_PARTS))),)
_DEBEZIUM = row_shape((*_EVENT, DataField(0, "payload", DataType(TypeRoot.ROW, fields=_EVENT))))
_BINLOG = row_shape(_texts(BINLOG_PARTS))
