"""Fills values that the source left out of rows: each with the newest known value of its key and column.

The rows have a column of bytes (`UNAVAILABLE`) that says which values are left out: null for a row that has all,
otherwise a bit for each of the table's columns, the first in the lowest bit, and one more bit after them. The last bit
says that a delete came before, so that no stored row of the table can give the values.
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
    """Returns the column `UNAVAILABLE`. `left_out` is true for a value that is left out, by column; `gone` is true for
    a row after a delete.
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
    """Returns a matrix of booleans with a line for each row. Each line says for each column whether the row leaves out
    its value, and last whether a delete comes before the row.
    """
    width = (column_count + 8) // 8
    filled = column.fill_null(bytes(width)).cast(pa.binary(width))
    octets = np.frombuffer(filled.buffers()[1] or b"", np.uint8, len(filled) * width, filled.offset * width)
    bits = np.unpackbits(octets.reshape(-1, width), axis=1, count=column_count + 1, bitorder="little")
    return bits.astype(bool)


@dataclass(frozen=True, slots=True)
class NewestValues:
    """The last row of each key, whatever its row kind; a value that it leaves out comes from the newest row before it
    that has one. Rows before a delete do not count. `names` are the table's columns."""

    names: tuple[str, ...]

    def fold(self, table: pa.Table, starts: NDArray[np.bool_]) -> pa.Table:
        """Folds as `Fold.fold` says; a value that no row of the key has stays left out."""
        first = np.flatnonzero(starts)
        last = np.append(first[1:], len(starts)) - 1
        column = one_array(table[UNAVAILABLE])
        if column.take(pa.array(last)).null_count == len(last):
            return table if len(last) == len(starts) else table.take(pa.array(last))
        bits = unpack_left_out(column, len(self.names))
        retracts = (table[VALUE_KIND].to_numpy() & 1).astype(bool)
        rows = np.arange(len(starts))
        # A row after a delete of an earlier fold ends the search as the delete itself does.
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
