"""Iceberg MERGE in foreachBatch, as Iceberg's docs advise for upserts from streams.

The table is bucketed by the key, and merges on read with deletion vectors (format version 3). Every fifth batch calls
`rewrite_data_files`, which is Iceberg's compaction.
"""

from pathlib import Path
from typing import Any

from tests.bench.rivals.rival import BUCKETS, Rival, Source, each_batch
from tests.bench.rows import DDL

TABLE = {
    "format-version": "3",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.distribution-mode": "hash",
    "write.parquet.compression-codec": "zstd",
}
COMPACT_EVERY = 5


def session_settings(warehouse: str) -> dict[str, str]:
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": warehouse,
        "spark.sql.sources.v2.bucketing.enabled": "true",
    }


def _create(spark: Any, path: str) -> None:
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in TABLE.items())
    spark.sql(
        f"CREATE TABLE {_name(path)} ({DDL}) USING iceberg PARTITIONED BY (bucket({BUCKETS}, id)) "
        f"TBLPROPERTIES ({properties})"
    )


def _write(spark: Any, source: Source, path: str) -> None:
    def merge(frame: Any, batch_id: int) -> None:
        session = frame.sparkSession
        frame.createOrReplaceTempView("changes")
        session.sql(
            f"MERGE INTO {_name(path)} t USING changes s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        if batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
            name = _name(path).removeprefix("ice.")
            session.sql(
                f"CALL ice.system.rewrite_data_files(table => '{name}', "
                "options => map('delete-file-threshold', '1', 'min-input-files', '5'))"
            )

    each_batch(source, spark, DDL, merge)


def _read(spark: Any, path: str) -> Any:
    return spark.table(_name(path))


def _name(path: str) -> str:
    """The table's name in the catalog whose warehouse is two folders above it."""
    return f"ice.`{Path(path).parent.name}`.{Path(path).name}"


MERGE = Rival(
    "iceberg",
    "Iceberg MERGE",
    TABLE,
    _create,
    _write,
    _read,
    version="1.10.0",
    session_settings=session_settings("<warehouse>"),
    jar_sets=("iceberg",),
    remark=f"buckets by the key; `rewrite_data_files` in every {COMPACT_EVERY}th batch",
)
