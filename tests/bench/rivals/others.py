"""Spark's own Parquet writer, which finds no keys, and Paimon's own sink for Spark."""

import os
from typing import Any

from tests.bench.paimon_sink import VARIABLE
from tests.bench.rivals.ours import OPTIONS, create
from tests.bench.rivals.rival import Rival, Source
from tests.bench.rows import DDL


def _stream(spark: Any, source: Source, path: str, form: str) -> None:
    writer = source.frame(spark, DDL).writeStream.format(form).option("checkpointLocation", str(source.checkpoint))
    if form == "parquet":
        writer = writer.option("compression", "zstd")
    writer.trigger(availableNow=True).start(path).awaitTermination()


PARQUET = Rival(
    "parquet",
    "Spark's Parquet sink",
    {"compression": "zstd"},
    lambda spark, path: None,
    lambda spark, source, path: _stream(spark, source, path, "parquet"),
    lambda spark, path: spark.read.schema(DDL).parquet(path),
    keeps_keys=False,
    remark="appends rows: it finds no keys, so that the table has each version of a row",
)


def _named() -> str | None:
    return os.environ.get(VARIABLE)


PAIMON = Rival(
    "paimon",
    "Paimon's sink for Spark",
    OPTIONS,
    create,
    lambda spark, source, path: _stream(spark, source, path, "paimon"),
    lambda spark, path: spark.read.format("paimon").load(path),
    version=os.path.basename(_named() or ""),
    session_settings={"spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"},
    more_jars=(_named(),) if _named() else (),  # type: ignore[arg-type]
    why_not=lambda: None if _named() else f"${VARIABLE} names no jar of Paimon's connector for Spark",
)
