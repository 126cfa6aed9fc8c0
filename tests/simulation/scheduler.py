"""Virtual time, and the processes that live in it: threads of which one runs at a time, the one that holds the baton.

A process hands the baton on at each call of its storage and at each pause. Who gets it is decided by virtual time
alone, and what a call costs by the process's own chance, so that equal seeds give equal histories.
"""

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

_HANG_SECONDS = 120.0


class KilledError(BaseException):
    """The process is dead: nothing that it calls answers, whatever handlers it has."""


class HangError(AssertionError):
    """A process holds the baton and does not go on: it waits for a lock that another one holds."""


@dataclass(eq=False)
class Process:
    """A thread that runs when it is its turn. `calls` counts its turns; `slowness` stretches what its calls cost."""

    name: str
    world: "Scheduler"
    chance: random.Random
    slowness: float = 1.0
    is_dead: bool = False
    is_done: bool = False
    calls: int = 0
    go: threading.Lock = field(default_factory=threading.Lock)
    before_turn: list[Callable[[], None]] = field(default_factory=list)
    """Called whenever the process goes on, in place of the threads that a real process would have."""

    def __post_init__(self) -> None:
        self.go.acquire()

    def turn(self, cost_ms: int | None = None) -> None:
        """Waits for the next turn. Raises KilledError if the process is dead."""
        if self.is_dead:
            raise KilledError
        self.calls += 1
        cost = 1 + int(self.chance.random() * 15) if cost_ms is None else cost_ms
        self.world.wait(self, max(1, int(cost * self.slowness)))
        if self.is_dead:
            raise KilledError
        for act in list(self.before_turn):
            act()

    def sleep(self, duration_ms: int) -> None:
        """Waits for this time of the world."""
        if self.is_dead:
            raise KilledError
        self.world.wait(self, max(1, duration_ms))
        if self.is_dead:
            raise KilledError
        for act in list(self.before_turn):
            act()


_current = threading.local()


def current() -> Process | None:
    """The process that runs in this thread; None outside of a world."""
    found: Process | None = getattr(_current, "process", None)
    return found


@dataclass
class Scheduler:
    """The world's time in milliseconds, and what happens when."""

    seed: object
    now_ms: int = 0
    turns: int = 0

    def __post_init__(self) -> None:
        self._queue: list[tuple[int, int, Process | Callable[[], object]]] = []
        self._order = 0
        self._main = threading.Lock()
        self._main.acquire()
        self._threads: list[threading.Thread] = []
        self._living: list[Process] = []
        self.errors: list[BaseException] = []

    def chance_of(self, name: str) -> random.Random:
        """The random numbers of one part of the world. They do not depend on what other parts draw."""
        return random.Random(f"{self.seed} {name}")

    def start(self, name: str, main: Callable[[Process], None], *, after_ms: int = 0) -> Process:
        """Starts a process after this time."""
        process = Process(name, self, self.chance_of(name))

        def body() -> None:
            process.go.acquire()
            _current.process = process
            try:
                if not process.is_dead:
                    main(process)
            except KilledError:
                pass
            except BaseException as e:  # noqa: BLE001 (whoever runs the world raises it)
                self.errors.append(e)
            process.is_done = True
            self._living.remove(process)
            self._hand_on()

        thread = threading.Thread(target=body, daemon=True)
        self._threads.append(thread)
        self._living.append(process)
        self._put(after_ms, process)
        thread.start()
        return process

    def later(self, after_ms: int, act: Callable[[], object]) -> None:
        """Lets something happen after this time, whichever process runs then."""
        self._put(after_ms, act)

    def run(self) -> None:
        """Gives turns until all processes are done. Raises what one of them raised."""
        while not self.errors:
            entry = self._next()
            if entry is None:
                break
            entry.go.release()
            if not self._main.acquire(timeout=_HANG_SECONDS):
                raise HangError(f"{[p.name for p in self._living]} at {self.now_ms}")
        self.end()
        if self.errors:
            raise self.errors[0]

    def end(self) -> None:
        """Kills every process that is left."""
        self._queue.clear()
        for process in list(self._living):
            process.is_dead = True
            process.go.release()
            if not self._main.acquire(timeout=_HANG_SECONDS):
                raise HangError(f"{process.name} does not die")
        for thread in self._threads:
            thread.join(_HANG_SECONDS)
        self._threads.clear()

    def wait(self, process: Process, duration_ms: int) -> None:
        """Hands the baton on until this time has passed."""
        self._put(duration_ms, process)
        follower = self._next()
        if follower is process:
            return
        if follower is None:
            self._main.release()
        else:
            follower.go.release()
        process.go.acquire()

    def _hand_on(self) -> None:
        follower = None if self.errors else self._next()
        if follower is None:
            self._main.release()
        else:
            follower.go.release()

    def _put(self, after_ms: int, what: "Process | Callable[[], object]") -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now_ms + max(0, after_ms), self._order, what))

    def _next(self) -> Process | None:
        """The process that runs next. What is due before it is done first."""
        while self._queue:
            at_ms, _, what = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            if isinstance(what, Process):
                if what.is_done:
                    continue
                self.turns += 1
                return what
            what()
        return None
