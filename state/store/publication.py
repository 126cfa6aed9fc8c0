"""Publishing one snapshot, and learning whether that happened.

After an unclear answer the same bytes are published again: either they are found there, or another snapshot is, or this
time they arrive. A first attempt that is still under way can then do no harm, for publishing never replaces.
Source: Paimon 2.0 RenamingSnapshotCommit, FileStoreCommitImpl; told apart by uuid here, so compactions too.
"""

from dataclasses import dataclass
from enum import Enum

from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.commit_retry import Retries
from bucketline.state.store.snapshots import Snapshots


class Fate(Enum):
    """What became of a snapshot that was to be published."""

    WON = "it is in the table"
    LOST = "it is not in the table, and never will be"
    UNKNOWN = "it may be in the table, now or a little later"


@dataclass(frozen=True, slots=True)
class Publication:
    """The fate of a snapshot; `error` is what storage said last, if that was an error."""

    fate: Fate
    error: StorageError | None = None


def publish_snapshot(snapshots: Snapshots, snapshot: Snapshot, retries: Retries) -> Publication:
    """Publishes under the snapshot's id. LOST with an error means: storage refused, and trying again is no use."""
    error: StorageError | None = None
    while True:
        try:
            if snapshots.publish(snapshot):
                return Publication(Fate.WON)
            return _read_back(snapshots, snapshot, error)
        except StorageError as e:
            if error is None and not e.fields.get("retryable"):
                return _refused(snapshots, snapshot, e)
            error = e
        if not retries.wait():
            return Publication(Fate.UNKNOWN, error)


def _read_back(snapshots: Snapshots, snapshot: Snapshot, error: StorageError | None) -> Publication:
    """Whose snapshot took the id: a store may have made ours, lost the answer, and tried again by itself."""
    found = snapshots.get(snapshot.id)
    if found is None:
        # It was there a moment ago and has expired since. Without an earlier unclear answer it was not ours.
        return Publication(Fate.LOST if error is None else Fate.UNKNOWN, error)
    return Publication(Fate.WON if found.uuid == snapshot.uuid else Fate.LOST)


def _refused(snapshots: Snapshots, snapshot: Snapshot, refusal: StorageError) -> Publication:
    try:
        found = snapshots.get(snapshot.id)
    except StorageError:
        return Publication(Fate.UNKNOWN, refusal)
    if found is None:
        return Publication(Fate.LOST, refusal)
    return Publication(Fate.WON if found.uuid == snapshot.uuid else Fate.LOST)
