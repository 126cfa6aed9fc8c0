"""The common part of the folds whose results are new rows.

Source: Paimon 2.0 ReducerMergeFunctionWrapper (leaves the only row of a key as it is), LookupMergeFunction (merges this
row, too).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.column import ColumnAggregate
from bucketline.state.lsm.aggregate.events import Indices, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedFold(ABC):
    """A fold whose results are new rows. A key with one row keeps it, unless `folds_lone_rows`, which is set where rows
    of higher levels have completed the rows of a key.
    """

    folds_lone_rows: bool = False

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        """Folds as `Fold.fold` says; every key has exactly one row in the result."""
        first = np.flatnonzero(starts)
        lengths = np.diff(first, append=len(starts))
        several = lengths > 1
        if self.folds_lone_rows:
            return self.merge(table, first) if len(first) else table
        if not several.any():
            return table
        if several.all():
            return self.merge(table, first)
        companion = np.repeat(several, lengths)
        joined = table.filter(pa.array(companion))
        merged = self.merge(joined, np.cumsum(lengths[several]) - lengths[several])
        lone = table.filter(pa.array(~companion))
        place = np.empty(len(first), np.int64)
        place[np.flatnonzero(~several)] = np.arange(lone.num_rows)
        place[np.flatnonzero(several)] = np.arange(lone.num_rows, len(first))
        return pa.concat_tables([lone, merged]).take(pa.array(place))

    @property
    @abstractmethod
    def aggregated(self) -> Mapping[str, ColumnAggregate]:
        """Returns the columns that a function computes, by name."""

    @abstractmethod
    def strict(self) -> Self:
        """Returns the fold for rows that are not in the table yet: where merging gives no result that a column can
        hold, it raises SchemaMismatchError.
        """

    def removes_by_others(self, column: str) -> bool:
        """Whether a row may remove the whole row of its key because of values in other columns than the given
        column.
        """
        return False

    @abstractmethod
    def merge(self, table: pa.Table, starts: Indices) -> pa.Table:
        """Takes sorted rows and the first row of each key, and returns one row for each key, with the schema of
        `table`. There is at least one key.
        """
        ...
