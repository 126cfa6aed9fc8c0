"""Publishes one snapshot of a table that a catalog owns: the catalog decides, in one request.

After an unclear answer, the catalog's newest snapshot is loaded and compared. The names of the manifest lists are
compared, because they contain a uuid, and servers of Paimon 1.4 drop the uuid of the snapshot itself. Sending the same
snapshot again is safe. The catalog accepts a snapshot only if the snapshot before it is the newest. After a successful
request this is no longer so, and the catalog refuses the repeated request.

Source: Paimon 2.0 CatalogSnapshotCommit.
"""

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.commit.commit_proof import FilesProof
from bucketline.state.store.commit.commit_retry import Retries
from bucketline.state.store.commit.publish_outcome import Publication, PublishOutcome
from bucketline.state.store.server.owner import TableOwner


def publish_by_owner(
    owner: TableOwner,
    snapshots: Snapshots,
    snapshot: Snapshot,
    retries: Retries,
    proof: FilesProof,
    before: Snapshot | None,
) -> Publication:
    """Publishes a snapshot and returns the outcome as `publish_snapshot` does, for a table whose newest snapshot the
    catalog `owner` decides.
    """
    unclear: StorageError | None = None
    refusal: StorageError | None = None
    while True:
        try:
            gone = None if proof.is_recent else proof.first_gone()
            if unclear is not None:
                holder = snapshots.holder(snapshot.id)
                if holder is not None:
                    won = snapshot.is_same_as(holder)
                    return (
                        _looked_at(owner, snapshots, snapshot, before, gone)
                        if won
                        else Publication(PublishOutcome.LOST)
                    )
            if gone is not None:
                # An attempt whose answer was lost may still arrive.
                return (
                    Publication(PublishOutcome.LOST, gone=gone)
                    if unclear is None
                    else Publication(PublishOutcome.UNKNOWN, unclear)
                )
            if owner.commit(snapshot, before) or snapshot.is_same_as(snapshots.holder(snapshot.id)):
                late = None if proof.is_certain else proof.first_gone(snapshots.path(snapshot.id))
                return _looked_at(owner, snapshots, snapshot, before, late)
            return Publication(PublishOutcome.LOST) if unclear is None else Publication(PublishOutcome.UNKNOWN, unclear)
        except StorageError as e:
            is_clear = e.published is False
            if is_clear and not e.retryable and unclear is None:
                return Publication(PublishOutcome.LOST, e)
            refusal, unclear = (e, unclear) if is_clear else (refusal, e)
        if not retries.wait():
            return (
                Publication(PublishOutcome.LOST, refusal)
                if unclear is None
                else Publication(PublishOutcome.UNKNOWN, unclear)
            )


def _looked_at(
    owner: TableOwner, snapshots: Snapshots, snapshot: Snapshot, before: Snapshot | None, gone: str | None
) -> Publication:
    """Takes a snapshot that the catalog has accepted, and returns the outcome: the snapshot is in the table. But if the
    file `gone` of the snapshot was removed while this process was paused, the table is rolled back to the snapshot
    `before`, and the outcome is LOST. If the snapshot no longer exists, the file has expired with the snapshot, which
    was in the table. Raises CorruptFileError if the snapshot exists and the rollback fails.
    """
    if gone is None:
        return Publication(PublishOutcome.WON)
    try:
        if before is not None:
            owner.roll_back(before.id, newest=snapshot.id)
            return Publication(PublishOutcome.LOST, gone=gone)
        why = "there is no snapshot before it"
    except (StorageError, OptionError) as e:
        why = e.message
        if snapshots.holder(snapshot.id) is None:
            return Publication(PublishOutcome.WON)
    raise CorruptFileError(
        f"snapshot {snapshot.id} names {gone}, which was removed as an orphan file while this writer was stopped, "
        f"and the table could not be rolled back: {why}; restore the file from a copy",
        path=gone,
        snapshot=snapshot.id,
    )
