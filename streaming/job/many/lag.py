"""How far a job is behind Kafka, without Spark: the end of each partition, and when the next records were written."""

import importlib
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from bucketline.conf.errors import BucketlineError
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.streaming.many.ledger import FeedOffsets
from bucketline.streaming.tasks.many.split import Feed

_ANSWER_S = 5.0
"""The most seconds that the brokers may take for all offsets together, and then for the settings of the topics."""


@dataclass(frozen=True, slots=True)
class UnreadRecords:
    """The unread records of a partition: its end offset, and when the first unread record was written, in milliseconds;
    None if nothing waits or it is not known."""

    end: int
    next_ms: int | None = None


@dataclass(frozen=True, slots=True)
class KafkaNow:
    """The partitions that Kafka has answered for; `why` says why others have no answer. `retention_ms` is how long each
    topic keeps records, below 0 for ever; a topic without an answer is not in it."""

    partitions: Mapping[Feed, UnreadRecords]
    why: str | None = None
    retention_ms: Mapping[str, int] = field(default_factory=dict)

    def behind(self, reached: FeedOffsets) -> int | None:
        """The number of unread records; None if a partition is not known."""
        if not all(feed in self.partitions for feed in reached):
            return None
        return sum(max(0, self.partitions[feed].end - offset) for feed, offset in reached.items())

    def behind_since_ms(self, reached: FeedOffsets) -> int | None:
        """When the oldest unread record was written; None if there is none, or it is not known."""
        return min((at for feed in reached if (at := self.next_of(feed)) is not None), default=None)

    def removed_from_ms(self, reached: FeedOffsets) -> int | None:
        """The time from which Kafka may remove unread records, computed from how long their topics keep records. Below
        0 if Kafka never removes them; None if the time is not known, or no record is unread.
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
    """Asks Kafka for the ends of partitions, and for the time of the first record after each of the given offsets.
    Raises no error, so that a status still shows everything else.
    """
    if not reached:
        return KafkaNow({})
    try:
        client = importlib.import_module("confluent_kafka")
    except ImportError:
        return KafkaNow({}, "the lag is not known: pip install 'bucketline[kafka]'")
    try:
        translated = kafka_client(options)
    except BucketlineError as e:
        return KafkaNow({}, f"the lag is not known: {e.message}")
    if translated.obstacles:
        return KafkaNow({}, f"the lag is not known: {translated.obstacles[0]}")
    settings = {**translated.settings, "group.id": "bucketline-status", "enable.auto.commit": False}
    consumer = client.Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
    try:
        found = _asked(client, consumer, reached)
        return replace(found, retention_ms=_retention(client, translated.settings, {topic for topic, _ in reached}))
    except client.KafkaException as e:
        said = e.args[0].str() if e.args and hasattr(e.args[0], "str") else str(e)
        return KafkaNow({}, f"the lag is not known: {said}")
    finally:
        consumer.close()


def _retention(client: Any, settings: Mapping[str, str], topics: Collection[str]) -> dict[str, int]:
    """How long each topic keeps records, in milliseconds; without topics that no broker has answered for."""
    admin = importlib.import_module("confluent_kafka.admin")
    kept: dict[str, int] = {}
    with suppress(client.KafkaException):
        asking = admin.AdminClient({**settings, "log_level": 0})
        asked = [admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic) for topic in sorted(topics)]
        for resource, answer in asking.describe_configs(asked, request_timeout=_ANSWER_S).items():
            try:
                kept[resource.name] = int(answer.result(_ANSWER_S)["retention.ms"].value)
            except (client.KafkaException, KeyError, TypeError, ValueError, TimeoutError):
                continue
    return kept


def _asked(client: Any, consumer: Any, reached: FeedOffsets) -> KafkaNow:
    deadline = time.monotonic() + _ANSWER_S
    found: dict[Feed, UnreadRecords] = {}
    for feed in sorted(reached):
        left = max(0.1, deadline - time.monotonic())
        _, end = consumer.get_watermark_offsets(client.TopicPartition(*feed), timeout=left)
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
    return KafkaNow(found)
