"""A stream of fifty equal batches with compaction and expiry on must not slow down."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import BatchClock, input_stream, session, timed_run
from tests.bench.result import Result, Size, folder_bytes
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import WorkerWatch

BATCHES = 50
BATCH_ROWS = 200_000
KEYS = 1_000_000
OPTIONS = {
    "bucket": "4",
    "snapshot.num-retained.min": "3",
    "snapshot.num-retained.max": "10",
    "snapshot.time-retained": "1 s",
}


def run(size: Size, root: Path) -> Sequence[Result]:
    rows, keys = size.rows(BATCH_ROWS), size.rows(KEYS)
    stream = input_stream(root / "source", upserts(BATCHES, rows, key_range=keys, seed=2))
    early: list[float] = []
    late: list[float] = []
    every: list[list[float]] = []
    with session(root) as spark, WorkerWatch() as watch:
        for _ in range(size.repeats):
            shutil.rmtree(root / "ours", ignore_errors=True)
            table = create_table(str(root / "ours" / "t"), COLUMNS, ("id",), options=OPTIONS)
            clock = BatchClock(TableSink(table.path))
            timed_run(stream, spark, clock, root / "ours" / "checkpoint")
            assert len(clock.seconds) == BATCHES
            early.append(median(clock.seconds[7:17]))
            late.append(median(clock.seconds[40:]))
            every.append(clock.seconds)
    return [
        Result(
            name="3d",
            what="fifty equal batches: the median of the last ten, against that of the 8th to 17th",
            rows=rows,
            seconds=median(late),
            other_seconds=median(early),
            written_bytes=folder_bytes(root / "ours" / "t"),
            worker_peak_bytes=watch.peak_bytes,
            ratio=median(b / a for a, b in zip(early, late, strict=True)),
            at_most=1.3,
            memory_limit_bytes=1 << 30,
            detail={"batches": every},
        )
    ]
