"""One compactor of a table's plans. An item of a plan is the compaction of one bucket. The compactor claims items,
carries them out, commits them, and records their results.

Any number of compactors work at the same time, in any processes. All are equal, and none knows the others. If another
process has completed an item first, that is not a failure.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bucketline.conf.errors import BucketlineError
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.plans.lease import Claim, Lease, Observation, Verdict, judge, observe
from bucketline.state.plans.plan import Item, ItemResult, ItemState, Plan
from bucketline.state.store.engine.engine import Engine, Jobs
from bucketline.state.store.plans.item_work import ItemJob, ItemWork, Lost, Made, MoveJob, Unclear
from bucketline.state.store.plans.make_plan import OpenItems
from bucketline.state.store.plans.plan_files import Listing, PlanFolder

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

_STOPPED = "the compactor was asked to stop"

KeepAlive = Callable[[Callable[[], None], Lease], AbstractContextManager[None]]
"""A function that returns a context manager. While the context is open, its first argument is called often enough to
keep the lease alive.
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """An item (a part of the work) of a compaction plan. This compactor has the lease of the item at the moment, so no
    other compactor works on it.
    """

    plan: Plan
    item: Item
    claim: Claim


@dataclass(frozen=True, slots=True)
class Finished:
    """An item of a compaction plan with which this compactor has finished. `result` is None if the item was released
    for other compactors, or if it is not known whether its commit was published; `reason` says why.

    If the compactor has given up the item, `failures` says how often the item has failed.
    """

    item: Item
    result: ItemResult | None
    reason: str | None = None
    failures: int = 0


DoneItem = tuple[Claimed, ItemJob, Made]
"""An item, its job, and the commit messages of the job, which are not committed yet."""


