"""A user's job for spark-submit: streams Parquet files into a table, and tells where workers got the package from.

Arguments: the input folder, the table, the checkpoint, and a file for what was seen. Only `bucketline` and PySpark are
imported here, as in a job on a cluster.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

import bucketline

DDL = "id long, name string, n long"


def main(source: str, table: str, checkpoint: str, told: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    # A barrier stage has all its tasks at once, so each executor of one core gets one of them.
    workers = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(seen_by_worker).collect()
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(source)
    sink = bucketline.TableSink(table)
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    seen = {"driver": bucketline.__file__, "pid": os.getpid(), "workers": workers}
    Path(told).write_text(json.dumps(seen))
    spark.stop()


def seen_by_worker(rows: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Where a worker imports the package from, as a task of the sink does."""
    from bucketline.streaming.batch import sink  # noqa: PLC0415 - it is the worker's import that is looked at

    BarrierTaskContext.get().barrier()
    yield {"file": sink.__file__, "pid": os.getpid(), "folder": os.getcwd(), "python": sys.executable}


if __name__ == "__main__":
    main(*sys.argv[1:])
