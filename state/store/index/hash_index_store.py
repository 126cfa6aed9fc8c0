"""The HASH index files of a table. The files are read by partition, cached between batches, and written for buckets
that have grown.

A HASH file has the hashes of all keys that its bucket ever got. So a bucket that grows gets a new file, and the old
file is removed from the index manifest in the same commit. File names are never used twice, so what was read under a
name stays valid, and the cache compares only names. Without a cached entry, a task reads the files of its partitions.

Source: Paimon 2.0 HashIndexFile, IndexFileHandler, DynamicBucketIndexMaintainer.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock

import numpy as np

from bucketline.conf.wording import counted
from bucketline.state.bucket.allocation import Int32s, Ownership, hash_share
from bucketline.state.bucket.dynamic import NOTHING_KNOWN, KnownHashes, known_hashes
from bucketline.state.determinism import World
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import FileKind, IndexManifestEntry
from bucketline.state.format.index.hash_index import HASH, decode_hash_index, encode_hash_index
from bucketline.state.format.paths import INDEX_DIR, index_file_name
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.parallel import all_at_once, answers_late
from bucketline.state.types.hashes.distinct import distinct

_PARTITIONS_AT_ONCE = 4

_Share = tuple[str, bytes, Ownership | None, Ownership | None]


@dataclass(frozen=True, slots=True)
class HashIndexChange:
    """The change of the HASH file of one bucket that got new keys: the new entry, and the entry that it replaces (None
    if the bucket had no file).

    Both entries become part of the bucket's commit message.
    """

    new: IndexManifestEntry
    replaced: IndexManifestEntry | None


@dataclass(frozen=True, slots=True)
class _Cached:
    names: Mapping[int, str]
    known: KnownHashes


class HashCache:
    """A cache of the HASH index: the hashes of the keys of partitions. If the cache has more than `budget_bytes`, the
    hashes that were not used for the longest time are dropped. Several threads may use the cache.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._kept: OrderedDict[_Share, _Cached] = OrderedDict()
        self._lock = Lock()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def get(self, share: _Share) -> _Cached | None:
        with self._lock:
            cached = self._kept.get(share)
            if cached is not None:
                self._kept.move_to_end(share)
            return cached

    def put(self, share: _Share, cached: _Cached) -> None:
        with self._lock:
            self._forget(share)
            if cached.known.size_bytes > self._budget_bytes:
                return
            self._kept[share] = cached
            self._size_bytes += cached.known.size_bytes
            while self._size_bytes > self._budget_bytes:
                self._forget(next(iter(self._kept)))

    def _forget(self, share: _Share) -> None:
        old = self._kept.pop(share, None)
        if old is not None:
            self._size_bytes -= old.known.size_bytes


@cache
def shared_hash_cache(budget_bytes: int) -> HashCache:
    """Returns a cache for the hashes of HASH index files, of up to `budget_bytes` bytes. All callers in this process
    that ask for the same size share one cache. So a Spark worker uses again what earlier batches have loaded.
    """
    return HashCache(budget_bytes)


