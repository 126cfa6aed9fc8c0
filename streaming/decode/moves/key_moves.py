"""Classes for records that change the key of a row and leave out values of that row, and for the messages about these
records between tasks and driver.

Debezium sends a change of the key in one of two ways. If the key of the source stays the same, and only the wider key
of the table changes, the change is one update with both keys. Otherwise the change is a delete of the old key and an
insert of the new key, in two records that have the same position in the source's log.
Source: Debezium 3.5 RelationalChangeRecordEmitter.emitUpdateAsPrimaryKeyChangeRecord.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]


def no_records() -> Longs:
    """Returns an empty array of indices of records."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class KeyMoves:
    """The records of one decoded block that may move a row to another key and leave out values of the row. Each array
    of records has the indices of the records in the block, in ascending order.

    - `moved` are updates that change the key and leave out values.
    - `inserted` are inserts that leave out values.
    - `inserted_at` has the position of each of these inserts in the source's log, as a string; null if it is not known.
    - `deleted` are deletes; they are found only if the driver has asked for them.
    - `deleted_at` has the positions of the deletes, in the same form.
    """

    moved: Longs
    inserted: Longs
    inserted_at: pa.Array
    deleted: Longs
    deleted_at: pa.Array

    def __bool__(self) -> bool:
        return bool(len(self.moved) or len(self.inserted) or len(self.deleted))


NO_MOVES = KeyMoves(no_records(), no_records(), pa.array([], pa.string()), no_records(), pa.array([], pa.string()))


@dataclass(frozen=True, slots=True)
class Asking:
    """A question of the driver to the tasks, which read a batch again to answer. The driver asks for the rows with some
    keys, and for the keys of the deletes at some positions in the source's log.

    `asks` is a table in Arrow's IPC format with these keys and positions. Each row of the table has either a key, or a
    topic and a position in the source's log.
    """

    asks: bytes


@dataclass(frozen=True, slots=True)
class FoundValues:
    """The answer of the driver to the tasks: the values that records take over from rows with another key.

    `values` is a table in Arrow's IPC format, with a row for each record that lacks values.
    """

    values: bytes

    def table(self) -> pa.Table:
        """Returns the values as a table."""
        return from_ipc(self.values)


def to_ipc(rows: pa.Table) -> bytes:
    """Returns a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def from_ipc(octets: bytes) -> pa.Table:
    """Returns the table that `to_ipc` has made into bytes."""
    return pa.ipc.open_stream(octets).read_all().combine_chunks()
