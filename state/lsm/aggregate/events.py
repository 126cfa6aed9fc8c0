"""Events say what each row does to a column: for example, add its value or take it back. Events are the input of every
aggregate function.

Rows are sorted by key, and within a key the oldest row comes first. The merge engine decides what a row does to a
column, and the aggregate function computes the result. So functions get values and events, but no row kinds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.state.types.cast import with_placeholders

Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]
Ops = NDArray[np.int8]


class Op(IntEnum):
    """What a row does to the value into which a column's values are aggregated (the accumulator)."""

    SKIP = 0
    ADD = 1
    # Adds the value of a late row, which counts as older than all other rows.
    ADD_BEFORE = 2
    RETRACT = 3
    # Sets the accumulator to the row's value.
    SEED = 4


@dataclass(frozen=True, eq=False)
class Events:
    """What the rows of each key do to one column. `starts` has the index of the first row of each key, and `ops` has an
    `Op` for each row.

    There is at least one key, and every key has a row. The starts ascend from 0.
    """

    starts: Indices
    ops: Ops

    @property
    def row_count(self) -> int:
        return len(self.ops)

    @property
    def key_count(self) -> int:
        return len(self.starts)

    @cached_property
    def key_of_row(self) -> Indices:
        return np.repeat(np.arange(self.key_count, dtype=np.int64), self.lengths)

    @cached_property
    def lengths(self) -> Indices:
        return np.diff(self.starts, append=self.row_count)

    @cached_property
    def rows(self) -> Indices:
        return np.arange(self.row_count, dtype=np.int64)

    @cached_property
    def seeds(self) -> Indices:
        """Returns for each key the index of the last row whose value replaces the accumulator (the intermediate result
        of the key); -1 if there is no such row.
        """
        return self.last(self.ops == Op.SEED)

    @cached_property
    def live(self) -> Mask:
        """Returns a mask of the rows that count for the result. If the value of a row replaces the accumulator (the
        intermediate result of its key), the earlier rows of the key do not count. Rows with `Op.SKIP` do not count
        either.
        """
        is_live: Mask = (self.ops != Op.SKIP) & (self.rows >= self.seeds[self.key_of_row])
        return is_live

    def is_any(self, *ops: Op) -> Mask:
        mask = np.zeros(self.row_count, bool)
        for op in ops:
            mask |= self.ops == op
        return mask

    def after(self, border: Indices) -> Mask:
        """Returns a mask of the rows that come after the border row of their key. `border` has the index of this row
        for each key; -1 means that all rows of the key are in the mask.
        """
        is_after: Mask = self.rows > border[self.key_of_row]
        return is_after

    def last(self, mask: Mask) -> Indices:
        """Returns for each key the index of the last row that is in the mask; -1 if no row is."""
        last_rows: Indices = np.maximum.reduceat(np.where(mask, self.rows, -1), self.starts)
        return last_rows

    def first(self, mask: Mask) -> Indices:
        """Returns for each key the index of the first row that is in the mask; -1 if no row is."""
        first_rows = np.minimum.reduceat(np.where(mask, self.rows, self.row_count), self.starts)
        return np.where(first_rows == self.row_count, -1, first_rows)

    def steps(self, keys: Indices) -> tuple[Indices, Iterator[Indices]]:
        """Goes through the rows of the keys in `keys`, one row of each key in a step. This is for results that depend
        on every earlier row.

        Returns an order of the keys and an iterator. Item i of the iterator has row i of each key that has more than i
        rows. The order is an array of positions in `keys`; the key with the most rows comes first. So the rows of a
        step always belong to the first keys in this order.
        """
        order = np.argsort(-self.lengths[keys], kind="stable")
        starts, lengths = self.starts[keys[order]], self.lengths[keys[order]]

        def rows() -> Iterator[Indices]:
            for step in range(int(lengths[0]) if len(lengths) else 0):
                yield starts[: int(np.searchsorted(-lengths, -step, side="left"))] + step

        return order, rows()

    def with_ops(self, ops: Ops) -> "Events":
        return replace(self, ops=ops)

    def ignoring_retracts(self) -> "Events":
        return self.with_ops(np.where(self.ops == Op.RETRACT, np.int8(Op.SKIP), self.ops))


def validity(values: pa.Array) -> Mask:
    """Returns a mask of the values that are not null."""
    if values.null_count == 0:
        return np.ones(len(values), bool)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def take_or_null(values: Any, rows: Indices) -> Any:
    """Returns the values at the row indices `rows`, and null for the index -1. An array gives an array, and a chunked
    array gives a chunked array.
    """
    missing = rows < 0
    if not missing.any():
        return values.take(pa.array(rows))
    taken = values.take(pa.array(rows, mask=missing))
    if isinstance(taken, pa.ChunkedArray):
        return pa.chunked_array(map(with_placeholders, taken.chunks), taken.type)
    return with_placeholders(taken)
