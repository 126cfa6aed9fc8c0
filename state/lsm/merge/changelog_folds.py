"""Folds (functions that merge the rows of each key) that also write a changelog without looking up older rows: one logs
every input row, the other logs the changes that a full compaction makes on the last level.

Source: Paimon 2.0 SortBufferWriteBuffer (raw consumer), FullChangelogMergeFunctionWrapper.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.events import Indices, Mask
from bucketline.state.lsm.merge.change_rows import LEVEL, ChangeRule, changes, is_add, marked
from bucketline.state.lsm.merge.fold import Fold, Selection


@dataclass(frozen=True, slots=True)
class LogEverything:
    """Merges rows with the inner fold. Returns the merged rows, and in addition every input row as a changelog row. The
    column PART of the result says which rows are stored and which belong to the changelog.
    """

    inner: Fold

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        return marked(self.inner.fold(table, starts), table)


@dataclass(frozen=True, slots=True)
class FullChangelog:
    """Merges all rows of each key in a compaction to the last level. The changelog gets the difference between the
    merged row and the row that was on the last level before.

    The input rows have one more column, LEVEL, which has the level of each row. The result has one more column, PART,
    which tells the rows to store from the changelog rows. Rows of kind -U and -D are not stored. If `stores` is false,
    the result has only changelog rows.
    """

    inner: Fold
    last_level: int
    rule: ChangeRule
    stores: bool = True

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        numbers = np.cumsum(starts) - 1
        on_top = np.flatnonzero(table[LEVEL].to_numpy() == self.last_level)
        before_at = np.full(int(numbers[-1]) + 1, -1, np.int64)
        before_at[numbers[on_top]] = on_top
        rows = table.drop_columns([LEVEL])
        merged, at = _merged(self.inner, rows, starts)
        # If the only row of a key is the one on the last level, the key has not changed.
        touched = (np.bincount(numbers) > 1) | (before_at < 0)
        logged = changes(rows, before_at[touched], merged, at[touched], self.rule)
        if not self.stores:
            return marked(merged.slice(0, 0), logged)
        kept = is_add(merged)
        return marked(merged if kept.all() else merged.filter(pa.array(kept)), logged)


def _merged(fold: Fold, rows: pa.Table, starts: Mask) -> tuple[pa.Table, Indices]:
    """Merges the rows of each key with `fold`. Returns the merged rows, and for each key the index of its merged row.
    The index is -1 for a key without a merged row, because some merge functions drop keys.
    """
    numbered = rows.append_column(_NUMBER, pa.array(np.cumsum(starts) - 1))
    if isinstance(fold, Selection):
        merged = fold.fold(numbered, starts)
        at = np.full(int(starts.sum()), -1, np.int64)
        at[merged[_NUMBER].to_numpy()] = np.arange(merged.num_rows)
        return merged.drop_columns([_NUMBER]), at
    return fold.fold(rows, starts), np.arange(int(starts.sum()), dtype=np.int64)


_NUMBER = "_NUMBER"
