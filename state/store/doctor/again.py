"""Checks findings a second time: files that expiry or a writer was working on meanwhile are not damage.

Expiry removes the files of the oldest snapshots before the snapshots themselves, and writes the hint last. So files
that only the oldest snapshots miss are checked again until these snapshots are removed, or nothing has changed for some
time.
Source: Paimon 2.0 ExpireSnapshotsImpl, SnapshotDeletion.
"""

from collections.abc import Sequence

from bucketline.state.format.paths import SNAPSHOT_DIR, parse_snapshot_id
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor.finding import Finding
from bucketline.state.store.doctor.folders import folder_findings
from bucketline.state.store.doctor.problem import Problem
from bucketline.state.store.doctor.states import named_states

_WAIT_MS = 250
_QUIET_WAITS = 20
"""How often to wait for a change: five seconds in all."""


def still_broken(table: TableHandle, problems: Sequence[Problem]) -> tuple[list[Problem], list[Finding]]:
    """The problems that still exist, and those of the folders. Waits only if expiry may be running."""
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
    pending_now = {id(p) for p in pending if known.need(p)}
    return [p for p in problems if p.needed is None or id(p) in pending_now], folders


class _States:
    """The states of a table at one moment."""

    def __init__(self, table: TableHandle, problems: Sequence[Problem]) -> None:
        names = table.io.list_names(f"{table.metadata_path}/{SNAPSHOT_DIR}")
        self.ids = sorted(i for i in map(parse_snapshot_id, names) if i is not None)
        has_names = any(p.needed is not None and p.needed.named for p in problems)
        self._named = {s.name for s in named_states(table) if s.snapshot is not None} if has_names else set()

    def need(self, problem: Problem) -> bool:
        """Whether a state exists that the problem is about."""
        needed = problem.needed
        if needed is None or self._named.intersection(needed.named):
            return True
        return any(needed.first <= i <= needed.last for i in self.ids)

    def may_be_removed(self, problem: Problem) -> bool:
        """Whether only snapshots need it that expiry may be removing, so not the newest."""
        needed = problem.needed
        if needed is None or not self.ids or self._named.intersection(needed.named):
            return False
        return needed.last < self.ids[-1]
