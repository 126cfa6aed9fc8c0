"""A source that joins rows of the table with a caller's rows. The rows of both sides are divided into shares by the
hash of their key.

Each share is sent to one task, which holds the caller's rows of the share in memory, and streams the table's rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from bucketline.state.store.engine.engine import PartReport
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.run_buffer import Blob, RunBuffer
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan, seal, unseal

GIVEN, STORED = b"given", b"stored"
"""The side of a join (the table's rows, or the caller's rows). It is stored in place of a sealed run's partition; the
run's bucket is the share.
"""

NO_SHARE = -1
"""The share of a row that cannot match any row of the other side."""


class RowsPart(Protocol):
    """Rows of the table that one task reads. The value can be sent to tasks."""

    def batches(self) -> Iterator[pa.RecordBatch]: ...


class ShareOf(Protocol):
    """A function that decides to which share of the keys a row belongs. The rows are rows of the table, or the caller's
    rows; the two are joined share by share. The function can be sent to tasks.
    """

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """Returns the rows in the form in which they are joined, and for each row the number of its share (the group of
        keys that one task joins). The number is `NO_SHARE` for a row that takes no part in the join.
        """
        ...


class ShareJoin(Protocol):
    """Joins the rows of one share (the keys that one task handles). `rows` takes the caller's rows and the table's rows
    of the share, and yields the rows to write, or reports. A ShareJoin can be sent to tasks.
    """

    def rows(self, source: pa.Table, stored: Iterator[pa.RecordBatch]) -> Iterator[pa.Table | PartReport]: ...


@dataclass(frozen=True, slots=True)
class Joined:
    """A source of the rows that `join` makes from rows of the table and the caller's rows. Both are divided into shares
    by the hash of their key, and `join` is called with one share at a time.

    - `stored` are the rows of the table.
    - `given` is a source of the caller's rows.
    - `given_schema` is the schema of the caller's rows in the form in which they are joined.
    - `memory_bytes` is how many bytes of packed rows a task holds in memory. Further rows are stored on disk in
      `directory`.
    """

    stored: Sequence[RowsPart]
    stored_share: ShareOf
    given: Any
    given_share: ShareOf
    given_schema: pa.Schema
    join: ShareJoin
    share_count: int
    memory_bytes: int
    directory: str | None = None


def share_runs(
    side: bytes, tables: Iterable[pa.Table], share_of: ShareOf, *, origin: int, budget_bytes: int
) -> Iterator[SealedRun]:
    """Yields the rows of `tables` as sealed runs (sorted, packed rows). Each run has only rows of one share, that is of
    the keys that one task handles; `share_of` returns the share of each row. Rows without a share are left out. The
    rows are collected, and divided into shares whenever `budget_bytes` of rows are in memory.

    The runs have no table buckets: instead of a partition a run has the bytes `side`, and instead of a bucket the
    share. `origin` is the origin of the runs (see `SealedRun`).
    """
    pending: list[tuple[pa.Table, np.ndarray]] = []
    size, flush = 0, 0
    for rows in tables:
        prepared, shares = share_of(rows)
        if not (shares != NO_SHARE).any():
            continue
        pending.append((prepared, shares))
        size += prepared.nbytes
        if size >= budget_bytes:
            for run in _split(side, pending, origin, flush):
                flush += 1
                yield run
            pending, size = [], 0
    yield from _split(side, pending, origin, flush)


def _split(side: bytes, pending: Sequence[tuple[pa.Table, np.ndarray]], origin: int, flush: int) -> Iterator[SealedRun]:
    if not pending:
        return
    rows = pa.concat_tables([part for part, _ in pending])
    shares = np.concatenate([numbers for _, numbers in pending])
    for share in np.unique(shares[shares != NO_SHARE]).tolist():
        mine = rows.take(pa.array(np.flatnonzero(shares == share)))
        yield SealedRun(side, share, origin, flush, 0, 0, mine.num_rows, seal(mine))
        flush += 1


def join_shares(
    joined: Joined, buffer: RunBuffer, sealer: SealPlan, *, origin: int
) -> Iterator[SealedRun | PartReport]:
    """Joins the source rows with the table's rows, one share (a part of the keys, chosen by hash) after the other.
    Yields the rows to write as sealed runs (sorted, packed rows), and reports for the code that has planned the join.

    `buffer` holds the rows of both sides, and is empty afterwards. `origin` is the number that the yielded runs get
    as their origin (see `SealedRun`).
    """
    out, acceptance = RunSealer(sealer, origin=origin), RowAcceptance(sealer.schema)
    for share in sorted({share for _, share in buffer.buckets()}):
        batches = [batch for _, blob in buffer.take((GIVEN, share)) for batch in unseal(blob)]
        rows = pa.Table.from_batches(batches, schema=joined.given_schema).combine_chunks()
        for result in joined.join.rows(rows, _unsealed(buffer.take((STORED, share)))):
            if isinstance(result, PartReport):
                yield result
            else:
                yield from out.add(acceptance.accept(result))
    yield from out.finish()


def _unsealed(runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[pa.RecordBatch]:
    for _, blob in runs:
        yield from unseal(blob)
