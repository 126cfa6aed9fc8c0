"""How far a job is behind Kafka, without Spark: the end of each partition, and the time at which the first unread
record was written.
"""

import importlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bucketline.conf.errors import BucketlineError
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.streaming.many.ledger import FeedOffsets
from bucketline.streaming.tasks.many.split import Feed

_ANSWER_S = 5.0
_RETENTION_S = 60.0
"""Kafka is asked again how long topics keep records after this number of seconds."""


@dataclass(frozen=True, slots=True)
class UnreadRecords:
    """The unread records of a partition. `end` is the end offset of the partition. `next_ms` is the time at which the
    first unread record was written, in milliseconds since 1970; None if all records are read, or if the time is not
    known.
    """

    end: int
    next_ms: int | None = None


@dataclass(frozen=True, slots=True)
class KafkaNow:
    """Kafka's answers about topic partitions. The argument `reached` of the methods has the offsets up to which a job
    or table has read.

    - `partitions` has the answers. `why` is the reason why some partitions have no answer.
    - `retention_ms` says for how many milliseconds each topic keeps records: a number below 0 means for ever, and
      topics without an answer are missing.
    """

    partitions: Mapping[Feed, UnreadRecords]
    why: str | None = None
    retention_ms: Mapping[str, int] = field(default_factory=dict)

    def behind(self, reached: FeedOffsets) -> int | None:
        """Returns the number of records in Kafka that come after the offsets `reached`. Returns None if Kafka has not
        answered about one of the partitions.
        """
        if not all(feed in self.partitions for feed in reached):
            return None
        return sum(max(0, self.partitions[feed].end - offset) for feed, offset in reached.items())

    def behind_since_ms(self, reached: FeedOffsets) -> int | None:
        """Returns the time at which the oldest unread record was written; None if no record is unread, or the time is
        not known.
        """
        return min((at for feed in reached if (at := self.next_of(feed)) is not None), default=None)

    def removed_from_ms(self, reached: FeedOffsets) -> int | None:
        """Returns the first time at which Kafka may remove an unread record; below 0 if Kafka never removes unread
        records; None if the time is not known, or no record is unread.
        """
        if not self.behind(reached):
            return None
        times = []
        for feed in (feed for feed, offset in reached.items() if self.partitions[feed].end > offset):
            kept_ms, written_ms = self.retention_ms.get(feed[0]), self.partitions[feed].next_ms
            if kept_ms is not None and kept_ms < 0:
                continue
            if kept_ms is None or written_ms is None:
                return None
            times.append(written_ms + kept_ms)
        return min(times, default=-1)

    def next_of(self, feed: Feed) -> int | None:
        found = self.partitions.get(feed)
        return None if found is None else found.next_ms


def ask_kafka(options: Mapping[str, str], reached: FeedOffsets) -> KafkaNow:
    """Asks Kafka once which records come after the offsets `reached`, and returns the answers (see `KafkaLag`). The
    clients are closed afterwards. Raises no error.
    """
    lag = KafkaLag()
    try:
        return lag(options, reached)
    finally:
        lag.close()


