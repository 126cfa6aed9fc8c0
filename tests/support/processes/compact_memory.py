"""A program that compacts a table and tells what memory that took: `python -m tests.support.processes.compact_memory`.

Its argument is JSON: {"path": the table, "memory": the `compact-memory` option}. It prints JSON: bytes by which the
process grew at its peak, and the most that Arrow's memory pool held.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table

ROOT = Path(__file__).parents[3]
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("body", pa.binary())])
ROW_BYTES = 1024

Bodies = Callable[[np.random.Generator, int], pa.Array]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a compaction took, in bytes."""

    grown_bytes: int
    arrow_bytes: int


def random_bodies(draw: np.random.Generator, count: int) -> pa.Array:
    """Bodies of 1 KiB that do not compress."""
    return _bodies(draw.bytes(count * ROW_BYTES), count)


def repeated_bodies(draw: np.random.Generator, count: int) -> pa.Array:
    """Bodies of 1 KiB, each its own, that compress to a fiftieth and less: their file says little of their size."""
    words = np.repeat(draw.integers(0, 2**63, (count, 1), np.int64), ROW_BYTES // 8, axis=1)
    return _bodies(words.tobytes(), count)


def _bodies(data: bytes, count: int) -> pa.Array:
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * ROW_BYTES)
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(data)])


def build(path: Path, bodies: Bodies, *, rows: int, runs: int = 20) -> Table:
    """A table of one bucket whose level 0 holds `runs` sorted runs, each over the whole range of keys."""
    options = {"bucket": "1", "write-only": "true"}
    table = create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    draw = np.random.default_rng(7)
    per_run = rows // runs
    for run in range(runs):
        ids = np.arange(run, rows, runs, dtype=np.int64)
        batches = (
            pa.record_batch([pa.array(ids[at : at + 4096]), bodies(draw, len(ids[at : at + 4096]))], schema=COLUMNS)
            for at in range(0, per_run, 4096)
        )
        table.write(pa.RecordBatchReader.from_batches(COLUMNS, batches))
    return table


def compact_apart(path: str, memory: str) -> Taken:
    """Compacts the table in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.processes.compact_memory", json.dumps({"path": path, "memory": memory})],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Taken(**json.loads(done.stdout))


def main(text: str) -> None:
    told = json.loads(text)
    table = open_table(told["path"])
    before = _status("VmRSS")
    compact_table(handle_of(table), options={"compact-memory": told["memory"]})
    print(json.dumps({"grown_bytes": _status("VmHWM") - before, "arrow_bytes": pa.default_memory_pool().max_memory()}))


def _status(key: str) -> int:
    """A figure of Linux about this process, in bytes; unlike rusage it knows nothing of the process that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(key)


if __name__ == "__main__":
    main(sys.argv[1])
