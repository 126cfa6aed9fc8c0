"""Offset ranges are read whole, or it is said why not; a consumer that answers as librdkafka does stands for one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.determinism import World
from bucketline.streaming.tasks.kafka.kafka_consumers import IdleConsumers
from bucketline.streaming.tasks.kafka.kafka_errors import (
    KafkaDataLostError,
    KafkaReaderError,
    KafkaRefusedError,
    KafkaTopicMissingError,
    KafkaUnreachableError,
)
from bucketline.streaming.tasks.kafka.kafka_fetch import CHUNK_BYTES, RangeFetch
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaReading, OffsetRange

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(frozen=True)
class Told:
    """A record, or with a `code` an event."""

    at: int
    text: bytes | None = b"v"
    code: int | None = None
    place: tuple[str, int] = ("t", 0)

    def error(self) -> Any:
        return None if self.code is None else _Error(self.code)

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"k%d" % self.at

    def value(self) -> bytes | None:
        return self.text

    def timestamp(self) -> tuple[int, int]:
        return (1, 1000 + self.at) if self.at else (0, -1)

    def headers(self) -> Any:
        return [("h", b"1"), ("h", None)] if self.at == 3 else None

    def __len__(self) -> int:
        return len(self.text or b"")


@dataclass(frozen=True)
class _Error:
    number: int

    def code(self) -> int:
        return self.number

    def name(self) -> str:
        return "NAME"

    def str(self) -> str:
        return "what it says"


def end(at: int) -> Told:
    return Told(at, code=-191)


def out_of_range(at: int) -> Told:
    return Told(at, code=-140)


class OneTick:
    """Each look is a second later than the one before."""

    def __init__(self) -> None:
        self._now = 0

    def elapsed_ms(self) -> int:
        self._now += 1000
        return self._now


@dataclass
class Scripted:
    """Gives the answers one after the other, then nothing; `asked` is where and how much was read."""

    answers: list[list[Told]]
    bounds: tuple[int, int] = (0, 100)
    complaints: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)

    def read_from(self, topic: str, partition: int, offset: int) -> None:
        self.asked.append((topic, partition, offset))

    def consume(self, most: int, timeout_seconds: float) -> Any:
        self.asked.append(most)
        return self.answers.pop(0) if self.answers else []

    def offsets(self, topic: str, partition: int, timeout_seconds: float) -> tuple[int, int]:
        return self.bounds

    def rest(self) -> None:
        self.asked.append("rest")

    def close(self) -> None:
        self.asked.append("close")


def fetch(
    consumer: Scripted, *ranges: OffsetRange, fails: bool = True, columns: Iterable[str] = ("offset",)
) -> list[pa.Table]:
    reading = KafkaReading({"bootstrap.servers": "b:1"}, 5000, fails)
    found = RangeFetch(consumer, reading, tuple(columns), World(stopwatch=OneTick()))  # type: ignore[arg-type]
    return list(found.tables(ranges))


def offsets(consumer: Scripted, start: int, stop: int, *, fails: bool = True) -> list[int]:
    found = fetch(consumer, OffsetRange("t", 0, start, stop), fails=fails)
    return [offset for table in found for offset in table["offset"].to_pylist()]


def test_records_have_the_columns_of_sparks_kafka_source() -> None:
    answers = [[Told(0), Told(1, None)], [Told(2, b""), Told(3)]]
    found = pa.concat_tables(fetch(Scripted(answers), OffsetRange("t", 0, 0, 4), columns=COLUMNS))
    assert found.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    assert found["value"].to_pylist() == [b"v", None, b"", b"v"]
    assert found["offset"].to_pylist() == [0, 1, 2, 3]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [-1000, 1_001_000, 1_002_000, 1_003_000]
    assert found["timestampType"].to_pylist() == [-1, 0, 0, 0]
    assert found["headers"].to_pylist() == [
        None,
        None,
        None,
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    ]
    assert set(found["topic"].to_pylist()) == {"t"} and set(found["partition"].to_pylist()) == {0}


@pytest.mark.parametrize(
    "answers",
    [
        [[Told(5), Told(7)], [Told(12)]],  # the next record lies beyond the end
        [[Told(5), Told(7), Told(12), Told(13)]],
        [[Told(5), Told(7), end(10)]],
        [[Told(5)], [Told(7)], [end(11)]],
        [[Told(5), end(6), Told(7), end(8)], [], [end(10)]],  # ends below the range's end are none
    ],
)
def test_a_range_is_done_when_its_end_has_been_passed(answers: list[list[Told]]) -> None:
    assert offsets(Scripted(answers), 5, 10) == [5, 7]


def test_a_range_without_a_record_is_done_at_its_end() -> None:
    assert offsets(Scripted([[], [end(10)]]), 5, 10) == []


def test_an_end_below_the_ranges_end_is_lost_data_once_the_wait_is_over() -> None:
    consumer = Scripted([[Told(5), end(6)]], bounds=(0, 6))
    with pytest.raises(KafkaDataLostError, match=r"records of topic t .* offset range \[6, 10\)"):
        offsets(consumer, 5, 10)
    assert offsets(Scripted([[Told(5), end(6)]], bounds=(0, 6)), 5, 10, fails=False) == [5]


def test_records_that_do_not_come_although_they_are_there_are_an_error_in_any_case() -> None:
    with pytest.raises(KafkaUnreachableError, match=r"no record of topic t .* has come in 5000 ms"):
        offsets(Scripted([[Told(5)]]), 5, 10, fails=False)


def test_removed_records_are_an_error_or_left_out() -> None:
    with pytest.raises(KafkaDataLostError, match=r"offset range \[5, 10\)"):
        offsets(Scripted([[out_of_range(5)]], bounds=(8, 100)), 5, 10)
    consumer = Scripted([[out_of_range(5)], [Told(8), Told(9)]], bounds=(8, 100))
    assert offsets(consumer, 5, 10, fails=False) == [8, 9]
    assert ("t", 0, 8) in consumer.asked
    assert offsets(Scripted([[out_of_range(5)]], bounds=(50, 100)), 5, 10, fails=False) == []
    assert offsets(Scripted([[out_of_range(5)]], bounds=(0, 3)), 5, 10, fails=False) == []


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("code", [-140, 1, -139])
def test_an_offset_that_kafka_still_has_is_read_again_where_the_client_calls_it_out_of_range(
    code: int, fails: bool
) -> None:
    consumer = Scripted([[Told(5, code=code)], [Told(5)]], bounds=(0, 6))
    assert offsets(consumer, 5, 6, fails=fails) == [5]
    assert [a for a in consumer.asked if isinstance(a, tuple)] == [("t", 0, 5), ("t", 0, 5)]
    consumer = Scripted([[Told(5), Told(6, code=code)], [Told(6), Told(7)]], bounds=(6, 8))
    assert offsets(consumer, 5, 8, fails=fails) == [5, 6, 7]
    assert ("t", 0, 6) in consumer.asked


def test_a_client_that_calls_an_existing_offset_out_of_range_again_and_again_ends_the_task() -> None:
    with pytest.raises(KafkaUnreachableError, match="nothing was lost"):
        offsets(Scripted([[out_of_range(5)]] * 1000), 5, 10)


def test_offsets_at_the_end_of_the_partition_or_beyond_are_lost_records() -> None:
    for bounds in ((0, 5), (0, 3), (0, 0)):
        with pytest.raises(KafkaDataLostError, match=r"offset range \[5, 10\)"):
            offsets(Scripted([[out_of_range(5)]], bounds=bounds), 5, 10)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(3, KafkaTopicMissingError), (29, KafkaRefusedError), (-199, KafkaReaderError)],
)
def test_errors_of_a_partition_end_the_task(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        offsets(Scripted([[Told(5)], [Told(6, code=code)]]), 5, 10)


def test_passing_errors_do_not_end_the_task_and_a_refused_login_does() -> None:
    assert offsets(Scripted([[Told(5, code=-195)], [Told(5, code=6)], [Told(5)]]), 5, 6) == [5]
    with pytest.raises(KafkaRefusedError, match="what it says"):
        offsets(Scripted([[]], complaints=[_Error(-187), _Error(-169)]), 5, 6)


@pytest.mark.parametrize("wrong", [Told(5, place=("t", 1)), Told(5, place=("u", 0)), Told(4)])
def test_a_record_of_another_place_is_never_taken(wrong: Told) -> None:
    with pytest.raises(KafkaReaderError, match="but offset 5 is read"):
        offsets(Scripted([[wrong]]), 5, 10)


def test_ranges_are_read_one_after_the_other() -> None:
    consumer = Scripted([[Told(0)], [Told(7, place=("t", 1))]])
    fetch(consumer, OffsetRange("t", 0, 0, 1), OffsetRange("t", 1, 7, 8))
    assert [a for a in consumer.asked if isinstance(a, tuple)] == [("t", 0, 0), ("t", 1, 7)]


def test_short_ranges_are_decoded_together_and_long_ones_in_parts() -> None:
    answers = [[Told(0)], [Told(7, place=("t", 1))], [Told(0, bytes(CHUNK_BYTES), place=("t", 2))]]
    answers += [[Told(1, place=("t", 2))], [Told(0, place=("u", 0))]]
    ranges = [
        OffsetRange("t", 0, 0, 1),
        OffsetRange("t", 1, 7, 8),
        OffsetRange("t", 2, 0, 2),
        OffsetRange("u", 0, 0, 1),
    ]
    found = fetch(Scripted(answers), *ranges, columns=("value", "topic", "partition"))
    assert [t["partition"].to_pylist() for t in found] == [[0, 1, 2], [2, 0]]


def test_large_records_are_taken_a_few_at_a_time() -> None:
    large = bytes(CHUNK_BYTES // 2)
    consumer = Scripted([[Told(i, large)] for i in range(4)] + [[Told(4 + i)] for i in range(30)])
    fetch(consumer, OffsetRange("t", 0, 0, 34))
    taken = [a for a in consumer.asked if isinstance(a, int)]
    assert taken[0] == 34 and taken[1:5] == [2, 2, 2, 2] and taken[-3:] == [3, 2, 1] and max(taken[8:]) > 10


def test_a_worker_keeps_few_consumers_and_none_that_failed() -> None:
    made: list[Scripted] = []

    def make(settings: Mapping[str, str]) -> Any:
        made.append(Scripted([]))
        return made[-1]

    kept = IdleConsumers(make, 2)
    for name in "aab":
        with kept.consumer({"group.id": name}):
            pass
    assert len(made) == 2
    with kept.consumer({"group.id": "c"}):
        pass
    assert made[0].asked == ["rest", "rest", "close"] and made[1].asked == ["rest"]
    with pytest.raises(ValueError, match="task"), kept.consumer({"group.id": "b"}):
        raise ValueError("task")
    assert made[1].asked == ["rest", "close"]
    with kept.consumer({"group.id": "b"}):
        pass
    assert len(made) == 4
