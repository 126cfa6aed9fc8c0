"""The driver's view of a table: the live files of each bucket at one snapshot, advanced by delta manifests.

So a batch costs what changed since the last one, not the size of the table. The view follows all writers: it applies
the deltas of all snapshots in between, and starts again when one of them has expired.
"""

from collections.abc import Iterable, Iterator

from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import EntryIdentity, FileKind, ManifestEntry, Snapshot
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.rollback import newest_to_write
from bucketline.state.store.catalog.snapshots import Snapshots

BucketId = tuple[bytes, int]


class TableView:
    """Live entries by (partition, bucket) at `snapshot`; not shared between threads."""

    def __init__(self, snapshots: Snapshots, manifests: Manifests) -> None:
        self._snapshots = snapshots
        self._manifests = manifests
        self._entries: dict[BucketId, dict[EntryIdentity, ManifestEntry]] = {}
        self._totals: dict[bytes, int] = {}
        self.snapshot: Snapshot | None = None

    def refresh(self) -> Snapshot | None:
        """Brings the view to the newest snapshot and returns it; None for a table without one.

        A rollback that was cut short is finished. Raises MissingSnapshotError when files of published snapshots are
        missing.
        """
        while True:
            latest = newest_to_write(self._snapshots)
            if self.snapshot is not None and (latest is None or latest.id < self.snapshot.id):
                self._snapshots.check_rolled_back(self.snapshot.id, "this writer", latest)
            if latest is None:
                self._reset(None, ())
                return None
            try:
                if self.snapshot is None or latest.id < self.snapshot.id or not self._advance_to(latest):
                    self._reset(latest, self._manifests.live_entries(latest))
                return self.snapshot
            except StorageError as e:
                # A process that is stopped while it reads finds that the snapshot has expired meanwhile.
                if not self._snapshots.is_gone(latest, e):
                    raise

    def files(self, bucket_id: BucketId) -> tuple[DataFileMeta, ...]:
        """The live files of a bucket, by name; empty when it has none."""
        entries = self._entries.get(bucket_id, {})
        return tuple(sorted((e.file for e in entries.values()), key=lambda f: f.file_name))

    def buckets(self) -> Iterator[BucketId]:
        """Every bucket with live files, partitions in byte order."""
        yield from sorted(self._entries)

    def total_buckets(self, partition: bytes) -> int | None:
        """The bucket count recorded for a partition; None when it has no live files."""
        return self._totals.get(partition)

    def total_of_bucket(self, bucket_id: BucketId) -> int:
        """The bucket count that a bucket's files record: -1 dynamic, -2 postponed; 0 when it has no live files."""
        entries = self._entries.get(bucket_id)
        return next(iter(entries.values())).total_buckets if entries else 0

    def totals(self) -> dict[bytes, int]:
        """The bucket count of each partition that has live files."""
        return dict(self._totals)

    def other_totals(self, bucket_count: int) -> dict[bytes, int]:
        """The partitions with a fixed bucket count that is not `bucket_count`, and theirs."""
        return {p: total for p, total in self._totals.items() if total > 0 and total != bucket_count}

    def next_sequence_number(self, bucket_id: BucketId) -> int:
        """One more than any live file of the bucket holds. Source: Paimon 2.0 AbstractFileStoreWrite."""
        entries = self._entries.get(bucket_id)
        return 1 + max((e.file.max_sequence_number for e in entries.values()), default=-1) if entries else 0

    def live_entries(self) -> list[ManifestEntry]:
        return [e for bucket in self._entries.values() for e in bucket.values()]

    def _advance_to(self, latest: Snapshot) -> bool:
        """Applies the deltas up to `latest`; False when one is gone or was replaced, which asks for a new start."""
        assert self.snapshot is not None
        # A rollback may have put other snapshots under the ids that were seen.
        here = latest if latest.id == self.snapshot.id else self._snapshots.get(self.snapshot.id)
        if here != self.snapshot:
            return False
        for snapshot_id in range(self.snapshot.id + 1, latest.id + 1):
            snapshot = latest if snapshot_id == latest.id else self._snapshots.get(snapshot_id)
            if snapshot is None:
                return False
            try:
                delta = self._manifests.delta_entries(snapshot)
            except StorageError as e:
                if not self._snapshots.is_gone(snapshot, e):
                    raise
                return False
            self._apply(delta)
            self.snapshot = snapshot
        return True

    def _reset(self, snapshot: Snapshot | None, entries: Iterable[ManifestEntry]) -> None:
        self._entries, self._totals = {}, {}
        self._apply(entries)
        self.snapshot = snapshot

    def _apply(self, entries: Iterable[ManifestEntry]) -> None:
        touched: set[bytes] = set()
        for entry in entries:
            bucket_id = (entry.partition, entry.bucket)
            touched.add(entry.partition)
            if entry.kind is FileKind.ADD:
                self._entries.setdefault(bucket_id, {})[entry.identity] = entry
                if entry.total_buckets > 0 or entry.partition not in self._totals:
                    self._totals[entry.partition] = entry.total_buckets
                continue
            removed = self._entries.get(bucket_id, {}).pop(entry.identity, None)
            if removed is None:
                raise CorruptFileError(
                    f"a delta deletes {entry.file.file_name}, which is not live; run `bucketline doctor`",
                    file=entry.file.file_name,
                )
            if not self._entries[bucket_id]:
                del self._entries[bucket_id]
        live = {partition for partition, _ in self._entries} if touched else set()
        for partition in touched - live:
            self._totals.pop(partition, None)
