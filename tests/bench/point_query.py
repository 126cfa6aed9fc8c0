"""A query by key on a large table: it opens the files that may hold the key, and reads one row group of each.

`python -m tests.bench.point_query PATH` queries a table in its own process, as the bench does.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa

from bucketline.state.store.table.table import create_table, open_table
from tests.bench.result import Result, Size, folder_bytes
from tests.bench.rows import COLUMNS, batches
from tests.support.peers.jars import CHECKOUT

ROWS = 10_000_000
QUERIES = 7
LIMIT_SECONDS = 0.3


def run(size: Size, root: Path) -> Sequence[Result]:
    path, rows = root / "point", size.rows(ROWS)
    table = create_table(str(path), COLUMNS, ("id",), options={"bucket": "8"})
    parts = batches(rows, seed=1)
    table.write(pa.RecordBatchReader.from_batches(COLUMNS, (b for p in parts for b in p.cast(COLUMNS).to_batches())))
    table.compact()
    command = [sys.executable, "-m", "tests.bench.point_query", str(path)]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
    seconds = json.loads(done.stdout)
    return [
        Result(
            name="point",
            what=f"query by key, median CPU of {QUERIES} in a process that has imported bucketline, 8 buckets",
            rows=rows,
            seconds=median(seconds),
            other_seconds=LIMIT_SECONDS,
            written_bytes=folder_bytes(path),
            worker_peak_bytes=0,
            ratio=median(seconds) / LIMIT_SECONDS,
            at_most=1,
            detail={"seconds": seconds},
        )
    ]


def query(path: str) -> list[float]:
    """The CPU seconds of each query, the opening of the table included."""
    keys = open_table(path).to_arrow(columns=["id"], limit=1000)["id"].to_pylist()
    seconds = []
    for key in keys[:: len(keys) // QUERIES][:QUERIES]:
        started = time.process_time()
        found = open_table(path).to_arrow(filter=f"id = {key}")
        seconds.append(time.process_time() - started)
        assert found["id"].to_pylist() == [key]
    return seconds


if __name__ == "__main__":
    print(json.dumps(query(sys.argv[1])))
