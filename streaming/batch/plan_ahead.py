"""After a batch of a writer with `compaction` = `dedicated`: plans the compactions that are due, for compactors in
other processes.

The rows are in the table by then, so planning never fails a batch: a failure is logged as a warning, and the next batch
plans again.
"""

import logging
from threading import Lock

from bucketline.conf.errors import BucketlineError
from bucketline.conf.table.own_options import Compaction
from bucketline.conf.wording import counted
from bucketline.state.store.plans.make_plan import OpenItems, check_plannable, make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.when import OwedFull, WhenToPlan
from bucketline.state.store.write.table_at import TableAt

_LOG = logging.getLogger(__name__)


class Planner:
    """Plans compactions for one writer. The object remembers when it last made a plan, and the plans
    that it has read.
    """

    def __init__(self, at: TableAt) -> None:
        self._folder = PlanFolder(at.table.io, at.table.metadata_path)
        self._when = WhenToPlan(at.table.world)
        self._owed = OwedFull()
        self.open = OpenItems()
        """The items that were open when this planner last made a plan."""

    def after_batch(self, at: TableAt, batch_id: int) -> int | None:
        """Plans compactions after a batch, if they are due. Returns the number of the new plan; None if no plan was
        made.

        Storage is read only if `compaction-plan.trigger` says that it is time, or a full compaction is due with the
        batch.
        """
        if at.plan.is_full_due(batch_id):
            self._owed.ask()
        try:
            if not self._when.is_due(at, batch_id) and not self._owed.is_owed:
                return None
            planning = make_plan(at, self._folder, fully=self._owed.test())
        except BucketlineError as e:
            _LOG.warning("%s: no compaction was planned after batch %d: %s", at.table.path, batch_id, e)
            return None
        self._when.planned()
        self.open = planning.open
        self._owed.planned(planning.busy_places)
        if planning.number is not None:
            items = counted(len(planning.plan.items), "item")
            _LOG.info("%s: batch %d: compaction plan %d with %s", at.table.path, batch_id, planning.number, items)
        return planning.number


def check_plan_ahead(at: TableAt) -> None:
    """Checks before a write that the table's compactions can be planned, if this writer's options say that it plans
    them. Raises the errors of `check_plannable`.
    """
    if at.plan.sink.compaction is Compaction.DEDICATED:
        check_plannable(at)


_planners: dict[tuple[str, str], Planner] = {}
_lock = Lock()


def plan_ahead(at: TableAt, user: str, batch_id: int) -> int | None:
    """Plans compactions after a batch, if the writer has `compaction` = `dedicated` and a plan is due. Returns the
    number of the new plan; None if no plan was made.
    """
    if at.plan.sink.compaction is not Compaction.DEDICATED:
        return None
    with _lock:
        planner = _planners.setdefault((at.table.metadata_path, user), Planner(at))
    return planner.after_batch(at, batch_id)


def planned_backlog(at: TableAt, user: str) -> OpenItems:
    """Returns how many items (parts of the work) of compaction plans were not done when this writer last made a plan,
    and how old they were. If the writer has made no plan, the number is 0.
    """
    with _lock:
        planner = _planners.get((at.table.metadata_path, user))
    return OpenItems() if planner is None else planner.open
