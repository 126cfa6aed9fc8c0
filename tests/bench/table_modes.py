"""What writing and reading costs in each table mode, on one workload: batches of upserts, a full read after each two.

`python -m tests.bench.table_modes` prints the plot of `docs/modes.md`. Times are CPU seconds, without Spark.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bucketline.state.store.table.table import Table, create_table, open_table
from tests.bench.result import Result, Size, folder_bytes
from tests.bench.rows import COLUMNS, rows_of
from tests.support.peers.jars import CHECKOUT

KEYS = 2_000_000
BATCH_ROWS = 100_000
BATCHES = 10
BAR = 40

MODES: Mapping[str, Mapping[str, str]] = {
    "merge on read": {},
    "read-optimized": {},
    "copy on write": {"full-compaction.delta-commits": "1"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "deletion vectors, gentle": {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.merge-on-read": "true",
        "lookup-compact": "gentle",
    },
    "write-only": {"write-only": "true"},
}
"""What a table of each mode sets; `read-optimized` reads the first one without merging."""

AT_MOST: Mapping[str, float] = {
    "merge on read": 1,
    "read-optimized": 1.2,
    "copy on write": 8,
    "deletion vectors": 2,
    "deletion vectors, gentle": 1.5,
    "write-only": 1.1,
}
"""How much more writing may cost in each mode than in the first."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of all batches, of one read and of a read of two columns with a filter; bytes written; rows seen."""

    write: float
    read: float
    narrow: float
    written_bytes: int
    rows: int


def measure(mode: str, root: Path, size: Size) -> Cost:
    """The cost of one mode, in this process."""
    keys, batch_rows = size.rows(KEYS), size.rows(BATCH_ROWS)
    table = create_table(str(root), COLUMNS, ("id",), options={"bucket": "4", **MODES[mode]})
    everything = np.random.default_rng(0)
    table.write(rows_of(everything.permutation(keys), everything))
    table.compact()
    loaded = folder_bytes(root)
    write, reads, narrows, rows = 0.0, [], [], 0
    for number in range(BATCHES):
        random = np.random.default_rng(number + 1)
        data = rows_of(random.permutation(keys)[:batch_rows], random)
        started = time.process_time()
        table.write(data)
        write += time.process_time() - started
        if number % 2:
            seconds, rows = _read(table, mode)
            reads.append(seconds)
            narrows.append(_read(table, mode, ("id", "quantity"), "quantity < 3")[0])
    return Cost(write, median(reads), median(narrows), folder_bytes(root) - loaded, rows)


def _read(
    table: Table, mode: str, columns: Sequence[str] | None = None, condition: str | None = None
) -> tuple[float, int]:
    started = time.process_time()
    found = open_table(table.path).to_batches(columns, condition, read_optimized=mode == "read-optimized")
    rows = sum(batch.num_rows for batch in found)
    return time.process_time() - started, rows


def measured(mode: str, root: Path, size: Size) -> Cost:
    """As `measure`, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.table_modes", mode, str(root), str(size.scale)]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def run(size: Size, root: Path) -> Sequence[Result]:
    costs = {mode: measured(mode, root / f"mode-{number}", size) for number, mode in enumerate(MODES)}
    print(plot(costs))
    base = costs["merge on read"]
    return [
        Result(
            name=f"modes/{mode}",
            what=f"{BATCHES} batches of upserts: writing and one read, as {mode}, against merge on read",
            rows=BATCHES * size.rows(BATCH_ROWS),
            seconds=cost.write,
            other_seconds=base.write,
            written_bytes=cost.written_bytes,
            worker_peak_bytes=0,
            ratio=cost.write / base.write,
            at_most=AT_MOST[mode],
            detail={"read": cost.read, "narrow": cost.narrow, "rows": cost.rows},
        )
        for mode, cost in costs.items()
    ]


def plot(costs: Mapping[str, Cost]) -> str:
    """Bars of what each mode costs, as text."""
    parts = [("writing all batches, CPU s", "write"), ("reading all columns, CPU s", "read")]
    parts += [("reading 2 of 9 columns with a filter, CPU s", "narrow"), ("written, MiB", "written_bytes")]
    lines = []
    for title, name in parts:
        values = {mode: getattr(cost, name) / (2**20 if name == "written_bytes" else 1) for mode, cost in costs.items()}
        most = max(values.values())
        bars = {mode: "█" * max(1, round(BAR * value / most)) for mode, value in values.items()}
        lines += [title, *(f"  {m:<25}{bars[m]:<{BAR}} {value:8.2f}" for m, value in values.items()), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        found = measure(sys.argv[1], Path(sys.argv[2]), Size(float(sys.argv[3]), 1))
        print(json.dumps({name: getattr(found, name) for name in Cost.__slots__}))
    else:
        with tempfile.TemporaryDirectory(prefix="bucketline-modes-") as scratch:
            run(Size.from_environment(), Path(scratch))
