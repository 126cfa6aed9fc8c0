"""Stores bad records in a topic of the source's Kafka cluster: key, value and headers unchanged, with more headers that
hold the reason.

The records are sent before the batch is committed, so a repeated batch sends them again: each record is in the topic at
least once. Notes in a folder next to the job's checkpoint say which records an earlier attempt at a batch has sent, so
that a replay leaves these records out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bucketline.conf.sources.source_options import KAFKA
from bucketline.state.determinism import SystemIds
from bucketline.streaming.bad_records.place import BatchName, Rejects
from bucketline.streaming.bad_records.runs import is_begun, note_batch
from bucketline.streaming.bad_records.topic_notes import TopicNotes

REASON, CODE, QUERY, BATCH, TABLE = (f"bucketline.{name}" for name in ("reason", "code", "query", "batch", "table"))
SOURCE_TABLE, TOPIC, PARTITION, OFFSET, TIMESTAMP = (
    f"bucketline.{name}" for name in ("source-table", "topic", "partition", "offset", "timestamp")
)
ATTEMPT = "bucketline.attempt"
"""The header with the id of an attempt to send the bad records of a batch and a table."""
_OF_REJECT = {
    REASON: "reason",
    CODE: "code",
    SOURCE_TABLE: "source_table",
    TOPIC: "topic",
    PARTITION: "partition",
    OFFSET: "offset",
}
PREFIX = "bucketline."
_SENT_DDL = "key binary, value binary, headers array<struct<key: string, value: binary>>"


TopicMessage = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""A message to send: key, value and headers."""


def send_by_spark(topic: str, client: Mapping[str, str], messages: Sequence[TopicMessage]) -> None:
    """Sends messages to a topic, and returns when the brokers have stored them."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the command line reads places without Spark

    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    frame = spark.createDataFrame(messages, _SENT_DDL).coalesce(1)
    frame.write.format(KAFKA).options(**client).option("topic", topic).save()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic for bad records.

    `client` holds the options of Kafka's client, with Spark's prefix `kafka.`. `notes` are files next to the
    checkpoint, which say what was sent and what a replay has taken. `notes` is None if the storage of the checkpoint
    cannot be reached; then the topic cannot be replayed.
    """

    topic: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: TopicNotes | None = None
    send: Callable[[str, Mapping[str, str], Sequence[TopicMessage]], None] = send_by_spark

    @property
    def name(self) -> str:
        return f"topic {self.topic}"

    def prepare(self) -> None:
        """Does nothing: the brokers may create a topic with its first record."""

    def put(self, rejects: Rejects) -> str:
        """Sends the bad records of a batch to the topic, and returns the topic's name for messages.

        Records of an earlier attempt at the batch stay in the topic; the notes say that these records do not count.
        """
        ids = SystemIds()
        attempts = {batch.table: str(ids.new_uuid()) for batch, rows in rejects if rows.num_rows}
        if self.notes is not None and rejects:
            begun = any(is_begun(self._place, batch) for batch, _ in rejects)
            self.notes.begin([batch for batch, _ in rejects], attempts, is_begun=begun)
        messages = [m for batch, rows in rejects for m in _messages(rows, batch, attempts.get(batch.table))]
        if messages:
            self.send(self.topic, self.client, messages)
        for batch, _ in rejects:
            note_batch(self._place, batch)
        return self.name

    @property
    def _place(self) -> str:
        return self.name if self.notes is None else self.notes.path


def client_options(source: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a Kafka source that say how to reach its cluster."""
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


def _messages(rejects: pa.Table, batch: BatchName, attempt: str | None) -> Iterator[TopicMessage]:
    """Yields the messages of bad records as Python values. Spark needs Python values here, and bad records are few.

    `attempt` is the id of the attempt at the batch, and becomes a header of each message.
    """
    for record in rejects.to_pylist():
        told = {header: record[column] for header, column in _OF_REJECT.items()}
        told |= {QUERY: batch.user, BATCH: batch.batch_id, TABLE: batch.table or None, ATTEMPT: attempt}
        if record["timestamp"] is not None:
            told[TIMESTAMP] = record["timestamp"].isoformat()
        own = [(h["key"], h["value"]) for h in record["headers"] or () if not h["key"].startswith(PREFIX)]
        own += [(header, str(text).encode()) for header, text in told.items() if text is not None]
        yield record["key"], record["value"], own
