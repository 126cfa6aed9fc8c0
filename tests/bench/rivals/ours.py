"""bucketline: a `TableSink` in foreachBatch, and a job whose tasks read the files themselves."""

from typing import Any

from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.job.run import run_job
from tests.bench.rivals.rival import BUCKETS, Rival, Source, each_batch
from tests.bench.rows import COLUMNS, DDL

OPTIONS = {"bucket": str(BUCKETS)}


def create(spark: Any, path: str) -> None:
    create_table(path, COLUMNS, ("id",), options=OPTIONS)


def _sink(spark: Any, source: Source, path: str) -> None:
    each_batch(source, spark, DDL, TableSink(path))


def _job(spark: Any, source: Source, path: str) -> None:
    settings = (
        f"table={path}",
        "source.format=parquet",
        "source.reader=native",
        f"source.options.path={source.folder}",
        "source.options.maxFilesPerTrigger=1",
        f"source.options.schema={DDL}",
        f"checkpoint={source.checkpoint}",
        "trigger=availableNow",
    )
    run_job(resolve_job(read_assignments(settings)), spark)


def read(spark: Any, path: str) -> Any:
    return spark.read.format("bucketline").load(path)


def _read_here(spark: Any, path: str) -> Any:
    """The table's rows as Arrow: Spark 3.5 has no data sources in Python."""
    return open_table(path).to_batches()


SINK = Rival("bucketline", "bucketline, `TableSink`", OPTIONS, create, _sink, read, remark="compacts inside of batches")
JOB = Rival(
    "bucketline-job",
    "bucketline, a job",
    OPTIONS,
    create,
    _job,
    read,
    session_settings={"source.reader": "native"},
    remark="tasks read the Parquet files themselves; compacts inside of batches",
)
SINK_ON_35 = Rival(
    "bucketline-3.5",
    "bucketline, `TableSink`, on Spark 3.5",
    OPTIONS,
    create,
    _sink,
    _read_here,
    spark="3.5",
    remark="compacts inside of batches; the read is `Table.to_batches` in one process, without Spark",
)
