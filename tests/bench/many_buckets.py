"""Batches into 512 fixed buckets against the same batches into 4, where sealing may hold 64 MB of rows, and 8 MB.

More buckets are more files, and a file has its price, whatever was done with its rows before: from both sides the CPU
is taken off that the table's own writer of files takes for the same files, from rows that are in order already. The
detail has the ratio with the CPU of pyarrow taken off as well, which writes Parquet files without statistics for
manifests and without names that are durable.

On a disk that is slow to make files durable, a batch into 512 buckets waits for minutes. `TMPDIR=/dev/shm` avoids that;
the CPU is the same.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from bucketline.state.format.data_file import EMPTY_ROW, FileSource
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.datafile.file_settings import file_settings
from bucketline.state.store.datafile.rolling_writer import RollingWriter
from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import BatchClock, input_stream, session
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import WorkerWatch

BATCHES = 3
BATCH_ROWS = 500_000
KEYS = 2_000_000
BUCKETS = (4, 512)
MEMORIES = {"64 mb": 1.2, "8 mb": 1.4}


def run(size: Size, root: Path) -> Sequence[Result]:
    rows = size.rows(BATCH_ROWS)
    stream = input_stream(root / "source", upserts(BATCHES, rows, key_range=size.rows(KEYS), seed=1))
    with session(root) as spark, WorkerWatch() as watch:
        _streamed(spark, stream, root, BUCKETS[0], "64 mb")  # a session's first batches start and compile much
        return [_compared(spark, stream, root, size, memory, rows, watch) for memory in MEMORIES]


def _compared(spark: Any, stream: Any, root: Path, size: Size, memory: str, rows: int, watch: WorkerWatch) -> Result:
    cpu: dict[int, list[float]] = {count: [] for count in BUCKETS}
    seconds: dict[int, list[float]] = {count: [] for count in BUCKETS}
    files: dict[int, list[float]] = {count: [] for count in BUCKETS}
    plain_files: dict[int, list[float]] = {count: [] for count in BUCKETS}
    for _ in range(size.repeats):
        for count in BUCKETS:
            clock = _streamed(spark, stream, root, count, memory)
            cpu[count].append(median(clock.cpu[1:]))
            seconds[count].append(median(clock.seconds[1:]))
            folder = root / f"{count}"
            files[count].append(_files_alone(folder / "t", folder / "alone") / BATCHES)
            plain_files[count].append(_files_of_pyarrow(folder / "t", folder / "plain") / BATCHES)
    without, without_plain = (
        {count: [a - b for a, b in zip(cpu[count], taken_off[count], strict=True)] for count in BUCKETS}
        for taken_off in (files, plain_files)
    )
    few, many = BUCKETS
    return Result(
        name=f"many-buckets {memory.replace(' ', '')}",
        what=f"CPU of a warm batch of {rows:,} upserts into {many} buckets against {few}, route-memory {memory}, the "
        "same files from rows in order taken off",
        rows=rows,
        seconds=median(seconds[many]),
        other_seconds=median(seconds[few]),
        written_bytes=folder_bytes(root / f"{many}" / "t"),
        worker_peak_bytes=watch.peak_bytes,
        ratio=paired_ratio(without[many], without[few]),
        at_most=MEMORIES[memory],
        memory_limit_bytes=1 << 30,
        detail={
            "seconds": seconds,
            "cpu": cpu,
            "cpu of the files": files,
            "cpu of the files, pyarrow": plain_files,
            "ratio without pyarrow's files": paired_ratio(without_plain[many], without_plain[few]),
            "ratio, nothing taken off": paired_ratio(cpu[many], cpu[few]),
        },
    )


def _streamed(spark: Any, stream: Any, root: Path, count: int, memory: str) -> BatchClock:
    """Writes the batches into a new table of so many buckets; the first batch of each stream warms up."""
    folder = root / f"{count}"
    shutil.rmtree(folder, ignore_errors=True)
    options = {"bucket": f"{count}", "write-only": "true"}
    table = create_table(str(folder / "t"), COLUMNS, ("id",), options=options)
    clock = BatchClock(TableSink(table.path, {"route-memory": memory}))
    stream.checkpoint = folder / "checkpoint"
    stream.run(spark, clock)
    return clock


def _files_alone(table: Path, other: Path) -> float:
    """CPU seconds of writing the rows of all files of a table, file by file, into another table of its kind."""
    made = open_handle(create_table(str(other), COLUMNS, ("id",), options={"bucket": "1", "write-only": "true"}).path)
    settings = file_settings(made.table_schema, level=0, source=FileSource.APPEND)
    spent = 0.0
    for number, path in enumerate(sorted(table.glob("bucket-*/*.parquet"))):
        rows = pq.read_table(path)
        before = time.process_time()
        writer = RollingWriter(
            made.io, str(other), made.table_schema, world=made.world, place=(EMPTY_ROW, number), settings=settings
        )
        with writer:
            writer.write(rows)
            writer.close()
        spent += time.process_time() - before
    return spent


def _files_of_pyarrow(table: Path, folder: Path) -> float:
    """CPU seconds of writing the rows of all files of a table into as many Parquet files."""
    folder.mkdir()
    spent = 0.0
    for number, path in enumerate(sorted(table.glob("bucket-*/*.parquet"))):
        rows = pq.read_table(path)
        before = time.process_time()
        pq.write_table(rows, folder / f"{number}.parquet", compression="zstd", compression_level=1)
        spent += time.process_time() - before
    return spent
