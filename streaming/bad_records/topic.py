"""A topic for bad records in the source's Kafka cluster: key, value and headers unchanged; more headers say the reason.

The records are sent before the batch is committed, so a repeated batch sends them again: at least once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bucketline.conf.sources.source_options import KAFKA
from bucketline.streaming.bad_records.place import BatchName, Rejects

REASON, CODE, QUERY, BATCH, TABLE = (f"bucketline.{name}" for name in ("reason", "code", "query", "batch", "table"))
SOURCE_TABLE, TOPIC, PARTITION, OFFSET, TIMESTAMP = (
    f"bucketline.{name}" for name in ("source-table", "topic", "partition", "offset", "timestamp")
)
_OF_REJECT = {
    REASON: "reason",
    CODE: "code",
    SOURCE_TABLE: "source_table",
    TOPIC: "topic",
    PARTITION: "partition",
    OFFSET: "offset",
}
_PREFIX = "bucketline."
_SENT_DDL = "key binary, value binary, headers array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic for bad records. `client` holds the options of Kafka's client, with Spark's prefix `kafka.`."""

    topic: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return f"topic {self.topic}"

    def prepare(self) -> None:
        """Does nothing: brokers may create a topic with its first record."""

    def put(self, rejects: Rejects) -> str:
        """Sends the bad records. As `BadRecordsPlace.put`, but records of an earlier attempt stay in the topic."""
        messages = [message for batch, rows in rejects for message in _messages(rows, batch)]
        if messages:
            from pyspark.sql import SparkSession  # noqa: PLC0415 - the command line reads places without Spark

            spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
            frame = spark.createDataFrame(messages, _SENT_DDL).coalesce(1)
            frame.write.format(KAFKA).options(**self.client).option("topic", self.topic).save()
        return self.name


def client_options(source: Mapping[str, str]) -> dict[str, str]:
    """The options of a Kafka source that say how to reach its cluster."""
    return {
        key: text
        for key, text in source.items()
        if key.lower().startswith("kafka.") and not key.lower().startswith(_OF_CONSUMERS)
    }


_OF_CONSUMERS = (
    "kafka.group.",
    "kafka.isolation.level",
    "kafka.fetch.",
    "kafka.max.poll.",
    "kafka.max.partition.fetch.",
    "kafka.session.timeout.",
    "kafka.heartbeat.",
    "kafka.default.api.timeout.",
    "kafka.check.crcs",
    "kafka.exclude.internal.topics",
    "kafka.allow.auto.create.topics",
    "kafka.partition.assignment.strategy",
)


def _messages(rejects: pa.Table, batch: BatchName) -> Iterator[tuple[Any, ...]]:
    """The messages of bad records as Python values. Spark needs Python values here, and bad records are few."""
    for record in rejects.to_pylist():
        told = {header: record[column] for header, column in _OF_REJECT.items()}
        told |= {QUERY: batch.user, BATCH: batch.batch_id, TABLE: batch.table or None}
        if record["timestamp"] is not None:
            told[TIMESTAMP] = record["timestamp"].isoformat()
        own = [(h["key"], h["value"]) for h in record["headers"] or () if not h["key"].startswith(_PREFIX)]
        own += [(header, str(text).encode()) for header, text in told.items() if text is not None]
        yield record["key"], record["value"], own
