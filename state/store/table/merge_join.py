"""Joins the rows of a merge. The table's rows are read once, as a stream, and joined to the source rows with the same
key.

A source that fits into one share (a part of the keys, chosen by hash) is held in memory. A larger source is joined
share by share: the rows of the table that may match are stored until their share is joined, on local disk if these rows
exceed the memory budget.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.wording import counted
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.merge_source import JoinKey, MergeSource, run_of_share
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import unseal
from bucketline.state.types.hashes.hash_set import are_among

Passes = Callable[[pa.RecordBatch, pa.Table], np.ndarray]
"""A function that takes pairs of rows with the same key (the rows of the table, then the source rows), and returns a
boolean for each pair: whether the pair matches.
"""

_PAIRS = 1 << 18
"""The largest number of pairs that are checked at once. It is exceeded only if a single row of the table has more
pairs.
"""


@dataclass(frozen=True, slots=True)
class Matched:
    """Matched pairs: rows of the table, and for each row the source row that matches."""

    target: pa.RecordBatch
    source: pa.Table


@dataclass(frozen=True, slots=True)
class Alone:
    """Rows of the table that match no source row."""

    target: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class UnmatchedRows:
    """Source rows that match no row of the table. `is_key_in_table` is true for each source row whose key exists in the
    table although the row has no match.
    """

    source: pa.Table
    is_key_in_table: np.ndarray


def join(
    source: MergeSource,
    target: Iterable[pa.RecordBatch],
    *,
    passes: Passes | None,
    is_matched_used: bool,
    keeps_alone: bool,
    memory_bytes: int,
    directory: str | None,
) -> Iterator[Matched | Alone | UnmatchedRows]:
    """Joins rows of the source and rows of the table, one share (group of keys) after the other. Yields for each share
    the matched pairs of rows, and then the source rows without a match. With `keeps_alone` the function also yields the
    rows of the table that match no source row.

    A pair matches if its keys are equal and `passes` is true for the pair (None: for every pair). `target` are the rows
    of the table. If `is_matched_used`, that is if the merge changes matched rows, raises SchemaMismatchError for a row
    of the table that several source rows match.
    """

    def side(share: int) -> Side:
        return Side(source.key, source.rows(share), passes, is_matched_used, keeps_alone)

    if source.share_count == 1:
        only = side(0)
        for rows, _, may in _candidates(source, target):
            if keeps_alone and not may.all():
                yield Alone(rows.filter(pa.array(~may)))
            yield from only.matched(_those(rows, may))
        yield from only.unmatched()
        return
    with RunBuffer(budget_bytes=memory_bytes, directory=directory) as kept:
        for number, (rows, hashes, may) in enumerate(_candidates(source, target)):
            if keeps_alone and not may.all():
                yield Alone(rows.filter(pa.array(~may)))
            candidates, shares = _those(rows, may), source.share_of(hashes[may])
            for share in np.unique(shares).tolist():
                mine = pa.Table.from_batches([candidates.filter(pa.array(shares == share))])
                kept.add(run_of_share(share, number, mine))
        for share in range(source.share_count):
            source_side = side(share)
            for _, blob in kept.take((b"", share)):
                for rows in unseal(blob):
                    yield from source_side.matched(rows)
            yield from source_side.unmatched()


def _candidates(
    source: MergeSource, target: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, np.ndarray, np.ndarray]]:
    """Yields each batch of the table's rows with the hashes of the rows' keys, and a mask of the rows that may match a
    source row because their hash occurs in the source.
    """
    for rows in target:
        hashes = source.key.hashes(rows)
        yield rows, hashes, are_among(hashes, source.hashes)


def _those(rows: pa.RecordBatch, mask: np.ndarray) -> pa.RecordBatch:
    return rows if mask.all() else rows.filter(pa.array(mask))


class Side:
    """The source rows of one share (the keys that one task handles), indexed by key, so that rows of the table can be
    matched with these source rows. The arguments mean the same as in `join`.

    Most attributes form one index of the source rows by key. `_is_in_table` records which keys the table has.
    `_was_matched` records which source rows have matched a row of the table.
    """

    def __init__(
        self, key: JoinKey, rows: pa.Table, passes: Passes | None, is_matched_used: bool, keeps_alone: bool
    ) -> None:
        self._key, self._rows, self._passes = key, rows, passes
        self._is_matched_used, self._keeps_alone = is_matched_used, keeps_alone
        encoded = key.of(rows).dictionary_encode()
        self._keys = encoded.dictionary
        self._codes = np.asarray(encoded.indices.fill_null(-1))
        count = len(self._keys)
        known = np.flatnonzero(self._codes >= 0)
        self._by_key = known[np.argsort(self._codes[known], kind="stable")]
        self._counts = np.bincount(self._codes[known], minlength=count)
        self._first = np.cumsum(self._counts) - self._counts
        self._is_in_table = np.zeros(count, bool)
        self._was_matched = np.zeros(rows.num_rows, bool)

    def matched(self, target: pa.RecordBatch) -> Iterator[Matched | Alone]:
        """Takes rows of the table, and yields these rows in pairs with the source rows that match. If `keeps_alone` is
        true, also yields the rows of the table that match no source row.
        """
        indices = pc.index_in(self._key.of(target), value_set=self._keys, skip_nulls=True)
        hit = np.asarray(indices.is_valid())
        if self._keeps_alone and not hit.all():
            yield Alone(target.filter(pa.array(~hit)))
        if not hit.any():
            return
        codes = np.asarray(indices.drop_null()).astype(np.int64)
        self._is_in_table[codes] = True
        rows = _those(target, hit)
        if self._passes is None and not self._is_matched_used:
            return
        ends = np.cumsum(self._counts[codes])
        start = 0
        while start < len(codes):
            before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + _PAIRS, side="right")))
            yield from self._paired(rows.slice(start, end - start), codes[start:end])
            start = end

    def _paired(self, target: pa.RecordBatch, codes: np.ndarray) -> Iterator[Matched | Alone]:
        counts = self._counts[codes]
        of_target = np.repeat(np.arange(len(codes)), counts)
        within = np.arange(len(of_target)) - np.repeat(np.cumsum(counts) - counts, counts)
        of_source = self._by_key[np.repeat(self._first[codes], counts) + within]
        if self._passes is not None:
            passing = self._passes(target.take(pa.array(of_target)), self._rows.take(pa.array(of_source)))
            of_target, of_source = of_target[passing], of_source[passing]
        self._was_matched[of_source] = True
        matches = np.bincount(of_target, minlength=len(codes))
        if self._keeps_alone and not matches.all():
            yield Alone(target.filter(pa.array(matches == 0)))
        if self._is_matched_used and len(of_target):
            self._refuse_several(target, matches)
            yield Matched(target.take(pa.array(of_target)), self._rows.take(pa.array(of_source)))

    def unmatched(self) -> Iterator[UnmatchedRows]:
        """Yields the source rows that have matched no row of the table so far. Call this method after
        `matched` was called for all rows of the table.
        """
        # The appended False is for keys with nulls, whose code is -1.
        is_in_table = np.append(self._is_in_table, False)[self._codes]
        was_matched = is_in_table if self._passes is None else self._was_matched
        if not was_matched.all():
            left = np.flatnonzero(~was_matched)
            yield UnmatchedRows(self._rows.take(pa.array(left)), is_in_table[left])

    def _refuse_several(self, rows: pa.RecordBatch, matches: np.ndarray) -> None:
        several = np.flatnonzero(matches > 1)
        if len(several):
            at, count = int(several[0]), int(matches[several[0]])
            where = ", ".join(f"{name} = {rows[name][at].as_py()!r}" for name in self._key.columns)
            raise SchemaMismatchError(
                f"{counted(count, 'source row')} match the row of the table with {where}, and a merge cannot "
                "choose between them; keep only one of these rows in the source",
                columns=self._key.columns,
            )
