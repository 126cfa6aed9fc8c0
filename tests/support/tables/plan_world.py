"""A simulated world for compactors: one storage, one table, a virtual clock, and processes that run in turns.

Each process is a thread, and only one of them runs at a time: at every call of the storage or of the table the world
decides by its seed who goes on, what goes wrong and how late it is. The same seed gives the same history.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import World as Sources
from bucketline.state.errors import StorageError
from bucketline.state.plans.lease import Lease, next_beat_ms
from bucketline.state.plans.plan import Item, ItemResult, ItemState, Plan
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.plans.compactor import Compactor
from bucketline.state.store.plans.item_work import ItemJob, Lost, Made, Unclear
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.write.write_plan import ONE_WORKER, Workers
from tests.support.storage.memory_io import MemoryIO

LEASE_MS = 1000


@dataclass(frozen=True)
class Weather:
    """How bad it is: chances of each thing at each call, and how old a listing may be."""

    storage_fails: float = 0.0
    answer_lost: float = 0.0
    comes_late: float = 0.0
    listing_age_ms: int = 0
    pauses: float = 0.0
    kills: float = 0.0
    work_fails: float = 0.0
    others_take: float = 0.0


class Killed(BaseException):
    """The process is dead: nothing it calls answers any more."""


@dataclass(eq=False)
class Process:
    """A thread that runs when it is its turn; it sleeps until `awake_ms`."""

    name: str
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    awake_ms: int = 0
    is_dead: bool = False
    is_done: bool = False


@dataclass
class World:
    """Virtual time, the storage, the table's live files, and what was committed."""

    seed: int
    weather: Weather
    files: MemoryIO = field(default_factory=MemoryIO)
    now_ms: int = 0
    live: set[str] = field(default_factory=set)
    commits: list[tuple[str, int]] = field(default_factory=list)
    runs: list[tuple[str, int]] = field(default_factory=list)
    failures: int = 0
    kills: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.processes: list[Process] = []
        self.is_over = False
        self.back = threading.Semaphore(0)
        self.later: list[tuple[int, int, Callable[[], object]]] = []
        self.listings: list[tuple[int, list[str]]] = [(0, [])]

    # -- time and turns

    def start(self, name: str, main: Callable[[Process], None]) -> None:
        process = Process(name, awake_ms=self.now_ms + self.chance.randint(0, 50))

        def body() -> None:
            process.go.acquire()
            try:
                main(process)
            except Killed:
                pass
            except BaseException as e:  # noqa: BLE001 (the test raises it)
                self.errors.append(e)
            process.is_done = True
            self.back.release()

        self.processes.append(process)
        threading.Thread(target=body, daemon=True).start()

    def run(self, until_ms: int, is_over: Callable[[], bool]) -> None:
        """Gives turns until everything is over, or so much time has passed."""
        self.is_over = False
        while not is_over() and not self.errors:
            ready = [p for p in self.processes if not p.is_done]
            if not ready or self.now_ms > until_ms:
                break
            first = min(p.awake_ms for p in ready)
            soon = [p for p in ready if p.awake_ms <= first + 20]
            process = self.chance.choice(soon)
            self.now_ms = max(self.now_ms, process.awake_ms)
            for moment in sorted((m for m in self.later if m[0] <= self.now_ms), key=lambda m: m[:2]):
                self.later.remove(moment)
                moment[2]()
            process.go.release()
            self.back.acquire()
        self._end()
        if self.errors:
            raise self.errors[0]

    def _end(self) -> None:
        self.is_over = True
        for process in self.processes:
            process.is_dead = True
            while not process.is_done:
                process.go.release()
                self.back.acquire()

    def turn(self, process: Process, cost_ms: int | None = None) -> None:
        """The process waits for its next turn; it may be paused, or killed."""
        if not process.is_dead:
            cost = self.chance.randint(1, 15) if cost_ms is None else cost_ms
            if self.chance.random() < self.weather.pauses:
                cost += self.chance.randint(100, 4 * LEASE_MS)
            process.awake_ms = self.now_ms + cost
            self.back.release()
            process.go.acquire()
            if not process.is_dead and self.chance.random() < self.weather.kills:
                process.is_dead = True
                self.kills += 1
        if process.is_dead:
            raise Killed

    def postpone(self, act: Callable[[], object]) -> None:
        self.later.append((self.now_ms + self.chance.randint(1, 3 * LEASE_MS), len(self.later), act))

    def happens(self, chance: float) -> bool:
        return self.chance.random() < chance

    # -- the table

    def commit(self, plan: Plan, items: Sequence[Item]) -> bool:
        """One atomic step, as publishing a snapshot is: the inputs are there, or the commit conflicts."""
        names = {f.name for item in items for f in item.inputs}
        if not names <= self.live:
            return False
        self.live -= names
        self.commits += [(plan.plan_id, item.number) for item in items]
        return True


