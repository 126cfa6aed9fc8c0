"""Decides which snapshot is the newest if the hint file LATEST does not tell, because files are missing or a rollback
was interrupted.

If the file of a published snapshot is missing, a hint, tag or changelog that names the snapshot proves that the
snapshot existed. Then a new commit must not use the snapshot's id again, and a reader must not take an older state for
the newest. Manifests and data files prove nothing, because a first commit that has crashed or is still running leaves
the same files.
Source: Paimon 2.0 HintFileUtils, RollbackHelper, AbstractFileStoreTable.rollbackTo.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """A hint file (LATEST or EARLIEST) that exists. `snapshot_id` is the id in the file, or None if the file contains
    no id.
    """

    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A file that refers to a snapshot: a hint, a tag, or the changelog of an expired snapshot.

    `subject` names the file in messages. `time_ms` is the time of the snapshot's commit, if it is known. If the file is
    a tag, `tag` is the name of the tag. If a rollback created the tag to mark itself, `rolled_back_to` is the id of the
    snapshot to which the rollback goes.
    """

    subject: str
    snapshot_id: int
    time_ms: int | None = None
    tag: str | None = None
    rolled_back_to: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots of one metadata folder.

    `ids` are the ids of the existing snapshot files. `newest_time_ms` is the commit time of the snapshot with the
    highest id. `references` are all references to snapshots.
    """

    ids: frozenset[int]
    newest_time_ms: int | None = None
    latest: Hint | None = None
    earliest: Hint | None = None
    references: tuple[Reference, ...] = ()

    @property
    def newest(self) -> int:
        """Returns the highest id of the snapshot files; 0 if there are none."""
        return max(self.ids, default=0)

    @property
    def later(self) -> tuple[Reference, ...]:
        """Returns the tags and changelogs whose snapshot ids are higher than `newest`."""
        return tuple(r for r in self.references if r.snapshot_id > self.newest)


@dataclass(frozen=True, slots=True)
class NewestId:
    """The result if the newest snapshot is known: its id, or 0 for a table without snapshots."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class CutShort:
    """The decision that the newest snapshot is not known for certain, because a rollback to a snapshot or tag was
    started and has not finished.
    """

    snapshot_id: int
    tag: str | None = None

    @property
    def target(self) -> int | str:
        """Returns the target of the rollback: a snapshot id, or the name of a tag."""
        return self.snapshot_id if self.tag is None else self.tag


@dataclass(frozen=True, slots=True)
class Vanished:
    """The result if snapshots after `newest` were published, but their files are missing. `snapshot_id` is the highest
    known id of the missing snapshots, or None if only a hint without an id is left. `proof` names the file that proves
    that the missing snapshots were published.
    """

    newest: int
    proof: str
    snapshot_id: int | None


def newest_of(history: History) -> NewestId | CutShort | Vanished:
    """Decides which snapshot is the newest, whether a rollback was interrupted, or whether snapshot files are missing.

    If the hint LATEST names an existing snapshot, the hint counts more than references to later snapshots. There are
    two reasons why the hint may name a snapshot that is not the newest: a writer was stopped before it updated the
    hint, or a rollback lowered the hint before it removed snapshots. It was a rollback if a tag or changelog refers to
    a missing snapshot that is not older than the newest existing snapshot. (A commit after the rollback would have made
    a snapshot that is younger than the missing snapshot.) If the rollback created a tag to mark itself, the target is
    taken from this tag, because the hint may come from a writer that was stopped.
    """
    hinted = None if history.latest is None else history.latest.snapshot_id
    if hinted is not None and hinted in history.ids:
        proofs = _proofs_of_rollback(history) if hinted < history.newest else ()
        marked = (r.rolled_back_to for r in proofs if r.rolled_back_to is not None)
        target = next((i for i in marked if i in history.ids), hinted) if proofs else history.newest
        return CutShort(target) if target < history.newest else NewestId(history.newest)
    if hinted is not None and _is_before_all(history, hinted):
        # The snapshot has expired and only its tag is left. A rollback to the tag publishes the snapshot as its last
        # step.
        tag = next((r.tag for r in history.references if r.tag is not None and r.snapshot_id == hinted), None)
        if tag is not None:
            return CutShort(hinted, tag)
    return _vanished(history) or NewestId(history.newest)


def _proofs_of_rollback(history: History) -> tuple[Reference, ...]:
    """Returns the tags, hints and changelogs that prove that a rollback was started: they refer to snapshots with ids
    above the newest id, and these snapshots were committed at the time of the newest snapshot or later.
    """
    newest_ms = history.newest_time_ms
    if newest_ms is None:
        return ()
    return tuple(r for r in history.later if r.time_ms is not None and newest_ms <= r.time_ms)


def _is_before_all(history: History, hinted: int) -> bool:
    """Returns True if the hint LATEST was lowered below the id of the oldest snapshot. Only a rollback to an expired
    snapshot lowers the hint so far.
    """
    if history.ids:
        return hinted < min(history.ids) and bool(_proofs_of_rollback(history))
    earliest = None if history.earliest is None else history.earliest.snapshot_id
    return earliest is not None and hinted < earliest


def _vanished(history: History) -> Vanished | None:
    named = [Reference(name, hint.snapshot_id) for name, hint in _hints(history) if hint.snapshot_id is not None]
    later = [r for r in (*named, *history.references) if r.snapshot_id > history.newest]
    if later:
        proof = max(later, key=lambda r: r.snapshot_id)
        return Vanished(history.newest, proof.subject, proof.snapshot_id)
    if not history.ids:
        for name, _ in _hints(history):
            return Vanished(0, name, None)
    return None


def _hints(history: History) -> list[tuple[str, Hint]]:
    hints = (("the hint LATEST", history.latest), ("the hint EARLIEST", history.earliest))
    return [(name, hint) for name, hint in hints if hint is not None]
