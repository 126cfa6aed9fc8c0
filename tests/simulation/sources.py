"""Time, names, random numbers and pauses of a simulated process, and what replaces its threads.

`in_this_process` replaces the machine's own sources in the whole Python process, so that code without a `world`
parameter gets the answers of the world too.
"""

import datetime
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bucketline.state import determinism
from bucketline.state.determinism import World
from bucketline.state.store.storage import open_ahead, parallel, ranged_reader
from bucketline.state.store.write.cross import cross_write
from tests.simulation.scheduler import Process, current

START_MS = 1_700_000_000_000
"""What the storage's clock shows when a world begins."""


@dataclass
class Clocks:
    """The clock of one machine. It is wrong by `offset_ms`, and runs faster than the world's by `drift`."""

    process: Process
    offset_ms: int = 0
    drift: float = 0.0

    def now_ms(self) -> int:
        world = self.process.world
        return START_MS + self.offset_ms + world.now_ms + int(world.now_ms * self.drift)

    def local_ms(self) -> int:
        return self.now_ms()

    def elapsed_ms(self) -> int:
        """A stopwatch does not jump, but drifts."""
        return int(self.process.world.now_ms * (1 + self.drift))


@dataclass
class Ids:
    """Names that follow from the process's name."""

    process: Process
    count: int = 0

    def new_uuid(self) -> str:
        self.count += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.process.world.seed} {self.process.name} {self.count}"))


@dataclass
class Machine:
    """The clock, names and random numbers of a process."""

    process: Process
    clock: Clocks = field(init=False)
    ids: Ids = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clocks(self.process)
        self.ids = Ids(self.process)

    def fraction(self) -> float:
        return self.process.chance.random()

    def wait_ms(self, duration_ms: int) -> None:
        self.process.sleep(duration_ms)

    @property
    def world(self) -> World:
        return World(clock=self.clock, ids=self.ids, random=self, pause=self, stopwatch=self.clock)


_machines: dict[Process, Machine] = {}


def machine_of(process: Process) -> Machine:
    """The machine on which a process runs."""
    found = _machines.get(process)
    if found is None:
        found = _machines[process] = Machine(process)
    return found


class SerialPool:
    """A replacement for a pool of threads: work is done at once, in the thread that submits it."""

    def __init__(self, *sizes: Any, **names: Any) -> None:
        return

    def __enter__(self) -> "SerialPool":
        return self

    def __exit__(self, *error: object) -> None:
        return

    def submit(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as e:  # noqa: BLE001 (it is raised where the result is asked for)
            future.set_exception(e)
        return future

    def map(self, work: Callable[..., Any], *items: Any) -> Iterator[Any]:
        return iter([work(*each) for each in zip(*items, strict=False)])

    def shutdown(self, *waits: Any, **named: Any) -> None:
        return


@dataclass
class SerialReading:
    """A replacement for reading sources in several threads: the calling thread reads them one after the other."""

    sources: Iterable[Callable[[], Iterator[Any]]]
    readers: int

    def items(self) -> Iterator[Any]:
        for source in self.sources:
            yield from source()

    def end(self) -> None:
        return


def _computed_once(self: Any, instance: Any, owner: Any = None) -> Any:
    """As cached_property of Python 3.12: that of 3.11 holds a lock while it computes, for all objects of the class, and
    a process that waits for a lock keeps the baton."""
    if instance is None:
        return self
    kept = instance.__dict__
    if self.attrname not in kept:
        kept[self.attrname] = self.func(instance)
    return kept[self.attrname]


@contextmanager
def in_this_process() -> Iterator[None]:
    """While the block runs, processes have the sources of their worlds, and start no threads."""

    def routed(kind: type, name: str, answer: Callable[[Machine], Callable[..., Any]]) -> Any:
        real = getattr(kind, name)

        def ask(self: object, *arguments: Any) -> Any:
            process = current()
            return real(self, *arguments) if process is None else answer(machine_of(process))(*arguments)

        return patch.object(kind, name, ask)

    patches = [
        routed(determinism.SystemIds, "new_uuid", lambda m: m.ids.new_uuid),
        routed(determinism.SystemClock, "now_ms", lambda m: m.clock.now_ms),
        routed(determinism.SystemClock, "local_ms", lambda m: m.clock.local_ms),
        routed(determinism.SystemStopwatch, "elapsed_ms", lambda m: m.clock.elapsed_ms),
        routed(determinism.SystemRandom, "fraction", lambda m: m.fraction),
        routed(determinism.SystemPause, "wait_ms", lambda m: m.wait_ms),
        patch.object(functools.cached_property, "__get__", _computed_once),
        patch.object(parallel, "core_count", lambda: 1),
        patch.object(parallel, "ThreadPoolExecutor", SerialPool),
        patch.object(parallel, "_Reading", SerialReading),
        patch.object(open_ahead, "ThreadPoolExecutor", SerialPool),
        patch.object(ranged_reader, "ThreadPoolExecutor", SerialPool),
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
        _machines.clear()


@contextmanager
def own_disks() -> Iterator[None]:
    """While the block runs, each actor has a folder for key indexes on a local disk of its own, which a process that
    follows a dead one finds again."""
    with TemporaryDirectory(prefix="world-") as root:

        def folder() -> str:
            process = current()
            return f"{root}/{'none' if process is None else process.name.partition('.')[0]}"

        with patch.object(cross_write, "tempfile", SimpleNamespace(gettempdir=folder)):
            yield


def shown(ms: int) -> str:
    """A moment of a world, as people read it."""
    return str(datetime.timedelta(milliseconds=ms))
