"""A small batch into a cross-partition table costs the same whatever the table holds."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import BatchClock, input_stream, session
from tests.bench.result import Result, Size, folder_bytes
from tests.bench.rows import COLUMNS, rows_of
from tests.bench.watch import WorkerWatch
from tests.support.spark.streams import FileStream

SMALL_KEYS = 100_000
LARGE_KEYS = 5_000_000
LOAD_ROWS = 1_000_000
BATCH_ROWS = 1000
BATCHES = 6


def run(size: Size, root: Path) -> Sequence[Result]:
    counts = (size.rows(SMALL_KEYS), size.rows(LARGE_KEYS))
    with session(root) as spark, WorkerWatch() as watch:
        small, large = (_Loaded(root / str(n), spark, n) for n in counts)
        rounds = [(small.round(i), large.round(i)) for i in range(size.repeats + 1)][1:]
    return [
        Result(
            name="5 small",
            what=f"{BATCH_ROWS:,} rows into a cross-partition table of {counts[1]:,} keys, against {counts[0]:,} keys",
            rows=BATCH_ROWS,
            seconds=median(b for _, b in rounds),
            other_seconds=median(a for a, _ in rounds),
            written_bytes=folder_bytes(root / str(counts[1]) / "t"),
            worker_peak_bytes=watch.peak_bytes,
            ratio=median(b / a for a, b in rounds),
            at_most=1.5,
            memory_limit_bytes=1 << 30,
            detail={"rounds": rounds},
        )
    ]


class _Loaded:
    """A stream into a table that holds so many keys; its batches are updates."""

    def __init__(self, root: Path, spark: Any, keys: int) -> None:
        self._spark, self._keys = spark, keys
        table = create_table(str(root / "t"), COLUMNS, ("id",), ("status",), options={"bucket": "-1"})
        self._sink = TableSink(table.path, {"local-directory": str(root / "local")})
        random = np.random.default_rng(0)
        starts = range(0, keys, LOAD_ROWS)
        loads = (rows_of(np.arange(s, min(s + LOAD_ROWS, keys)), random) for s in starts)
        self._stream: FileStream = input_stream(root / "source", loads)
        self._stream.run(spark, self._sink)

    def round(self, number: int) -> float:
        """Seconds of one batch of a few; the first opens the index, and is left out."""
        random = np.random.default_rng(number)
        for _ in range(BATCHES):
            ids = random.permutation(self._keys)[:BATCH_ROWS]
            rows: pa.Table = rows_of(ids, random)
            self._stream.add(rows)
        clock = BatchClock(self._sink)
        self._stream.run(self._spark, clock)
        return median(clock.seconds[1:])
