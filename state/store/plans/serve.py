"""A compactor as a process: looks for work in several tables, again and again, until somebody asks the compactor to
stop.

After the first request to stop, the compactor finishes the items (planned compactions) on which it works. A second
request, which the caller raises as an exception, makes the compactor release these items.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from bucketline.conf.errors import BucketlineError
from bucketline.state.plans.lease import Lease, next_beat_ms
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.plans.compactor import Compactor, Finished
from bucketline.state.store.plans.item_work import TableWork
from bucketline.state.store.plans.make_plan import check_plannable
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.write.table_at import TableAt

_LOG = logging.getLogger(__name__)

_MOST_AT_A_TIME = 8

Tell = Callable[[str, Finished], None]
"""A function that is called with the path of a table and a finished item of this table."""


class Stop:
    """A request to stop, and a pause that ends early once the stop is requested.

    A signal handler may make the request while it interrupts the thread that waits. So the request and the pause take
    no common lock: with the lock of a `threading.Event`, the thread would wait for itself.
    """

    def __init__(self) -> None:
        self._is_asked = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        self._is_asked = True
        self._wakes.put(None)

    @property
    def is_asked(self) -> bool:
        return self._is_asked

    def wait_ms(self, duration_ms: int) -> None:
        """Waits `duration_ms` milliseconds, or until a stop is requested."""
        with suppress(Empty):
            self._wakes.get(timeout=duration_ms / 1000)
            # This wakes other waiting threads.
            self._wakes.put(None)


def few(open_items: int) -> int:
    """Returns how many items of compaction plans a compactor takes at a time. `open_items` is the number of items that
    wait. This number is for compactors that work on their items one after the other.

    All items that are taken together are one commit, and the commits of compactors wait for each other. So it is better
    to take more items. But a compactor never takes more than a fourth of the open items (though at least one), so that
    other compactors find work too.
    """
    return max(1, min(_MOST_AT_A_TIME, open_items // 4))


def compactor_in(at: TableAt, engine: Engine, *, lease_ms: int, take: Callable[[int], int] = few) -> Compactor:
    """Returns a compactor for the table: an object that carries out items of compaction plans. `take` gets the number
    of open items, and returns how many of them the compactor reserves at a time. `lease_ms` is the time for which an
    item stays reserved.

    Raises OptionError, and UnsupportedTableError if the table cannot have plans.
    """
    check_plannable(at)
    folder = PlanFolder(at.table.io, at.table.metadata_path)
    work = TableWork(at, workers=engine.workers)
    return Compactor(folder, work, engine, kept_alive, lease_ms=lease_ms, take=take, world=at.table.world)


def serve_plans(
    compactors: Mapping[str, Compactor],
    *,
    poll_ms: int,
    once: bool,
    stop: Stop,
    tell: Tell,
    looked: Callable[[str], None] = lambda path: None,
) -> int:
    """Carries out planned compactions of several tables, one table after the other, until a stop is requested.
    Returns how many items (planned compactions) were closed. The keys of `compactors` are the paths of the tables.

    `tell` is called after each item, with the path of the table and the finished item. `looked` is called with the
    path after each look at a table.

    With `once` the function returns when no item is left to claim, and errors of a table are raised. Without `once`,
    errors are logged as warnings, and the function looks at the table again later.
    """
    closed = 0
    while not stop.is_asked:
        worked = False
        for path, compactor in compactors.items():
            for finished in _round(path, compactor, once=once):
                worked = True
                closed += finished.result is not None
                tell(path, finished)
            looked(path)
            if stop.is_asked:
                break
        if not worked and not stop.is_asked:
            if once:
                break
            stop.wait_ms(poll_ms)
    return closed


def _round(path: str, compactor: Compactor, *, once: bool) -> Sequence[Finished]:
    try:
        return compactor.round()
    except BucketlineError as e:
        if once:
            raise
        _LOG.warning("%s: %s", path, e)
        return ()


@contextmanager
def kept_alive(renew: Callable[[], None], lease: Lease) -> Iterator[None]:
    """Calls `renew`, which renews the heartbeats of leases, at regular intervals in a separate thread during a `with`
    block. `lease` determines the length of the intervals.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(next_beat_ms(lease) / 1000):
            renew()

    thread = threading.Thread(target=beat, name="bucketline-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
