"""Delta MERGE in foreachBatch, as Delta's docs advise for upserts from streams.

Deletion vectors, optimized writes and auto compaction are on. Each MERGE carries the query and the batch id, so that a
batch that Spark repeats is written once.
"""

from typing import Any

from tests.bench.rivals.rival import Rival, Source, each_batch
from tests.bench.rows import DDL

TABLE = {
    "delta.enableDeletionVectors": "true",
    "delta.autoOptimize.optimizeWrite": "true",
    "delta.autoOptimize.autoCompact": "true",
}
SESSION = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def _create(spark: Any, path: str) -> None:
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in TABLE.items())
    spark.sql(f"CREATE TABLE delta.`{path}` ({DDL}) USING delta TBLPROPERTIES ({properties})")


def _write(spark: Any, source: Source, path: str) -> None:
    def merge(frame: Any, batch_id: int) -> None:
        session = frame.sparkSession
        session.conf.set("spark.databricks.delta.write.txnAppId", str(source.checkpoint))
        session.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
        frame.createOrReplaceTempView("changes")
        session.sql(
            f"MERGE INTO delta.`{path}` t USING changes s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    each_batch(source, spark, DDL, merge)


def _read(spark: Any, path: str) -> Any:
    return spark.read.format("delta").load(path)


MERGE = Rival(
    "delta",
    "Delta MERGE",
    TABLE,
    _create,
    _write,
    _read,
    version="4.0.0",
    session_settings=SESSION,
    jar_sets=("delta",),
    remark="`txnAppId` and `txnVersion` of each MERGE are set; auto compaction",
)
