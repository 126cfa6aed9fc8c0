"""Publishes one snapshot, and finds out whether that happened.

After an unclear answer the same bytes are published again: then either they are there, or another snapshot is, or this
attempt succeeds. A first attempt that is still running does no harm, because publishing never replaces a file.
Source: Paimon 2.0 RenamingSnapshotCommit, FileStoreCommitImpl; distinguished by uuid here, so compactions too. Unlike
there, a writer that slept until its id had been used and had expired does not turn the table back, and neither does one
whose files were removed while it slept.
"""

from dataclasses import dataclass
from enum import Enum

from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.commit.commit_proof import FilesProof
from bucketline.state.store.commit.commit_retry import Retries


class Fate(Enum):
    """The outcome of publishing a snapshot."""

    WON = "it is in the table"
    LOST = "it is not in the table, and never will be"
    UNKNOWN = "it may be in the table, now or a little later"


@dataclass(frozen=True, slots=True)
class Publication:
    """The fate of a snapshot; `error` is the storage's last error if that decided it.

    `gone` is a file of the snapshot that is no longer there, and the reason why it is LOST.
    """

    fate: Fate
    error: StorageError | None = None
    gone: str | None = None


def publish_snapshot(
    snapshots: Snapshots,
    manifests: Manifests,
    snapshot: Snapshot,
    retries: Retries,
    proof: FilesProof,
    before: Snapshot | None,
) -> Publication:
    """Publishes under the snapshot's id, as the successor of `before`; None: of the empty table.

    LOST with an error means: the storage refused, and trying again does not help.

    `proof` has just been asked for the snapshot's files; it is asked again after each pause.
    """
    error: StorageError | None = None
    refusal: StorageError | None = None
    is_there = False
    lost = Fate.LOST
    while True:
        try:
            gone = None if is_there or proof.is_recent else proof.first_gone()
            if gone is not None and error is None:
                return Publication(Fate.LOST, gone=gone)
            if gone is not None:
                found = snapshots.get(snapshot.id)
                if found is None or found.uuid != snapshot.uuid:
                    # An attempt without an answer may still arrive.
                    return Publication(Fate.UNKNOWN, error)
                is_there = True
            if not is_there and not snapshots.publish(snapshot):
                taken_by = snapshots.get(snapshot.id)
                if taken_by is None or taken_by.uuid != snapshot.uuid:
                    return Publication(Fate.LOST if taken_by is not None else lost)
                # The store had created this file, lost the answer, and tried again by itself; or this writer did.
            is_there = True
            if gone is None and not proof.is_certain:
                gone = proof.first_gone(snapshots.path(snapshot.id))
            if gone is not None:
                _take_back(snapshots, snapshot, gone, retries)
                return Publication(Fate.LOST, gone=gone)
            fate = _place(snapshots, manifests, snapshot, before)
            return Publication(lost if fate is Fate.LOST else fate)
        except StorageError as e:
            if error is None and not is_there and not e.fields.get("retryable"):
                return _refused(snapshots, snapshot, e)
            if e.fields.get("published") is False and not is_there:
                # This attempt sent nothing that could still arrive, so only earlier attempts are in doubt.
                refusal = e
            else:
                error = e
                # An attempt without an answer may have been in the table, and have expired since.
                lost = Fate.UNKNOWN
        if not retries.wait():
            return Publication(lost, refusal) if error is None else Publication(Fate.UNKNOWN, error)


def _refused(snapshots: Snapshots, snapshot: Snapshot, refusal: StorageError) -> Publication:
    """The outcome when the storage says that trying again does not help."""
    try:
        found = snapshots.get(snapshot.id)
    except StorageError:
        return Publication(Fate.UNKNOWN, refusal)
    if found is None:
        return Publication(Fate.LOST, refusal)
    return Publication(Fate.WON if found.uuid == snapshot.uuid else Fate.LOST)


def _take_back(snapshots: Snapshots, snapshot: Snapshot, gone: str, retries: Retries) -> None:
    """Removes a snapshot that was published too late: its files were removed while this process was stopped.

    Raises CorruptFileError where another one builds on it already, or none would be left; it stays then.
    """
    has_before = snapshots.exists(snapshot.id - 1)
    if not has_before and snapshot.id > 1 and snapshots.ids() == [snapshot.id]:
        raise _broken(snapshot, gone, "all snapshots before it have expired; put the file back from a copy")
    is_base = snapshots.exists(snapshot.id + 1)
    if not is_base and has_before:
        # As before a rollback: other writers that have seen the snapshot ask the hint whether it may be gone.
        snapshots.write_latest_hint(snapshot.id - 1)
    while not is_base:
        snapshots.delete(snapshot.id)
        if not snapshots.exists(snapshot.id + 1):
            return
        # It was built upon just now, by a commit that may have missed this one, and is taken back itself then.
        snapshots.publish(snapshot)
        is_base = not retries.wait() or snapshots.exists(snapshot.id + 1)
    rest = f"snapshot {snapshot.id + 1} builds on it; roll the table back to snapshot {snapshot.id - 1}"
    raise _broken(snapshot, gone, f"{rest} and write the rows again")


def _broken(snapshot: Snapshot, gone: str, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"snapshot {snapshot.id} names {gone}, which was removed as an orphan while this writer was stopped, and {why}",
        path=gone,
        snapshot=snapshot.id,
    )


def _place(snapshots: Snapshots, manifests: Manifests, snapshot: Snapshot, before: Snapshot | None) -> Fate:
    """Whether a published snapshot is part of the table's history.

    If its predecessor has expired, others may have used the id while the writer slept, and have gone on without it:
    what was published then is an island that no newer snapshot builds on. It is taken back, and so is one whose
    predecessor was taken back, by its writer or by a rollback: it would undo that. An expired one was the oldest.
    """
    there = None if before is None else snapshots.get(before.id)
    if there is not None and there == before:
        return Fate.WON
    ids = snapshots.ids()
    if max(ids, default=0) <= snapshot.id:
        if there is None and not any(before is not None and i < before.id for i in ids):
            return Fate.WON
        snapshots.delete(snapshot.id)
        return Fate.LOST
    follower = snapshots.get(snapshot.id + 1)
    if follower is None:
        # Snapshots expire oldest first, so a follower cannot have gone before this one.
        snapshots.delete(snapshot.id)
        return Fate.LOST
    inherited = {m.file_name for m in manifests.read_list(follower.base_manifest_list)}
    builds_on_it = all(m.file_name in inherited for m in manifests.base_and_delta(snapshot))
    return Fate.WON if builds_on_it else Fate.UNKNOWN
