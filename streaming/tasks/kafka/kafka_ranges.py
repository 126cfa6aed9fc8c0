"""Offset ranges of Kafka as a source of tasks: a value that says which task reads which records, and how.

Rows of a topic partition keep their order, however its range is split: tasks get the ranges in the order of topic,
partition and offset, so the number of a task and the position in the task give the order of records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bucketline.streaming.decode.decoder import Decoder
from bucketline.streaming.tasks.kafka.kafka_feeds import KafkaFeeds

FEWEST_RECORDS = 20_000
"""From this number of records on, it is worth to start one more task."""

FEWEST_BYTES = 4 << 20
"""From this number of bytes on, as the table stores them, it is worth to start one more task."""

MOST_RECORDS = 1_000_000
"""The most records of a task. If a task fails, all its records are read again."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of a partition from offset `start` up to `end`, which is not included."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition} offset range [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class KafkaReading:
    """How tasks read: the settings of their Kafka clients, how long a task waits for a record (`poll_timeout_ms`), and
    whether missing records are an error (`fails_on_data_loss`).
    """

    settings: Mapping[str, str]
    poll_timeout_ms: int
    fails_on_data_loss: bool


@dataclass(frozen=True, slots=True)
class KafkaRanges:
    """A source of rows: the records of Kafka in some ranges of offsets. Tasks read the records themselves.

    - `shares` has for each task the ranges that the task reads, and `reading` says how.
    - `columns` are the columns of Spark's Kafka source that tasks read.
    - `decode` turns the records into rows; None if the records are rows already.
    - `reject_limit` is about the largest number of bad records that a task reports. If it is None, the first bad row
      raises SchemaMismatchError.
    - `feeds` says from which partition of a topic each record came, if that matters.
    """

    shares: tuple[tuple[OffsetRange, ...], ...]
    reading: KafkaReading
    columns: tuple[str, ...]
    decode: Decoder | None = None
    reject_limit: int | None = 1
    feeds: KafkaFeeds | None = None

    @property
    def is_alone(self) -> bool:
        """True if one task reads all ranges."""
        return len(self.shares) == 1


def shared(
    ranges: Iterable[OffsetRange], parallelism: int, record_bytes: int = 0
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Divides the ranges among tasks, with about the same number of records for each task. There is at least one task.

    There are as many tasks as can run at a time (`parallelism`). There are fewer tasks if there are few records, and a
    multiple of `parallelism` if the tasks would otherwise become large. `record_bytes` is about the number of bytes
    that the table stores for a record; 0 if not known.
    """
    ordered = sorted(r for r in ranges if r.size > 0)
    records = sum(r.size for r in ordered)
    return tuple(_cut(ordered, records, task_count(records, parallelism, record_bytes)))


def task_count(records: int, parallelism: int, record_bytes: int = 0) -> int:
    """Returns the number of tasks for that many records, by the rules of `shared`."""
    fewest = min(FEWEST_RECORDS, FEWEST_BYTES // max(1, record_bytes))
    tasks = max(1, min(parallelism, records // max(1, fewest)))
    if records > tasks * MOST_RECORDS:
        tasks = parallelism * -(-records // (parallelism * MOST_RECORDS))
    return tasks


def _cut(ordered: Sequence[OffsetRange], records: int, tasks: int) -> Iterator[tuple[OffsetRange, ...]]:
    left, at = list(reversed(ordered)), 0
    for task in range(1, tasks + 1):
        until, share = records * task // tasks, []
        while left and at < until:
            whole = left.pop()
            size = min(whole.size, until - at)
            share.append(OffsetRange(whole.topic, whole.partition, whole.start, whole.start + size))
            at += size
            if size < whole.size:
                left.append(OffsetRange(whole.topic, whole.partition, whole.start + size, whole.end))
        yield tuple(share)
