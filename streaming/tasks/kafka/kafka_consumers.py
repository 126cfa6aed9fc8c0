"""Kafka consumers that a worker keeps from task to task, because a new consumer has to connect and fetch metadata.

A consumer is closed if the task that uses it fails. A worker keeps only a few consumers, because each has a socket to
each broker.
"""

import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.kafka.kafka_tokens import client_settings

MOST_CONSUMERS = 2
"""The most consumers that a worker keeps."""


class Message(Protocol):
    """A message from librdkafka: a record, or an event of the consumer (an error, or the end of a partition)."""

    def error(self) -> Any: ...
    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Any: ...
    def __len__(self) -> int: ...


class Consumer(Protocol):
    """The methods of a consumer of confluent-kafka that bucketline uses. Errors that belong to no partition are
    collected in `complaints`.
    """

    complaints: list[Any]

    def read_from(self, topic: str, partition: int, offset: int) -> None: ...
    def consume(self, most: int, timeout_seconds: float) -> list[Message]: ...
    def offsets(self, topic: str, partition: int, timeout_seconds: float) -> tuple[int, int]: ...
    def rest(self) -> None: ...
    def close(self) -> None: ...


class LibrdkafkaConsumer:
    """A consumer of confluent-kafka. Raises KafkaReaderError if the package is not installed."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._kafka = confluent_kafka()
        self.complaints: list[Any] = []
        self._consumer = self._kafka.Consumer({**client_settings(settings), "error_cb": self.complaints.append})

    def read_from(self, topic: str, partition: int, offset: int) -> None:
        """Begins to read one partition at an offset. The consumer stops reading every other partition."""
        self._consumer.assign([self._kafka.TopicPartition(topic, partition, offset)])

    def consume(self, most: int, timeout_seconds: float) -> list[Message]:
        """Returns the next records and events; fewer than `most` if the time is over."""
        messages: list[Message] = self._consumer.consume(most, timeout_seconds)
        return messages

    def offsets(self, topic: str, partition: int, timeout_seconds: float) -> tuple[int, int]:
        """Returns the first offset that the partition has, and the offset after its last record."""
        place = self._kafka.TopicPartition(topic, partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=timeout_seconds, cached=False)
        return int(low), int(high)

    def rest(self) -> None:
        """Stops the consumer from reading ahead until it is asked for records again."""
        self._consumer.unassign()
        self.complaints.clear()

    def close(self) -> None:
        self._consumer.close()


def confluent_kafka() -> Any:
    """Returns the package confluent_kafka. Raises KafkaReaderError if it is not installed."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as e:
        raise KafkaReaderError(
            f"this Python cannot import confluent-kafka, which tasks need to read Kafka ({e}): install "
            "bucketline[kafka] "
            "where the tasks run, or set source.reader to spark"
        ) from e


@dataclass(slots=True)
class IdleConsumers:
    """The consumers of this process that no task uses, newest last."""

    make: Callable[[Mapping[str, str]], Consumer] = LibrdkafkaConsumer
    most: int = MOST_CONSUMERS
    idle: "OrderedDict[tuple[tuple[str, str], ...], Consumer]" = field(default_factory=OrderedDict)

    @contextmanager
    def consumer(self, settings: Mapping[str, str]) -> Iterator[Consumer]:
        """Gives the `with` block a Kafka consumer with these settings: an idle consumer of this process if there is
        one, otherwise a new consumer. If the block ends without an error, the consumer stays open and idle for later
        tasks of this process. If the block raises an error, the consumer is closed.
        """
        name = tuple(sorted(settings.items()))
        consumer = self.idle.pop(name, None) or self.make(settings)
        try:
            yield consumer
            consumer.rest()
        except BaseException:
            consumer.close()
            raise
        self.idle[name] = consumer
        while len(self.idle) > self.most:
            self.idle.popitem(last=False)[1].close()


KEPT = IdleConsumers()
