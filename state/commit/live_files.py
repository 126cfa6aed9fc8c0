"""The live files of each bucket of a table at one snapshot. From these files and the changes of the next snapshot, the
live files at the next snapshot are computed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import EntryIdentity, FileKind, ManifestEntry, Snapshot

BucketId = tuple[bytes, int]

_name = attrgetter("file_name")


@dataclass(frozen=True, eq=False)
class _Bucket:
    """The manifest entries of the live files of one bucket. A batch asks for the files of a bucket several times, so
    the files are sorted only once.
    """

    entries: Mapping[EntryIdentity, ManifestEntry]

    @cached_property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(sorted([e.file for e in self.entries.values()], key=_name))

    @cached_property
    def next_sequence_number(self) -> int:
        return 1 + max([e.file.max_sequence_number for e in self.entries.values()])

    @property
    def total_buckets(self) -> int:
        return next(iter(self.entries.values())).total_buckets


@dataclass(frozen=True, slots=True, eq=False)
class LiveFiles:
    """The manifest entries of live files, by partition and bucket. `snapshot` is the snapshot in which the files are
    live; None for a table without snapshots. The object is immutable.
    """

    snapshot: Snapshot | None = None
    _buckets: Mapping[BucketId, _Bucket] = field(default_factory=dict, repr=False)
    _totals: Mapping[bytes, int] = field(default_factory=dict, repr=False)

    def files(self, bucket_id: BucketId) -> tuple[DataFileMeta, ...]:
        """Returns the live files of a bucket, sorted by name; empty if the bucket has none."""
        bucket = self._buckets.get(bucket_id)
        return () if bucket is None else bucket.files

    def buckets(self) -> Iterator[BucketId]:
        """Yields every bucket with live files, partitions in byte order."""
        yield from sorted(self._buckets)

    def total_buckets(self, partition: bytes) -> int | None:
        """Returns the number of buckets for which the files of a partition were written, as the files record it; None
        if the partition has no live files.
        """
        return self._totals.get(partition)

    def total_of_bucket(self, bucket_id: BucketId) -> int:
        """Returns the number of buckets of the partition, as it is recorded in the files of the bucket `bucket_id`. The
        number is -1 in dynamic tables, -2 in postpone tables, and 0 if the bucket has no live files.
        """
        bucket = self._buckets.get(bucket_id)
        return 0 if bucket is None else bucket.total_buckets

    def totals(self) -> dict[bytes, int]:
        """Returns the number of buckets of each partition that has live files."""
        return dict(self._totals)

    def other_totals(self, bucket_count: int) -> dict[bytes, int]:
        """Returns the number of buckets of each partition that has a fixed number of buckets other than
        `bucket_count`.
        """
        return {p: total for p, total in self._totals.items() if total > 0 and total != bucket_count}

    def next_sequence_number(self, bucket_id: BucketId) -> int:
        """Returns the number after the largest sequence number in the live files of the bucket. Source: Paimon 2.0
        AbstractFileStoreWrite.
        """
        bucket = self._buckets.get(bucket_id)
        return 0 if bucket is None else bucket.next_sequence_number

    def live_entries(self) -> list[ManifestEntry]:
        return [e for bucket in self._buckets.values() for e in bucket.entries.values()]

    def after(self, snapshot: Snapshot, delta: Iterable[ManifestEntry]) -> "LiveFiles":
        """Returns the live files at the next snapshot, `snapshot`. `delta` has the changes of the next snapshot."""
        buckets, totals = dict(self._buckets), dict(self._totals)
        own: dict[BucketId, dict[EntryIdentity, ManifestEntry]] = {}
        touched: set[bytes] = set()
        for entry in delta:
            bucket_id = (entry.partition, entry.bucket)
            touched.add(entry.partition)
            entries = own.get(bucket_id)
            if entries is None:
                known = buckets.get(bucket_id)
                entries = own[bucket_id] = {} if known is None else dict(known.entries)
            if entry.kind is FileKind.ADD:
                entries[entry.identity] = entry
                if entry.total_buckets > 0 or entry.partition not in totals:
                    totals[entry.partition] = entry.total_buckets
            elif entries.pop(entry.identity, None) is None:
                raise CorruptFileError(
                    f"a delta deletes {entry.file.file_name}, which is not live; run `bucketline doctor`",
                    file=entry.file.file_name,
                )
        for bucket_id, entries in own.items():
            if entries:
                buckets[bucket_id] = _Bucket(entries)
            else:
                buckets.pop(bucket_id, None)
        live = {partition for partition, _ in buckets} if touched else set()
        for partition in touched - live:
            totals.pop(partition, None)
        return LiveFiles(snapshot, buckets, totals)
