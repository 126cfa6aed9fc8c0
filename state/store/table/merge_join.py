"""The join of a merge: rows of the table, as they stream by, against the source rows of their key.

A source of one share is held in memory, and the table's rows pass by it. A larger one is joined share by share: rows of
the table that may match are kept aside, on local disk past the budget, until it is the turn of their share.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.wording import counted
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.merge_source import JoinKey, MergeSource, run_of_share
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import unseal


@dataclass(frozen=True, slots=True)
class Matched:
    """Rows of the table, and the source row of each."""

    target: pa.RecordBatch
    source: pa.Table


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Source rows that match no row of the table."""

    source: pa.Table


def join(
    source: MergeSource,
    target: Iterable[pa.RecordBatch],
    *,
    is_matched_used: bool,
    memory_bytes: int,
    directory: str | None,
) -> Iterator[Matched | Unmatched]:
    """The pairs, then the source rows that are left; share after share.

    Raises SchemaMismatchError for a row of the table with several source rows, where matched rows are changed.
    """
    candidates = _candidates(source, target)
    if source.share_count == 1:
        side = _Side(source.key, source.rows(0), is_matched_used)
        for rows, _ in candidates:
            yield from side.matched(rows)
        yield from side.unmatched()
        return
    with RunBuffer(budget_bytes=memory_bytes, directory=directory) as kept:
        for number, (rows, hashes) in enumerate(candidates):
            shares = source.share_of(hashes)
            for share in np.unique(shares).tolist():
                mine = pa.Table.from_batches([rows.filter(pa.array(shares == share))])
                kept.add(run_of_share(share, number, mine))
        for share in range(source.share_count):
            side = _Side(source.key, source.rows(share), is_matched_used)
            for _, blob in kept.take((b"", share)):
                for rows in unseal(blob):
                    yield from side.matched(rows)
            yield from side.unmatched()


def _candidates(source: MergeSource, target: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows whose key has the hash of a source row's key, and their hashes."""
    for rows in target:
        hashes = source.key.hashes(rows)
        found = np.searchsorted(source.hashes, hashes)
        found[found == len(source.hashes)] = 0
        may = source.hashes[found] == hashes if len(source.hashes) else np.zeros(len(hashes), bool)
        if may.all():
            yield rows, hashes
        elif may.any():
            yield rows.filter(pa.array(may)), hashes[may]


class _Side:
    """The source rows of one share, by key."""

    def __init__(self, key: JoinKey, rows: pa.Table, is_matched_used: bool) -> None:
        self._key, self._rows, self._is_matched_used = key, rows, is_matched_used
        encoded = key.of(rows).dictionary_encode()
        self._keys = encoded.dictionary
        self._codes = np.asarray(encoded.indices.fill_null(-1))
        count = len(self._keys)
        self._first = np.zeros(count, np.int64)
        known = np.flatnonzero(self._codes >= 0)[::-1]
        self._first[self._codes[known]] = known
        self._counts = np.bincount(self._codes[known], minlength=count)
        self._was_matched = np.zeros(count, bool)

    def matched(self, target: pa.RecordBatch) -> Iterator[Matched]:
        found = pc.index_in(self._key.of(target), value_set=self._keys, skip_nulls=True)
        hit = np.asarray(found.is_valid())
        if not hit.any():
            return
        codes = np.asarray(found.drop_null()).astype(np.int64)
        self._was_matched[codes] = True
        rows = target.filter(pa.array(hit))
        if self._is_matched_used:
            self._refuse_several(rows, codes)
        yield Matched(rows, self._rows.take(pa.array(self._first[codes])))

    def unmatched(self) -> Iterator[Unmatched]:
        is_left = np.ones(self._rows.num_rows, bool)
        known = self._codes >= 0
        is_left[known] = ~self._was_matched[self._codes[known]]
        if is_left.any():
            yield Unmatched(self._rows.filter(pa.array(is_left)))

    def _refuse_several(self, rows: pa.RecordBatch, codes: np.ndarray) -> None:
        several = np.flatnonzero(self._counts[codes] > 1)
        if len(several):
            at, count = int(several[0]), int(self._counts[codes[several[0]]])
            where = ", ".join(f"{name} = {rows[name][at].as_py()!r}" for name in self._key.columns)
            raise SchemaMismatchError(
                f"{counted(count, 'source row')} match the row of the table with {where}: it is not known which of "
                "them to take; leave one",
                columns=self._key.columns,
            )
