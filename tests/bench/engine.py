"""The Spark session that is measured in, and streams over files that arrive one a batch."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.bench.rows import DDL
from tests.bench.watch import cpu_seconds
from tests.support.peers.jars import jars
from tests.support.spark.streams import FileStream

DELTA = "io.delta.sql.DeltaSparkSessionExtension"
PAIMON = "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"


@contextmanager
def session(
    root: Path, *, delta: bool = False, paimon: bool = False, more_jars: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """A session of two local threads with Spark's defaults for everything that costs time.

    `delta` and `paimon` add what those need of a session; Paimon's connector is among `more_jars`.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("bucketline-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.local.dir", str(root / "local"))
        .config("spark.sql.warehouse.dir", str(root / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
    )
    all_jars = (*more_jars, *(jars("delta") if delta else ()))
    if all_jars:
        builder = builder.config("spark.jars", ",".join(map(str, all_jars)))
    if delta:
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        builder = builder.config("spark.sql.catalog.spark_catalog", catalog)
    if delta or paimon:
        builder = builder.config("spark.sql.extensions", ",".join((DELTA,) * delta + (PAIMON,) * paimon))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class BatchClock:
    """A foreachBatch function that notes how long another one takes, batch by batch."""

    def __init__(self, write: Callable[[Any, int], None]) -> None:
        self._write = write
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def __call__(self, frame: Any, batch_id: int) -> None:
        cpu, started = cpu_seconds(), time.monotonic()
        self._write(frame, batch_id)
        self.seconds.append(time.monotonic() - started)
        self.cpu.append(cpu_seconds() - cpu)


def input_stream(root: Path, batches: Iterable[pa.Table]) -> FileStream:
    """A stream whose n-th batch is the n-th table."""
    stream = FileStream(root, DDL)
    for rows in batches:
        stream.add(rows)
    return stream


def timed_run(stream: FileStream, spark: Any, write: Callable[[Any, int], None], checkpoint: Path) -> float:
    """Seconds that a new query takes from its start until all of the stream is written."""
    stream.checkpoint = checkpoint
    started = time.monotonic()
    stream.run(spark, write)
    return time.monotonic() - started
