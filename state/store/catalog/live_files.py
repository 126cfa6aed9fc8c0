"""Brings the list of a table's live files up to date with the newest snapshot.

The changes of all snapshots since the last known snapshot are applied, from all writers. So the cost of a batch depends
on what has changed, and not on the size of the table. If one of these snapshots has expired, the whole list is read
again.
"""

from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.determinism import World
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.rollback import newest_to_write
from bucketline.state.store.catalog.snapshots import Snapshots


def newest_live(live: LiveFiles, snapshots: Snapshots, manifests: Manifests, world: World) -> LiveFiles:
    """Returns the live files at the newest snapshot. `live` holds the live files at an earlier snapshot.

    An interrupted rollback is finished first. Raises MissingSnapshotError if the files of committed snapshots are
    missing.
    """
    while True:
        latest, seen = newest_to_write(snapshots, world), live.snapshot
        if seen is not None and (latest is None or latest.id < seen.id):
            snapshots.check_rolled_back(seen.id, "this writer", latest)
        if latest is None:
            return LiveFiles()
        try:
            advanced = (
                None if seen is None or latest.id < seen.id else _advanced(live, seen, latest, snapshots, manifests)
            )
            return LiveFiles().after(latest, manifests.live_entries(latest)) if advanced is None else advanced
        except StorageError as e:
            # If this process was paused while it read the snapshot, the snapshot may have expired meanwhile.
            if not snapshots.is_gone(latest, e):
                raise


def _advanced(
    live: LiveFiles, seen: Snapshot, latest: Snapshot, snapshots: Snapshots, manifests: Manifests
) -> LiveFiles | None:
    """Returns the live files after the changes up to the snapshot `latest`. `live` has the live files at the snapshot
    `seen`. Returns None if a snapshot in between has expired or was replaced, so that the whole list must be read
    again.
    """
    # A rollback may have replaced the snapshots whose ids were seen.
    current = latest if latest.id == seen.id else snapshots.get(seen.id)
    if not seen.is_same_as(current):
        return None
    for snapshot_id in range(seen.id + 1, latest.id + 1):
        snapshot = latest if snapshot_id == latest.id else snapshots.get(snapshot_id)
        if snapshot is None:
            return None
        try:
            delta = manifests.delta_entries(snapshot)
        except StorageError as e:
            if not snapshots.is_gone(snapshot, e):
                raise
            return None
        live = live.after(snapshot, delta)
    return live
