"""`python -m tests.soak MINUTES [SEED]`: the product at work for that long, with faults and restarts beside it.

Prints how much memory, heap, threads, sockets, files and time of a batch have grown from the first third after warm-up
to the last third, and what is wrong at the end. Exit code 1 where a bound is broken or anything is wrong.
The environment's BUCKETLINE_SOAK_JSON names a file for every value that was measured.
"""

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.drift import Bound, Drift, TooFewValuesError, drift_of, table_of
from tests.soak.programs import drivers_of
from tests.soak.watched import Watched, cpu_seconds
from tests.soak.world import Soak

BOUNDS = {
    "memory": Bound(0.05),
    "heap": Bound(0.05, noise=2.0),
    "threads": Bound(0.05, noise=2.0),
    "sockets": Bound(0.05, noise=4.0),
    "objects": Bound(0.05, noise=150.0),
    "files": Bound(0.05, noise=4.0),
    "time": Bound(0.5),
    "cpu": Bound(0.15),
}
"""How far a value may grow, by the last word of its name. As many objects as 150 are those of some snapshots that wait
for expiry. Time and CPU of a batch are told in those of a fixed piece of work that is done beside it, as they depend on
what else the machine does."""
_LOOK_SECONDS, _PRODUCE_SECONDS, _EVENTS = 10.0, 4.0, 60
_SCHEMAS, _RESTARTS = 5, 12
"""The changes of schemas and the restarts in a run, however long it is."""


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 16)
    print(f"soak of {minutes:g} minutes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bucketline-soak-") as folder, Soak(Path(folder), seed) as soak:
        try:
            watched, begun, ended = run(soak, minutes * 60)
            soak.finish()
            wrong = soak.check()
        except BaseException:
            for program in soak.programs():
                print(
                    f"== {program.log}\n{program.log.read_text(errors='replace')[-3000:]}"
                    if program.log.exists()
                    else ""
                )
            raise
        if path := os.environ.get("BUCKETLINE_SOAK_JSON"):
            Path(path).write_text(json.dumps({"begun": begun, "ended": ended, "series": watched.series}))
        faults = len(soak.proxy.done)
        found: list[Drift] = []
        for name, values in watched.series.items():
            try:
                found.append(drift_of(name, values, BOUNDS[name.rpartition(" ")[2]], begun=begun, ended=ended))
            except TooFewValuesError as e:
                wrong.append(str(e))
    print(table_of(found))
    wrong += [f"{drift.name} grew by {drift.share:.1%}" for drift in found if drift.is_broken]
    print(f"{faults} faults of the store, {soak.deaths} deaths")
    print(
        "\n".join(f"WRONG: {line}" for line in wrong)
        or "all tables are equal to their dictionaries, no bound is broken"
    )
    return 1 if wrong else 0


def run(soak: Soak, seconds: float) -> tuple[Watched, float, float]:
    """Lets the world live for that long. Returns what was measured, and when it began and ended."""
    soak.begin()
    watched, begun = Watched(), time.time()
    look, produce, restarts, schemas = Looks(soak, watched), begun, 0, 0
    next_look = begun
    while (now := time.time()) < begun + seconds:
        for program in soak.programs():
            program.look()
        if now >= produce:
            soak.produce(_EVENTS)
            produce = now + _PRODUCE_SECONDS
        if now >= begun + (restarts + 1) * seconds / (_RESTARTS + 1):
            print(f"{now - begun:5.0f} s: {soak.restart(restarts)}", flush=True)
            restarts += 1
        if now >= begun + (schemas + 1) * seconds / (_SCHEMAS + 1):
            soak.change_schema()
            schemas += 1
        look.at_batches()
        if now >= next_look:
            look.at_processes(now)
            soak.expire()
            next_look = now + _LOOK_SECONDS
        time.sleep(0.2)  # the programs have to get on
    return watched, begun, time.time()


class Looks:
    """Looks at the job and the compactor that live as long as the soak does."""

    def __init__(self, soak: Soak, watched: Watched) -> None:
        self._soak, self._watched = soak, watched
        self._batches: set[int] = set()
        self._cpu: tuple[int, float] | None = None
        self._pace = fixed_work()

    def at_batches(self) -> None:
        """Notes how long each new batch took, from its plan to Spark's note that it is done."""
        root = self._soak.root / "checkpoint"
        for done in (root / "commits").iterdir():
            planned = root / "offsets" / done.name
            if done.name.isdigit() and int(done.name) not in self._batches and planned.exists():
                self._batches.add(int(done.name))
                ended = done.stat().st_mtime
                self._watched.add("batch time", ended, (ended - planned.stat().st_mtime) / self._pace[0])

    def at_processes(self, now: float) -> None:
        """Notes what the processes use, and how many files there are."""
        self._pace = fixed_work()
        processes = self._soak.jobs["json"].processes()
        python, java, tasks = drivers_of(processes)
        self._watched.look("driver", python, now)
        self._watched.look("tasks", tasks, now)
        for jvm in java[:1]:
            self._watched.look_at_heap("jvm", jvm, now)
        self._watched.look("compactor", self._soak.compactors["compactor-a"].processes(), now)
        for kind, count in self._soak.object_counts().items():
            self._watched.add(f"{kind} objects", now, count)
        self._watched.add("checkpoint files", now, self._soak.checkpoint_files())
        self._look_at_cpu(len(self._batches), cpu_seconds([*python, *java, *tasks]), now)

    def _look_at_cpu(self, batches: int, cpu: float, now: float) -> None:
        if self._cpu is not None and batches > self._cpu[0]:
            self._watched.add("batch cpu", now, (cpu - self._cpu[1]) / (batches - self._cpu[0]) / self._pace[1])
        if self._cpu is None or batches > self._cpu[0]:
            self._cpu = batches, cpu


def fixed_work() -> tuple[float, float]:
    """Seconds of the clock, and of CPU, that a fixed piece of work takes on this machine just now."""
    clock, cpu = time.monotonic(), time.thread_time()
    sum(number * number for number in range(1_000_000))
    return time.monotonic() - clock, time.thread_time() - cpu


if __name__ == "__main__":
    sys.exit(main())
