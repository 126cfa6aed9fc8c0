"""Publishes one snapshot, and finds out whether that succeeded.

After an unclear answer, the same bytes are published again. Then the snapshot's file exists already, or another
snapshot has the id, or this attempt succeeds. A first attempt that is still running does no harm, because publishing
never replaces a file.

A writer may sleep for a long time before it publishes its snapshot. Meanwhile other writers may publish a snapshot
with the same id, and their snapshot may expire; or the files of the writer's snapshot may be removed. In both cases
the writer removes its own snapshot again, so that it does not undo the commits of others. If the writer finds that
its snapshot no longer exists, the snapshot may have expired. Then the snapshot was in the table, others may have
built on it, and its manifests are still in use.

Source: Paimon 2.0 RenamingSnapshotCommit, FileStoreCommitImpl. Unlike there, snapshots (also of compactions) are
distinguished by uuid, and a writer that has slept does no harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import ManifestFileMeta, Snapshot
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.commit.commit_proof import FilesProof
from bucketline.state.store.commit.commit_retry import Retries
from bucketline.state.store.commit.owned_publication import publish_by_owner
from bucketline.state.store.commit.publish_outcome import Publication, PublishOutcome


def publish_snapshot(
    snapshots: Snapshots,
    manifests: Manifests,
    snapshot: Snapshot,
    retries: Retries,
    proof: FilesProof,
    before: Snapshot | None,
) -> Publication:
    """Publishes the snapshot under its id, as the successor of `before`, or, if `before` is None, as the first snapshot
    of the table. Returns the outcome.

    LOST with an error means that the storage has refused the publication, and that another attempt would not help.
    `proof` has just checked the snapshot's files, and checks them again after each pause.
    """
    if snapshots.owner is not None:
        return publish_by_owner(snapshots.owner, snapshots, snapshot, retries, proof, before)
    return _Publishing(snapshots, manifests, snapshot, retries, proof, before).publish()


@dataclass(slots=True)
class _Publishing:
    """The attempts to publish one snapshot.

    `error` is the error of the last attempt whose outcome is unclear. `refusal` is the error of the last attempt that
    the storage has certainly not carried out.
    """

    snapshots: Snapshots
    manifests: Manifests
    snapshot: Snapshot
    retries: Retries
    proof: FilesProof
    before: Snapshot | None
    error: StorageError | None = None
    refusal: StorageError | None = None
    is_there: bool = False

    def publish(self) -> Publication:
        while True:
            try:
                return self._attempt()
            except StorageError as e:
                if self.error is None and not self.is_there and not e.retryable:
                    return self._refused(e)
                if e.published is False and not self.is_there:
                    # This attempt has sent nothing that could still arrive, so only earlier attempts are unclear.
                    self.refusal = e
                else:
                    self.error = e
            if not self.retries.wait():
                return Publication(self._lost, self.error or self.refusal)

    @property
    def _lost(self) -> PublishOutcome:
        """Returns the outcome for the case that the snapshot does not exist. The outcome is LOST if the snapshot
        certainly was not published. It is UNKNOWN if an attempt with an unclear answer may have succeeded (and the
        snapshot has expired), or may still arrive.
        """
        return PublishOutcome.LOST if self.error is None else PublishOutcome.UNKNOWN

    def _attempt(self) -> Publication:
        snapshots, snapshot = self.snapshots, self.snapshot
        gone = None if self.is_there or self.proof.is_recent else self.proof.first_gone()
        if gone is not None:
            if self.error is None:
                return Publication(PublishOutcome.LOST, gone=gone)
            if not self._is_ours(snapshots.get(snapshot.id)):
                return Publication(PublishOutcome.UNKNOWN, self.error)
            self.is_there = True
        if not self.is_there and not snapshots.publish(snapshot):
            taken_by = snapshots.get(snapshot.id)
            if not self._is_ours(taken_by):
                return Publication(self._lost if taken_by is None else PublishOutcome.LOST)
            # The store has created this file, lost the answer, and tried again by itself; or this writer has tried
            # again.
        self.is_there = True
        if gone is None and not self.proof.is_certain:
            gone = self.proof.first_gone(snapshots.path(snapshot.id))
        return self._judged(gone)

    def _is_ours(self, holder: Snapshot | None) -> bool:
        return holder is not None and holder.uuid == self.snapshot.uuid

    def _judged(self, gone: str | None) -> Publication:
        """Returns whether the snapshot is in the table, lost, or in an unknown state, after this writer has tried to
        publish it. `gone` names a file of the snapshot that no longer exists, or is None. If a file is gone, the
        published snapshot is removed again.
        """
        outcome = self._place()
        if outcome is PublishOutcome.LOST and self.error is not None:
            # An earlier attempt may have succeeded, and others may have built on it before it expired.
            return Publication(PublishOutcome.UNKNOWN, self.error)
        if gone is not None and outcome is PublishOutcome.WON:
            outcome = self._take_back(gone)
        if outcome is PublishOutcome.UNKNOWN and not self._has_trace():
            return Publication(outcome, self.error or _no_trace(self.snapshots, self.snapshot))
        if outcome is not PublishOutcome.LOST:
            return Publication(PublishOutcome.WON)
        return Publication(self._lost) if gone is None else Publication(PublishOutcome.LOST, gone=gone)

    def _refused(self, refusal: StorageError) -> Publication:
        """Returns the outcome when the storage says that trying again does not help."""
        try:
            holder = self.snapshots.get(self.snapshot.id)
        except StorageError:
            return Publication(PublishOutcome.UNKNOWN, refusal)
        if holder is None:
            return Publication(PublishOutcome.LOST, refusal)
        return Publication(PublishOutcome.WON if self._is_ours(holder) else PublishOutcome.LOST)

    def _take_back(self, gone: str) -> PublishOutcome:
        """Removes a snapshot that was published too late: while this process was paused, the file `gone` of the
        snapshot was removed.

        Returns LOST, or UNKNOWN if the snapshot no longer exists: if the snapshot was in the table, its files have
        expired with the snapshot. Raises CorruptFileError, and leaves the snapshot in the table, if another snapshot
        already builds on it, or if no snapshot would be left.
        """
        snapshots, snapshot = self.snapshots, self.snapshot
        has_before = snapshots.exists(snapshot.id - 1)
        if not has_before and snapshot.id > 1 and snapshots.ids() == [snapshot.id]:
            raise _broken(snapshot, gone, "all snapshots before it have expired; restore the file from a copy")
        is_base = snapshots.exists(snapshot.id + 1)
        # This is looked up after the following snapshot, so that the following snapshot cannot have existed and expired
        # in between.
        if snapshots.get(snapshot.id) != snapshot:
            return PublishOutcome.UNKNOWN
        while not is_base:
            if snapshots.withdraw(snapshot):
                return PublishOutcome.UNKNOWN if max(snapshots.ids(), default=0) > snapshot.id else PublishOutcome.LOST
            is_base = not self.retries.wait() or snapshots.exists(snapshot.id + 1)
        while self.retries.wait():
            # Expiry removes the files of a snapshot first, and then the snapshot.
            if snapshots.get(snapshot.id) != snapshot:
                return PublishOutcome.UNKNOWN
            if (snapshots.earliest_id() or 0) > snapshot.id:
                # The snapshot expired before it was deleted here, and was published again.
                snapshots.delete(snapshot.id)
                return PublishOutcome.UNKNOWN
        rest = f"snapshot {snapshot.id + 1} builds on it; roll the table back to snapshot {snapshot.id - 1}"
        raise _broken(snapshot, gone, f"{rest} and write the rows again")

    def _place(self) -> PublishOutcome:
        """Returns whether the published snapshot is part of the table's history: WON or LOST; UNKNOWN if the snapshot
        no longer exists.

        The published snapshot was made from the snapshot `before`. There are two cases in which the published snapshot
        is taken back (LOST). First, its id was already used: while the writer slept, others committed, and the
        snapshots up to this id have expired. Then no newer snapshot builds on the published snapshot. Second, `before`
        was removed by its writer or by a rollback, so that the published snapshot would undo the removal. An expired
        `before` is no reason: it was the oldest snapshot.

        Raises CorruptFileError if the published snapshot cannot be taken back, because another snapshot builds on it.
        """
        snapshots, snapshot, before = self.snapshots, self.snapshot, self.before
        base = None if before is None else snapshots.get(before.id)
        if base is not None and base == before:
            return PublishOutcome.WON
        ids = snapshots.ids()
        if max(ids, default=0) <= snapshot.id:
            if base is None and not any(before is not None and i < before.id for i in ids):
                return PublishOutcome.WON
            if snapshots.withdraw(snapshot):
                return PublishOutcome.LOST
        follower = snapshots.get(snapshot.id + 1)
        # This is looked up after the following snapshot. Snapshots expire oldest first, so no other snapshot has gone
        # while this one existed.
        if snapshots.get(snapshot.id) != snapshot:
            return PublishOutcome.UNKNOWN
        holds: bool | None = False
        if follower is not None:
            holds = _holds(self.manifests, self.manifests.read_list(follower.base_manifest_list), self.proof)
        if holds is None:
            return PublishOutcome.UNKNOWN
        if follower is None and not snapshots.withdraw(snapshot):
            return self._place()
        if not holds:
            snapshots.delete(snapshot.id)
            return PublishOutcome.LOST
        if before is not None and (base is not None or any(i < before.id for i in ids)):
            raise _misplaced(snapshots, snapshot, before.id if base is not None else before.id - 1)
        return PublishOutcome.WON

    def _has_trace(self) -> bool:
        """Returns True if the newest snapshot still holds files of the published snapshot. A result of False proves
        nothing: the files may have been compacted, or the table was rolled back.
        """
        newest = self.snapshots.latest()
        if newest is None:
            return False
        return bool(_holds(self.manifests, self.manifests.base_and_delta(newest), self.proof))


def _misplaced(snapshots: Snapshots, snapshot: Snapshot, newest_right: int) -> CorruptFileError:
    return CorruptFileError(
        f"{snapshots.root}: snapshot {snapshot.id} was made from a snapshot {snapshot.id - 1} that was taken back or "
        f"rolled back while this writer was stopped, but snapshot {snapshot.id + 1} already builds on it; roll the "
        f"table back to snapshot {newest_right} and write the rows again",
        path=snapshots.path(snapshot.id),
        snapshot=snapshot.id,
    )


def _broken(snapshot: Snapshot, gone: str, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"snapshot {snapshot.id} names {gone}, which was removed as an orphan file while this writer was stopped, "
        f"and {why}",
        path=gone,
        snapshot=snapshot.id,
    )


def _holds(manifests: Manifests, named: Sequence[ManifestFileMeta], proof: FilesProof) -> bool | None:
    """Returns True if the manifests `named` show that a commit is in the table: one of them was written by the
    commit, or lists a data file of the commit. `proof` knows the files of the commit. Returns False if there is no
    such manifest.

    Returns None if this cannot be decided: the commit has no data file, and its manifests may have been merged with
    others. Reads all manifests unless one of them was written by the commit.
    """
    if any(m.file_name in proof.manifest_names for m in named):
        return True
    if not proof.data_names:
        return None
    return any(e.file.file_name in proof.data_names for e in manifests.live_in(named))


def _no_trace(snapshots: Snapshots, snapshot: Snapshot) -> StorageError:
    return StorageError(
        f"{snapshots.path(snapshot.id)} was written and has expired since, and the newest snapshot holds none of "
        "the files that were added: they were compacted, or were never in the table",
        path=snapshots.path(snapshot.id),
    )
