"""A key index filled at once: keys in any order → sorted files → one load, in bounded memory.

Keys are held as columns up to a budget. Beyond it they go to a spill file, are dealt to key ranges of about half the
budget by what a sample says, and each range is sorted alone: no merge, and every key meets its repeats.
The index is built under another name and renamed when it is whole.
"""

import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.bucket.key_entries import KeyEntries, concat_entries, key_borders, key_order
from bucketline.state.determinism import SYSTEM_IDS, IdSource
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.index_scope import IndexLabel, IndexScope
from bucketline.state.store.key_index import KeyIndex, entry_chunks, remove_index
from bucketline.state.store.rocks import RocksSettings, rocks_errors, rocks_options, write_sst

_BUILDING = ".building"
_SAMPLE_STEP = 997
_WARM_BYTES = 1 << 30
# Linux heeds two megabytes of one piece of advice and forgets the rest.
_WARM_STEP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class KeyBlock:
    """Keys of one bucket: n normalized full primary keys in any order, last written at `seconds` (local time)."""

    keys: pa.Array
    partition: bytes
    bucket: int
    seconds: int


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build took in: distinct keys, and bytes that went through the spill file."""

    keys: int
    spilled_bytes: int


class KeyIndexBuild:
    """Collects keys for a new index; use as a context, so that an abandoned build leaves nothing behind.

    `keep_latest` says what a key in two places means: the younger one counts (keys expire, and come back elsewhere);
    else it is an error, since no table that one job writes has it.
    """

    def __init__(
        self,
        directory: str,
        scope: IndexScope,
        settings: RocksSettings,
        *,
        keep_latest: bool = False,
        ids: IdSource = SYSTEM_IDS,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._keep_latest = keep_latest
        remove_dead_builds(directory)
        self._building = f"{directory}.{ids.new_uuid()}{_BUILDING}"
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        self._index = KeyIndex.create(self._building, scope, settings)
        Path(f"{self._building}/builder").write_text(f"{os.getpid()} {socket.gethostname()}")
        # While it is built the block cache is empty: its memory sorts keys.
        self._budget_bytes = settings.memory_bytes // 2
        self._held: list[KeyEntries] = []
        self._held_bytes = 0
        self._spill: _Spill | None = None
        self._rows: dict[tuple[int, int], int] = {}

    def add(self, block: KeyBlock) -> None:
        """Takes keys."""
        count = len(block.keys)
        if not count:
            return
        code = int(self._index.codes([block.partition])[0])
        entries = KeyEntries(
            block.keys,
            np.full(count, code, np.int32),
            np.full(count, block.bucket, np.int32),
            np.full(count, block.seconds, np.uint32),
        )
        self._held.append(entries)
        self._held_bytes += entries.size_bytes
        # Sorting holds the columns twice.
        if self._held_bytes * 2 > self._budget_bytes:
            self._flush()

    def finish(self, label: IndexLabel) -> BuildReport:
        """Loads what was collected and puts the index in its place, closed.

        Raises CorruptFileError for a key in two places, StorageError when the disk is full; the place is as before.
        """
        paths = []
        keys = 0
        options = rocks_options(self._settings)
        for number, entries in enumerate(self._ranges()):
            distinct = self._distinct(entries)
            self._count(distinct)
            path = f"{self._building}/keys-{number}.sst"
            with rocks_errors(self._building):
                if write_sst(path, options, entry_chunks(distinct)):
                    paths.append(path)
            keys += len(distinct)
        self._index.load(paths, self._rows, label)
        _warm(self._index)
        self._index.close()
        spilled = 0 if self._spill is None else self._spill.size_bytes
        self._drop_spill()
        remove_index(self._directory)
        os.rename(self._building, self._directory)
        return BuildReport(keys, spilled)

    def __enter__(self) -> "KeyIndexBuild":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._drop_spill()
        if os.path.isdir(self._building):
            self._index.close()
            shutil.rmtree(self._building, ignore_errors=True)

    def _flush(self) -> None:
        if self._spill is None:
            self._spill = _Spill(self._building)
        self._spill.write(concat_entries(self._held))
        self._held, self._held_bytes = [], 0

    def _ranges(self) -> Iterator[KeyEntries]:
        """All entries, a range of keys at a time, ranges ascending."""
        if self._spill is None:
            if self._held:
                held = concat_entries(self._held)
                self._held = []
                yield held
            return
        if self._held:
            self._flush()
        yield from self._spill.ranges(self._budget_bytes // 4)

    def _distinct(self, entries: KeyEntries) -> KeyEntries:
        """The entries ascending by key, each key once, the youngest of several."""
        found = entries.take(key_order(entries.keys))
        borders = key_borders(found.keys)
        if borders.all():
            return found
        repeats = np.flatnonzero(~borders)
        moved = (found.partitions[repeats] != found.partitions[repeats - 1]) | (
            found.buckets[repeats] != found.buckets[repeats - 1]
        )
        if moved.any() and not self._keep_latest:
            self._refuse(found, repeats[moved])
        found = entries.take(np.argsort(entries.seconds, kind="stable"))
        found = found.take(key_order(found.keys))
        return found.take(np.flatnonzero(np.append(borders[1:], True)))

    def _refuse(self, found: KeyEntries, rows: NDArray[np.int64]) -> None:
        here, before = int(rows[0]), int(rows[0]) - 1
        names = self._index.partitions([int(found.partitions[here]), int(found.partitions[before])])
        places = [(names[int(found.partitions[r])].hex(), int(found.buckets[r])) for r in (before, here)]
        raise CorruptFileError(
            f"{len(rows)} keys are in two places, the first in {places}: several jobs wrote this table at once, or "
            "keys expired ('cross-partition-upsert.index-ttl') and came back; delete the older rows, or set the option",
            places=places,
            keys=len(rows),
        )

    def _count(self, entries: KeyEntries) -> None:
        places, counts = np.unique((entries.partitions.astype(np.int64) << 32) | entries.buckets, return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            found = divmod(place, 1 << 32)
            self._rows[found] = self._rows.get(found, 0) + count

    def _drop_spill(self) -> None:
        if self._spill is not None:
            self._spill.close()
            self._spill = None


class _Spill:
    """Entries on disk, and a sample of their keys."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = f"{directory}/spill.arrow"
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._samples: list[pa.Array] = []
        self._skip = 0
        self.size_bytes = 0

    def write(self, entries: KeyEntries) -> None:
        batch = _batch(entries)
        with rocks_errors(self._directory):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._path, batch.schema)
            self._writer.write_batch(batch)
        self.size_bytes += entries.size_bytes
        picked = np.arange(self._skip, len(entries), _SAMPLE_STEP)
        self._samples.append(entries.keys.take(picked))
        self._skip = (self._skip - len(entries)) % _SAMPLE_STEP

    def ranges(self, range_bytes: int) -> Iterator[KeyEntries]:
        """The entries dealt to ranges of about that size, ranges ascending."""
        self.close()
        sample = pa.concat_arrays(self._samples)
        sample = sample.take(key_order(sample))
        count = -(-self.size_bytes // range_bytes)
        picked = np.unique(np.linspace(0, len(sample), count, endpoint=False).astype(np.int64)[1:])
        splitters = [sample[int(i)] for i in picked]
        names = [f"{self._directory}/range-{i}.arrow" for i in range(len(splitters) + 1)]
        self._deal(splitters, names)
        os.remove(self._path)
        for name in names:
            with pa.OSFile(name) as source, pa.ipc.open_stream(source) as reader:
                parts = [_entries(b) for b in reader]
            os.remove(name)
            if parts:
                yield concat_entries(parts)

    def _deal(self, splitters: list[pa.Scalar], names: list[str]) -> None:
        with pa.OSFile(self._path) as source, pa.ipc.open_stream(source) as reader, rocks_errors(self._directory):
            writers = [pa.ipc.new_stream(name, reader.schema) for name in names]
            for batch in reader:
                number = np.zeros(batch.num_rows, np.int64)
                for splitter in splitters:
                    number += np.asarray(pc.greater_equal(batch.column(0), splitter))
                order = np.argsort(number, kind="stable")
                ends = np.searchsorted(number[order], np.arange(len(names)), side="right")
                for writer, start, end in zip(writers, [0, *ends[:-1]], ends, strict=True):
                    if end > start:
                        writer.write_batch(batch.take(pa.array(order[start:end])))
            for writer in writers:
                writer.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def remove_dead_builds(directory: str) -> None:
    """Deletes what builds of this index left behind whose process is gone."""
    for path in Path(directory).parent.glob(f"{Path(directory).name}.*{_BUILDING}"):
        builder = path / "builder"
        if builder.is_file() and not _is_alive(builder.read_text()):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(builder: str) -> bool:
    pid, _, host = builder.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _warm(index: KeyIndex) -> None:
    """Asks the system to hold the files in its cache, which writing them has just driven out of it."""
    if not hasattr(os, "posix_fadvise"):
        return
    left = _WARM_BYTES
    for path in sorted(Path(f"{index.directory}/db").glob("*.sst")):
        with path.open("rb") as file:
            size = min(os.fstat(file.fileno()).st_size, left)
            for start in range(0, size, _WARM_STEP_BYTES):
                os.posix_fadvise(file.fileno(), start, _WARM_STEP_BYTES, os.POSIX_FADV_WILLNEED)
        left -= size


def _batch(entries: KeyEntries) -> pa.RecordBatch:
    columns = [entries.keys, pa.array(entries.partitions), pa.array(entries.buckets), pa.array(entries.seconds)]
    return pa.record_batch(columns, names=["key", "partition", "bucket", "seconds"])


def _entries(batch: pa.RecordBatch) -> KeyEntries:
    partitions, buckets, seconds = (np.asarray(batch.column(i)) for i in (1, 2, 3))
    return KeyEntries(batch.column(0), partitions, buckets, seconds)
