"""Fills in values that the source did not send (for example, large values that an update did not change). The newest
known value of the same key and column is used.

The rows have a binary column, `UNAVAILABLE`, that says which values are missing. `UNAVAILABLE` is null for a complete
row. Otherwise it has a bit for each column of the table, with the first column in the lowest bit, and one more bit. The
last bit says that a delete of the key came before the row, so that the values must not come from the rows stored in the
table.
Source: Debezium 3.5, unavailable.value.placeholder of the Postgres connector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.state.types.arrow import UNAVAILABLE, VALUE_KIND
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else

Mask = NDArray[np.bool_]


def pack_left_out(left_out: Mapping[str, Mask], names: Sequence[str], count: int, gone: Mask | None = None) -> pa.Array:
    """Returns the column `UNAVAILABLE`, which says for each row which columns have no value because the source left it
    out. A row that has all values gets null.

    - `left_out` has, for some columns, a mask of the rows without a value.
    - `names` are the columns of the table.
    - `count` is the number of rows.
    - `gone` is true for a row that follows a delete of its key.
    """
    if not left_out:
        return pa.nulls(count, pa.binary())
    bits = np.zeros((count, len(names) + 1), dtype=bool)
    for name, mask in left_out.items():
        bits[:, names.index(name)] = mask
    some = bits.any(axis=1)
    if gone is not None:
        bits[:, -1] = gone & some
    packed = np.packbits(bits, axis=1, bitorder="little")
    octets = pa.py_buffer(np.ascontiguousarray(packed))
    column = pa.Array.from_buffers(pa.binary(packed.shape[1]), count, [None, octets]).cast(pa.binary())
    return if_else(pa.array(some), column, pa.scalar(None, pa.binary()))


def unpack_left_out(column: pa.Array, column_count: int) -> NDArray[np.bool_]:
    """Decodes the column `UNAVAILABLE`. Returns a boolean matrix with a line for each row: for each column of the table
    whether its value is missing, and at the end whether a delete of the key came before the row.
    """
    width = (column_count + 8) // 8
    filled = column.fill_null(bytes(width)).cast(pa.binary(width))
    octets = np.frombuffer(filled.buffers()[1] or b"", np.uint8, len(filled) * width, filled.offset * width)
    bits = np.unpackbits(octets.reshape(-1, width), axis=1, count=column_count + 1, bitorder="little")
    return bits.astype(bool)


@dataclass(frozen=True, slots=True)
class NewestValues:
    """Keeps the last row of each key, of any row kind. A value that is missing in this row is taken from the newest
    earlier row that has it. Rows before a delete are not used. `names` are the table's columns.
    """

    names: tuple[str, ...]

    def fold(self, table: pa.Table, starts: NDArray[np.bool_]) -> pa.Table:
        """Takes sorted rows, and returns the last row of each key, completed with values of earlier rows. A value that
        is missing in all rows of the key stays missing. `starts` is true at the first row of each key.
        """
        first = np.flatnonzero(starts)
        last = np.append(first[1:], len(starts)) - 1
        column = one_array(table[UNAVAILABLE])
        if column.take(pa.array(last)).null_count == len(last):
            return table if len(last) == len(starts) else table.take(pa.array(last))
        bits = unpack_left_out(column, len(self.names))
        retracts = (table[VALUE_KIND].to_numpy() & 1).astype(bool)
        rows = np.arange(len(starts))
        # An earlier fold may have merged a delete into the row after it. Such a row ends the search like the delete
        # itself.
        ends = retracts | bits[:, -1]
        result = table.take(pa.array(last))
        left_out: dict[str, Mask] = {}
        gone = np.zeros(len(last), dtype=bool)
        for at, name in enumerate(self.names):
            asked = bits[last, at]
            if not asked.any():
                continue
            newest = np.maximum.reduceat(np.where(~bits[:, at] | ends, rows, -1), first)
            stops = np.maximum(newest, 0)
            has_value = (newest >= 0) & ~bits[stops, at] & ~retracts[stops]
            taken = np.where(asked & has_value, stops, last)
            result = result.set_column(
                table.column_names.index(name), name, one_array(table[name]).take(pa.array(taken))
            )
            left_out[name] = asked & ~has_value
            gone |= left_out[name] & (newest >= 0)
        marks = pack_left_out(left_out, self.names, len(last), gone)
        return result.set_column(table.column_names.index(UNAVAILABLE), UNAVAILABLE, marks)
