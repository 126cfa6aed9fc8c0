"""Rows into four fixed buckets, level 0 only, against Spark's own shuffle, sort and Parquet writer."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import BatchClock, session
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, DDL, batches
from tests.bench.watch import WorkerWatch, cpu_seconds

ROWS = 5_000_000
FILES = 4


def run(size: Size, root: Path) -> Sequence[Result]:
    rows = size.rows(ROWS)
    source = root / "source"
    source.mkdir()
    for number in range(FILES):
        with pq.ParquetWriter(source / f"{number}.parquet", COLUMNS) as writer:
            for table in batches(rows // FILES, seed=number):
                writer.write_table(table)
    ours: list[float] = []
    theirs: list[float] = []
    cpu: list[tuple[float, float]] = []
    written = 0
    with session(root) as spark, WorkerWatch() as watch:
        for turn in range(-1, size.repeats):
            for old in ("ours", "theirs"):
                shutil.rmtree(root / old, ignore_errors=True)
            table = create_table(
                str(root / "ours" / "t"), COLUMNS, ("id",), options={"bucket": "4", "write-only": "true"}
            )
            clock = BatchClock(TableSink(table.path))
            query = (
                spark.readStream.schema(DDL)
                .parquet(str(source))
                .writeStream.foreachBatch(clock)
                .option("checkpointLocation", str(root / "ours" / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            assert len(clock.seconds) == 1, "all files are one batch"
            before, started = cpu_seconds(), time.monotonic()
            frame = spark.read.schema(DDL).parquet(str(source))
            sorted_rows = frame.repartition(4, "id").sortWithinPartitions("id")
            sorted_rows.write.option("compression", "zstd").parquet(str(root / "theirs"))
            # The first turn warms both up.
            if turn >= 0:
                theirs.append(time.monotonic() - started)
                ours += clock.seconds
                cpu.append((clock.cpu[0], cpu_seconds() - before))
            written = folder_bytes(root / "ours" / "t")
    return [
        Result(
            name="3a",
            what="four fixed buckets, level 0 only, against Spark's repartition + sort + write.parquet",
            rows=rows // FILES * FILES,
            seconds=median(ours),
            other_seconds=median(theirs),
            written_bytes=written,
            worker_peak_bytes=watch.peak_bytes,
            ratio=paired_ratio(ours, theirs),
            at_most=1.0,
            memory_limit_bytes=1 << 30,
            detail={"ours": ours, "spark": theirs, "cpu": cpu, "spark_bytes": folder_bytes(root / "theirs")},
        )
    ]