class Compactor:
    """Works on the compaction plans of one table: takes items (parts of the work) and carries them out.

    `take` gets the number of open items, and returns how many items the compactor takes at a time. `engine` does the
    work of these items. From one round to the next, a compactor remembers only which heartbeats (files by which other
    compactors show that they are alive) it has seen, and when.
    """

    def __init__(
        self,
        folder: PlanFolder,
        work: ItemWork,
        engine: Engine,
        keep_alive: KeepAlive,
        *,
        lease_ms: int,
        take: Callable[[int], int] = lambda open_items: 1,
        world: World = SYSTEM_WORLD,
    ) -> None:
        self._folder, self._work, self._engine, self._keep_alive = folder, work, engine, keep_alive
        self._lease_ms, self._take = lease_ms, take
        self._world = world
        self._seen: dict[tuple[str, int], Observation] = {}
        self._is_fresh = False
        self._held: list[Claimed] = []
        self._is_dropped = False
        self.open = OpenItems()
        """The items that had no result when the compactor last looked."""

    def round(self) -> list[Finished]:
        """Claims items of the table's plans (an item is the compaction of one bucket), and works on the claimed items
        until each has a result or is released for other compactors. Returns these items; an empty list if there was no
        item to claim.

        Items that have failed too often get a result without being worked on, and are returned, too. Raises
        StorageError if the plans cannot be read.
        """
        claimed, given_up = self._claim_some()
        if not claimed:
            return given_up
        held = self._held = list(claimed)
        beats = _Beats(self._folder, [c.claim for c in claimed])
        try:
            with self._keep_alive(beats.renew, claimed[0].claim.lease):
                beats.renew()
                return [*given_up, *self._work_on(claimed, held)]
        finally:
            # The compactor was asked to stop, or was stopped by an unexpected error. The items are released, so that
            # other compactors need not wait for the leases to end.
            for c in held:
                release(self._folder, c, None)
            self._held = []

    def drop(self) -> None:
        """Releases the items (compactions) on which this compactor is working, so that other compactors can take them.
        This method is called from another thread. The work on the items ends soon and leaves no files.
        """
        self._is_dropped = True
        for c in tuple(self._held):
            release(self._folder, c, None)

    def _claim_some(self) -> tuple[list[Claimed], list[Finished]]:
        """Claims some open items (planned compactions) by writing a lease for each. Returns the items that this
        process has claimed, and the items that are now closed as given up, because they have failed too often.
        """
        listing = self._folder.list()
        items: list[tuple[Plan, Item]] = []
        for plan in self._folder.readable(listing).values():
            # Compactors begin at different items, so that they rarely want the same item.
            start = int(self._world.random.fraction() * len(plan.items))
            turned = (*plan.items[start:], *plan.items[:start])
            items += [(plan, item) for item in turned if not listing.has_result(plan, item.number)]
        self.open = OpenItems.of(items)
        still = {(plan.plan_id, item.number) for plan, item in items}
        self._seen = {key: seen for key, seen in self._seen.items() if key in still}
        most = max(1, self._take(len(items)))
        claimed: list[Claimed] = []
        given_up: list[Finished] = []
        for plan, item in items if not self._is_dropped else ():
            outcome = self._try(listing, plan, item) if len(claimed) < most else None
            if isinstance(outcome, Finished):
                given_up.append(outcome)
            elif outcome is not None:
                claimed.append(Claimed(plan, item, outcome))
        return claimed, given_up

    def _try(self, listing: Listing, plan: Plan, item: Item) -> Claim | Finished | None:
        key = (plan.plan_id, item.number)
        try:
            view = self._folder.view(listing, plan, item.number)
        except CorruptFileError as e:
            _LOG.warning("an item of a compaction plan is skipped, because one of its files cannot be read: %s", e)
            return None
        now_ms = self._world.stopwatch.elapsed_ms()
        seen = self._seen[key] = observe(self._seen.get(key), view, now_ms)
        verdict = judge(view, seen, now_ms, unread_period_ms=self._lease_ms)
        if verdict is Verdict.GIVE_UP:
            last = "" if view.failure is None else f"; the last error was: {view.failure}"
            why = f"each attempt ended in an error{last}" if view.failures else "no compactor has completed the item"
            result = self._folder.record(plan, item.number, ItemResult(ItemState.FAILED, None, why))
            return Finished(item, result, result.reason, view.failures)
        if verdict is not Verdict.TAKE:
            return None
        lease = Lease(self._world.ids.new_uuid(), self._lease_ms)
        claim = self._folder.claim(plan, item.number, view.epoch + 1, lease)
        if claim is not None and self._folder.result(plan, item.number) is not None:
            # The listing was out of date.
            return None
        return claim

    def _work_on(self, claimed: Sequence[Claimed], held: list[Claimed]) -> list[Finished]:
        ends = _Ends(self._folder, held, lambda: self._is_dropped)
        self._is_fresh = False
        jobs: list[tuple[Claimed, ItemJob]] = []
        for c in claimed:
            looked = ends.attempt(c, partial(self._look, c))
            if isinstance(looked, ItemResult):
                ends.close(c, looked)
            elif looked is not None:
                jobs.append((c, looked))
        by_plan: dict[str, list[DoneItem]] = {}
        for done in self._done(jobs, ends):
            by_plan.setdefault(done[0].plan.plan_id, []).append(done)
        for group in by_plan.values():
            self._commit(group, ends)
        return ends.finished

    def _look(self, c: Claimed) -> ItemJob | ItemResult:
        """Reads an item (a planned compaction) in the newest snapshot. Returns the job that carries out the item, or
        the item's result if there is nothing to do. All items of a round are read in the same snapshot.
        """
        if not self._is_fresh:
            self._work.refresh()
            self._is_fresh = True
        return self._work.look(c.plan, c.item, self._folder.release_path(c.claim))

    def _done(self, jobs: Sequence[tuple[Claimed, ItemJob]], ends: "_Ends") -> list[DoneItem]:
        """Runs the jobs of the claimed items, and returns the items whose jobs have succeeded, with their commit
        messages. Jobs for single buckets run together; if this fails, they run one by one. Then the jobs that move
        rows out of the postpone bucket run one by one, because the engine divides each of these jobs among its tasks.
        """
        moves = [(c, job) for c, job in jobs if isinstance(job, MoveJob)]
        others = [(c, job) for c, job in jobs if not isinstance(job, MoveJob)]
        done_jobs: list[DoneItem] = []
        if len(others) > 1:
            try:
                messages = self._engine.run(Jobs([job for _, job in others])).messages
                done_jobs += [(c, job, (m,)) for (c, job), m in zip(others, messages, strict=True)]
                others = []
            except Exception as e:  # noqa: BLE001 (whatever engine it is: each is tried alone, and then it counts)
                if self._is_dropped:
                    return []
                _LOG.info("%d items of a compaction plan are carried out one by one: %s", len(others), _one_line(e))
        left: list[tuple[Claimed, ItemJob]] = [*others, *moves]
        for c, job in left:
            if self._is_dropped:
                break
            made = ends.attempt(c, partial(self._run, c, job))
            if isinstance(made, ItemResult):
                ends.close(c, made)
            elif made is not None:
                done_jobs.append((c, job, made))
        return done_jobs

    def _run(self, c: Claimed, job: ItemJob) -> Made | ItemResult:
        """Runs the compaction of a claimed item. Returns its commit messages. If the compaction fails because its input
        files are gone, returns the result of the item instead.
        """
        try:
            return self._engine.run(job.stages if isinstance(job, MoveJob) else Jobs([job])).messages
        except Exception:
            # Another process has compacted or removed the inputs, and the snapshots that had them have expired.
            if not self._is_dropped:
                self._is_fresh = False
                with suppress(BucketlineError):
                    looked = self._look(c)
                    if isinstance(looked, ItemResult):
                        return looked
            raise

    def _commit(self, group: Sequence[DoneItem], ends: "_Ends") -> None:
        """Commits the finished items (compactions of one bucket each) of one plan together: either all of them, or
        none.
        """
        ours = []
        for c, job, made in group:
            if self._is_dropped:
                # After this process has released the item, another process may have continued it.
                self._work.discard(made)
                ends.give_back(c, _STOPPED, failed=False)
            elif self._is_superseded(c):
                self._work.discard(made)
                self._lost([c], Lost("another compactor has taken over the item"), ends)
            else:
                ours.append((c, job, made))
        if not ours:
            return
        claims = [c for c, _, _ in ours]
        jobs, all_made = [job for _, job, _ in ours], [made for _, _, made in ours]
        outcome = ends.attempt_all(claims, partial(self._work.commit, claims[0].plan, jobs, all_made))
        if isinstance(outcome, Lost):
            self._lost(claims, outcome, ends)
        elif isinstance(outcome, Unclear):
            for c in claims:
                ends.leave(c, outcome.reason)
        elif outcome is not None:
            for c, result in zip(claims, outcome, strict=True):
                ends.close(c, result)

    def _is_superseded(self, c: Claimed) -> bool:
        with suppress(StorageError):
            return self._folder.is_superseded(c.claim)
        return False

    def _lost(self, claims: Sequence[Claimed], lost: Lost, ends: "_Ends") -> None:
        """Handles items (planned compactions) whose commit was refused, because another process had committed work on
        the same bucket first. The method reads the newest snapshot. An item for which nothing is left to do is
        closed, and every other item is given back. A refused commit does not count as an error of the item.
        """
        self._is_fresh = False
        for c in claims:
            looked = ends.attempt(c, partial(self._look, c))
            if isinstance(looked, ItemResult):
                ends.close(c, looked)
            elif looked is not None:
                ends.give_back(c, lost.reason, failed=False)


