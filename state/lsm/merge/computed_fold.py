"""The common part of the folds (functions that merge the rows of each key) that compute new rows instead of selecting a
row.

Source: Paimon 2.0 ReducerMergeFunctionWrapper (leaves the only row of a key unchanged), LookupMergeFunction (merges
this row, too).
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
    """Base class of the folds (rules that merge the rows of a key) that compute a new row. If a key has a single row,
    this row is the result, unless `folds_lone_rows` is true. `folds_lone_rows` is set if the rows to merge also include
    rows of higher levels.
    """

    folds_lone_rows: bool = False

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        """Merges rows as `Fold.fold` says. Every key has exactly one row in the result."""
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
        """Returns the columns that an aggregate function computes: a mapping from the name of the column to its
        aggregation.
        """

    @abstractmethod
    def strict(self) -> Self:
        """Returns a variant of the fold for rows that are not in the table yet: if merging has no result that a column
        can hold, the variant raises SchemaMismatchError.
        """

    def removes_by_others(self, column: str) -> bool:
        """Returns True if a row can remove the whole row of its key because of values in other columns than
        `column`.
        """
        return False

    @abstractmethod
    def merge(self, table: pa.Table, starts: Indices) -> pa.Table:
        """Takes sorted rows, and returns one row for each key, with the schema of `table`. `starts` has the index of
        the first row of each key. There is at least one key.
        """
        ...
