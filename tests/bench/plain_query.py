"""A query over a Kafka topic that does next to nothing with its batches, as a program:
`python -m tests.bench.plain_query '{"servers": ..., "topic": ..., "most": ..., "checkpoint": ..., "does": ...}'`.

What it costs is what Spark takes for a batch whoever writes it. It does nothing (`empty`), or has Spark read the
records and forget them (`noop`).
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession


def _nothing(frame: Any, batch_id: int) -> None:
    del frame, batch_id


def _noop(frame: Any, batch_id: int) -> None:
    del batch_id
    frame.write.format("noop").mode("append").save()


DOES: Mapping[str, Callable[[Any, int], None]] = {"empty": _nothing, "noop": _noop}


def main(servers: str, topic: str, most: int, checkpoint: str, does: str) -> None:
    """Runs the query until it has read all."""
    spark = SparkSession.builder.appName(f"plain query {does}").getOrCreate()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", most).load()
    writer = frame.select("value", "topic", "partition", "offset").writeStream.foreachBatch(DOES[does])
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