@dataclass
class SimIO:
    """The world's storage as one process reaches it."""

    world: World
    process: Process

    def publish(self, path: str, data: bytes) -> bool:
        return bool(self._write(path, lambda: self._publish(path, data)))

    def overwrite(self, path: str, data: bytes) -> None:
        self._write(path, lambda: self._changed(self.world.files.overwrite, path, data))

    def delete(self, path: str) -> None:
        self._write(path, lambda: self._changed(self.world.files.delete, path))

    def read_optional(self, path: str) -> bytes | None:
        self._read(path)
        return self.world.files.read_optional(path)

    def exists(self, path: str) -> bool:
        self._read(path)
        return self.world.files.exists(path)

    def list_names(self, directory: str) -> list[str]:
        self._read(directory)
        world = self.world
        moment = world.now_ms - world.chance.randint(0, world.weather.listing_age_ms)
        return next(names for at, names in reversed(world.listings) if at <= max(0, moment))

    def require_publish(self) -> None:
        return

    def _publish(self, path: str, data: bytes) -> bool:
        won = self.world.files.publish(path, data)
        self._note()
        return won

    def _changed(self, act: Callable[..., object], *arguments: Any) -> None:
        act(*arguments)
        self._note()

    def _note(self) -> None:
        names = sorted(p.rpartition("/")[2] for p in self.world.files.files)
        self.world.listings.append((self.world.now_ms, names))

    def _read(self, path: str) -> None:
        self.world.turn(self.process)
        if self.world.happens(self.world.weather.storage_fails):
            raise self._error(path)

    def _write(self, path: str, act: Callable[[], object]) -> object:
        world, weather = self.world, self.world.weather
        world.turn(self.process)
        if world.happens(weather.storage_fails):
            raise self._error(path)
        if world.happens(weather.comes_late):
            world.postpone(act)
            raise self._error(path)
        found = act()
        if world.happens(weather.answer_lost):
            raise self._error(path)
        return found

    def _error(self, path: str) -> StorageError:
        return StorageError(f"{path}: no answer", path=path, retryable=True, missing=False)


@dataclass
class SimWork:
    """Items done on the world's table, and the engine that does them; `beat` is called while a job runs, as a thread
    would."""

    world: World
    process: Process
    beat: Callable[[], None] | None = None

    def refresh(self) -> None:
        self.world.turn(self.process)
        if self.world.happens(self.world.weather.storage_fails):
            raise StorageError("no answer", path="snapshot", retryable=True, missing=False)

    def look(self, plan: Plan, item: Item, given_back: str | None = None) -> Any:
        if {f.name for f in item.inputs} <= self.world.live:
            return (plan, item)
        if (plan.plan_id, item.number) in self.world.commits:
            return ItemResult(ItemState.DONE, self.world.commits.index((plan.plan_id, item.number)))
        return ItemResult(ItemState.OBSOLETE, None, "inputs are gone")

    @property
    def workers(self) -> Workers:
        return ONE_WORKER

    def run(self, work: Any) -> Outcome:
        world, jobs = self.world, work.jobs
        for plan, item in jobs:
            world.runs.append((plan.plan_id, item.number))
            left = world.chance.randint(50, 3 * LEASE_MS)
            while left > 0:
                step = min(left, next_beat_ms(Lease("", LEASE_MS)))
                world.turn(self.process, step)
                left -= step
                if self.beat is not None:
                    self.beat()
        if world.happens(world.weather.work_fails):
            world.failures += 1
            raise ValueError("the work fails")
        return Outcome(tuple(CommitMessage(item.partition, item.bucket, item.total_buckets) for _, item in jobs))

    def commit(
        self, plan: Plan, jobs: Sequence[ItemJob], made: Sequence[Made]
    ) -> Sequence[ItemResult] | Lost | Unclear:
        world, items = self.world, [item for _, item in jobs]  # type: ignore[misc,attr-defined,str-unpack]
        world.turn(self.process)
        if world.happens(world.weather.storage_fails):
            raise StorageError("not published", path="snapshot", retryable=True, missing=False)
        if world.happens(world.weather.comes_late):
            world.postpone(lambda: world.commit(plan, items))
            return Unclear("no answer yet")
        done = world.commit(plan, items)
        if done and world.happens(world.weather.answer_lost):
            return Unclear("the answer was lost")
        if not done:
            return Lost("inputs are gone")
        return [ItemResult(ItemState.DONE, world.commits.index((plan.plan_id, i.number))) for i in items]

    def discard(self, made: Made) -> None:
        self.world.turn(self.process)

    @contextmanager
    def keep_alive(self, renew: Callable[[], None], lease: Lease) -> Iterator[None]:
        self.beat = renew
        try:
            yield
        finally:
            self.beat = None


def start_compactor(world: World, name: str, *, most: int = 1) -> None:
    """A process that works on the plans until it is killed; another one then takes its place."""

    @dataclass
    class Elapsed:
        """Each process has a clock of its own, which began at another number."""

        zero: int

        def elapsed_ms(self) -> int:
            return world.now_ms + self.zero

    def main(process: Process) -> None:
        io, work = SimIO(world, process), SimWork(world, process)
        compactor = Compactor(
            PlanFolder(io, "t"),  # type: ignore[arg-type] (what plans need of a FileIO)
            work,
            work,
            work.keep_alive,
            lease_ms=LEASE_MS,
            take=lambda open_items: most,
            world=Sources(stopwatch=Elapsed(world.chance.randint(0, 10**9)), ids=Names(world), random=Fraction(world)),
        )
        try:
            while True:
                try:
                    found = compactor.round()
                except StorageError:
                    found = []
                if not found:
                    world.turn(process, 200)
                if world.happens(world.weather.others_take) and world.live:
                    world.live.discard(world.chance.choice(sorted(world.live)))
        except Killed:
            if not world.is_over:
                start_compactor(world, f"{name}'", most=most)
            raise

    world.start(name, main)


@dataclass
class Names:
    """Fresh names, repeatable."""

    world: World

    def new_uuid(self) -> str:
        found = f"{self.world.chance.getrandbits(128):032x}"
        return "-".join((found[:8], found[8:12], found[12:16], found[16:20], found[20:]))


@dataclass
class Fraction:
    """Chance, repeatable."""

    world: World

    def fraction(self) -> float:
        return self.world.chance.random()
