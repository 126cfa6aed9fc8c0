"""Hudi: merge on read with the bucket index and inline compaction, as Hudi's docs advise for streams of upserts.

Maven Central has no bundle of Hudi for Spark 4.0, so that Hudi runs on Spark 3.5, and is compared with bucketline
there. `$BUCKETLINE_SPARK_35` names a Python with PySpark 3.5, as `.ci/run versions` makes one.
"""

import os
from typing import Any

from tests.bench.rivals.rival import BUCKETS, Rival, Source, each_batch
from tests.bench.rows import COLUMNS, DDL

PYTHON_VARIABLE = "BUCKETLINE_SPARK_35"
TABLE = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": str(BUCKETS),
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.upsert.shuffle.parallelism": str(BUCKETS),
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "5",
    # As with the others, all versions of the table stay, so that bytes written are bytes on the disk.
    "hoodie.clean.automatic": "false",
    # The row of the later batch stays, as with the others.
    "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
}
SESSION = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
}


def python() -> str | None:
    """The Python with PySpark 3.5, if one is named."""
    return os.environ.get(PYTHON_VARIABLE)


def no_python() -> str | None:
    return None if python() else f"${PYTHON_VARIABLE} names no Python with PySpark 3.5"


def _create(spark: Any, path: str) -> None:
    """The first batch makes the table."""


def _write(spark: Any, source: Source, path: str) -> None:
    def upsert(frame: Any, batch_id: int) -> None:
        frame.write.format("hudi").options(**TABLE).mode("append").save(path)

    each_batch(source, spark, DDL, upsert)


def _read(spark: Any, path: str) -> Any:
    return spark.read.format("hudi").load(path).select(*COLUMNS.names)


UPSERT = Rival(
    "hudi-3.5",
    "Hudi upsert, on Spark 3.5",
    TABLE,
    _create,
    _write,
    _read,
    version="1.1.1",
    session_settings=SESSION,
    jar_sets=("hudi",),
    spark="3.5",
    remark="merge on read, bucket index, compacts inside of every fifth batch",
    why_not=no_python,
)
