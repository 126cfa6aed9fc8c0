"""Decides which snapshot is the newest if the hint LATEST does not tell.

Files of published snapshots may be missing. Then a hint, tag or changelog that names a commit proves that it existed. A
new commit must not use its id again, and a reader must not read an older state as the newest. Manifests and data files
prove nothing: a first commit that crashed, or that is under way, leaves the same.
Source: Paimon 2.0 HintFileUtils, RollbackHelper, AbstractFileStoreTable.rollbackTo.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """An existing hint file. `snapshot_id` is the id in it, None when there is no id in it."""

    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """Something other than its own file that names a snapshot: a hint, a tag, or a changelog without its snapshot.

    `subject` is its name in messages. `time_ms` is when the snapshot was committed, if known; `tag` is the name
    of a tag. `rolled_back_to` is the snapshot to which a rollback goes that has left this tag as its mark.
    """

    subject: str
    snapshot_id: int
    time_ms: int | None = None
    tag: str | None = None
    rolled_back_to: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots of one metadata folder.

    `ids` are those of the snapshot files; `newest_time_ms` is when the highest of them was committed.
    """

    ids: frozenset[int]
    newest_time_ms: int | None = None
    latest: Hint | None = None
    earliest: Hint | None = None
    references: tuple[Reference, ...] = ()

    @property
    def newest(self) -> int:
        """Returns the highest id; 0 without snapshots."""
        return max(self.ids, default=0)

    @property
    def later(self) -> tuple[Reference, ...]:
        """Returns the tags and changelogs of snapshots after the newest."""
        return tuple(r for r in self.references if r.snapshot_id > self.newest)


@dataclass(frozen=True, slots=True)
class NewestId:
    """The id of the newest snapshot; 0 for a table without any."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class CutShort:
    """A rollback to a snapshot, or to a tag, was started and has not finished."""

    snapshot_id: int
    tag: str | None = None

    @property
    def target(self) -> int | str:
        """Returns the target of the rollback."""
        return self.snapshot_id if self.tag is None else self.tag


@dataclass(frozen=True, slots=True)
class Vanished:
    """Snapshots after `newest` were published, and their files are missing; `proof` is what names the highest known
    one. `snapshot_id` is None if only a hint without an id is left.
    """

    newest: int
    proof: str
    snapshot_id: int | None


def newest_of(history: History) -> NewestId | CutShort | Vanished:
    """Returns the newest snapshot.

    A hint LATEST that names an existing snapshot counts more than references to later ones. Such a hint is low for one
    of two reasons: a writer was stopped before it wrote the hint, or a rollback has lowered the hint before it removed
    anything. It was a rollback if a tag or changelog names a later commit whose file is gone, and that commit is no
    older than the newest file. For a commit made after the rollback would be younger than what the rollback has left
    behind. If the rollback has left a mark, the mark names its target: the hint may also be that of a writer that was
    stopped.
    """
    hinted = None if history.latest is None else history.latest.snapshot_id
    if hinted is not None and hinted in history.ids:
        proofs = _proofs_of_rollback(history) if hinted < history.newest else ()
        marked = (r.rolled_back_to for r in proofs if r.rolled_back_to is not None)
        target = next((i for i in marked if i in history.ids), hinted) if proofs else history.newest
        return CutShort(target) if target < history.newest else NewestId(history.newest)
    if hinted is not None and _is_before_all(history, hinted):
        # If a snapshot has expired, only its tag is left; a rollback to the tag publishes the snapshot at its end.
        tag = next((r.tag for r in history.references if r.tag is not None and r.snapshot_id == hinted), None)
        if tag is not None:
            return CutShort(hinted, tag)
    return _vanished(history) or NewestId(history.newest)


def _proofs_of_rollback(history: History) -> tuple[Reference, ...]:
    """Returns what names a later commit that is no older than the newest file."""
    newest_ms = history.newest_time_ms
    if newest_ms is None:
        return ()
    return tuple(r for r in history.later if r.time_ms is not None and newest_ms <= r.time_ms)


def _is_before_all(history: History, hinted: int) -> bool:
    """Whether LATEST was lowered below the oldest snapshot. Only a rollback to an expired snapshot does so."""
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
