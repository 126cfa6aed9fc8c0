"""A stream on executors that are processes of one core each, in a process of its own:
`python -m tests.bench.cluster PATH WORKERS BATCHES ROWS`.

Prints, for each batch, the seconds it took and the CPU seconds of who took part: Python on the driver, its JVM, and the
executors with their Python workers.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import input_stream
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import children, cpu_of

BUCKETS = 16


class Shares:
    """A foreachBatch function that notes what another one costs whom."""

    def __init__(self, write: Any) -> None:
        self._write = write
        self.batches: list[dict[str, float]] = []

    def __call__(self, frame: Any, batch_id: int) -> None:
        before, started = _now(), time.monotonic()
        self._write(frame, batch_id)
        seconds = time.monotonic() - started
        self.batches.append({"seconds": seconds, **{who: cpu - before[who] for who, cpu in _now().items()}})


def main(path: str, workers: int, batches: int, rows: int) -> None:
    root = Path(path)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_WORKER_DIR"] = str(root / "work")
    spark = (
        SparkSession.builder.master(f"local-cluster[{workers},1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(root / "local"))
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    stream = input_stream(root / "source", upserts(batches, rows, key_range=4 * rows, seed=1))
    table = create_table(str(root / "t"), COLUMNS, ("id",), options={"bucket": str(BUCKETS)})
    shares = Shares(TableSink(table.path))
    stream.run(spark, shares)
    spark.stop()
    print(json.dumps(shares.batches))


def _now() -> dict[str, float]:
    """CPU seconds so far: of this process, of the JVM below it, and of all below that."""
    own = os.getpid()
    jvms = children(own)
    executors = [pid for jvm in jvms for pid in children(jvm)]
    return {
        "driver": time.process_time(),
        "jvm": sum(cpu_of(pid) for pid in jvms),
        "executors": sum(cpu_of(pid, below=True) for pid in executors),
    }


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
