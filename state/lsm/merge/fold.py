"""A fold makes one row out of the rows of a key, on whole columns at a time.

Rows come sorted by key, then oldest first. A key with one row keeps it unchanged, whatever its row kind: Paimon does
not call its merge function then, and readers rely on it.
Source: Paimon 2.0 ReducerMergeFunctionWrapper.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.types.arrow import VALUE_KIND
from bucketline.state.types.row_kind import is_retract

Starts = NDArray[np.bool_]
Kinds = NDArray[np.int8]
Indices = NDArray[np.int64]


class Fold(Protocol):
    """Makes one row, or none, out of the rows of each key. See also `Selection`."""

    def fold(self, table: pa.Table, starts: Starts) -> pa.Table:
        """Takes sorted rows, and returns at most one row for each key, with the same columns. `starts` is true at the
        first row of each key.

        Rows keep their kind; a deleted key comes out as a row with a retract kind.
        """
        ...


class Unmoved(ABC):
    """A fold of rows that have not been moved into key order, so that it moves only the rows that stay."""

    __slots__ = ()

    @abstractmethod
    def fold_in_order(self, table: pa.Table, order: "Indices | None", starts: Starts) -> pa.Table:
        """Folds as `fold` does. The n-th row by key and age is row `order[n]` of the table; None says that the rows are
        in that order already.
        """
        ...


class Selection(ABC):
    """A fold that only selects rows: each key's result is one of its rows or none. The other rows need not be moved in
    memory.
    """

    __slots__ = ()

    def fold(self, table: pa.Table, starts: Starts) -> pa.Table:
        chosen = self.select(starts, table[VALUE_KIND].to_numpy())
        return table if len(chosen) == table.num_rows else table.take(pa.array(chosen))

    @abstractmethod
    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        """Returns the rows that `fold` keeps, ascending. `kinds` are the rows' kinds."""
        ...


@dataclass(frozen=True, slots=True)
class KeepAll(Selection):
    """Every row, in the order in which a fold would see them: for merging runs before they are folded."""

    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        return np.arange(len(starts))


@dataclass(frozen=True, slots=True)
class Visible(Selection):
    """The rows of another selection that readers see: all but -U and -D rows."""

    of: Selection

    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        chosen = self.of.select(starts, kinds)
        seen = (kinds[chosen] & 1) == 0
        return chosen if seen.all() else chosen[seen]


def drop_deletes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches without -D and -U rows, for the last level, where nothing older is left to delete."""
    for batch in batches:
        retracts = is_retract(batch.column(VALUE_KIND))
        if not pc.any(retracts).as_py():
            yield batch
        elif (kept := batch.filter(pc.invert(retracts))).num_rows:
            yield kept


def key_numbers(starts: Starts) -> Indices:
    """Returns for each row the number of its key, from 1."""
    return np.cumsum(starts, dtype=np.int64)


def ends_of(starts: Starts) -> Starts:
    """Returns a mask that is true at the last row of each key."""
    ends = np.ones_like(starts)
    ends[:-1] = starts[1:]
    return ends


def starts_of(numbers: Indices) -> Starts:
    """Returns True where a number differs from the previous one: at the first of each run of equal numbers."""
    starts = np.ones(len(numbers), bool)
    starts[1:] = numbers[1:] != numbers[:-1]
    return starts


def eligible(starts: Starts, ends: Starts, kinds: Kinds) -> Starts:
    """Returns a mask of +I and +U rows, and of the rows of keys with one row."""
    adds: Starts = (kinds & 1) == 0
    return adds | (starts & ends)
