"""Fetches the records of an offset range from Kafka, as tables with the columns of Spark's Kafka source. Either all
records of the range are fetched, or an error is raised.

A range is complete when the consumer has returned a record at or after the end of the range, or has reached the end of
the partition at or after the end of the range. Offsets without a record are normal: compaction, aborted transactions,
and the marks of transactions leave them. If the partition ends before the end of the range, the range is not complete,
because Spark has seen records up to the end of the range.
Source: Spark 4.0 KafkaDataConsumer, KafkaRecordToRowConverter; librdkafka 2.16 rd_kafka_consume_batch_queue.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.streaming.tasks.kafka.kafka_consumers import Consumer, Message
from bucketline.streaming.tasks.kafka.kafka_errors import (
    KafkaReaderError,
    KafkaUnreachableError,
    records_removed,
    refused,
    topic_missing,
    unreachable,
)
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaReading, OffsetRange

_LOG = logging.getLogger(__name__)

CHUNK_BYTES = 8 << 20
"""Records are decoded together until their values have this many bytes."""
CHUNK_RECORDS = 20_000
MOST_AT_ONCE, FIRST_AT_ONCE = 500, 50
"""The number of records that are taken from the client at once while their size is not known. It is small, because each
record may be large.
"""
_POLL_SECONDS = 0.05
_ASK_SECONDS = 20.0

# Error codes of librdkafka and of Kafka's protocol.
_END_OF_PARTITION = -191
_OUT_OF_RANGE = frozenset({-140, 1, -139})
_NO_TOPIC = frozenset({3, -188, -190})
_LOGIN_REFUSED = frozenset({-169})
_READ_REFUSED = frozenset({29, 31, 58})
_OF_GROUP = frozenset({30, 14, 15, 16})
_PASSING = frozenset({-195, -193, -185, -187, -180, 5, 6, 7, 9, 13, 74, 75, 78})


@dataclass(slots=True)
class RangeFetch:
    """Fetches the records of offset ranges from Kafka, one range after the other, with one Kafka client (`consumer`).
    `columns` are the requested columns of Spark's Kafka source.
    """

    consumer: Consumer
    reading: KafkaReading
    columns: Sequence[str]
    world: World = SYSTEM_WORLD
    _value_bytes: int = field(default=CHUNK_BYTES // FIRST_AT_ONCE, init=False)

    def tables(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.Table]:
        """Yields the records of the ranges, in order.

        Raises KafkaDataLostError if records were removed and no option lets the job continue without them;
        KafkaUnreachableError, KafkaRefusedError, KafkaTopicMissingError or KafkaReaderError if records do not arrive.
        """
        small: list[pa.Table] = []
        for chunk in self._chunks(ranges):
            small.append(chunk.table())
            # A call of a decoder costs as much as hundreds of records, and ranges may be short.
            if chunk.is_full or sum(t.num_rows for t in small) >= CHUNK_RECORDS or _bytes(small) >= CHUNK_BYTES:
                yield pa.concat_tables(small)
                small = []
        if small:
            yield pa.concat_tables(small)

    def _chunks(self, ranges: Sequence[OffsetRange]) -> Iterator["Chunk"]:
        for wanted in ranges:
            chunk = Chunk(wanted, self.columns)
            for messages, size in self._messages(wanted):
                chunk.add(messages, size)
                if chunk.is_full:
                    yield chunk
                    chunk = Chunk(wanted, self.columns)
            if chunk.count:
                yield chunk

    def _messages(self, wanted: OffsetRange) -> Iterator[tuple[list[Message], int]]:
        """Yields the range's records in order, some at a time, with their size in bytes."""
        at = wanted.start
        self.consumer.read_from(wanted.topic, wanted.partition, at)
        moved_ms = self.world.stopwatch.elapsed_ms()
        while at < wanted.end:
            messages = self.consumer.consume(self._most(wanted.end - at), _POLL_SECONDS)
            events, records = _parted(messages)
            before = at
            if records:
                _check_place(records, wanted, at)
                at = _int(records[-1].offset()) + 1
                if at > wanted.end:
                    records = [m for m in records if _int(m.offset()) < wanted.end]
                if records:
                    sizes = list(map(len, records))
                    self._value_bytes = max(max(sizes), self._value_bytes // 2)
                    yield records, sum(sizes)
            for event in events:
                at = self._after_event(event, wanted, at)
            if at > before:
                moved_ms = self.world.stopwatch.elapsed_ms()
            elif self.world.stopwatch.elapsed_ms() - moved_ms >= self.reading.poll_timeout_ms:
                at = self._after_silence(wanted, at)
                moved_ms = self.world.stopwatch.elapsed_ms()
            self._check_login(wanted)

    def _most(self, left: int) -> int:
        """Returns how many records to take at once, if `left` records are left: as many as fit into a chunk if they are
        as large as the largest recent record.
        """
        return max(1, min(left, MOST_AT_ONCE, CHUNK_BYTES // max(1, self._value_bytes)))

    def _after_event(self, event: Message, wanted: OffsetRange, at: int) -> int:
        """Returns the offset at which reading continues after an event of the client, such as the end of a partition or
        an error. Raises an error if reading cannot continue.
        """
        error = event.error()
        code = error.code()
        if code == _END_OF_PARTITION:
            return max(at, _int(event.offset()))
        if code in _OUT_OF_RANGE:
            return self._after_out_of_range(wanted, at)
        if code in _NO_TOPIC:
            raise topic_missing(wanted.topic, self._servers)
        if code in _READ_REFUSED | _LOGIN_REFUSED:
            raise refused(self._servers, error.str(), wanted.topic)
        if code in _PASSING | _OF_GROUP:
            return at
        raise KafkaReaderError(f"{wanted}, at {at}: {error.str()}", code=error.name())

    def _after_silence(self, wanted: OffsetRange, at: int) -> int:
        """Called when no record has come for `poll_timeout_ms`. If the records no longer exist, returns the offset at
        which reading continues. Raises an error if the records exist or the broker does not answer.
        """
        low, high = self._offsets(wanted)
        if low <= at < high:
            raise KafkaUnreachableError(
                f"no record of {wanted} has come in {self.reading.poll_timeout_ms} ms: {self._servers} has the "
                f"records of offsets {low} up to {high}, but sent none from offset {at} on; nothing was lost; run the "
                "job again (a larger source.options.kafkaConsumer.pollTimeoutMs makes tasks wait longer)"
            )
        return self._after_loss(wanted, at, low, high)

    def _after_out_of_range(self, wanted: OffsetRange, at: int) -> int:
        """Returns the offset at which reading continues after the client has reported that Kafka does not have the
        offset `at`.

        The report may be wrong: it may belong to an earlier position, or come from a broker that is behind. So Kafka is
        asked. If Kafka has the offset, the offset is read again, until `poll_timeout_ms` is over.
        """
        low, high = self._offsets(wanted)
        if not low <= at < high:
            return self._after_loss(wanted, at, low, high)
        _LOG.info(
            "%s: the client says that offset %d is out of range, but Kafka has this offset: it is read again",
            wanted,
            at,
        )
        self.consumer.read_from(wanted.topic, wanted.partition, at)
        return at

    def _after_loss(self, wanted: OffsetRange, at: int, low: int, high: int) -> int:
        """Returns the offset at which reading continues after missing records: the first record of the range that still
        exists. The partition has the offsets from `low` up to `high`. Raises KafkaDataLostError if no option lets the
        job continue without the missing records.
        """
        if self.reading.fails_on_data_loss:
            gone = OffsetRange(wanted.topic, wanted.partition, at, wanted.end)
            raise records_removed(wanted.topic, str(gone))
        left = wanted.end if at >= high else min(max(at, low), wanted.end)
        _LOG.warning(
            "%s: Kafka has removed the records of offsets %d up to %d; they are left out (failOnDataLoss is false)",
            wanted,
            at,
            left,
        )
        if left < wanted.end:
            self.consumer.read_from(wanted.topic, wanted.partition, left)
        return left

    def _offsets(self, wanted: OffsetRange) -> tuple[int, int]:
        try:
            return self.consumer.offsets(wanted.topic, wanted.partition, _ASK_SECONDS)
        except Exception as e:
            self._check_login(wanted)
            if _code_of(e) in _NO_TOPIC:
                raise topic_missing(wanted.topic, self._servers) from e
            raise unreachable(self._servers) from e

    def _check_login(self, wanted: OffsetRange) -> None:
        for complaint in self.consumer.complaints:
            if complaint.code() in _LOGIN_REFUSED:
                raise refused(self._servers, complaint.str(), wanted.topic)

    @property
    def _servers(self) -> str:
        return self.reading.settings["bootstrap.servers"]


class Chunk:
    """Collects records of a range and makes a table of them. Only the values of the records are kept, because the
    records themselves hold memory of the client.

    Values are converted to Arrow at once, a few hundred at a time, while they are in the processor's cache.
    """

    def __init__(self, wanted: OffsetRange, columns: Sequence[str]) -> None:
        self._wanted = wanted
        self._columns = columns
        self._parts: dict[str, list[pa.Array]] = {name: [] for name in columns if name not in _OF_RANGE}
        self.count = 0
        self._bytes = 0

    def add(self, records: Sequence[Message], size: int) -> None:
        """Adds records, at least one, after the records that were added before. `size` is the bytes of the records."""
        for name, parts in self._parts.items():
            parts.append(_TAKEN[name](records))
        self.count += len(records)
        self._bytes += size

    @property
    def is_full(self) -> bool:
        return self._bytes >= CHUNK_BYTES or self.count >= CHUNK_RECORDS

    def table(self) -> pa.Table:
        """Returns the added records as a table with the requested columns."""
        return pa.table({name: self._column(name) for name in self._columns})

    def _column(self, name: str) -> pa.Array:
        if name == "topic":
            return pa.repeat(pa.scalar(self._wanted.topic, pa.string()), self.count)
        if name == "partition":
            return pa.repeat(pa.scalar(self._wanted.partition, pa.int32()), self.count)
        return pa.concat_arrays(self._parts[name])


def _bytes(tables: Sequence[pa.Table]) -> int:
    return sum(int(t.nbytes) for t in tables)


def _offsets_of(records: Sequence[Message]) -> pa.Array:
    """Returns the offsets of records of one partition. The offsets ascend. So if the first and the last offset show
    that no offset is missing, the offsets between them are not read one by one.
    """
    first, last = _int(records[0].offset()), _int(records[-1].offset())
    if last - first + 1 == len(records):
        return pa.array(np.arange(first, last + 1))
    return pa.array(np.fromiter((_int(m.offset()) for m in records), np.int64, len(records)))


def _each(records: Sequence[Message], name: str) -> Iterator[Any]:
    """Calls the method `name` of each record and yields the results. The method is taken from the class of the records,
    because `methodcaller` costs three times as much.
    """
    return map(getattr(type(records[0]), name), records)


def _timestamps(records: Sequence[Message]) -> pa.Array:
    # A record without a timestamp has -1, in Kafka and in librdkafka.
    times = np.fromiter((ms for _, ms in _each(records, "timestamp")), np.int64, len(records))
    return pa.array(times * 1000).cast(pa.timestamp("us", "UTC"))


def _timestamp_types(records: Sequence[Message]) -> pa.Array:
    # For a record without a timestamp librdkafka has type 0, Kafka -1.
    return pa.array(np.fromiter((kind - 1 for kind, _ in _each(records, "timestamp")), np.int32, len(records)))


def _headers(records: Sequence[Message]) -> pa.Array:
    lists = [
        [{"key": key, "value": value} for key, value in headers] if headers else None
        for headers in _each(records, "headers")
    ]
    return pa.array(lists, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


_TAKEN: Mapping[str, Callable[[Sequence[Message]], pa.Array]] = {
    "value": lambda records: pa.array(list(_each(records, "value")), pa.binary()),
    "key": lambda records: pa.array(list(_each(records, "key")), pa.binary()),
    "offset": _offsets_of,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
"""For each column the function that reads the values of the column from records, at least one."""

_OF_RANGE = ("topic", "partition")
"""The columns that have the same value in all records of a range."""


def _parted(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Splits what the Kafka client has returned. The first list holds its events (errors and ends of partitions), the
    second list holds the records.
    """
    if not messages or not any(_each(messages, "error")):
        return [], messages
    return [m for m in messages if m.error() is not None], [m for m in messages if m.error() is None]


def _check_place(records: Sequence[Message], wanted: OffsetRange, at: int) -> None:
    """Checks that the records belong to the range and come at offset `at` or later, because the client might still hold
    records of another range.

    Raises KafkaReaderError if they do not.
    """
    for record in (records[0], records[-1]):
        place = (record.topic(), record.partition())
        if place != (wanted.topic, wanted.partition) or _int(record.offset()) < at:
            raise KafkaReaderError(
                f"{wanted}: Kafka's client returned a record of {place} at offset {record.offset()}, but offset "
                f"{at} is read"
            )


def _int(offset: int | None) -> int:
    assert offset is not None, "records and end-of-partition events have an offset"
    return offset


def _code_of(error: Exception) -> int | None:
    """Returns the code of an error of confluent-kafka; None if it has no code."""
    code = getattr(error.args[0], "code", None) if error.args else None
    return int(code()) if callable(code) else None
