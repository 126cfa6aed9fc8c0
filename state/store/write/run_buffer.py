"""The reduce side of a write: holds sealed runs (sorted, packed rows) until all runs of a bucket have arrived. The runs
are in memory up to a budget, and beyond it in a spill file.

Runs arrive in any order. When the budget is used up, each further run is appended to an unlinked temporary file. It is
read back in parts when its bucket is merged. So a task needs `budget_bytes` of memory, however many rows it gets. The
file is not mapped into memory, because mapped pages count as memory of the worker process, and cluster managers kill
processes that use too much.
"""

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeAlias

import pyarrow as pa

from bucketline.state.commit.live_files import BucketId
from bucketline.state.store.storage.errors import local_disk
from bucketline.state.store.write.owned.owner_runs import OwnerRun, RunPlace, cut, opened, packed_again, stretches
from bucketline.state.store.write.sealed_runs import CutRows, SealedRun, unseal, write_packed


class SpilledBlob(io.RawIOBase):
    """The bytes of one sealed run in the spill file, as a file object of `size` bytes. The object has one read
    position, so only one reader may use it; `again` returns an object for a second reader.
    """

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

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self.size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def again(self) -> "SpilledBlob":
        """Returns a second file over the same bytes, with its own read position."""
        return SpilledBlob(self._descriptor, self._offset, self.size)


