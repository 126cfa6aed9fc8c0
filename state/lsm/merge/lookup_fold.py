"""Merges rows of level 0 with older rows of their keys. Of several older rows only the newest counts, because earlier
compactions have merged all older rows into the newest.

Source: Paimon 2.0 LookupMergeFunction, LookupChangelogMergeFunctionWrapper, FirstRowMergeFunctionWrapper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.events import Indices, Mask
from bucketline.state.lsm.merge.change_rows import LEVEL, ChangeRule, changes, is_add, marked
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.merge.deduplicate import Deduplicate
from bucketline.state.lsm.merge.first_row import RETRACTS_OF_FIRST_ROW
from bucketline.state.lsm.merge.fold import Fold, Unmoved, ends_of, starts_of
from bucketline.state.lsm.tree.sort_keys import sequence_columns
from bucketline.state.types.arrow import SEQUENCE, logical_type
from bucketline.state.types.hashes.distinct import distinct

_NO_LEVEL = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class OlderMatches:
    """The result of looking up keys on higher levels. `keys` has the indices, in the table of requested keys, of the
    keys that were found; the indices ascend. `rows` has a row for each found key, with the columns of the rows to merge
    and the column LEVEL. `rows` is None if only the existence of the keys matters.
    """

    keys: Indices
    rows: pa.Table | None


class OlderRows(Protocol):
    """Finds the stored rows of given keys, in a compaction that does not read all levels: looks only at the levels
    above the output level of the compaction.
    """

    def find(self, keys: pa.Table) -> OlderMatches:
        """Returns the newest row of each key in `keys` that has a row on the levels above the output level. `keys` must
        ascend, and must be larger than the keys of earlier calls.
        """
        ...


@dataclass(frozen=True, slots=True)
class NewestValue:
    """Merges the rows of a key from several levels with a fold (a merge function) that computes new rows. Of the rows
    above level 0, only the row on the lowest level counts. If a key has a single row, the row stays unchanged. Input
    rows have the column LEVEL, the result does not.
    """

    inner: ComputedFold

    def strict(self) -> "NewestValue":
        """Returns a variant for rows that are not in the table yet. The variant raises an error if a column cannot hold
        the result (see `ComputedFold.strict`).
        """
        return NewestValue(self.inner.strict())

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        kept = _candidates(table[LEVEL].to_numpy(), starts)
        rows = table.drop_columns([LEVEL])
        if kept.all():
            return self.inner.fold(rows, starts)
        numbers = np.cumsum(starts) - 1
        alone = np.bincount(numbers) == 1
        whole = alone[numbers]
        rows, numbers, whole = rows.filter(pa.array(kept)), numbers[kept], whole[kept]
        several = rows.filter(pa.array(~whole))
        merged = _always(self.inner).fold(several, starts_of(numbers[~whole]))
        lone = rows.filter(pa.array(whole))
        places = np.concatenate([numbers[whole], distinct(numbers[~whole])])
        return pa.concat_tables([lone, merged]).take(pa.array(np.argsort(places, kind="stable")))


@dataclass(frozen=True, slots=True, eq=False)
class LookupFold(Unmoved):
    """Merges the rows of level 0 with the newest row of each key on higher levels, and writes the changes to the
    changelog.

    The input rows have one more column, LEVEL, which has the level of each row. The result has one more column, PART,
    which tells the rows to store from the changelog rows.

    - `older` looks up rows above the output level of the compaction; None if no such rows exist.
    - `rule` decides which changes go to the changelog; None if there is no changelog.
    - `stores` is false if the file itself moves to a higher level unchanged. Then the result has only changelog rows.
    """

    inner: Fold
    sequence_fields: tuple[str, ...]
    descending: bool
    keys: tuple[str, ...]
    older: OlderRows | None
    rule: ChangeRule | None
    stores: bool = True

    def fold_in_order(self, table: pa.Table, order: Indices | None, starts: Mask) -> pa.Table:
        """Merges the rows of each key. `table`, `order` and `starts` mean the same as in `Unmoved.fold_in_order`.
        Without a changelog, the result has no column PART.

        If only the newest row of a key counts, only the newest rows are copied in memory. Older rows of the table are
        then looked up only to mark them as deleted.
        """
        if self.rule is not None or self.sequence_fields or self.inner != Deduplicate():
            return self.fold(table if order is None else table.take(pa.array(order)), starts)
        levels = table[LEVEL].to_numpy()
        levels = levels if order is None else levels[order]
        numbers = np.cumsum(starts) - 1
        candidates = np.flatnonzero(_candidates(levels, starts))
        newest = candidates[ends_of(starts_of(numbers[candidates]))]
        at = newest if order is None else order[newest]
        rows = table.drop_columns([LEVEL])
        if len(at) < rows.num_rows or order is not None:
            rows = rows.take(pa.array(at))
        if self.older is not None:
            lacking = np.ones(len(newest), bool)
            lacking[numbers[levels > 0]] = False
            keys = rows.select(list(self.keys))
            asked = keys if lacking.all() else keys.filter(pa.array(lacking))
            if asked.num_rows:
                self.older.find(asked)
        return rows if self.stores else rows.slice(0, 0)

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        kept = _candidates(table[LEVEL].to_numpy(), starts)
        numbers = np.cumsum(starts) - 1
        if not kept.all():
            table, numbers = table.filter(pa.array(kept)), numbers[kept]
        table, numbers = self._completed(table, numbers)
        high = table[LEVEL].to_numpy() > 0
        rows = table.drop_columns([LEVEL])
        if not self.stores and self.rule is None:
            return marked(rows.slice(0, 0), None)
        merged, at = self._merged(rows, numbers)
        logged = None
        if self.rule is not None:
            before_at = np.full(int(numbers[-1]) + 1, -1, np.int64)
            before_at[numbers[high]] = np.flatnonzero(high)
            is_new = np.zeros(len(before_at), bool)
            is_new[numbers[~high]] = True
            logged = changes(rows, before_at[is_new], merged, at[is_new], self.rule)
        return marked(merged if self.stores else merged.slice(0, 0), logged)

    def _completed(self, table: pa.Table, numbers: Indices) -> tuple[pa.Table, Indices]:
        """Looks up the keys of the rows on higher levels. Returns the given rows together with the older rows that were
        found, sorted by key and age, and the number of each row's key. `numbers` has the number of the key for each
        given row.
        """
        if self.older is None:
            return table, numbers
        lacking = np.ones(int(numbers[-1]) + 1, bool)
        lacking[numbers[table[LEVEL].to_numpy() > 0]] = False
        first = np.flatnonzero(starts_of(numbers))
        asked = np.flatnonzero(lacking)
        if not len(asked):
            return table, numbers
        older = self.older.find(table.select(list(self.keys)).take(pa.array(first[asked])))
        if older.rows is None or older.rows.num_rows == 0:
            return table, numbers
        joined = pa.concat_tables([older.rows.select(table.column_names), table])
        numbers = np.concatenate([asked[older.keys], numbers])
        order = _by_age(joined, numbers, self.sequence_fields, descending=self.descending)
        return joined.take(pa.array(order)), numbers[order]

    def _merged(self, rows: pa.Table, numbers: Indices) -> tuple[pa.Table, Indices]:
        """Merges the rows of each key; `numbers` has the number of each row's key. Returns the merged rows, and for
        each key the index of its merged row; -1 for a key without a merged row.
        """
        fold = self.inner
        if isinstance(fold, Deduplicate) and fold.ignore_delete:
            kept = is_add(rows)
            rows, numbers, fold = rows.filter(pa.array(kept)), numbers[kept], Deduplicate()
        at = np.full(int(numbers[-1]) + 1 if len(numbers) else 0, -1, np.int64)
        merged = _always(fold).fold(rows, starts_of(numbers))
        at[distinct(numbers)] = np.arange(merged.num_rows)
        return merged, at


@dataclass(frozen=True, slots=True, eq=False)
class FirstRowLookup:
    """Keeps the first row of each key, and drops the row if a higher level already has the key.

    The input rows have one more column, LEVEL, which has the level of each row. The result has one more column, PART,
    which tells the rows to store from the changelog rows. If `logs` is true, the row of a new key is also a changelog
    row. `older` looks up keys on higher levels.

    Raises SchemaMismatchError for a -U or -D row, unless `ignore_delete` is true.
    """

    keys: tuple[str, ...]
    older: OlderRows | None
    logs: bool
    ignore_delete: bool = False
    stores: bool = True

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        numbers = np.cumsum(starts) - 1
        adds = is_add(table)
        if not adds.all():
            if not self.ignore_delete:
                raise SchemaMismatchError(RETRACTS_OF_FIRST_ROW)
            table, numbers = table.filter(pa.array(adds)), numbers[adds]
        known = np.zeros(int(numbers[-1]) + 1 if len(numbers) else 0, bool)
        known[numbers[table[LEVEL].to_numpy() > 0]] = True
        first = np.flatnonzero(starts_of(numbers))
        rows, numbers = table.drop_columns([LEVEL]).take(pa.array(first)), numbers[first]
        is_new = ~known[numbers]
        kept = np.ones(len(first), bool)
        if self.older is not None and is_new.any():
            asked = np.flatnonzero(is_new)
            kept[asked[self.older.find(rows.select(list(self.keys)).take(pa.array(asked))).keys]] = False
        logged = rows.filter(pa.array(is_new & kept)) if self.logs else None
        return marked(rows.filter(pa.array(kept)) if self.stores else rows.slice(0, 0), logged)


def _candidates(levels: NDArray[np.int32], starts: Mask) -> Mask:
    """Returns a mask of the rows that a lookup compaction merges: all rows of level 0, and of each key only the row on
    the lowest level above 0. `starts` is true at the first row of each key.
    """
    low: Mask = levels <= 0
    if low.all():
        return low
    above = np.where(low, _NO_LEVEL, levels)
    lowest = np.minimum.reduceat(above, np.flatnonzero(starts))
    candidates: Mask = low | (above == lowest[np.cumsum(starts) - 1])
    return candidates


def _by_age(rows: pa.Table, numbers: Indices, sequence_fields: Sequence[str], *, descending: bool) -> Indices:
    """Returns the indices of the rows sorted by key, and for each key from the oldest to the newest row. Rows of the
    same age keep their order. `numbers` has the number of each row's key.
    """
    columns = [rows[f].combine_chunks() for f in sequence_fields]
    ages = sequence_columns(columns, [logical_type(c.type, False) for c in columns], descending=descending)
    ages.append(rows[SEQUENCE].to_numpy())
    order = np.argsort(numbers, kind="stable")
    tied = np.flatnonzero(numbers[order[1:]] == numbers[order[:-1]])
    before, after = order[tied], order[tied + 1]
    undecided, disordered = np.ones(len(tied), bool), np.zeros(len(tied), bool)
    for values in ages:
        disordered |= undecided & (values[before] > values[after])
        undecided &= values[before] == values[after]
    by_age: Indices = np.lexsort((*reversed(ages), numbers)) if disordered.any() else order
    return by_age


def _always(fold: Fold) -> Fold:
    """Returns a variant of the fold (a function that merges the rows of each key) that also computes the result of
    keys with a single row. A fold that only selects rows is returned unchanged, because the result is then the single
    row itself.
    """
    return replace(fold, folds_lone_rows=True) if isinstance(fold, ComputedFold) else fold
