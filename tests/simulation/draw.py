"""Scripts drawn from seeds."""

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement

from tests.simulation.faults import ALLOWED, Fault, FaultKind, Store
from tests.simulation.jobs import JOB
from tests.simulation.judge import UNDOING
from tests.simulation.operations import OPERATIONS
from tests.simulation.rows import KINDS, Kind
from tests.simulation.script import Script, Step, TablePlan, Track

MOST_OPERATIONS = 40
_WEIGHTS = {"write": 6, "read": 3, "compact": 3, "expire": 3, "work on plans": 3, "plan": 2}
_CALLS = {"write": 40, "batch": 50, JOB: 120}
_SHORT_MS, _LEASE_MS, _DAYS_MS = 500, 130_000, 2 * 86_400_000
_MEETINGS = 2
_AIMED = (
    FaultKind.AFTER,
    FaultKind.AFTER,
    FaultKind.LATE,
    FaultKind.KILL,
    FaultKind.KILL_AFTER,
    FaultKind.STOP,
)
_SEVERAL_MARKS = frozenset({"rescale", "roll back", "roll back to a tag", "delete a branch"})
"""Operations that others see half done, between two of their marks."""
_AIMED_SHARE, _AIMED_SHARE_OF_SEVERAL = 0.05, 0.4
"""The shares of operations that have a fault at or after one of their marks."""
_JOB_SHARE = 0.6
"""The share of worlds with several tables that have a job of all of them."""


def draw_script(seed: str) -> Script:
    """The script of a seed."""
    draw = random.Random(f"script {seed}")
    store = draw.choice((Store.POSIX, Store.POSIX, Store.OBJECTS, Store.HDFS, Store.REST))
    pair = pair_of(seed)
    tables = tuple(_table(draw, f"t{n}", () if n else pair) for n in range(draw.choice((1, 1, 1, 2))))
    others = draw.choice((4, 8, 12))
    tracks, number = [], 0
    for n in range(draw.choice((0, 1, 1, 2))):
        steps = []
        table = draw.choice(tables)
        for _ in range(draw.choice((2, 3, 4))):
            steps.append(_step(draw, store, number, table, "batch"))
            number += 1
        tracks.append(_track(draw, f"stream{n}", steps))
    if len(tables) > 1 and draw.random() < _JOB_SHARE and all(_takes_jobs(KINDS[t.kind]) for t in tables):
        steps = [_step(draw, store, number + n, tables[0], JOB) for n in range(draw.choice((2, 3)))]
        tracks.append(_track(draw, "job0", steps))
        number += len(steps)
    actors: list[list[Step]] = [[] for _ in range(draw.choice((2, 3, 4, 5)))]
    has_rolling = draw.random() < 0.4 or not UNDOING.isdisjoint(pair)
    for _ in range(others):
        table = draw.choice(tables)
        names = _fitting(table, has_rolling=has_rolling)
        name = draw.choices(names, [_WEIGHTS.get(o, 1) for o in names])[0]
        draw.choice(actors).append(_step(draw, store, number, table, name))
        number += 1
    tracks += [_track(draw, f"actor{n}", steps) for n, steps in enumerate(actors)]
    names = _fitting(tables[0], has_rolling=has_rolling)
    for n in range(_MEETINGS):
        # Two actors that begin at the same moment, with nothing else to do, so that every pair of operations meets.
        both = pair if n == 0 else _other_pair(seed, names)
        gap = draw.randrange(10_000)
        for side, name in zip("ab", both, strict=True):
            step = replace(_step(draw, store, number, tables[0], name), gap_ms=gap)
            tracks.append(_track(draw, f"pair{n}{side}", [step]))
            number += 1
    tracks = _aimed(seed, store, [t for t in tracks if t.steps])
    return Script(seed, store, tables, tuple(tracks), draw.random() < 0.2, draw.random() < 0.4)


def operations_drawn() -> set[str]:
    """All operations that worlds have."""
    return {*OPERATIONS, "batch"}


@cache
def pairs() -> tuple[tuple[str, str], ...]:
    """The pairs of operations that a table takes, in no order."""
    names = sorted(operations_drawn())
    found = [p for p in combinations_with_replacement(names, 2) if not never_together(*p)]
    random.Random("pairs").shuffle(found)
    return tuple(found)


def pair_of(seed: str) -> tuple[str, str]:
    """The two operations that certainly meet in the world of a seed: with a number, the pairs in turn."""
    return pairs()[_place(seed)]


def _other_pair(seed: str, names: Iterable[str]) -> tuple[str, str]:
    """Another pair that meets in the world of a seed: that of a seed far away, or the next one of these operations."""
    taken, place = {*names, "batch"}, _place(seed) + len(pairs()) // 2
    turned = (pairs()[(place + n) % len(pairs())] for n in range(len(pairs())))
    return next(p for p in turned if taken.issuperset(p))


def _place(seed: str) -> int:
    number = int(seed) if seed.isdigit() else random.Random(f"pair {seed}").randrange(len(pairs()))
    return number % len(pairs())


def never_together(one: str, other: str) -> bool:
    """Whether no table takes both operations."""
    plans = [TablePlan("t", kind) for kind in KINDS]
    return not any({one, other} <= {*_fitting(plan, has_rolling=True), "batch"} for plan in plans)


