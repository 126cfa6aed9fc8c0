"""Compacts while a stream goes on with its batches: a thread plans the compactions that are due, and carries them out.

The thread is a compactor of the table's plans like any other. So its commits have their own commit user, it skips items
that another compactor has completed, and if its process dies, another compactor takes over its items.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.errors import CompactionFailedError, StorageError
from bucketline.state.format.paths import bucket_path
from bucketline.state.plans.plan import ItemState
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.plans.compactor import Compactor, Finished
from bucketline.state.store.plans.item_work import TableWork
from bucketline.state.store.plans.make_plan import OpenItems, check_plannable, make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.serve import Stop, kept_alive
from bucketline.state.store.plans.when import OwedFull
from bucketline.state.store.write.table_at import TableAt

_LOG = logging.getLogger(__name__)

LEASE_MS = 60_000
_MOST_STORAGE_ERRORS = 3
_SHORTEST_PAUSE_MS, _LONGEST_PAUSE_MS = 100, 5_000
_DROP_MS = 10_000


class Turns:
    """Carries out the compactions of one table for `CompactionThread`. Each call of `turn` makes a plan and does the
    compactions in the plan.
    """

    def __init__(self, at: TableAt, engine: Engine, *, take: Callable[[int], int], lease_ms: int = LEASE_MS) -> None:
        check_plannable(at)
        self._at = at
        self.path = at.table.metadata_path
        self._folder = PlanFolder(at.table.io, at.table.metadata_path)
        self._owed = OwedFull()
        work = TableWork(at, workers=engine.workers)
        self.compactor = Compactor(
            self._folder, work, engine, kept_alive, lease_ms=lease_ms, take=take, world=at.table.world
        )

    def turn(self, stop: Stop, *, plans: bool, full: bool) -> list[Finished]:
        """Works on planned compactions until no item is left to claim, and returns the finished items. With `plans`,
        first makes a plan of the compactions that are due; with `full`, the next plan compacts all buckets fully.
        Returns early if a stop is requested through `stop`. Raises CompactionFailedError if this compactor has given up
        an item after errors, and StorageError.
        """
        if full:
            self._owed.ask()
        if plans:
            made = make_plan(self._at, self._folder, fully=self._owed.test())
            self._owed.planned(made.busy_places)
        finished: list[Finished] = []
        fruitless = 0
        while not stop.is_asked:
            ended = self.compactor.round()
            finished += ended
            if not ended:
                break
            self._refuse_failed(ended)
            fruitless = fruitless + 1 if all(f.result is None for f in ended) else 0
            if fruitless:
                stop.wait_ms(min(_LONGEST_PAUSE_MS, _SHORTEST_PAUSE_MS << min(fruitless, 6)))
        return finished

    def _name(self, finished: Finished) -> str:
        return bucket_path(self._at.plan.schema, *finished.item.place)

    def _refuse_failed(self, ended: Sequence[Finished]) -> None:
        for finished in ended:
            if finished.result is not None and finished.result.state is ItemState.FAILED and finished.failures:
                raise CompactionFailedError(
                    f"{self.path}: the compaction of {self._name(finished)} in the background failed: "
                    f"{finished.reason}",
                    path=self.path,
                    bucket=finished.item.bucket,
                )


class CompactionThread:
    """The thread that compacts a table. It sleeps until `notice` wakes it. Then it calls `Turns.turn`, which makes a
    plan and carries out its items, and sleeps again.

    The attributes belong together because one lock protects what callers ask of the thread and what the thread reports
    to them.
    """

    def __init__(self, turns: Turns, *, lease_ms: int = LEASE_MS) -> None:
        self._turns, self._lease_ms = turns, lease_ms
        self._changed = threading.Condition()
        self._asked = self._full = self._plans = False
        self._is_busy = False
        self._error: BucketlineError | None = None
        self._done_items = 0
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, name="bucketline-compaction", daemon=True)
        self._thread.start()

    def notice(self, *, plans: bool = True, full: bool = False) -> None:
        """Wakes the thread after a batch. If `plans` is true, a new compaction plan is due. If `full` is true, a full
        compaction was due with the batch, so the next plan compacts all buckets fully.
        """
        with self._changed:
            self._asked = True
            self._plans |= plans or full
            self._full |= full
            self._changed.notify_all()

    def check(self) -> None:
        """Raises a CompactionFailedError if this compaction thread has failed."""
        with self._changed:
            if self._error is not None:
                raise self._error

    @property
    def backlog(self) -> OpenItems:
        """Returns the items of plans (compactions of buckets) that were open when the compaction thread last looked."""
        return self._turns.compactor.open

    @property
    def done_items(self) -> int:
        """Returns the number of items that the thread has compacted."""
        with self._changed:
            return self._done_items

    def wait_idle(self, timeout_ms: int) -> bool:
        """Waits until everything that `notice` has asked for is done, and returns True. Returns False if the work takes
        longer than `timeout_ms`. Raises the errors of `check`.
        """
        with self._changed:
            idle = self._changed.wait_for(
                lambda: self._error is not None or not (self._asked or self._is_busy), timeout_ms / 1000
            )
        self.check()
        return idle

    def stop(self, timeout_ms: int) -> bool:
        """Stops the thread, and returns True if it has ended. The item that the thread is working on is finished if
        there is time; otherwise it is released, and its files are removed.
        """
        self._stop.ask()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout_ms / 1000)
        if self._thread.is_alive():
            _LOG.info(
                "%s: the compaction that is running is cancelled, so that another compactor can take it over",
                self._turns.path,
            )
            self._turns.compactor.drop()
            self._thread.join(_DROP_MS / 1000)
        if self._thread.is_alive():
            _LOG.warning(
                "%s: a compaction does not stop; if this process ends first, `bucketline orphans` removes the files "
                "that the compaction leaves",
                self._turns.path,
            )
        return not self._thread.is_alive()

    def _run(self) -> None:
        errors = 0
        while True:
            plans, full = self._next(looks_again=errors > 0)
            if self._stop.is_asked:
                return
            try:
                finished = self._turns.turn(self._stop, plans=plans, full=full)
                errors = 0
            except StorageError as e:
                errors += 1
                finished = []
                if errors >= _MOST_STORAGE_ERRORS:
                    self._fail(e)
                    return
                _LOG.warning("%s: compaction in the background failed and is tried again: %s", self._turns.path, e)
                self._stop.wait_ms(_SHORTEST_PAUSE_MS << errors)
                self.notice(plans=plans, full=full)
            except Exception as e:  # noqa: BLE001 (the next batch raises it, whatever it is)
                self._fail(e)
                return
            self._ended(finished)

    def _next(self, *, looks_again: bool) -> tuple[bool, bool]:
        """Waits until the thread is asked to work or to stop. Returns what the thread is asked for: whether to make a
        plan, and whether to compact fully.

        If other compactors may hold open items (compactions of buckets), waits at most half the time of a lease,
        because a lease may have ended. With `looks_again`, waits without this limit.
        """
        with self._changed:
            # Other compactors hold open items, whose leases may end.
            waits_s = self._lease_ms / 2000 if self._turns.compactor.open.count and not looks_again else None
            self._changed.wait_for(lambda: self._asked or self._stop.is_asked, waits_s)
            plans, full = self._plans, self._full
            self._asked = self._plans = self._full = False
            self._is_busy = True
            return plans, full

    def _ended(self, finished: Sequence[Finished]) -> None:
        compacted_count = sum(f.result is not None and f.result.state is ItemState.DONE for f in finished)
        if compacted_count:
            _LOG.info("%s: compacted %s in the background", self._turns.path, counted(compacted_count, "bucket"))
        with self._changed:
            self._done_items += compacted_count
            self._is_busy = False
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        failed = error
        if not isinstance(failed, CompactionFailedError):
            why = error.message if isinstance(error, BucketlineError) else repr(error)
            failed = CompactionFailedError(
                f"{self._turns.path}: compaction in the background failed: {why}", path=self._turns.path
            )
            failed.__cause__ = error
        with self._changed:
            self._error = failed
            self._is_busy = False
            self._changed.notify_all()