class HashIndexStore:
    """The HASH files of the table at `path`. `storage` says how files on external paths are reached. `folder_of`
    returns the folder of a bucket's files.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        *,
        cached: HashCache,
        storage: Mapping[str, str],
        folder_of: Callable[[bytes, int], str] = lambda partition, bucket: INDEX_DIR,
    ) -> None:
        self._io = io
        self._folder_of = folder_of
        self._path = path
        self._cached = cached
        self._storage = storage

    def known(
        self,
        entries: Sequence[IndexManifestEntry],
        *,
        share: Ownership | None = None,
        hashes_of: Ownership | None = None,
    ) -> KnownHashes:
        """Returns the hashes of one partition. Only files that are new to this process are read.

        `entries` must be all HASH entries of the partition. With `share`, only the buckets of that assigner are read;
        this is enough if each bucket certainly has only hashes of the bucket's assigner. With `hashes_of`, all buckets
        are read, but only the hashes of that assigner are kept; in memory are these hashes, and the files that are read
        at the same time. Raises CorruptFileError for a file that is missing, cut off or listed twice.
        """
        if not entries:
            return NOTHING_KNOWN
        partition = entries[0].partition
        assert all(e.partition == partition for e in entries), "entries of one partition"
        place = (self._path, partition, share, hashes_of)
        wanted = self._by_bucket(e for e in entries if share is None or share.owns(e.bucket))
        names = {b: e.file_name for b, e in wanted.items()}
        before = self._cached.get(place)
        if before is not None and before.names == names:
            return before.known
        kept = (
            {}
            if before is None or before.known.has_lost
            else {b: n for b, n in before.names.items() if names.get(b) == n}
        )
        unread = [b for b in wanted if b not in kept]

        def read(bucket: int) -> Int32s:
            return _of_share(self.hashes(wanted[bucket]), hashes_of)

        fresh = dict(zip(unread, all_at_once(self._io, [partial(read, b) for b in unread]), strict=True))
        if before is None or not kept:
            known = known_hashes(fresh)
        else:
            known = before.known.without([b for b in before.names if b not in kept])
            for bucket, hashes in fresh.items():
                known = known.joined(hashes, np.full(len(hashes), bucket, np.int16))
        self._cached.put(place, _Cached(names, known))
        return known

    def known_of_each(self, partitions: Sequence[Sequence[IndexManifestEntry]]) -> Iterator[KnownHashes]:
        """Yields the hashes of several partitions, in order, as `known` returns them. The hashes of one partition are
        in memory at a time; on slow storage, the hashes of a few partitions.
        """
        step = _PARTITIONS_AT_ONCE if answers_late(self._io) else 1
        for start in range(0, len(partitions), step):
            yield from all_at_once(
                self._io, [partial(self.known, entries) for entries in partitions[start : start + step]]
            )

    def known_among(self, entries: Sequence[IndexManifestEntry], asked: Int32s) -> KnownHashes:
        """Returns which of the hashes in `asked` are known, with their buckets. `asked` must be ascending and distinct.
        Each file is read, and nothing is put into the cache. In memory are these hashes, and the hashes of one file.
        """
        known = NOTHING_KNOWN
        for bucket, entry in sorted(self._by_bucket(entries).items()) if len(asked) else ():
            hashes = self.hashes(entry)
            at = np.minimum(np.searchsorted(asked, hashes), len(asked) - 1)
            hashes = hashes[asked[at] == hashes]
            known = known.joined(hashes, np.full(len(hashes), bucket, np.int16))
        return known

    def hashes(self, entry: IndexManifestEntry) -> Int32s:
        """Returns the hashes in one file, in file order. Raises CorruptFileError as `known` does."""
        io, path = self._place(entry)
        try:
            data = io.read(path)
        except StorageError as e:
            if e.missing:
                raise CorruptFileError(
                    f"{path}: the HASH index file of bucket {entry.bucket} is missing, so keys of the bucket would "
                    "get other buckets; restore the file, or roll back to a snapshot whose index files exist",
                    path=path,
                    bucket=entry.bucket,
                ) from e
            raise
        try:
            hashes = decode_hash_index(data)
        except CorruptFileError as e:
            raise e.reworded(f"{path}: {e.message}", path=path) from e
        if len(hashes) != entry.row_count:
            raise CorruptFileError(
                f"{path} holds {counted(len(hashes), 'hash', 'hashes')}, but {entry.row_count:,} are recorded in the "
                "index manifest",
                path=path,
                found=len(hashes),
            )
        return hashes

    def grow(
        self, partition: bytes, bucket: int, old: IndexManifestEntry | None, new_hashes: Int32s, world: World
    ) -> HashIndexChange | None:
        """Writes a new file for the bucket with these hashes added, and returns the change. Returns None if the bucket
        has all of these hashes already. `old` is the bucket's live entry; None for a new bucket. The caller must be the
        only writer of the bucket, because the hashes of a second writer could be lost.
        """
        before = np.empty(0, np.int32) if old is None else self.hashes(old)
        after = distinct(before, new_hashes)
        if old is not None and len(after) == len(before):
            return None
        data = encode_hash_index(after)
        name = index_file_name(world.ids.new_uuid(), 0)
        self._io.write_new(f"{self._path}/{self._folder_of(partition, bucket)}/{name}", data)
        new = IndexManifestEntry(
            kind=FileKind.ADD,
            partition=partition,
            bucket=bucket,
            index_type=HASH,
            file_name=name,
            file_size=len(data),
            row_count=len(after),
        )
        return HashIndexChange(new, old)

    def delete_own(self, changes: Iterable[HashIndexChange]) -> None:
        """Removes files that the caller has just written and that nothing names."""
        for change in changes:
            io, path = self._place(change.new)
            io.delete(path)

    def _place(self, entry: IndexManifestEntry) -> tuple[FileIO, str]:
        """Returns the storage and the path of the index file that `entry` describes. If the entry names a full path,
        this path is used; otherwise the file is in the index folder.
        """
        if entry.external_path is not None:
            return file_io_for(entry.external_path, self._storage)
        return self._io, f"{self._path}/{self._folder_of(entry.partition, entry.bucket)}/{entry.file_name}"

    def _by_bucket(self, entries: Iterable[IndexManifestEntry]) -> dict[int, IndexManifestEntry]:
        by_bucket: dict[int, IndexManifestEntry] = {}
        for entry in entries:
            other = by_bucket.setdefault(entry.bucket, entry)
            if other is not entry:
                raise CorruptFileError(
                    f"bucket {entry.bucket} has two HASH index files, {other.file_name} and {entry.file_name}: two "
                    "writers wrote the bucket at the same time, and rows may be doubled",
                    bucket=entry.bucket,
                    files=(other.file_name, entry.file_name),
                )
        return by_bucket


def _of_share(hashes: Int32s, share: Ownership | None) -> Int32s:
    if share is None or share.assigners == 1:
        return hashes
    own: Int32s = hashes[hash_share(hashes, share.assigners) == share.assigner]
    return own


def hash_entries(index: Iterable[IndexManifestEntry]) -> dict[bytes, tuple[IndexManifestEntry, ...]]:
    """Returns the HASH entries of an index manifest by partition, with buckets in ascending order."""
    by_partition: dict[bytes, list[IndexManifestEntry]] = {}
    for entry in index:
        if entry.index_type == HASH:
            by_partition.setdefault(entry.partition, []).append(entry)
    return {p: tuple(sorted(es, key=lambda e: (e.bucket, e.file_name))) for p, es in by_partition.items()}


def rows_by_bucket(entries: Iterable[IndexManifestEntry]) -> dict[int, int]:
    """Returns the number of hashes of each bucket, as the index manifest records it. `DynamicAssigner.starting` takes
    these numbers as `rows`.
    """
    return {e.bucket: e.row_count for e in entries}
