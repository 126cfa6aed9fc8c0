"""All rows of a compacted table through Spark's reader of bucketline tables, against Spark's own Parquet reader on the
same files, and what the parts of it cost; and through `to_arrow`, against pypaimon's.
"""

import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamUDFSerializer

from bucketline.conf.reader_options import reader_options
from bucketline.state.store.read.splits import read_split
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.reader.batch_reader import BatchReader, RowsPartition, unchecked_read
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, batches
from tests.bench.solo import solo
from tests.bench.watch import WorkerWatch, cpu_seconds
from tests.support.peers.peer import pypaimon_python

ROWS = 4_000_000
BUCKETS = 4


def run(size: Size, root: Path) -> Sequence[Result]:
    path, rows = str(root / "shop.db" / "reader"), size.rows(ROWS)
    table = create_table(path, COLUMNS, ("id",), options={"bucket": str(BUCKETS)})
    parts = (b for p in batches(rows, seed=1) for b in p.cast(COLUMNS).to_batches())
    table.write(pa.RecordBatchReader.from_batches(COLUMNS, parts))
    table.compact()
    files = [str(root / "shop.db" / "reader" / f) for f in open_table(path).files()["file_path"].to_pylist()]
    spark = _session()
    readers: dict[str, Callable[[], Any]] = {
        "parquet": lambda: spark.read.parquet(*files).select(*COLUMNS.names),
        "ours": lambda: spark.read.format("bucketline").load(path),
    }
    for frame in readers.values():  # the first read of a session starts processes and compiles
        _drain(frame())
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in (*readers, "pypaimon", "to_arrow")}
    with WorkerWatch() as watch:
        for _ in range(size.repeats):
            for name, frame in readers.items():
                taken[name].append(_drain(frame()))
            other = solo("read-all-cores", path, python=str(pypaimon_python()), module="tests.bench.pypaimon_solo")
            assert other.rows == open_table(path).files()["record_count"].to_numpy().sum()
            taken["pypaimon"].append((other.seconds, other.cpu))
            local = solo("merged-read-all-cores", path)
            taken["to_arrow"].append((local.seconds, local.cpu))
    spark.stop()
    seconds = {name: [s for s, _ in found] for name, found in taken.items()}
    detail = {"seconds and cpu": taken, "parts, cpu seconds of one process": _parts(path)}
    against_parquet = Result(
        name="reader",
        what="a compacted table drained by Spark, against Spark's own Parquet reader",
        rows=rows,
        seconds=median(seconds["ours"]),
        other_seconds=median(seconds["parquet"]),
        written_bytes=folder_bytes(path),
        worker_peak_bytes=watch.peak_bytes,
        ratio=paired_ratio(seconds["ours"], seconds["parquet"]),
        at_most=2,
        detail=detail,
    )
    against_pypaimon = replace(
        against_parquet,
        name="reader/pypaimon",
        what="its rows by to_arrow, against pypaimon's, all cores",
        seconds=median(seconds["to_arrow"]),
        other_seconds=median(seconds["pypaimon"]),
        worker_peak_bytes=0,
        ratio=paired_ratio(seconds["pypaimon"], seconds["to_arrow"]),
        at_most=None,
        at_least=1,
    )
    return [against_parquet, against_pypaimon]


def _session() -> Any:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    cores = len(os.sched_getaffinity(0))
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _drain(frame: Any) -> tuple[float, float]:
    """Seconds and CPU seconds of reading all rows."""
    started, cpu = time.monotonic(), cpu_seconds()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - started, cpu_seconds() - cpu


def _parts(path: str) -> dict[str, float]:
    """CPU seconds of each part of what the reader does in Python, planning in the first; the rest is Spark's."""
    found: dict[str, float] = {}
    before = 0.0
    _send(path)  # the first time costs more
    for name, work in (("decode", _decode), ("fit", _fit), ("send", _send)):
        started = time.process_time()
        work(path)
        whole = time.process_time() - started
        found[name], before = whole - before, whole  # each does what the one before it does, and more
    return found


def _plan(path: str) -> tuple[BatchReader, list[RowsPartition]]:
    reader = BatchReader(unchecked_read(reader_options({"path": path})))
    return reader, [p for p in reader.partitions() if isinstance(p, RowsPartition)]


def _decode(path: str) -> None:
    _, parts = _plan(path)
    for part in parts:
        deque(read_split(part.scan, part.split), maxlen=0)


def _fit(path: str) -> None:
    reader, parts = _plan(path)
    for part in parts:
        deque(reader.read(part), maxlen=0)


def _send(path: str) -> None:
    """As Spark's worker does it: each split is an Arrow stream through a socket."""
    reader, parts = _plan(path)
    ours, theirs = socket.socketpair()
    end = threading.Thread(target=_swallow, args=(ours,))
    end.start()
    with theirs, theirs.makefile("wb", 1 << 16) as out:
        for part in parts:
            ArrowStreamUDFSerializer().dump_stream(((batch, None) for batch in reader.read(part)), out)
    end.join()
    ours.close()


def _swallow(end: socket.socket) -> None:
    while end.recv(1 << 20):
        pass
