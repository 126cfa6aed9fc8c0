"""Checks findings a second time. Files are not damaged if only an expiry or a writer was changing them during the
check.

Expiry removes the files of the oldest snapshots before the snapshots themselves, and writes the hint last. So files
that are missing only in the oldest snapshots are checked again, until these snapshots are removed, or nothing has
changed for some time. If an expiry was announced and not completed, that is a warning: the next expiry completes it.

Source: Paimon 2.0 ExpireSnapshotsImpl, SnapshotDeletion.
"""

from collections.abc import Sequence

from bucketline.state.format.paths import SNAPSHOT_DIR, parse_snapshot_id
from bucketline.state.store.catalog.pins import Notebook
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.doctor.folders import folder_findings
from bucketline.state.store.doctor.problem import Problem
from bucketline.state.store.doctor.states import named_states

_UNFINISHED = Finding(
    Severity.WARNING,
    "half-expired",
    SNAPSHOT_DIR,
    "an expiry was interrupted while it removed the oldest snapshots, and some of their files are gone; "
    "`expire_snapshots` completes it",
)
_WAIT_MS = 250
_QUIET_WAITS = 20
"""How often the check waits for a change: five seconds in all."""


def still_broken(table: TableHandle, problems: Sequence[Problem]) -> tuple[list[Problem], list[Finding]]:
    """Looks again at problems that a check has found, and returns the problems that still exist. Also returns the
    findings about the metadata folders (see `folder_findings`). If an expiry may be running, waits and looks several
    times, because an expiry may have caused the problems.
    """
    folders = list(folder_findings(table))
    pending = [p for p in problems if p.needed is not None]
    known = _States(table, pending)
    waits, ids = 0, known.ids
    while waits < _QUIET_WAITS:
        pending = [p for p in pending if known.need(p)]
        if not any(known.may_be_removed(p) for p in pending) and not any(f.rule == "hint" for f in folders):
            break
        table.world.pause.wait_ms(_WAIT_MS)
        waits += 1
        now = _States(table, pending)
        if now.ids != ids:
            waits, ids = 0, now.ids
        known = now
        again = set(folder_findings(table))
        folders = [f for f in folders if f in again]
    if folders:
        again = set(folder_findings(table))
        folders = [f for f in folders if f in again]
    left = [p for p in pending if known.need(p)]
    going = _half_expired(table, [p for p in left if known.may_be_removed(p)])
    still = {id(p) for p in left} - {id(p) for p in going}
    findings = [*folders, _UNFINISHED] if going else folders
    return [p for p in problems if p.needed is None or id(p) in still], findings


def _half_expired(table: TableHandle, problems: Sequence[Problem]) -> list[Problem]:
    """Returns the problems of snapshots whose removal was announced by an expiry that was not completed."""
    if not problems:
        return []
    notebook = Notebook(table.io, table.metadata_path)
    announced = [r for r in notebook.look().removals.values() if r is not None and r.history == notebook.history]
    end = max((r.end for r in announced if r.is_of(table.snapshot_store.get(r.end - 1))), default=0)
    return [p for p in problems if p.needed is not None and p.needed.last < end]


class _States:
    """The snapshots, tags and branches of a table at one moment."""

    def __init__(self, table: TableHandle, problems: Sequence[Problem]) -> None:
        names = table.io.list_names(f"{table.metadata_path}/{SNAPSHOT_DIR}")
        self.ids = sorted(i for i in map(parse_snapshot_id, names) if i is not None)
        has_names = any(p.needed is not None and p.needed.named for p in problems)
        self._named = {s.name for s in named_states(table) if s.snapshot is not None} if has_names else set()

    def need(self, problem: Problem) -> bool:
        """Returns True if the problem is still about something that exists: a snapshot, a tag or a branch."""
        needed = problem.needed
        if needed is None or self._named.intersection(needed.named):
            return True
        return any(needed.first <= i <= needed.last for i in self.ids)

    def may_be_removed(self, problem: Problem) -> bool:
        """Returns True if the problem is only in old snapshots, which an expiry may be removing: not in the newest
        snapshot, and not in the snapshot of a tag or branch.
        """
        needed = problem.needed
        if needed is None or not self.ids or self._named.intersection(needed.named):
            return False
        return needed.last < self.ids[-1]
