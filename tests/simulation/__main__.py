"""`python -m tests.simulation SECONDS [FIRST]`: worlds of as many seeds as there is time for, in two processes.

Prints each failure with its seed and a shorter script; then how many seeds there were, which operations and faults, how
operations ended, and which pairs of operations never met on one table. Exit code 1 where something went wrong, or after
a thousand seeds more than 5 percent of the pairs never met.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.draw import pairs
from tests.simulation.many import Tally, some_worlds

_WORKERS = 2
_MISSING_SHARE = 0.05
_SEEDS_OF_ALL_PAIRS = 1000
"""The number of seeds after which nearly all pairs must have met. Two idle cores try more in ten minutes."""


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
    known = {frozenset(p) for p in pairs()}
    missing = sorted(" | ".join(sorted(p)) for p in known - whole.met)
    print(
        f"pairs that never met: {len(missing)} of {len(known)} ({len(missing) / len(known):.1%}): {'; '.join(missing)}"
    )
    too_many = whole.seeds >= _SEEDS_OF_ALL_PAIRS and len(missing) > _MISSING_SHARE * len(known)
    if too_many:
        print(f"more than {_MISSING_SHARE:.0%} of the pairs never met")
    return 1 if whole.failures or too_many else 0


if __name__ == "__main__":
    sys.exit(main())
