"""Merges sorted runs into one sorted stream with one row for each key, in bounded memory.

One record batch of each sorted run is in memory at a time. The smallest of the last keys of these batches is called the
frontier: all rows up to this key are in memory. So these rows can be sorted and merged, and no key is split. Only keys
and sequences are sorted. The other columns are moved once; if the fold (the function that merges the rows of a key)
only selects rows, only the selected rows are moved.
Source: Paimon 2.0 SortMergeReader (order of the rows of one key), MergeTreeReaders.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.lsm.merge.fold import Fold, KeepAll, Selection, Starts, Unmoved, Visible
from bucketline.state.lsm.tree.sort_keys import SortKeys, count_up_to, last_key, merge_order, sequence_columns
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND, logical_type
from bucketline.state.types.logical import DataType
from bucketline.state.types.order import normalized_keys

RowOrder = NDArray[np.int64]

Look = Callable[[pa.Table, RowOrder | None, Starts], None]
"""A function that looks at rows before they are merged. It is called with the rows, their order, and a mask of the
first row of each key. Row n in key order is row `order[n]`; if the order is None, the rows are already in key order.
"""


def merge_runs(
    runs: Sequence[Iterator[pa.RecordBatch]],
    keys: Sequence[str],
    sequence_fields: Sequence[str],
    descending: bool,
    fold: Fold,
    batch_rows: int,
    batch_bytes: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    oldest_first: bool = False,
    look: Look | None = None,
) -> Iterator[pa.RecordBatch]:
    """Merges sorted runs, and yields the result in key order. `fold` is the function that merges the rows of each key
    into at most one row.

    Every run is sorted by the `keys` columns, and all runs have the same schema, which includes `_SEQUENCE_NUMBER` and
    `_VALUE_KIND`. The yielded batches have this schema, and have from one to `batch_rows` rows. If `columns` is given,
    the yielded batches have only these columns; this is allowed only for folds that select rows.

    The rows of a key are merged from the oldest to the newest. Their order is by `sequence_fields` (null is oldest;
    `descending` reverses the order of values), then by sequence number, then by the order of the runs. If
    `oldest_first` is true, each run has unique keys and larger sequence numbers than the runs before it, and the column
    `_SEQUENCE_NUMBER` may be missing.

    A key may be several times in a run, except if `oldest_first` is true, or if the run is the only one and the fold
    selects rows: such a run is returned unchanged. `look` is called with all rows of each key that has several rows.
    Memory use is about one batch of each run, plus four times the smaller of `batch_rows` rows and `batch_bytes` bytes.
    """
    assert columns is None or isinstance(fold, Selection), "a fold that computes rows needs all columns"
    if len(runs) == 1 and isinstance(fold, Selection) and not isinstance(fold, Visible) and columns is None:
        yield from (b for b in runs[0] if b.num_rows)
        return
    plan = _Plan(tuple(keys), tuple(sequence_fields), descending, fold, columns, oldest_first, look)
    cursors = [c for rank, run in enumerate(runs) if (c := _Cursor(rank, run, plan.keys)).advance()]
    while cursors:
        gathered: dict[int, list[_Slice]] = {}
        rows = size = 0
        while cursors and rows < batch_rows and (batch_bytes is None or size < batch_bytes):
            frontier = min(c.last for c in cursors)
            for cursor in cursors:
                for piece in cursor.take_up_to(frontier):
                    gathered.setdefault(cursor.rank, []).append(piece)
                    rows += len(piece.keys)
                    size += 0 if batch_bytes is None else piece.rows.nbytes
            cursors = [c for c in cursors if c.batch is not None]
        merged = _merge([_Piece(rank, slices) for rank, slices in gathered.items()], plan)
        for batch in merged.to_batches(max_chunksize=batch_rows):
            if batch.num_rows:
                yield batch


def merge_rows(
    rows: pa.Table,
    keys: Sequence[str],
    sequence_fields: Sequence[str],
    descending: bool,
    fold: Fold,
    batch_rows: int,
    *,
    look: Look | None = None,
) -> Iterator[pa.RecordBatch]:
    """Merges rows that are all in memory, and yields the result as `merge_runs` does; the arguments mean the same. The
    rows may have any order, and all have different sequence numbers.

    Memory use is up to three times the size of the rows.
    """
    plan = _Plan(tuple(keys), tuple(sequence_fields), descending, fold, None, False, look)
    columns = [rows[k].combine_chunks() for k in keys]
    normalized = normalized_keys(columns, [_key_type(c.type) for c in columns])
    order, starts = merge_order([normalized], are_sorted=False)
    ranks = np.zeros(rows.num_rows, np.int64)
    for batch in _folded(rows, order, starts, ranks, plan).to_batches(max_chunksize=batch_rows):
        if batch.num_rows:
            yield batch


def sort_rows(
    rows: pa.Table,
    groups: NDArray[np.int64],
    keys: Sequence[str],
    sequence_fields: Sequence[str],
    descending: bool,
) -> tuple[pa.Table, Starts]:
    """Sorts rows that may have any order: by group, within a group by key, and for one key from the oldest row to the
    newest (by the sequence fields, then by sequence number). Returns the sorted rows, and a mask that is true at the
    first row of each key in each group.

    `groups` has the number of each row's group, from 0. All rows of a group have different sequence numbers.
    """
    columns = [rows[k].combine_chunks() for k in keys]
    order, key_starts = merge_order([normalized_keys(columns, [_key_type(c.type) for c in columns])], are_sorted=False)
    assert order is not None, "rows in any order always get a sort order"
    # Rows are sorted by key first and then by group, because numpy's radix sort of 16-bit integers is fast and stable.
    of_rows = groups[order]
    by_group = np.argsort(of_rows.astype(np.uint16) if of_rows.max(initial=0) < 1 << 16 else of_rows, kind="stable")
    key_of_row = np.cumsum(key_starts, dtype=np.int64)[by_group]
    order, of_rows = order[by_group], of_rows[by_group]
    starts = np.ones(len(order), bool)
    starts[1:] = (key_of_row[1:] != key_of_row[:-1]) | (of_rows[1:] != of_rows[:-1])
    if not starts.all():
        plan = _Plan(tuple(keys), tuple(sequence_fields), descending, KeepAll(), None, False, None)
        aged = _by_age(order, starts, np.zeros(len(order), np.int64), rows, plan)
        assert aged is not None, "the rows have a sort order"
        order = aged
    return _take(rows, order), starts


def fold_sorted(
    rows: pa.Table, starts: Starts, fold: Fold, batch_rows: int, *, look: Look | None = None
) -> Iterator[pa.RecordBatch]:
    """Merges the rows of each key, and yields the merged rows as `merge_runs` does. `rows` are sorted by key, and the
    rows of one key by age. `starts` is true at the first row of each key.
    """
    plan = _Plan((), (), False, fold, None, True, look)
    for batch in _folded(rows, None, starts, np.zeros(0, np.int64), plan).to_batches(max_chunksize=batch_rows):
        if batch.num_rows:
            yield batch


@dataclass(frozen=True, slots=True)
class _Plan:
    keys: tuple[str, ...]
    sequence_fields: tuple[str, ...]
    descending: bool
    fold: Fold
    columns: Sequence[str] | None
    oldest_first: bool
    look: Look | None

    @property
    def keeps_order(self) -> bool:
        """Returns True if rows need not be sorted by age: when the sorted runs are joined one after the other, the
        oldest row of each key comes first already.
        """
        return self.oldest_first and not self.sequence_fields


@dataclass(frozen=True, slots=True)
class _Slice:
    rows: pa.RecordBatch
    keys: SortKeys


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one sorted run in one merge step, in key order."""

    rank: int
    slices: list[_Slice]

    @property
    def row_count(self) -> int:
        return sum(len(s.keys) for s in self.slices)

    @property
    def first_sequence(self) -> int:
        number: int = self.slices[0].rows.column(SEQUENCE)[0].as_py()
        return number


