"""A `TableSink` whose tasks read a frame of Parquet files themselves, against the same sink that gets it from Spark.

Batches of upserts, nothing compacted, by turns in one session. Of each stream the first batch counts by itself, and the
others are warm.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import BatchClock, input_stream, session
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import WorkerWatch

BATCHES = 6
BATCH_ROWS = 500_000
KEYS = 2_000_000
READERS = ("auto", "spark")


def run(size: Size, root: Path) -> Sequence[Result]:
    rows = size.rows(BATCH_ROWS)
    stream = input_stream(root / "source", upserts(BATCHES, rows, key_range=size.rows(KEYS), seed=1))
    seconds: dict[str, list[float]] = {reader: [] for reader in READERS}
    cpu: dict[str, list[float]] = {reader: [] for reader in READERS}
    with session(root) as spark, WorkerWatch() as watch:
        for turn in range(-1, size.repeats):
            counts = set[int]()
            for reader in READERS:
                folder = root / reader
                shutil.rmtree(folder, ignore_errors=True)
                options = {"bucket": "4", "write-only": "true"}
                table = create_table(str(folder / "t"), COLUMNS, ("id",), options=options)
                clock = BatchClock(TableSink(table.path, {"frame-reader": reader}))
                stream.checkpoint = folder / "checkpoint"
                stream.run(spark, clock)
                counts.add(open_table(table.path).to_arrow(["id"]).num_rows)
                # The first turn warms up.
                if turn >= 0:
                    seconds[reader].append(median(clock.seconds[1:]))
                    cpu[reader].append(median(clock.cpu[1:]))
            assert len(counts) == 1, counts
    return [
        Result(
            name="given-frames",
            what=f"a warm batch of {rows:,} rows of Parquet that a TableSink is given, read by tasks, against read by "
            "Spark",
            rows=rows,
            seconds=median(seconds["auto"]),
            other_seconds=median(seconds["spark"]),
            written_bytes=folder_bytes(root / "auto" / "t"),
            worker_peak_bytes=watch.peak_bytes,
            ratio=paired_ratio(seconds["spark"], seconds["auto"]),
            at_least=1.4,
            memory_limit_bytes=1 << 30,
            detail={"seconds": seconds, "cpu": cpu, "cpu ratio": paired_ratio(cpu["spark"], cpu["auto"])},
        )
    ]
