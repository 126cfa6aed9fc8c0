"""Runs the worlds of as many seeds as there is time for, and counts the results."""

import time
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.draw import draw_script
from tests.simulation.life import Life
from tests.simulation.shops import shop_world
from tests.simulation.shorten import failure_of, shortened

_SHOP_EVERY = 8
"""After as many worlds of one store comes a world of a job of several tables."""


@dataclass
class Tally:
    """The counted results of some worlds."""

    seeds: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    met: set[frozenset[str]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Adds the results of other worlds."""
        self.seeds += other.seeds
        self.operations += other.operations
        self.outcomes += other.outcomes
        self.faults += other.faults
        self.met |= other.met
        self.failures += other.failures


def some_worlds(first: int, step: int, seconds: float) -> Tally:
    """The results of the worlds of every `step`-th seed from the first on, for this many seconds."""
    tally, until, number = Tally(), time.monotonic() + seconds, first
    while time.monotonic() < until:
        script = draw_script(str(number))
        history = Life(script).live()
        tally.add(Tally(1, history.operations, history.outcomes, history.faults, history.met))
        if history.failure is not None:
            shorter = shortened(script, most_runs=40)
            lines = [f"seed {number}: {history.failure}", *shorter.lines(), str(failure_of(shorter))]
            tally.failures.append("\n".join(lines))
            print(tally.failures[-1], flush=True)
        if tally.seeds % _SHOP_EVERY == 1:
            _add_shop(tally, number)
        number += step
    return tally


def _add_shop(tally: Tally, number: int) -> None:
    """Adds the result of the world of a job of several tables."""
    shop = shop_world(str(number))
    tally.operations += Counter({f"job of several tables: {name}": n for name, n in shop.operations.items()})
    if shop.failure is not None:
        tally.failures.append("\n".join([f"job of several tables, seed {number}: {shop.failure}", *shop.log]))
        print(tally.failures[-1], flush=True)
