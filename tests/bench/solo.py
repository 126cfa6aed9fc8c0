"""What is measured on one core, each in a fresh process: `python -m tests.bench.solo NAME PATH`; `NAME-all-cores` takes
all of them.

Prints `{"seconds", "cpu", "rows", "peak_bytes"}` as its last line. The time is that of the work alone, not of imports.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.state.store.table.table import open_table
from tests.bench.watch import own_peak_bytes
from tests.support.peers.jars import CHECKOUT


@dataclass(frozen=True, slots=True)
class Solo:
    """What one process printed."""

    seconds: float
    cpu: float
    rows: int
    peak_bytes: int


def solo(name: str, path: Path | str, *, python: str = sys.executable, module: str = "tests.bench.solo") -> Solo:
    """Runs one measurement in a process of its own, on one core."""
    # With Arrow's default allocator a process pays for first touches of huge pages or does not, as it happens: between
    # a fifth and all of the time of the work itself. All contenders get the one that is steady.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}
    command = [python, "-m", module, name, str(path)]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Solo(**json.loads(done.stdout.splitlines()[-1]))


def compact(path: str) -> int:
    """A full compaction of the table; the rows that were read for it."""
    table = open_table(path)
    rows = sum(table.files()["record_count"].to_pylist())
    assert table.compact("full") is not None
    return int(rows)


def rewrite(path: str) -> int:
    """All files of a table read by pyarrow, and their rows written back as one file."""
    rows = 0
    files = sorted(Path(path).rglob("data-*.parquet"))
    out = Path(path) / "rewritten"
    with pq.ParquetWriter(out, pq.read_schema(files[0]), compression="zstd", compression_level=1) as writer:
        for file in files:
            found = pq.read_table(file, use_threads=False)
            writer.write_table(found)
            rows += found.num_rows
    out.unlink()
    return rows


def merged_read(path: str) -> int:
    """All rows of a table, merged."""
    found: int = open_table(path).to_arrow().num_rows
    return found


_WORK: dict[str, Callable[[str], int]] = {"compact": compact, "rewrite": rewrite, "merged-read": merged_read}
_ALL_CORES = "-all-cores"


def main(name: str, path: str) -> None:
    if not name.endswith(_ALL_CORES):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
    started, cpu = time.monotonic(), time.process_time()
    rows = _WORK[name.removesuffix(_ALL_CORES)](path)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": rows, "peak_bytes": own_peak_bytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