@dataclass(slots=True)
class _Cursor:
    """The current record batch of a sorted run and the next row in it; `batch` is None at the end of the run."""

    rank: int
    run: Iterator[pa.RecordBatch]
    key_columns: Sequence[str]
    batch: pa.RecordBatch | None = None
    last: Any = None
    _keys: SortKeys | None = field(default=None, repr=False)
    _taken: int = 0

    def advance(self) -> bool:
        """Moves to the next batch that has rows. Returns False if there is no such batch."""
        self.batch = next((b for b in self.run if b.num_rows), None)
        if self.batch is None:
            return False
        columns = [self.batch.column(k) for k in self.key_columns]
        self._keys = normalized_keys(columns, [_key_type(c.type) for c in columns])
        self._taken, self.last = 0, last_key(self._keys)
        return True

    def take_up_to(self, frontier: Any) -> Iterator[_Slice]:
        """Yields the next rows whose keys are at most `frontier`. If the following batches begin with the key
        `frontier`, their rows with this key are included.
        """
        while self.batch is not None and self._keys is not None:
            rest = self._keys.slice(self._taken)
            # In most cases all remaining rows are taken, and no search is needed.
            count = len(rest) if self.last <= frontier else count_up_to(rest, frontier)
            if count:
                yield _Slice(self.batch.slice(self._taken, count), rest.slice(0, count))
            self._taken += count
            if count < len(rest) or not self.advance():
                return


