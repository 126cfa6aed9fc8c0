"""The thread on the driver that compacts a table if the job has `compaction` = `async`. Its Spark jobs run at the same
time as the jobs of batches.

There is one thread for each table and stream; it lives as long as the stream. If the thread fails, the next batch
fails.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from bucketline.conf.async_options import ASYNC_POOL
from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.wording import counted
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CompactionFailedError
from bucketline.state.store.engine.engine import Engine, Jobs, Outcome, Parts
from bucketline.state.store.plans.async_compaction import LEASE_MS, CompactionThread, Turns
from bucketline.state.store.plans.make_plan import OpenItems, check_plannable
from bucketline.state.store.plans.when import WhenToPlan
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.batch.procedures import spark_engine
from bucketline.streaming.batch.target import Target

_LOG = logging.getLogger(__name__)

_SCHEDULER_MODE = "spark.scheduler.mode"
_POOL = "spark.scheduler.pool"
_LOOK_MS = 200
_HELD_LOOK_MS = 1_000


@dataclass(frozen=True, slots=True)
class InPool:
    """An engine whose Spark jobs run in a pool of Spark's scheduler, with at most `tasks` tasks. If `pool` is None, the
    jobs run in the default pool.

    Spark keeps the name of the pool for each thread, so the name is set on the thread that runs the engine.
    """

    engine: Engine
    context: Any
    pool: str | None
    tasks: int

    @property
    def workers(self) -> Workers:
        return replace(self.engine.workers, most_tasks=self.tasks)

    def run(self, work: Stages[Parts] | Jobs) -> Outcome:
        if self.pool is not None:
            self.context.setLocalProperty(_POOL, self.pool)
        return self.engine.run(work)


@dataclass(frozen=True, slots=True)
class _Running:
    """A compaction thread of this process. `context` is the Spark context that the thread uses, `when` decides when to
    plan, and `stop_timeout_ms` says how long a stop waits for the thread.
    """

    thread: CompactionThread
    context: Any
    stop_timeout_ms: int
    when: WhenToPlan = field(default_factory=WhenToPlan)


_running: dict[tuple[str, str], _Running] = {}
_lock = Lock()


def check_async(target: Target, spark: Any) -> None:
    """Starts the thread if this job compacts asynchronously and the thread does not run yet. Called before a batch is
    written.

    Raises OptionError or UnsupportedTableError if the table cannot be compacted asynchronously, and
    CompactionFailedError if an asynchronous compaction has failed.
    """
    at, context = target.at, spark.sparkContext
    if not at.plan.compacts_async:
        return
    check_plannable(at)
    running = _running_of(at.table.metadata_path, target.user)
    if running is None or running.context is not context:
        settings = at.plan.sink.async_compaction
        check_pool(settings.pool, context)
        # The thread gets a session of its own, because an engine changes settings of its session while it runs, and so
        # does the engine of the batches.
        engine = spark_engine(spark.newSession())
        tasks = settings.tasks or max(1, engine.workers.parallelism // 2)
        in_pool = InPool(engine, context, settings.pool, tasks)
        turns = Turns(at, in_pool, take=lambda open_items: tasks)
        _keep(at.table.metadata_path, target.user, _Running(CompactionThread(turns), context, settings.stop_timeout_ms))
        return
    with _forgotten_on_error(target):
        running.thread.check()


def notice_batch(target: Target, batch_id: int) -> None:
    """Tells the compaction thread of the table that a batch was committed, and whether a compaction is due. If the
    driver cannot read the time of the last compaction, a compaction counts as due, and a warning is logged.
    """
    at = target.at
    running = _running_of(at.table.metadata_path, target.user) if at.plan.compacts_async else None
    if running is None:
        return
    full, due = at.plan.is_full_due(batch_id), True
    try:
        due = running.when.is_due(at, batch_id)
    except BucketlineError as e:
        _LOG.warning(
            "%s: the time of the last compaction cannot be read, so a compaction is planned now: %s", at.table.path, e
        )
    if due or full:
        running.when.planned()
    running.thread.notice(plans=due, full=full)


def await_async(target: Target, timeout_ms: int) -> bool:
    """Lets the stream's compaction thread plan the compactions that are due, and waits at most `timeout_ms` for this
    thread. Returns True if the thread is still working after that time. Raises CompactionFailedError if the thread has
    failed.
    """
    running = _running_of(target.at.table.metadata_path, target.user)
    if running is None or not target.at.plan.compacts_async:
        return False
    running.thread.notice()
    with _forgotten_on_error(target):
        return not running.thread.wait_idle(timeout_ms)


def async_backlog(target: Target) -> OpenItems:
    """Returns the plan items that were open when the thread of this stream last looked; no items if there is no
    thread.
    """
    running = _running_of(target.at.table.metadata_path, target.user)
    return OpenItems() if running is None else running.thread.backlog


def finish_async(
    path: str,
    user: str,
    is_ending: Callable[[], bool] = lambda: False,
    *,
    held_ms: int = 2 * LEASE_MS,
    world: World = SYSTEM_WORLD,
) -> None:
    """Lets the compaction thread of a stream do all compactions that are due, and ends the thread. Does nothing if
    there is no thread.

    The thread waits up to `held_ms` for plan items (planned compactions) on which other compactors work. A compactor
    that was killed keeps its items until its lease ends; such a compactor may be the previous run of this stream.
    When `is_ending` returns true, the thread is stopped like in `stop_async`. Raises CompactionFailedError if the
    thread has failed.
    """
    running = _running_of(path, user)
    if running is None:
        return
    was_held, left_ms = False, held_ms
    try:
        while not is_ending():
            if not running.thread.wait_idle(_LOOK_MS):
                continue
            held = running.thread.backlog.count
            if held and left_ms <= 0:
                _LOG.info(
                    "%s: %s stay with other compactors, which still work on them", path, counted(held, "open item")
                )
            if (not held and not was_held) or left_ms <= 0:
                break
            if held:
                world.pause.wait_ms(_HELD_LOOK_MS)
                left_ms -= _HELD_LOOK_MS
            was_held = held > 0
            # Compactions that became due after a held item could not be planned before that item was done.
            running.thread.notice()
    finally:
        stop_async(path, user)


def stop_async(path: str, user: str) -> None:
    """Ends the compaction thread of a stream, if there is one. The thread gets the time
    `async-compaction.stop-timeout` to finish the plan items (planned compactions) on which it works. Items that are
    not finished by then are given back, so that another compactor can do them.
    """
    running = _running_of(path, user)
    _keep(path, user, None)
    if running is not None:
        running.thread.stop(running.stop_timeout_ms)


def async_tables(user: str) -> list[str]:
    """Returns the folders of the tables for which the stream with this commit user has a thread."""
    with _lock:
        return sorted(path for path, of in _running if of == user)


@contextmanager
def _forgotten_on_error(target: Target) -> Iterator[None]:
    """If the `with` block raises the error of a stream's compaction thread, forgets this thread. So the error of a
    thread is raised only once.
    """
    try:
        yield
    except CompactionFailedError:
        _keep(target.at.table.metadata_path, target.user, None)
        raise


def check_pool(pool: str | None, context: Any) -> None:
    """Checks that a session has scheduler pools, if `pool` is set. Raises OptionError if the session's scheduler is not
    FAIR: other schedulers have no pools.
    """
    mode = "" if pool is None else str(context.getConf().get(_SCHEDULER_MODE, "FIFO"))
    if pool is not None and mode.upper() != "FAIR":
        raise OptionError(
            f"option '{ASYNC_POOL.key}' = {pool!r} needs {_SCHEDULER_MODE}=FAIR, but the session has {mode}",
            key=ASYNC_POOL.key,
        )


def _running_of(path: str, user: str) -> _Running | None:
    with _lock:
        return _running.get((path, user))


def _keep(path: str, user: str, running: _Running | None) -> None:
    with _lock:
        if running is None:
            _running.pop((path, user), None)
        else:
            _running[path, user] = running
