"""Reduce side: sealed runs kept until all of a bucket have arrived, in memory up to a budget, then in one spill file.

Runs of one shard arrive in any order. Past the budget each further blob is appended to an unlinked temporary file and
mapped back when its bucket is merged, so that a shard of any size is held in `budget_bytes` of memory.
"""

import mmap
import os
import tempfile
from dataclasses import replace
from types import TracebackType
from typing import IO

import pyarrow as pa

from bucketline.state.store.sealed_runs import SealedRun
from bucketline.state.store.table_view import BucketId


class RunShelf:
    """Sealed runs by bucket; close it to free the spill file."""

    def __init__(self, *, budget_bytes: int, directory: str | None = None) -> None:
        self._budget_bytes = budget_bytes
        self._directory = directory
        self._held_bytes = 0
        self._spill: IO[bytes] | None = None
        self._spilled: dict[tuple[BucketId, int], tuple[int, int]] = {}
        self._runs: dict[BucketId, list[SealedRun]] = {}
        self.spilled_bytes = 0

    def add(self, run: SealedRun) -> None:
        """Takes a run; its blob moves to disk when the budget is used up."""
        runs = self._runs.setdefault((run.partition, run.bucket), [])
        if self._held_bytes + len(run.blob) <= self._budget_bytes:
            self._held_bytes += len(run.blob)
            runs.append(run)
            return
        if self._spill is None:
            if self._directory is not None:
                os.makedirs(self._directory, exist_ok=True)
            self._spill = tempfile.TemporaryFile(prefix="bucketline-runs-", dir=self._directory)  # noqa: SIM115
        place = (self._spill.tell(), len(run.blob))
        self._spill.write(run.blob)
        self.spilled_bytes += len(run.blob)
        self._spilled[(run.partition, run.bucket), len(runs)] = place
        runs.append(replace(run, blob=b""))

    def buckets(self) -> list[BucketId]:
        """The buckets that have runs, in order."""
        return sorted(self._runs)

    def take(self, bucket_id: BucketId) -> list[tuple[SealedRun, pa.Buffer]]:
        """The runs of a bucket and their blobs, by (origin, flush): arrival order. They leave the shelf."""
        runs = self._runs.pop(bucket_id, [])
        found = []
        spilled = self._mapped() if any((bucket_id, i) in self._spilled for i in range(len(runs))) else None
        for position, run in enumerate(runs):
            place = self._spilled.pop((bucket_id, position), None)
            found.append((run, pa.py_buffer(run.blob) if place is None or spilled is None else spilled.slice(*place)))
            self._held_bytes -= len(run.blob)
        return sorted(found, key=lambda pair: (pair[0].origin, pair[0].flush))

    def _mapped(self) -> pa.Buffer:
        """All that is in the spill file now; mapped once for a bucket, as a process may have 65,530 maps."""
        assert self._spill is not None
        self._spill.flush()
        return pa.py_buffer(mmap.mmap(self._spill.fileno(), 0, access=mmap.ACCESS_READ))

    def __enter__(self) -> "RunShelf":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spill is not None:
            self._spill.close()