class _Ends:
    """Ends the items on which the compactor works in one round, and records how each item has ended. `held` are the
    items that have not ended yet. `is_dropped` tells whether the compactor was told to release its items; if so, an
    error does not count as a failed attempt at the item.
    """

    def __init__(self, folder: PlanFolder, held: list[Claimed], is_dropped: Callable[[], bool]) -> None:
        self._folder, self._held, self._is_dropped = folder, held, is_dropped
        self.finished: list[Finished] = []

    def attempt(self, c: Claimed, act: Callable[[], T]) -> T | None:
        """Calls `act` and returns its result. If `act` fails, releases the item, and returns None."""
        return self.attempt_all([c], act)

    def attempt_all(self, claims: Sequence[Claimed], act: Callable[[], T]) -> T | None:
        """Calls `act`, which works on several items (planned compactions) together, and returns its result. If `act`
        fails, releases all of these items, and returns None.
        """
        try:
            return act()
        except Exception as e:  # noqa: BLE001 (whatever it is, the reason is recorded, and another compactor may try)
            reason = _one_line(e)
            if self._is_dropped():
                for c in claims:
                    self.give_back(c, _STOPPED, failed=False)
                return None
            for c in claims:
                _LOG.warning(
                    "item %d of compaction plan %s failed, and is released: %s", c.item.number, c.plan.plan_id, reason
                )
                self.give_back(c, reason, failed=True)
            return None

    def close(self, c: Claimed, result: ItemResult) -> None:
        """Records the result of an item."""
        try:
            result = self._folder.record(c.plan, c.item.number, result)
        except (StorageError, CorruptFileError) as e:
            # The table shows the result as well. The next compactor that takes the item finds it there.
            values = (c.item.number, c.plan.plan_id, result.state.value)
            _LOG.warning("the result of item %d of compaction plan %s (%s) could not be recorded: %s", *values, e)
        self._held.remove(c)
        self.finished.append(Finished(c.item, result, result.reason))

    def leave(self, c: Claimed, reason: str) -> None:
        """Ends the work on an item (a planned compaction) after a commit that may or may not have succeeded. The
        lease is kept until it ends by itself. Until then no other compactor takes the item, and a commit that was
        still on its way appears in the table.
        """
        self._held.remove(c)
        self.finished.append(Finished(c.item, None, reason))

    def give_back(self, c: Claimed, reason: str, *, failed: bool) -> None:
        self._held.remove(c)
        self.finished.append(Finished(c.item, None, reason))
        release(self._folder, c, reason if failed else None)


def release(folder: PlanFolder, c: Claimed, failure: str | None) -> None:
    """Releases an item (a planned compaction of one bucket) at once, so that other compactors can take it. If releasing
    fails, the compactor's lease on the item ends by itself.
    """
    with suppress(BucketlineError):
        folder.release(c.claim, failure)


def _one_line(error: Exception) -> str:
    return " ".join((error.message if isinstance(error, BucketlineError) else repr(error)).split())[:1000]


class _Beats:
    """Renews the heartbeats by which this process keeps its claims on items (planned compactions). Heartbeats are
    renewed in time even while the storage does not answer a job.
    """

    def __init__(self, folder: PlanFolder, claims: Sequence[Claim]) -> None:
        self._folder, self._claims = folder, claims
        self._count = 0

    def renew(self) -> None:
        self._count += 1
        for claim in self._claims:
            with suppress(StorageError):
                self._folder.renew(claim, self._count)
