"""Maintains a table between the rounds of a compactor of plans, as a writer does after a commit.

Between rounds the compactor holds no item of a plan. So however long the upkeep takes, no lease of the compactor ends
meanwhile.

Source: Paimon 2.0, whose compaction jobs maintain a table as its writers do.
"""

from bucketline.state.store.maintenance.upkeep import Upkeep, Upkept, logged
from bucketline.state.store.write.table_at import TableAt

UPKEEP_INTERVAL_MS = 60_000
"""The shortest time, in milliseconds, between two expiries of snapshots by one compactor. Rounds may follow each other
within seconds.
"""


class CompactorUpkeep:
    """Maintains one table for one compactor. `at` is the table at the time when the compactor started."""

    def __init__(self, at: TableAt) -> None:
        self._at, self._clock = at, at.table.world.clock
        self._upkeep = Upkeep()
        self._is_owed = False
        self._done_ms: int | None = None

    def owe(self) -> None:
        """Records that the compactor has committed, so that maintenance is due."""
        self._is_owed = True

    def between_rounds(self) -> Upkept:
        """Maintains the table if the compactor has committed since the last maintenance, and the last maintenance is
        long enough ago. Returns what was done.
        """
        now = self._clock.now_ms()
        if self._done_ms is not None and now - self._done_ms < UPKEEP_INTERVAL_MS:
            return Upkept()
        return self.at_end()

    def at_end(self) -> Upkept:
        """Maintains the table if the compactor has committed since the last maintenance, and returns what was done. A
        failure is only logged; the maintenance after a later commit repeats the work.
        """
        if not self._is_owed:
            return Upkept()
        self._is_owed, self._done_ms = False, self._clock.now_ms()
        upkept = Upkept()
        with logged("expiry after a compaction"):
            self._at = self._at.refreshed()
            if self._at.view.snapshot is not None:
                upkept = self._upkeep.after_compaction(self._at, self._at.view.snapshot)
        return upkept