class KafkaLag:
    """Asks Kafka for the ends of partitions, and for the time of the first record after each offset in `reached`. Keeps
    the clients until `close`. Raises no error, so that `status` still shows everything else.

    `answer_s` is the number of seconds that the brokers may take to answer about all offsets together, and again to
    answer about the settings of the topics.
    """

    def __init__(self, answer_s: float = _ANSWER_S) -> None:
        self._answer_s = answer_s
        self._consumer: Any = None
        self._admin: Any = None
        self._kept_ms: dict[str, int] = {}
        self._kept_at: float | None = None

    def __call__(self, options: Mapping[str, str], reached: FeedOffsets) -> KafkaNow:
        if not reached:
            return KafkaNow({}, "the lag is not known: no batch of the job is in its tables yet")
        try:
            client = importlib.import_module("confluent_kafka")
        except ImportError:
            return KafkaNow({}, "the lag is not known: it needs librdkafka; pip install 'bucketline[kafka]'")
        try:
            translated = kafka_client(options)
        except BucketlineError as e:
            return KafkaNow({}, f"the lag is not known: {e.message}")
        if translated.obstacles:
            return KafkaNow({}, f"the lag is not known: {translated.obstacles[0]}")
        try:
            self._open(client, translated.settings)
            found, why = _asked(client, self._consumer, reached, self._answer_s)
        except client.KafkaException as e:
            self.close()
            return KafkaNow({}, f"the lag is not known: {_said(e)}")
        return KafkaNow(found, why, self._retention(client, {topic for topic, _ in found}))

    def close(self) -> None:
        """Closes the clients. The next call opens new ones."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None

    def _open(self, client: Any, settings: Mapping[str, str]) -> None:
        if self._consumer is not None:
            return
        own = {"group.id": "bucketline-status", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = client.Consumer({**settings, **own, "enable.partition.eof": True, "log_level": 0})
        admin = importlib.import_module("confluent_kafka.admin")
        self._admin = admin.AdminClient({**settings, "log_level": 0})

    def _retention(self, client: Any, topics: Collection[str]) -> dict[str, int]:
        """Returns how long each topic keeps records, in milliseconds. The result lacks topics about which no broker has
        answered.
        """
        is_new = self._kept_at is not None and time.monotonic() - self._kept_at < _RETENTION_S
        if is_new and self._kept_ms.keys() >= set(topics):
            return self._kept_ms
        admin, kept = importlib.import_module("confluent_kafka.admin"), dict[str, int]()
        asked = [admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic) for topic in sorted(topics)]
        try:
            answers = self._admin.describe_configs(asked, request_timeout=self._answer_s) if asked else {}
        except client.KafkaException:
            return {}
        for resource, answer in answers.items():
            try:
                kept[resource.name] = int(answer.result(self._answer_s)["retention.ms"].value)
            except (client.KafkaException, KeyError, TypeError, ValueError, TimeoutError):
                continue
        self._kept_ms, self._kept_at = kept, time.monotonic()
        return kept


def _asked(
    client: Any, consumer: Any, reached: FeedOffsets, answer_s: float
) -> tuple[dict[Feed, UnreadRecords], str | None]:
    """Asks Kafka for each partition where it ends, and when the first record after the offset in `reached` was written.
    The second value is None, or the reason why the answer for some partition is missing. Raises KafkaException.
    """
    deadline = time.monotonic() + answer_s
    found: dict[Feed, UnreadRecords] = {}
    why: str | None = None
    missing = (client.KafkaError.UNKNOWN_TOPIC_OR_PART, client.KafkaError._UNKNOWN_TOPIC)
    for feed in sorted(reached):
        left = max(0.1, deadline - time.monotonic())
        try:
            _, end = consumer.get_watermark_offsets(client.TopicPartition(*feed), timeout=left)
        except client.KafkaException as e:
            if e.args[0].code() not in (*missing, client.KafkaError._UNKNOWN_PARTITION):
                raise
            why = f"the lag of tables with records of topic {feed[0]!r} is not known: {_said(e)}"
            continue
        found[feed] = UnreadRecords(end)
    behind = {feed: reached[feed] for feed in found if found[feed].end > reached[feed]}
    if behind:
        consumer.assign([client.TopicPartition(topic, number, at) for (topic, number), at in sorted(behind.items())])
    while behind and time.monotonic() < deadline:
        for message in consumer.consume(len(behind), timeout=0.2):
            feed = message.topic(), message.partition()
            if feed in behind:
                del behind[feed]
                kind, at_ms = message.timestamp()
                if message.error() is None and kind != client.TIMESTAMP_NOT_AVAILABLE:
                    found[feed] = UnreadRecords(found[feed].end, at_ms)
    consumer.unassign()
    if behind:
        topic, number = min(behind)
        why = (
            f"it is not known how old the unread records in topic {topic!r} partition {number} are: Kafka has not "
            f"returned the first of them within {answer_s:g} s"
        )
    return found, why


def _said(error: Any) -> str:
    """Returns the text of a KafkaException."""
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)
