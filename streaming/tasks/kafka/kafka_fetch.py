"""Fetches the records of an offset range, as tables with the columns of Spark's Kafka source; all records or an error.

A range is complete when the consumer's position is at its end or beyond: a record there has come, or the end of the
partition was reached there. Offsets without a record are normal: compaction, aborted transactions, and the marks of
transactions leave them. If the partition ends before the range's end, the range is not complete, because Spark has seen
records up to there.
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
"""Bytes of values that are decoded together."""
CHUNK_RECORDS = 20_000
MOST_AT_ONCE, FIRST_AT_ONCE = 500, 50
"""Records taken from the client at once: few as long as their size is not known, because each may be large."""
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
    """Fetches one range after the other with one consumer; `columns` are the wanted columns of Spark's Kafka source."""

    consumer: Consumer
    reading: KafkaReading
    columns: Sequence[str]
    world: World = SYSTEM_WORLD
    _value_bytes: int = field(default=CHUNK_BYTES // FIRST_AT_ONCE, init=False)

    def tables(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.Table]:
        """The records of the ranges, in order.

        Raises KafkaDataLostError if records were removed and no option lets the job go on without them;
        KafkaUnreachableError, KafkaRefusedError, KafkaTopicMissingError and KafkaReaderError if records do not arrive.
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
        """The range's records in order, some at a time, and their bytes."""
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
        """How many records to take at once: as many as fit into a chunk if they are as large as the largest recent
        record.
        """
        return max(1, min(left, MOST_AT_ONCE, CHUNK_BYTES // max(1, self._value_bytes)))

    def _after_event(self, event: Message, wanted: OffsetRange, at: int) -> int:
        """The offset at which reading goes on after an event of the client, such as the end of a partition or an error.
        Raises an error if reading cannot go on.
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
        """The position at which reading goes on after a wait that was too long, if the records no longer exist. Raises
        an error if the broker does not answer.
        """
        low, high = self._offsets(wanted)
        if low <= at < high:
            raise KafkaUnreachableError(
                f"no record of {wanted} has come in {self.reading.poll_timeout_ms} ms: {self._servers} has the "
                f"records of offsets {low} up to {high}, but sent none from {at} on; nothing was lost, run it again "
                "(source.options.kafkaConsumer.pollTimeoutMs waits longer)"
            )
        return self._after_loss(wanted, at, low, high)

    def _after_out_of_range(self, wanted: OffsetRange, at: int) -> int:
        """The position after the client has said that Kafka does not have the offset `at`.

        The client may be wrong: what it says may belong to an earlier position, or come from a broker that is behind.
        So Kafka is asked. If it has the offset, it is read again, until the wait is over.
        """
        low, high = self._offsets(wanted)
        if not low <= at < high:
            return self._after_loss(wanted, at, low, high)
        _LOG.info("%s: the client says that offset %d is out of range, but Kafka has it: it is read again", wanted, at)
        self.consumer.read_from(wanted.topic, wanted.partition, at)
        return at

    def _after_loss(self, wanted: OffsetRange, at: int, low: int, high: int) -> int:
        """The position at which reading goes on after missing records: the first record of the range that still exists.
        The partition has the offsets from `low` up to `high`. Raises KafkaDataLostError if no option lets the job go on
        without the missing records.
        """
        if self.reading.fails_on_data_loss:
            gone = OffsetRange(wanted.topic, wanted.partition, at, wanted.end)
            raise records_removed(wanted.topic, str(gone))
        left = wanted.end if at >= high else min(max(at, low), wanted.end)
        _LOG.warning("%s: the records of offsets %d up to %d are gone and left out", wanted, at, left)
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
    """Collects records of a range and makes a table of them. Only their values are kept, because messages hold memory
    of the client.

    Values are converted to Arrow at once, a few hundred at a time, while they are in the processor's cache.
    """

    def __init__(self, wanted: OffsetRange, columns: Sequence[str]) -> None:
        self._wanted = wanted
        self._columns = columns
        self._parts: dict[str, list[pa.Array]] = {name: [] for name in columns if name not in _OF_RANGE}
        self.count = 0
        self._bytes = 0

    def add(self, records: Sequence[Message], size: int) -> None:
        """Adds the records that follow the records added before: at least one record. `size` is their number of
        bytes.
        """
        for name, parts in self._parts.items():
            parts.append(_TAKEN[name](records))
        self.count += len(records)
        self._bytes += size

    @property
    def is_full(self) -> bool:
        return self._bytes >= CHUNK_BYTES or self.count >= CHUNK_RECORDS

    def table(self) -> pa.Table:
        """The added records as a table with the wanted columns."""
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
    """The offsets of records of one partition. They ascend, so that records without gaps need not be read one by
    one.
    """
    first, last = _int(records[0].offset()), _int(records[-1].offset())
    if last - first + 1 == len(records):
        return pa.array(np.arange(first, last + 1))
    return pa.array(np.fromiter((_int(m.offset()) for m in records), np.int64, len(records)))


def _each(records: Sequence[Message], name: str) -> Iterator[Any]:
    """The result of the method with that name for each record. The method is taken from the class of the records,
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
"""The stored values of at least one record."""

_OF_RANGE = ("topic", "partition")
"""Values that all records of a range share."""


def _parted(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Splits messages, and returns first the events among them and then the records."""
    if not messages or not any(_each(messages, "error")):
        return [], messages
    return [m for m in messages if m.error() is not None], [m for m in messages if m.error() is None]


def _check_place(records: Sequence[Message], wanted: OffsetRange, at: int) -> None:
    """Checks that the records belong to the range, from `at` on; the client might still hold records of another range.

    Raises KafkaReaderError.
    """
    for record in (records[0], records[-1]):
        place = (record.topic(), record.partition())
        if place != (wanted.topic, wanted.partition) or _int(record.offset()) < at:
            raise KafkaReaderError(f"{wanted}: a record of {place} at offset {record.offset()} came at {at}")


def _int(offset: int | None) -> int:
    assert offset is not None, "records and ends of partitions have an offset"
    return offset


def _code_of(error: Exception) -> int | None:
    """The code of an error of confluent-kafka."""
    code = getattr(error.args[0], "code", None) if error.args else None
    return int(code()) if callable(code) else None
