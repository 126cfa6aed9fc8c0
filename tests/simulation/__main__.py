"""`python -m tests.simulation SECONDS [FIRST]`: worlds of as many seeds as there is time for, in two processes.

Prints each failure with its seed and a shorter script; then how many seeds there were, which operations and faults, how
operations ended, and which pairs of operations never met on one table. Exit code 1 where something went wrong.
"""

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from multiprocessing import get_context

from tests.simulation.draw import draw_script, never_together, operations_drawn
from tests.simulation.life import Life
from tests.simulation.shorten import failure_of, shortened

_WORKERS = 2


@dataclass
class Tally:
    """What some worlds came to."""

    seeds: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    met: set[frozenset[str]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """What others came to, too."""
        self.seeds += other.seeds
        self.operations += other.operations
        self.outcomes += other.outcomes
        self.faults += other.faults
        self.met |= other.met
        self.failures += other.failures


def some_worlds(first: int, step: int, seconds: float) -> Tally:
    """The worlds of every `step`-th seed from the first on, for so long."""
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
        number += step
    return tally


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    whole = Tally()
    with ProcessPoolExecutor(_WORKERS, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(some_worlds, first + n, _WORKERS, seconds) for n in range(_WORKERS)]
        for each in running:
            whole.add(each.result())
    print(f"{whole.seeds} seeds from {first} on, {len(whole.failures)} of them failed")
    print("operations:", ", ".join(f"{name} {count}" for name, count in whole.operations.most_common()))
    print("faults:", ", ".join(f"{name} {count}" for name, count in whole.faults.most_common()))
    print("ends:", ", ".join(f"{o} {e} {n}" for (o, e), n in sorted(whole.outcomes.items())))
    names = sorted(operations_drawn())
    pairs = [frozenset(p) for p in combinations_with_replacement(names, 2) if not never_together(*p)]
    missing = sorted(" | ".join(sorted(p)) for p in set(pairs) - whole.met)
    print(f"pairs that never met: {len(missing)} of {len(pairs)}: {'; '.join(missing)}")
    return 1 if whole.failures else 0


if __name__ == "__main__":
    sys.exit(main())
