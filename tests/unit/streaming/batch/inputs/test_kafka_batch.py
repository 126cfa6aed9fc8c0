"""The offset ranges that Spark has planned are those of the batch's offsets, or they are not used."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from bucketline.conf.job import RecordFormat
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.inputs.kafka_batch import (
    KafkaReader,
    Planned,
    check_ranges,
    read_by_one_task,
    records_of,
)
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges, OffsetRange
from bucketline.streaming.tasks.read_task import Frame

START = json.dumps([{"o.x-y": {"0": 5, "1": 7}}])
END = json.dumps([{"o.x-y": {"0": 9, "1": 7, "2": 4}}])
GOOD = (OffsetRange("o.x-y", 0, 5, 9), OffsetRange("o.x-y", 2, 1, 4))
IDENTITY = BatchIdentity("q", 3, START, END, None)
TASK = "DataSourceRDDPartition"
STEP = DecodeStep(RecordFormat.JSON, ())


@dataclass
class Jvm:
    """An object of the JVM: a class with a simple name, and what its methods return."""

    name: str
    says: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, method: str) -> Any:
        def call(*given: object) -> Any:
            if method not in self.says:
                raise Py4JError(f"An error occurred while calling o1.{method}. Trace:\n method does not exist")
            return self.says[method]

        return call

    def getClass(self) -> Any:
        return Jvm("Class", {"getSimpleName": self.name})


@dataclass
class Seq:
    elements: Sequence[Any]

    def size(self) -> int:
        return len(self.elements)

    def apply(self, i: int) -> Any:
        return self.elements[i]


def _says(partition: Any) -> dict[str, Any]:
    return {"inputPartitions": Seq([partition])}


def frame(
    ranges: Sequence[OffsetRange],
    *,
    task: str = TASK,
    part: str = "KafkaBatchInputPartition",
    says: Callable[[Any], dict[str, Any]] = _says,
) -> Any:
    parts = [
        Jvm(
            part,
            {
                "offsetRange": Jvm(
                    "KafkaOffsetRange",
                    {"toString": f"KafkaOffsetRange({r.topic}-{r.partition},{r.start},{r.end},Some(executor_h_1))"},
                ),
                "executorKafkaParams": {"group.id": "spark-executor"},
                "pollTimeoutMs": 120000,
                "failOnDataLoss": True,
                "includeHeaders": False,
            },
        )
        for r in ranges
    ]
    tasks = [Jvm(task, says(p)) for p in parts]
    plan = Jvm("QueryExecution", {"toRdd": Jvm("RDD", {"partitions": tasks})})

    class Data:
        _jdf = Jvm("Dataset", {"queryExecution": plan})

    return Frame(Data(), STEP)


def planned(ranges: Sequence[OffsetRange], *, fails: bool = True) -> Planned:
    return Planned(tuple(ranges), "g", 1, fails, False)


def reader(**more: bool) -> KafkaReader:
    return KafkaReader({"a": "1"}, **({"is_required": False, "keeps_split": False} | more))


def test_the_ranges_of_a_batch_come_from_sparks_plan() -> None:
    found = records_of(frame(GOOD[::-1]), IDENTITY, reader(), 4)
    assert isinstance(found, KafkaRanges)
    assert found.shares == (GOOD,)
    assert found.reading.settings == {"a": "1", "group.id": "spark-executor"}
    assert (found.reading.poll_timeout_ms, found.reading.fails_on_data_loss) == (120000, True)
    assert found.columns == ("value", "topic", "partition", "offset")


def test_a_task_of_later_sparks_has_one_partition_at_most() -> None:
    later = frame(GOOD, says=lambda p: {"inputPartition": Jvm("Some", {"toList": Seq([p])})})
    found = records_of(later, IDENTITY, reader(), 4)
    assert isinstance(found, KafkaRanges) and found.shares == (GOOD,)


def test_sparks_split_is_kept_where_an_option_makes_it() -> None:
    split = (OffsetRange("o.x-y", 0, 5, 7), OffsetRange("o.x-y", 0, 7, 9), GOOD[1])
    found = records_of(frame(split[::-1]), IDENTITY, reader(keeps_split=True), 4)
    assert isinstance(found, KafkaRanges) and found.shares == tuple((r,) for r in split)


def test_a_batch_without_records_and_a_job_without_reader_are_sparks() -> None:
    for given, by in ((frame(()), reader()), (frame(GOOD), None)):
        assert records_of(given, IDENTITY, by, 4) is given


@pytest.mark.parametrize(
    "given",
    [
        frame(GOOD, task="ShuffledRowRDDPartition"),
        frame(GOOD, part="Other"),
        frame(GOOD[:1]),
        frame(GOOD, says=lambda p: {}),
    ],
)
def test_a_plan_that_is_not_understood_is_sparks_or_an_error(given: Any) -> None:
    assert records_of(given, IDENTITY, reader(), 4) is given
    with pytest.raises(KafkaReaderError, match=r"set source\.reader to spark"):
        records_of(given, IDENTITY, reader(is_required=True), 4)


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        (OffsetRange("o.x-y", 0, 5, 9),),
        (OffsetRange("o.x-y", 0, 5, 8), GOOD[1]),
        (OffsetRange("o.x-y", 0, 6, 9), GOOD[1]),
        (OffsetRange("o.x-y", 0, 5, 7), OffsetRange("o.x-y", 0, 8, 9), GOOD[1]),
        (*GOOD, OffsetRange("o.x-y", 5, 0, 1)),
        (*GOOD, OffsetRange("other", 0, 5, 9)),
    ],
)
def test_ranges_that_do_not_cover_the_batch_are_refused(ranges: tuple[OffsetRange, ...]) -> None:
    with pytest.raises(KafkaReaderError, match=r"it plans"):
        check_ranges(planned(ranges), START, END)


def test_a_new_partition_may_be_empty_where_lost_records_are_left_out() -> None:
    check_ranges(planned(GOOD[:1], fails=False), START, END)


def test_several_sources_are_refused() -> None:
    with pytest.raises(KafkaReaderError, match="2 sources"):
        check_ranges(planned(GOOD), START, json.dumps([{}, {}]))


def _never() -> Any:
    """A frame whose plan cannot be asked for."""
    return frame(GOOD, task="nothing is planned as this")


def test_spark_is_not_asked_again_what_the_offsets_of_a_batch_say() -> None:
    by = reader(is_required=True)
    first = records_of(frame(GOOD), IDENTITY, by, 4)
    after = json.dumps([{"o.x-y": {"0": 11, "1": 9, "2": 4}}])
    found = records_of(_never(), BatchIdentity("q", 4, END, after, None), by, 4)
    assert isinstance(first, KafkaRanges) and isinstance(found, KafkaRanges)
    assert found.shares == ((OffsetRange("o.x-y", 0, 9, 11), OffsetRange("o.x-y", 1, 7, 9)),)
    assert found.reading == first.reading and found.columns == first.columns


@pytest.mark.parametrize(
    "after",
    [
        pytest.param({"0": 9, "1": 7, "2": 4}, id="no record"),
        pytest.param({"0": 9, "1": 7, "2": 4, "3": 1}, id="a new partition"),
        pytest.param({"0": 10, "1": 7}, id="a partition that is gone"),
        pytest.param({"0": 10, "1": 6, "2": 4}, id="offsets that moved back"),
    ],
)
def test_spark_is_asked_where_offsets_leave_it_a_choice(after: dict[str, int]) -> None:
    by = reader(is_required=True)
    records_of(frame(GOOD), IDENTITY, by, 4)
    identity = BatchIdentity("q", 4, END, json.dumps([{"o.x-y": after}]), None)
    with pytest.raises(KafkaReaderError, match="a task is a nothing is planned as this"):
        records_of(_never(), identity, by, 4)


def test_spark_is_asked_by_the_first_batch_and_where_it_splits_partitions() -> None:
    split = reader(is_required=True, keeps_split=True)
    records_of(frame(GOOD), IDENTITY, split, 4)
    for by in (split, reader(is_required=True)):
        with pytest.raises(KafkaReaderError):
            records_of(_never(), IDENTITY, by, 4)


@pytest.mark.parametrize(
    ("end", "record_bytes", "joins"),
    [(39_999, 0, True), (40_000, 0, False), (1_000, 1 << 20, False), (3, 1 << 20, True)],
)
def test_one_task_reads_what_spark_splits_where_it_is_little(end: int, record_bytes: int, joins: bool) -> None:
    offsets = [json.dumps([{"t": {"0": 5, "1": until}}]) for until in (0, end)]
    given = Frame(None, STEP)
    found = read_by_one_task(given, BatchIdentity("q", 1, *offsets, None), 2, record_bytes)
    assert found == replace(given, is_alone=joins)


def test_a_batch_whose_records_are_not_counted_keeps_sparks_split() -> None:
    for start, end in ((START, json.dumps([{"logOffset": 3}])), (START, json.dumps([{}, {}])), (None, END)):
        given = Frame(None, STEP)
        assert read_by_one_task(given, BatchIdentity("q", 1, start, end, None), 2) is given
