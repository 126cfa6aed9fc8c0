"""The interfaces of folds. A fold merges the rows of each key into one row; it works on whole columns.

Rows are sorted by key, and within a key the oldest row comes first. If a key has a single row, the row stays unchanged,
even if it is a -U or -D row: Paimon does not call its merge function then, and readers rely on the unchanged row.
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
    """Merges the rows of each key into one row, or into none. A `Selection` is a fold that computes no new rows: it
    keeps one row of a key, or none.
    """

    def fold(self, table: pa.Table, starts: Starts) -> pa.Table:
        """Takes sorted rows, and returns at most one row for each key, with the same columns. `starts` is true at the
        first row of each key.

        Rows keep their kind. A deleted key gives a row of kind -U or -D.
        """
        ...


class Unmoved(ABC):
    """A fold (the function that merges the rows of each key) that needs no sorted copy of the rows in memory: it also
    takes unsorted rows together with their order. So only the rows of the result are moved in memory.
    """

    __slots__ = ()

    @abstractmethod
    def fold_in_order(self, table: pa.Table, order: "Indices | None", starts: Starts) -> pa.Table:
        """Merges the rows of each key as `Fold.fold` does, but the rows of the table may have any order. Row n in the
        order of key and age is row `order[n]` of the table; if `order` is None, the table is already in this order.
        """
        ...


class Selection(ABC):
    """A fold (the function that merges the rows of each key) that only selects rows: the result of each key is one of
    its rows, or none. So rows that are not selected need not be moved in memory.
    """

    __slots__ = ()

    def fold(self, table: pa.Table, starts: Starts) -> pa.Table:
        chosen = self.select(starts, table[VALUE_KIND].to_numpy())
        return table if len(chosen) == table.num_rows else table.take(pa.array(chosen))

    @abstractmethod
    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        """Returns the indices of the rows that `fold` keeps, in ascending order. `kinds` has the row kind of each
        row.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeepAll(Selection):
    """A fold (a function that merges the rows of each key) that keeps every row, sorted by key and age. It is used
    for sorted runs whose rows another fold merges later.
    """

    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        return np.arange(len(starts))


@dataclass(frozen=True, slots=True)
class Visible(Selection):
    """A selection that keeps only some of the rows that the selection `of` keeps: -U and -D rows are left out, because
    readers do not see these rows.
    """

    of: Selection

    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        chosen = self.of.select(starts, kinds)
        seen = (kinds[chosen] & 1) == 0
        return chosen if seen.all() else chosen[seen]


def drop_deletes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches without -D and -U rows. This function is for the last level, because no other level has older
    rows that a -D row must delete.
    """
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
    """Takes a mask that is true at the first row of each key. Returns a mask that is true at the last row of each
    key.
    """
    ends = np.ones_like(starts)
    ends[:-1] = starts[1:]
    return ends


def starts_of(numbers: Indices) -> Starts:
    """Takes the numbers of the rows' keys. Returns a mask of the first row of each key: the mask is true at the first
    number, and wherever a number differs from the number before.
    """
    starts = np.ones(len(numbers), bool)
    starts[1:] = numbers[1:] != numbers[:-1]
    return starts


def eligible(starts: Starts, ends: Starts, kinds: Kinds) -> Starts:
    """Returns a mask of the rows that may become the result of their key: +I and +U rows, and rows (of any kind) that
    are the only row of their key.
    """
    adds: Starts = (kinds & 1) == 0
    return adds | (starts & ends)
