"""Decides when a writer makes a plan of compactions: after some number of batches, or after some time. Also decides
which buckets the plan compacts fully.
"""

from collections.abc import Callable, Collection
from itertools import islice

from bucketline.conf.plan_options import PlanTrigger
from bucketline.state.commit.live_files import BucketId
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.entries import CommitKind
from bucketline.state.plans.choose import is_due
from bucketline.state.store.write.table_at import TableAt

_MOST_SNAPSHOTS = 100
"""How many snapshots are searched for the table's last compaction when a writer starts."""


class WhenToPlan:
    """Decides when one writer makes a plan. Time is measured from the writer's last plan. Before its first plan, time
    is measured from the last compaction among the table's newest snapshots, whichever process made it.
    """

    def __init__(self, world: World = SYSTEM_WORLD) -> None:
        self._world = world
        self._planned_ms: int | None = None
        self._is_looked_up = False

    def is_due(self, at: TableAt, batch_id: int) -> bool:
        """Returns True if a plan is due after this batch. If the trigger depends on time, the first call reads the
        storage. Raises StorageError, CorruptFileError.
        """
        plans, now_ms = at.plan.sink.plans, self._world.stopwatch.elapsed_ms()
        if plans.trigger is not PlanTrigger.COMMITS and not self._is_looked_up:
            age_ms = None if self._planned_ms is not None else last_compaction_age_ms(at)
            self._planned_ms = self._planned_ms if age_ms is None else now_ms - age_ms
            self._is_looked_up = True
        since = None if self._planned_ms is None else now_ms - self._planned_ms
        return is_due(plans, commits=batch_id + 1, since_last_ms=since)

    def planned(self) -> None:
        """Records that the writer has made a plan now."""
        self._planned_ms = self._world.stopwatch.elapsed_ms()


class OwedFull:
    """Remembers which buckets must still be compacted fully. A full compaction of the whole table leaves out buckets
    that have an open item (a compaction that is planned but not done); these buckets are compacted fully later.
    """

    def __init__(self) -> None:
        self._is_due = False
        self._owed: frozenset[BucketId] = frozenset()

    def ask(self) -> None:
        """Records that a full compaction of all buckets is due."""
        self._is_due = True

    @property
    def is_owed(self) -> bool:
        return self._is_due or bool(self._owed)

    def test(self) -> Callable[[BucketId], bool]:
        """Returns a test that is true for buckets that have to be compacted fully."""
        is_due, owed = self._is_due, self._owed
        return lambda place: is_due or place in owed

    def planned(self, busy: Collection[BucketId]) -> None:
        """Records that the full compaction of all buckets is planned, except for `busy`, the buckets that had an open
        item.
        """
        self._owed = frozenset(busy) if self._is_due else self._owed & frozenset(busy)
        self._is_due = False


def last_compaction_age_ms(at: TableAt) -> int | None:
    """Returns how long ago the table was last compacted, in milliseconds. Looks only at the newest `_MOST_SNAPSHOTS`
    snapshots, and returns None if none of these snapshots is a compaction.
    """
    newest = at.view.snapshot
    if newest is None:
        return None
    walked = islice(at.table.snapshot_store.newest_first(newest.id), _MOST_SNAPSHOTS)
    last_ms = next((s.time_ms for s in walked if s.commit_kind is CommitKind.COMPACT), None)
    return None if last_ms is None else max(0, at.table.world.clock.now_ms() - last_ms)