class OwnerBlob:
    """The rows of an `OwnerRun` (the sorted, packed rows of several buckets), in memory or on disk. The rows of one
    bucket are called a piece, and can be read without the rows of other buckets.

    The record batch that was read last stays in memory. Pieces are taken in the order of the sealed run, so the next
    piece often has rows in the same batch.
    """

    def __init__(self, blob: pa.Buffer | SpilledBlob, row_count: int) -> None:
        self._blob, self._row_count = blob, max(1, row_count)
        self._reader: pa.RecordBatchFileReader | None = None
        self._shared: tuple[int, pa.RecordBatch] | None = None

    def size_of(self, row_count: int) -> int:
        """Returns the approximate size of `row_count` rows in memory, in bytes; 0 if the rows are on disk."""
        return 0 if isinstance(self._blob, SpilledBlob) else int(self._blob.size * row_count // self._row_count)

    def shared(self, place: RunPlace) -> pa.Table:
        """Returns the rows at `place`: some rows of a record batch that also holds rows of other buckets. Only one
        thread at a time may call this method.
        """
        if self._shared is None or self._shared[0] != place.batch:
            if self._reader is None:
                self._reader = self.open()
            self._shared = place.batch, self._reader.get_batch(place.batch)
        return pa.Table.from_batches([self._shared[1].slice(place.first_row, place.row_count)])

    def cut(self, place: RunPlace) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one bucket from the sealed run (sorted, packed rows); `place` says where in the run they
        are. Only one thread at a time may call this method.
        """
        if self._reader is None:
            self._reader = self.open()
        return cut(self._reader, place)

    def open(self) -> pa.RecordBatchFileReader:
        """Returns a new reader of the record batches."""
        spilled = isinstance(self._blob, SpilledBlob)
        return opened(pa.PythonFile(self._blob.again(), "r") if spilled else self._blob)


class PieceBlob(CutRows):
    """The rows of one bucket or share in an `OwnerRun` (a sealed run with the rows of several buckets). The bucket has
    so many rows that they have record batches of their own. Any number of readers may read a PieceBlob.
    """

    def __init__(self, of: OwnerBlob, place: RunPlace) -> None:
        self._of, self._place = of, place

    @property
    def size(self) -> int:
        """Returns the approximate size of the rows in memory, in bytes; 0 if the rows are on disk."""
        return self._of.size_of(self._place.row_count)

    def reader(self) -> pa.RecordBatchReader:
        reader = self._of.open()
        return pa.RecordBatchReader.from_batches(reader.schema, cut(reader, self._place))


Blob: TypeAlias = pa.Buffer | pa.Table | SpilledBlob | PieceBlob
"""The rows of a sealed run in a form that `unseal` can read: bytes in memory (compressed or not), a table, or a part of
a file on disk.
"""


def again(blob: Blob) -> Blob:
    """Returns a second blob with the same rows. A blob on disk can be read only once, so each reader needs a blob of
    its own.
    """
    return blob.again() if isinstance(blob, SpilledBlob) else blob


def size_bytes(blob: bytes | Blob) -> int:
    """Returns how many bytes the sealed run (sorted, packed rows) in `blob` takes as it is now, compressed or not."""
    if isinstance(blob, bytes):
        return len(blob)
    return int(blob.nbytes if isinstance(blob, pa.Table) else blob.size)


class SpillFile(io.RawIOBase):
    """A temporary file that is removed when it is closed. If its folder does not exist, the folder is created.

    The file is not buffered, so a full disk causes an error when bytes are written, and not when the file is closed.
    Raises StorageError with the name of the folder.
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
        """Returns the position at which the next bytes are written: the end of the file."""
        return self._size

    def write(self, data: Any) -> int:
        """Appends all of the bytes, and returns their number."""
        rest = memoryview(data).cast("B")
        count = len(rest)
        with local_disk(self._directory):
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        self._size += count
        return count

    def blob(self, offset: int, size: int) -> SpilledBlob:
        """Returns a part of the spill file, from `offset` on, as a file of its own."""
        return SpilledBlob(self._file.fileno(), offset, size)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@dataclass(frozen=True, slots=True)
class Pieces:
    """The sealed runs (sorted, packed rows) of several neighbouring buckets, without their rows.

    `by_bucket` holds the runs of each bucket. `order` lists the runs in the order of their rows, with two indices for
    each run: the index of the bucket in `by_bucket`, and the index of the run among the bucket's runs.
    """

    by_bucket: Sequence[Sequence[SealedRun]]
    order: Sequence[tuple[int, int]]


class RunBuffer:
    """Collects sealed runs (sorted, packed rows) by bucket: in memory up to `budget_bytes`, and then in a file on local
    disk. Closing the buffer removes this file.

    With `packs_spills`, runs are compressed when they are written to disk. Runs that are Arrow tables are compressed
    then even without `packs_spills`.
    """

    def __init__(self, *, budget_bytes: int, directory: str | None = None, packs_spills: bool = False) -> None:
        self._budget_bytes, self._packs_spills = budget_bytes, packs_spills
        self._directory = directory
        self._held_bytes = 0
        self._spill: SpillFile | None = None
        self._spilled: dict[tuple[BucketId, int], tuple[int, int]] = {}
        self._runs: dict[BucketId, list[SealedRun]] = {}
        self._pieces: dict[BucketId, list[tuple[SealedRun, OwnerBlob, RunPlace]]] = {}
        self.spilled_bytes = 0

    def add(self, run: SealedRun | OwnerRun) -> None:
        """Adds a sealed run (sorted, packed rows). If the memory budget is used up, the run is written to disk."""
        if isinstance(run, OwnerRun):
            self._add_pieces(run)
            return
        runs = self._runs.setdefault((run.partition, run.bucket), [])
        if self._is_held(size_bytes(run.blob)):
            runs.append(run)
            return
        is_loose = self._packs_spills or isinstance(run.blob, pa.Table)
        place = self._spill_rows(unseal(run.blob)) if is_loose else self._spill_bytes(run.blob)
        self._spilled[(run.partition, run.bucket), len(runs)] = place
        runs.append(replace(run, blob=b""))

    def _add_pieces(self, run: OwnerRun) -> None:
        blob: pa.Buffer | SpilledBlob = pa.py_buffer(run.blob)
        if not self._is_held(blob.size):
            blob = self._spilled_blob(*self._spill_bytes(packed_again(blob) if self._packs_spills else blob))
        of = OwnerBlob(blob, run.row_count)
        for piece, place in run.runs():
            self._pieces.setdefault((piece.partition, piece.bucket), []).append((piece, of, place))

    def _is_held(self, size: int) -> bool:
        """Returns True if `size` more bytes fit into the memory budget, and then counts them as used."""
        if self._held_bytes + size > self._budget_bytes:
            return False
        self._held_bytes += size
        return True

    def _spill_bytes(self, blob: bytes | pa.Buffer) -> tuple[int, int]:
        """Appends the bytes to the spill file. Returns the position at which they begin in the file, and how many they
        are.
        """
        spill = self._spill_file()
        place = spill.tell(), len(blob)
        spill.write(blob)
        self.spilled_bytes += len(blob)
        return place

    def _spill_rows(self, rows: pa.RecordBatchReader) -> tuple[int, int]:
        """Compresses the rows, and appends them to the spill file. Only one record batch is in memory at a time.
        Returns the position at which the rows begin in the file, and how many bytes they take there.
        """
        spill = self._spill_file()
        start = spill.tell()
        write_packed(rows, spill)
        size = spill.tell() - start
        self.spilled_bytes += size
        return start, size

    def _spill_file(self) -> SpillFile:
        if self._spill is None:
            self._spill = SpillFile(self._directory)
        return self._spill

    def buckets(self) -> list[BucketId]:
        """Returns the buckets that have runs, in order."""
        return sorted(self._runs.keys() | self._pieces.keys())

    @property
    def size_bytes(self) -> int:
        """Returns the size of all sealed runs in bytes, in memory and on disk."""
        return self._held_bytes + self.spilled_bytes

    def row_count(self, bucket_id: BucketId) -> int:
        """Returns the number of rows in the runs of a bucket."""
        of_pieces = sum(piece.row_count for piece, _, _ in self._pieces.get(bucket_id, ()))
        return of_pieces + sum(run.row_count for run in self._runs.get(bucket_id, ()))

    def take(self, bucket_id: BucketId) -> list[tuple[SealedRun, Blob]]:
        """Removes the sealed runs (sorted, packed rows) of a bucket from the buffer. Returns each run with the blob
        that holds its rows. The runs are ordered by the task that has sent them (`origin`), and then as this task has
        sent them (`flush`).

        Each blob can be read once, while the buffer is open. Only one thread at a time may call this method. Taking the
        buckets in ascending order is cheapest.
        """
        runs = self._runs.pop(bucket_id, [])
        pairs: list[tuple[SealedRun, Blob]] = []
        for position, run in enumerate(runs):
            place = self._spilled.pop((bucket_id, position), None)
            pairs.append((run, _held(run.blob) if place is None else self._spilled_blob(*place)))
            self._held_bytes -= size_bytes(run.blob)
        for piece, of, where in self._pieces.pop(bucket_id, ()):
            pairs.append((piece, PieceBlob(of, where) if where.is_alone else of.shared(where)))
            self._held_bytes -= of.size_of(piece.row_count)
        return sorted(pairs, key=lambda pair: (pair[0].origin, pair[0].flush))

    def small_bytes(self, bucket_id: BucketId, most_rows: int) -> int | None:
        """Returns the approximate size of a bucket's rows, in bytes, if the bucket is small; otherwise returns None.
        A bucket is small if all its sealed runs have come inside runs of many buckets (`OwnerRun`), and have at most
        `most_rows` rows on average. A bucket without runs is not small.
        """
        pieces = self._pieces.get(bucket_id, ())
        if not pieces or bucket_id in self._runs or sum(p.row_count for p, _, _ in pieces) > most_rows * len(pieces):
            return None
        return sum(place.row_bytes for _, _, place in pieces)

    def take_pieces(self, bucket_ids: Sequence[BucketId]) -> tuple["Pieces", pa.Table]:
        """Removes neighbouring buckets from the buffer. Returns the sealed runs of these buckets, and one table with
        the rows of all these runs.
        """
        by_bucket: list[list[SealedRun]] = []
        of_blobs: dict[int, list[tuple[OwnerBlob, RunPlace, int, int]]] = {}
        for bucket, bucket_id in enumerate(bucket_ids):
            runs = list[SealedRun]()
            for piece, of, place in self._pieces.pop(bucket_id):
                of_blobs.setdefault(id(of), []).append((of, place, bucket, len(runs)))
                runs.append(piece)
                self._held_bytes -= of.size_of(piece.row_count)
            by_bucket.append(runs)
        batches, order = list[pa.RecordBatch](), list[tuple[int, int]]()
        for pieces in of_blobs.values():
            order += [(bucket, number) for _, _, bucket, number in pieces]
            for stretch in stretches([place for _, place, _, _ in pieces]):
                batches += pieces[0][0].cut(stretch)
        return Pieces(by_bucket, order), pa.Table.from_batches(batches).combine_chunks()

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
