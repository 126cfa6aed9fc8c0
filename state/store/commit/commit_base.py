"""Reads the snapshot that a commit follows, and the files in it. Each try of the commit reads the newest snapshot
again, and only the files in the changed buckets.

Source: Paimon 2.0 CommitScanner. The changed buckets are enough for all conflict rules except the rule about the bucket
count.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from bucketline.state.commit.change import PartitionTest
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.determinism import World
from bucketline.state.format.entries import FileKind, IndexManifestEntry, ManifestEntry, ManifestFileMeta, Snapshot
from bucketline.state.format.entry_filter import EntryFilter
from bucketline.state.store.catalog.live_files import newest_live
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.rollback import newest_to_write
from bucketline.state.store.catalog.snapshots import Snapshots


class CommitBase:
    """The newest snapshot (`latest`), on which a commit builds; None for a table without snapshots. Gives access to the
    manifests and live files of the snapshot. If the live files are known already (`live`), they are not read again.
    """

    def __init__(self, latest: Snapshot | None, manifests: Manifests, live: LiveFiles | None) -> None:
        self.latest = latest
        self._manifests = manifests
        self._live = live
        self._metas: list[ManifestFileMeta] | None = None

    def manifests(self) -> list[ManifestFileMeta]:
        """Returns all manifests of the snapshot, oldest first. The manifest lists are read once."""
        if self._metas is None:
            self._metas = [] if self.latest is None else self._manifests.base_and_delta(self.latest)
        return self._metas

    def entries(self, buckets: Collection[BucketId]) -> list[ManifestEntry]:
        """Returns the manifest entries of the live files in these buckets."""
        if not buckets:
            return []
        if self._live is not None:
            return _entries_of(self._live, sorted(buckets))
        return self._manifests.live_in(self.manifests(), EntryFilter(buckets=frozenset(buckets)))

    def entries_in(self, target: PartitionTest) -> list[ManifestEntry]:
        """Returns the manifest entries of the live files in all partitions that pass the test."""
        if self._live is not None:
            return _entries_of(self._live, [b for b in self._live.buckets() if target(b[0])])
        return [e for e in self._manifests.live_in(self.manifests()) if target(e.partition)]

    def totals(self, partitions: Collection[bytes]) -> dict[bytes, int]:
        """Returns the bucket count of each partition in `partitions` that has live files, if the count is positive."""
        if self._live is not None:
            totals = {p: self._live.total_buckets(p) for p in partitions}
            return {p: total for p, total in totals.items() if total is not None and total > 0}
        return self._manifests.totals_in(self.manifests(), partitions)

    def index(self) -> list[IndexManifestEntry]:
        """Returns the entries of all index files of the snapshot."""
        return [] if self.latest is None else self._manifests.read_index(self.latest.index_manifest)


class Bases:
    """Finds the snapshot after which a commit is tried, which is the newest snapshot. `live` has the live files of a
    snapshot, if they are known.

    If `is_fresh` is true, the first try takes the snapshot of `live` for the newest snapshot, without asking the
    storage. Otherwise, and after a lost try, `live` is brought up to date first.
    """

    def __init__(
        self, snapshots: Snapshots, manifests: Manifests, live: LiveFiles | None, *, world: World, is_fresh: bool
    ) -> None:
        self._snapshots, self._manifests, self._world = snapshots, manifests, world
        self.live, self.is_fresh = live, is_fresh

    def newest(self, *, is_retry: bool) -> CommitBase:
        if self.live is None:
            return CommitBase(newest_to_write(self._snapshots, self._world), self._manifests, None)
        self.is_fresh = self.is_fresh and not is_retry
        if not self.is_fresh:
            self.live = newest_live(self.live, self._snapshots, self._manifests, self._world)
        return CommitBase(self.live.snapshot, self._manifests, self.live)

    def follow(self, snapshot: Snapshot, delta_entries: Sequence[ManifestEntry]) -> None:
        """Records that the commit has published this snapshot."""
        if self.live is not None:
            self.live = self.live.after(snapshot, delta_entries)


def changes_since(
    snapshots: Snapshots, manifests: Manifests, since: int, latest: int
) -> Iterator[tuple[Snapshot, Sequence[ManifestEntry]]] | None:
    """Returns the snapshots with ids after `since` up to `latest`, newest first, each with the manifest entries of its
    changes. Returns None if one of these snapshots no longer exists.

    Also returns None if `latest` is before `since`, as after a rollback. The entries of a snapshot are read when the
    caller asks for the snapshot.
    """
    newer = list(snapshots.newest_first(latest, since))
    if latest < since or len(newer) < latest - since:
        return None
    return ((s, manifests.delta_entries(s)) for s in newer)


def _entries_of(live: LiveFiles, buckets: Iterable[BucketId]) -> list[ManifestEntry]:
    entries: list[ManifestEntry] = []
    for partition, bucket in buckets:
        total = live.total_buckets(partition) or 0
        entries += (ManifestEntry(FileKind.ADD, partition, bucket, total, f) for f in live.files((partition, bucket)))
    return entries
