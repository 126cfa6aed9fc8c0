"""Builds a key index from keys in any order, in bounded memory: the keys are written to sorted files, which RocksDB
then loads.

Keys are held as columns up to a memory budget. Further keys go to a spill file, and are divided, by a sample, into key
ranges of about half the budget. Each range is sorted separately, so nothing has to be merged, and all repeats of a key
are in one range. The index is built in a temporary folder, which is renamed when the index is complete.
"""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.conf.wording import counted
from bucketline.state.bucket.key_entries import KeyEntries, key_borders, key_order, stored_keys, stored_places
from bucketline.state.determinism import World
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.key_index.index_scope import IndexLabel, IndexScope
from bucketline.state.store.key_index.key_index import CHUNK_ROWS, KeyIndex, remove_index
from bucketline.state.store.key_index.key_spill import KeySpill, SourcedKeys, concat_keys
from bucketline.state.store.key_index.rocks import RocksSettings, rocks_errors, rocks_options, write_sst
from bucketline.state.store.storage.errors import local_disk

WrittenBucket = tuple[int, int, int]
"""A partition code, a bucket, and the time in seconds at which the bucket's keys were last written."""

_BUILDING = ".building"
_WARM_BYTES = 1 << 30
# Linux follows the advice only for the first two megabytes of each call.
_WARM_STEP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class KeyBlock:
    """A block of keys of one bucket. `keys` are full primary keys in normalized form, in any order. `seconds` is the
    local time at which these keys were last written, in seconds since 1970.
    """

    keys: pa.Array
    partition: bytes
    bucket: int
    seconds: int


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of a build: the number of distinct keys, and of bytes that were written to the spill file."""

    keys: int
    spilled_bytes: int


class KeyIndexBuild:
    """Collects the keys of a new index. Use the build in a `with` block, so that an interrupted build leaves no files.

    With `keep_latest`, if a key is in several buckets, only the newest of them counts, because an expired key may come
    back in another partition. Without `keep_latest`, a key in two buckets is an error: it shows that several jobs wrote
    the table.
    """

    def __init__(
        self,
        directory: str,
        scope: IndexScope,
        settings: RocksSettings,
        *,
        keep_latest: bool = False,
        world: World,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._keep_latest = keep_latest
        remove_dead_builds(directory)
        self._building = f"{directory}.{world.ids.new_uuid()}{_BUILDING}"
        with local_disk(directory):
            os.makedirs(os.path.dirname(directory), exist_ok=True)
        try:
            self._index = KeyIndex.create(self._building, scope, settings)
            with local_disk(directory):
                Path(f"{self._building}/builder").write_text(f"{os.getpid()} {socket.gethostname()}")
        except BaseException:
            shutil.rmtree(self._building, ignore_errors=True)
            raise
        # The block cache stays empty during the build, so its memory is used to sort keys.
        self._budget_bytes = settings.memory_bytes // 2
        self._held: list[SourcedKeys] = []
        self._held_bytes = 0
        self._spill: KeySpill | None = None
        self._sources: dict[WrittenBucket, int] = {}
        self._rows: dict[tuple[int, int], int] = {}

    def add(self, block: KeyBlock) -> None:
        """Adds the keys of a block to the index."""
        if not len(block.keys):
            return
        source = (int(self._index.codes([block.partition])[0]), block.bucket, block.seconds)
        number = self._sources.setdefault(source, len(self._sources))
        sourced = SourcedKeys(block.keys, np.full(len(block.keys), number, np.uint32))
        self._held.append(sourced)
        self._held_bytes += sourced.size_bytes
        # Sorting needs the columns twice in memory.
        if self._held_bytes * 2 > self._budget_bytes:
            self._flush()

    def finish(self, label: IndexLabel) -> BuildReport:
        """Builds the index from the collected keys, closes the index, and renames its folder to the final name.
        Returns the number of keys, and the size of the spill file. Raises CorruptFileError for a key in two buckets,
        and StorageError if the disk is full; after an error there is no index.
        """
        paths = []
        keys = 0
        options = rocks_options(self._settings)
        places = self._places()
        values = np.array(stored_places(places), object)
        for number, key_range in enumerate(self._ranges()):
            distinct = self._distinct(key_range, places)
            self._count(distinct, places)
            path = f"{self._building}/keys-{number}.sst"
            with rocks_errors(self._building):
                if write_sst(path, options, _chunks(distinct, values)):
                    paths.append(path)
            keys += len(distinct)
        self._index.load(paths, self._rows, label)
        _warm(self._index)
        self._index.close()
        spilled = 0 if self._spill is None else self._spill.size_bytes
        self._drop_spill()
        remove_index(self._directory)
        with local_disk(self._directory):
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
            self._spill = KeySpill(self._building)
        self._spill.write(concat_keys(self._held))
        self._held, self._held_bytes = [], 0

    def _ranges(self) -> Iterator[SourcedKeys]:
        """Yields all keys, one range of keys at a time. All keys of a range are larger than the keys of the ranges
        before it; within a range, the keys have any order.
        """
        if self._spill is None:
            if self._held:
                held, self._held = concat_keys(self._held), []
                yield held
            return
        if self._held:
            self._flush()
        yield from self._spill.ranges(self._budget_bytes // 4)

    def _places(self) -> KeyEntries:
        """Keys that were written to the same bucket at the same time have the same source number (see `SourcedKeys`).
        Returns for each source number the partition, the bucket and the time.
        """
        columns = np.array(list(self._sources), np.int64).reshape(-1, 3)
        partitions, buckets, seconds = columns[:, 0].astype(np.int32), columns[:, 1].astype(np.int32), columns[:, 2]
        return KeyEntries(pa.nulls(len(columns)), partitions, buckets, seconds.astype(np.uint32))

    def _distinct(self, sourced: SourcedKeys, places: KeyEntries) -> SourcedKeys:
        """Returns the keys in ascending order, each key once. If a key occurs several times, the occurrence that was
        written last stays, with its source (see `SourcedKeys`). `places` has the partition, the bucket and the time of
        each source. Without `keep_latest`, raises an error if a key is in several buckets.
        """
        ascending = sourced.take(key_order(sourced.keys))
        borders = key_borders(ascending.keys)
        if borders.all():
            return ascending
        repeats = np.flatnonzero(~borders)
        here, before = ascending.sources[repeats], ascending.sources[repeats - 1]
        moved = (places.partitions[here] != places.partitions[before]) | (
            places.buckets[here] != places.buckets[before]
        )
        if moved.any() and not self._keep_latest:
            self._refuse(places, int(before[moved][0]), int(here[moved][0]), int(moved.sum()))
        by_age = sourced.take(np.argsort(self._ages(places)[sourced.sources], kind="stable"))
        ascending = by_age.take(key_order(by_age.keys))
        return ascending.take(np.flatnonzero(np.append(borders[1:], True)))

    def _ages(self, places: KeyEntries) -> NDArray[np.int64]:
        """Keys that were written to the same bucket at the same time have the same source number. Returns a rank for
        each source number; the oldest source has the lowest rank. Sources of the same second are ordered by partition
        and bucket, so that the result does not depend on the order in which sources come.
        """
        names = self._index.partitions(np.unique(places.partitions).tolist())
        codes, buckets, seconds = (c.tolist() for c in (places.partitions, places.buckets, places.seconds))
        order = sorted(range(len(places)), key=lambda s: (seconds[s], names[codes[s]], buckets[s]))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    def _refuse(self, entries: KeyEntries, before: int, here: int, count: int) -> None:
        names = self._index.partitions([int(entries.partitions[here]), int(entries.partitions[before])])
        places = [(names[int(entries.partitions[r])].hex(), int(entries.buckets[r])) for r in (before, here)]
        raise CorruptFileError(
            f"{counted(count, 'key')} in two buckets; the first of these keys is in {places}. If several jobs wrote "
            "this table at once, delete the older rows. If keys expired and came back, set the option "
            "'cross-partition-upsert.index-ttl' for this job",
            places=places,
            keys=count,
        )

    def _count(self, distinct: SourcedKeys, places: KeyEntries) -> None:
        counts = np.bincount(distinct.sources, minlength=len(places.partitions))
        for source in np.flatnonzero(counts).tolist():
            place = (int(places.partitions[source]), int(places.buckets[source]))
            self._rows[place] = self._rows.get(place, 0) + int(counts[source])

    def _drop_spill(self) -> None:
        if self._spill is not None:
            self._spill.abandon()
            self._spill = None


def remove_dead_builds(directory: str) -> None:
    """Removes the folders of builds of this index whose process has ended."""
    for path in Path(directory).parent.glob(f"{Path(directory).name}.*{_BUILDING}"):
        builder = path / "builder"
        with local_disk(directory):
            is_dead = builder.is_file() and not _is_alive(builder.read_text())
        if is_dead:
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
    """Asks the operating system to read the files of the index into its cache: after they were written, the cache may
    not hold them any more.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    left = _WARM_BYTES
    with suppress(OSError):
        for path in sorted(Path(f"{index.directory}/db").glob("*.sst")):
            with path.open("rb") as file:
                size = min(os.fstat(file.fileno()).st_size, left)
                for start in range(0, size, _WARM_STEP_BYTES):
                    os.posix_fadvise(file.fileno(), start, _WARM_STEP_BYTES, os.POSIX_FADV_WILLNEED)
            left -= size


def _chunks(sourced: SourcedKeys, values: NDArray[np.object_]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yields the entries of the key index, CHUNK_ROWS at a time: a list of keys and a list of values, in the form in
    which the index stores them. `values` has the value for each number in `sourced.sources`.
    """
    for start in range(0, len(sourced), CHUNK_ROWS):
        sources = sourced.sources[start : start + CHUNK_ROWS]
        yield stored_keys(sourced.keys.slice(start, CHUNK_ROWS)), values[sources].tolist()