@lru_cache(256)
def _key_type(arrow: pa.DataType) -> DataType:
    return logical_type(arrow, False)


def _merge(pieces: list[_Piece], plan: _Plan) -> pa.Table:
    # Runs with older rows come first. Sequence numbers of runs rarely overlap, so the rows of a key are then usually in
    # order already.
    pieces = sorted(pieces, key=lambda p: (0 if plan.oldest_first else p.first_sequence, p.rank))
    order, starts = merge_order([_joined([s.keys for s in p.slices]) for p in pieces])
    rows = pa.Table.from_batches([s.rows for p in pieces for s in p.slices])
    ranks = np.repeat([p.rank for p in pieces], [p.row_count for p in pieces])
    return _folded(rows, order, starts, ranks, plan)


def _folded(rows: pa.Table, order: RowOrder | None, starts: Starts, ranks: RowOrder, plan: _Plan) -> pa.Table:
    """Merges the rows of each key, and returns the merged rows in key order. `order` has the positions of the rows in
    key order; if it is None, the rows are in key order already. `starts` is true at the first row of each key. `ranks`
    says for each row from which sorted run it comes.
    """
    if plan.look is not None:
        plan.look(rows, order, starts)
    if not plan.keeps_order and not starts.all():
        order = _by_age(order, starts, ranks, rows, plan)
    if isinstance(plan.fold, Selection):
        kinds = rows[VALUE_KIND].to_numpy()
        chosen = plan.fold.select(starts, kinds if order is None else kinds[order])
        rows = rows if plan.columns is None else rows.select(plan.columns)
        if order is not None:
            return _take(rows, order[chosen])
        return rows if len(chosen) == rows.num_rows else _take(rows, chosen)
    if isinstance(plan.fold, Unmoved):
        return plan.fold.fold_in_order(rows, order, starts)
    return plan.fold.fold(rows if order is None else _take(rows, order), starts)


def _by_age(order: RowOrder | None, starts: Starts, ranks: RowOrder, rows: pa.Table, plan: _Plan) -> RowOrder | None:
    """Takes an order in which the rows are sorted by key, and returns an order in which the oldest row of each key also
    comes first. An order is an array of row numbers; None stands for the rows as they are. `ranks` decides between rows
    that are equally old. Only keys whose rows are not in this order yet are sorted.
    """
    tied = np.flatnonzero(~starts)
    before, after = (tied - 1, tied) if order is None else (order[tied - 1], order[tied])
    columns = [rows[f].combine_chunks() for f in plan.sequence_fields]
    ages = sequence_columns(columns, [logical_type(c.type, False) for c in columns], descending=plan.descending)
    if not plan.oldest_first:
        ages.append(rows[SEQUENCE].to_numpy())
    undecided = np.ones(len(tied), bool)
    disordered = np.zeros(len(tied), bool)
    for values in ages:
        left, right = values[before], values[after]
        disordered |= undecided & (left > right)
        undecided &= left == right
    if not plan.oldest_first:
        disordered |= undecided
    if not disordered.any():
        return order
    key_of_row = np.cumsum(starts, dtype=np.int64) - 1
    moved = np.zeros(int(key_of_row[-1]) + 1, bool)
    moved[key_of_row[tied[disordered]]] = True
    places = np.flatnonzero(moved[key_of_row])
    new_order = np.arange(len(starts)) if order is None else order
    affected = new_order[places]
    by_age = np.lexsort((ranks[affected], *(values[affected] for values in reversed(ages)), key_of_row[places]))
    new_order[places] = affected[by_age]
    return new_order


def _take(rows: pa.Table, indices: RowOrder) -> pa.Table:
    # Bounds need not be checked, because all indices are positions of these rows.
    return pc.take(rows, pa.array(indices), boundscheck=False)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