def _table(draw: random.Random, name: str, wanted: tuple[str, ...]) -> TablePlan:
    """A table that takes the operations that are wanted."""
    options = {
        "num-sorted-run.compaction-trigger": str(draw.choice((2, 3, 5))),
        "snapshot.num-retained.min": str(draw.choice((1, 2))),
        "snapshot.num-retained.max": str(draw.choice((2, 4, 99))),
        "snapshot.time-retained": draw.choice(("1 s", "1 h")),
        **draw.choice(({}, {"write-only": "true"}, {"full-compaction.delta-commits": "2"})),
    }
    kind = draw.choice([k for k in KINDS if {*wanted} <= {*_fitting(TablePlan("t", k), has_rolling=True), "batch"}])
    if KINDS[kind].options.get("changelog-producer") == "lookup":
        options.pop("full-compaction.delta-commits", None)
    if not KINDS[kind].key:
        options.pop("full-compaction.delta-commits", None)
        options.pop("num-sorted-run.compaction-trigger", None)
    return TablePlan(name, kind, tuple(options.items()), draw.choice((2, 3, 4)))


def _fitting(table: TablePlan, *, has_rolling: bool) -> list[str]:
    """Operations that a table of the kind takes."""
    kind = KINDS[table.kind]
    without: set[str] = set()
    if not kind.days:
        without |= {"drop a partition", "expire partitions", "mark partitions"}
    if "partition.expiration-time" not in kind.options:
        without |= {"expire partitions"}
    if kind.key:
        without |= {"sort"}
    if kind.options["bucket"] not in ("1", "2"):
        without |= {"rescale"}
    if kind.engine != "deduplicate" or kind.has_versions:
        without |= {"delete", "update", "merge"}
    if not kind.key:
        without |= {"merge"}
    if not has_rolling:
        without |= UNDOING
    return [o for o in OPERATIONS if o not in without]


def _takes_jobs(kind: Kind) -> bool:
    """Whether a job of several tables writes such a table: not where its key index is for a job of its own."""
    return bool(kind.key) and (not kind.days or "day" in kind.key)


def _aimed(seed: str, store: Store, tracks: list[Track]) -> list[Track]:
    """The tracks with faults at or near the calls by which operations become visible. These faults are drawn apart, so
    that they change nothing else of a script."""
    draw = random.Random(f"aimed {seed}")
    kinds = [k for k in _AIMED if k in ALLOWED[store]]
    found = []
    for track in tracks:
        steps = []
        for step in track.steps:
            several = step.operation in _SEVERAL_MARKS
            if draw.random() < (_AIMED_SHARE_OF_SEVERAL if several else _AIMED_SHARE):
                mark = draw.choice((1, 1, 2, 3)) if several else 1
                step = replace(step, faults=(*step.faults, *_faults_at(draw, draw.choice(kinds), mark)))
            steps.append(step)
        found.append(replace(track, steps=tuple(steps)))
    return found


def _faults_at(draw: random.Random, kind: FaultKind, mark: int) -> Iterable[Fault]:
    """Faults of a kind at or soon after a mark. If the answer is lost, later questions may have none either."""
    if kind in (FaultKind.AFTER, FaultKind.LATE):
        yield Fault(kind, 0, draw.choice((5, 2000)), mark)
        if draw.random() < 0.5:
            yield Fault(FaultKind.CUT, 1, _LEASE_MS, mark)
    else:
        yield Fault(kind, draw.choice((0, 0, 1, 2)), _LEASE_MS, mark)


def _track(draw: random.Random, name: str, steps: list[Step]) -> Track:
    offset = draw.choice((0, 0, 0, 3_600_000, -3_600_000, 40_000_000))
    drift = draw.choice((0.0, 0.0, 0.001, -0.001))
    return Track(name, tuple(steps), draw.choice((1.0, 1.0, 1.0, 3.0, 20.0)), drift, offset)


def _step(draw: random.Random, store: Store, number: int, table: TablePlan, name: str) -> Step:
    faults: tuple[Fault, ...] = ()
    if draw.random() < 0.3:
        faults = tuple(_fault(draw, store, name) for _ in range(draw.choice((1, 1, 2))))
    return Step(number, table.name, name, draw.randrange(10**6), draw.choice((0, 0, 50, 500, 3000)), faults)


def _fault(draw: random.Random, store: Store, name: str) -> Fault:
    kinds = sorted(ALLOWED[store], key=lambda k: k.name)
    kind = draw.choice([*kinds, FaultKind.STOP, FaultKind.STOP])
    at = draw.randrange(1, _CALLS.get(name, 40))
    ms = {
        FaultKind.STOP: draw.choice((_SHORT_MS, _SHORT_MS, 5000, _LEASE_MS, _DAYS_MS)),
        FaultKind.STOP_AFTER: draw.choice((_SHORT_MS, 5000, _LEASE_MS, _DAYS_MS)),
        FaultKind.JUMP: draw.choice((3_600_000, -3_600_000, _DAYS_MS, -_DAYS_MS)),
        FaultKind.CUT: draw.choice((100, 5000)),
        FaultKind.FULL: draw.choice((100, 3000)),
        FaultKind.LATE: draw.choice((5, 50, 2000)),
        FaultKind.TWICE: draw.choice((5, 50)),
    }.get(kind, 0)
    return Fault(kind, at, ms)
