"""Reduce side: sealed runs kept until all of a bucket have arrived, in memory up to a budget, then in one spill file.

Runs arrive in any order. Past the budget each further blob is appended to an unlinked temporary file and read back
piece by piece when its bucket is merged, so that a share of any size is held in `budget_bytes` of memory.
The file is not mapped into memory: pages of a map count as the worker's own, and cluster managers kill by that.
"""

import io
import os
import tempfile
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias

import pyarrow as pa

from bucketline.state.commit.live_files import BucketId
from bucketline.state.store.storage.errors import local_disk
from bucketline.state.store.write.sealed_runs import SealedRun, seal, unseal


class SpilledBlob(io.RawIOBase):
    """A blob in the spill file as a file of its own, `size` bytes long, for one reader."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        super().__init__()
        self._descriptor, self._offset, self.size = descriptor, offset, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self.size - self._position)
        data = os.pread(self._descriptor, wanted, self._offset + self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def again(self) -> "SpilledBlob":
        """The same bytes for another reader."""
        return SpilledBlob(self._descriptor, self._offset, self.size)


Blob: TypeAlias = pa.Buffer | pa.Table | SpilledBlob
"""The rows of a run as `unseal` takes them."""


def again(blob: Blob) -> Blob:
    """The same run for one more reader: each can be read once."""
    return blob.again() if isinstance(blob, SpilledBlob) else blob


def size_bytes(blob: bytes | Blob) -> int:
    """The bytes of a run: of its stream, packed or not, or of its rows in memory."""
    if isinstance(blob, bytes):
        return len(blob)
    return int(blob.nbytes if isinstance(blob, pa.Table) else blob.size)


class SpillFile(io.RawIOBase):
    """A temporary file that goes when it is closed, in a folder that is made if it is not there.

    It is not buffered, so that a full disk is met where bytes are written and not where the file is closed. Raises
    StorageError naming the folder.
    """

    def __init__(self, directory: str | None) -> None:
        super().__init__()
        self._directory = directory or tempfile.gettempdir()
        self._size = 0
        with local_disk(self._directory):
            os.makedirs(self._directory, exist_ok=True)
            self._file = tempfile.TemporaryFile(  # noqa: SIM115
                prefix="bucketline-runs-", dir=self._directory, buffering=0
            )

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """Where the next bytes go: behind all others."""
        return self._size

    def write(self, data: Any) -> int:
        """Appends all of the bytes; returns how many."""
        rest = memoryview(data).cast("B")
        count = len(rest)
        with local_disk(self._directory):
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        self._size += count
        return count

    def blob(self, offset: int, size: int) -> SpilledBlob:
        """Some of the bytes, as a file."""
        return SpilledBlob(self._file.fileno(), offset, size)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class RunBuffer:
    """Sealed runs by bucket; close it to free the spill file. With `packs_spills` runs come as they are, and are
    compressed where they go to disk, as rows that are no stream always are.
    """

    def __init__(self, *, budget_bytes: int, directory: str | None = None, packs_spills: bool = False) -> None:
        self._budget_bytes, self._packs_spills = budget_bytes, packs_spills
        self._directory = directory
        self._held_bytes = 0
        self._spill: SpillFile | None = None
        self._spilled: dict[tuple[BucketId, int], tuple[int, int]] = {}
        self._runs: dict[BucketId, list[SealedRun]] = {}
        self.spilled_bytes = 0

    def add(self, run: SealedRun) -> None:
        """Takes a run; its blob moves to disk when the budget is used up."""
        runs = self._runs.setdefault((run.partition, run.bucket), [])
        if self._held_bytes + size_bytes(run.blob) <= self._budget_bytes:
            self._held_bytes += size_bytes(run.blob)
            runs.append(run)
            return
        if self._spill is None:
            self._spill = SpillFile(self._directory)
        is_loose = self._packs_spills or isinstance(run.blob, pa.Table)
        blob = seal(unseal(run.blob).read_all()) if is_loose else run.blob
        place = (self._spill.tell(), len(blob))
        self._spill.write(blob)
        self.spilled_bytes += len(blob)
        self._spilled[(run.partition, run.bucket), len(runs)] = place
        runs.append(replace(run, blob=b""))

    def buckets(self) -> list[BucketId]:
        """The buckets that have runs, in order."""
        return sorted(self._runs)

    @property
    def size_bytes(self) -> int:
        """The bytes of all runs, those on disk included."""
        return self._held_bytes + self.spilled_bytes

    def row_count(self, bucket_id: BucketId) -> int:
        """The rows of a bucket's runs."""
        return sum(run.row_count for run in self._runs.get(bucket_id, ()))

    def take(self, bucket_id: BucketId) -> list[tuple[SealedRun, Blob]]:
        """The runs of a bucket and their blobs, by (origin, flush): arrival order. They leave the buffer.

        Each blob can be read once, while the buffer is open.
        """
        runs = self._runs.pop(bucket_id, [])
        pairs = []
        for position, run in enumerate(runs):
            place = self._spilled.pop((bucket_id, position), None)
            pairs.append((run, _held(run.blob) if place is None else self._spilled_blob(*place)))
            self._held_bytes -= size_bytes(run.blob)
        return sorted(pairs, key=lambda pair: (pair[0].origin, pair[0].flush))

    def _spilled_blob(self, offset: int, size: int) -> SpilledBlob:
        assert self._spill is not None
        return self._spill.blob(offset, size)

    def __enter__(self) -> "RunBuffer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spill is not None:
            self._spill.close()


def _held(blob: bytes | pa.Buffer | pa.Table) -> pa.Buffer | pa.Table:
    return blob if isinstance(blob, pa.Table) else pa.py_buffer(blob)
