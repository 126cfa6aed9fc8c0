"""Finds the offset ranges of a batch, for tasks that read Kafka themselves.

Spark's own Kafka source plans these ranges, as it would for its own tasks: it splits partitions (`minPartitions`),
begins new partitions, and refuses partitions that were deleted or whose offsets moved back. The DataFrame is planned
and never run. The plan must agree with Spark's offsets log. A plan that is not understood is not used; then Spark reads
the batch.

Source: Spark 4.0 to 4.3 DataSourceRDD, KafkaBatchInputPartition, KafkaOffsetRange.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from bucketline.conf.secrets import MaskedOptions
from bucketline.state.commit.live_files import LiveFiles
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges, KafkaReading, OffsetRange, shared, task_count
from bucketline.streaming.tasks.read_task import Frame, Records

_LOG = logging.getLogger("bucketline.job")

_TASK = "DataSourceRDDPartition"
_PARTITION = "KafkaBatchInputPartition"
_RANGE = re.compile(r"KafkaOffsetRange\(([\w.-]+)-(\d+),(-?\d+),(-?\d+),.*\)", re.DOTALL)
_GROUP = "group.id"
_BUCKETS_LOOKED_AT = 8


@dataclass(frozen=True, slots=True)
class Planned:
    """The Kafka offset ranges that Spark has planned for a batch, and the settings with which Spark's tasks would read
    these ranges.
    """

    ranges: tuple[OffsetRange, ...]
    group: str
    poll_timeout_ms: int
    fails_on_data_loss: bool
    headers: bool


@dataclass(slots=True)
class Asked:
    """Holds the newest plan of offset ranges that Spark has made for a batch (`plan`); None if Spark was not asked for
    a plan yet. During one run of the query, a newer plan has other ranges, but the same settings.
    """

    plan: Planned | None = None


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """How the tasks of a job read Kafka without Spark, in one run of its query.

    - `settings` are the settings of librdkafka, without a group id.
    - `is_required` is true if Spark must not read Kafka.
    - `keeps_split` is true if an option says how Spark splits partitions; then each offset range in Spark's plan
      becomes a task.
    - `asked` holds the newest plan that Spark has made; only this field changes.
    """

    settings: Mapping[str, str]
    is_required: bool
    keeps_split: bool
    asked: Asked = field(default_factory=Asked, compare=False)


def records_of(
    frame: Frame, identity: BatchIdentity, reader: KafkaReader | None, parallelism: int, record_bytes: int = 0
) -> Records:
    """Returns the records of a batch: offset ranges if there is a `reader`, or else the DataFrame itself.

    `parallelism` is the number of tasks that can run at once, and `record_bytes` the average size of a record; see
    `shared`. Raises KafkaReaderError if Spark must not read, but the ranges are not certain.
    """
    if reader is None or not isinstance(frame.decode, DecodeStep):
        return frame
    try:
        planned = _planned_for(frame, identity, reader)
        if planned is None:
            return frame
    except KafkaReaderError as e:
        if reader.is_required:
            raise
        _LOG.warning("Spark reads this batch instead of bucketline's tasks: %s", e.message)
        return frame
    reading = KafkaReading(
        MaskedOptions({**reader.settings, _GROUP: planned.group}),
        planned.poll_timeout_ms,
        planned.fails_on_data_loss,
    )
    ordered = sorted(planned.ranges)
    shares = tuple((r,) for r in ordered) if reader.keeps_split else shared(ordered, parallelism, record_bytes)
    columns = tuple(c for c in frame.decode.input_columns if c != "headers" or planned.headers)
    return KafkaRanges(shares, reading, columns, frame.decode, frame.reject_limit)


def _planned_for(frame: Frame, identity: BatchIdentity, reader: KafkaReader) -> Planned | None:
    """Returns the plan of a batch, with the offset range to read from each partition; None for a batch without
    records.

    The plan usually comes from Spark, which takes some fifty calls into the JVM. Spark is not asked if the ranges are
    certain without it: Spark does not split partitions, and no partition is new, was deleted or has moved back. Then
    each range lies between the start and the end offset of the batch.
    """
    start, end = identity.start_offsets, identity.end_offsets
    if reader.asked.plan is not None and not reader.keeps_split:
        ranges = certain_ranges(start, end)
        if ranges:
            return replace(reader.asked.plan, ranges=ranges)
    planned = planned_ranges(frame.frame)
    if planned is not None:
        check_ranges(planned, start, end)
        reader.asked.plan = planned
    return planned


def certain_ranges(start: str | None, end: str | None) -> tuple[OffsetRange, ...]:
    """Returns the offset ranges between a batch's start and end offsets, one for each Kafka partition with records.

    The result is empty if the batch has no records, or if a partition is new, was deleted, or has moved back to earlier
    offsets.
    """
    starts, ends = _only_source(start), _only_source(end)
    if starts.keys() != ends.keys() or any(ends[place] < starts[place] for place in ends):
        return ()
    return tuple(OffsetRange(*place, starts[place], until) for place, until in ends.items() if until > starts[place])


def read_by_one_task(source: Records, identity: BatchIdentity, parallelism: int, record_bytes: int = 0) -> Records:
    """If the batch has few records, returns the source changed so that one task reads all records, however Spark
    splits the source. Otherwise returns the source unchanged.

    If one task reads and writes everything, no second stage is needed. See `shared` for `parallelism` and
    `record_bytes`. The DataFrame must be Spark's source itself, without other steps. The one task reads Kafka's
    partitions in their order: either all partitions have a preferred location or none has one, so Spark does not
    reorder them.

    Source: Spark 4.0 DefaultPartitionCoalescer, KafkaOffsetRangeCalculator.
    """
    if not isinstance(source, Frame):
        return source
    records = record_count(identity.start_offsets, identity.end_offsets)
    if records is None or task_count(records, parallelism, record_bytes) > 1:
        return source
    return replace(source, is_alone=True)


def record_count(start: str | None, end: str | None) -> int | None:
    """Returns the largest possible number of records in a batch. `start` and `end` are the offsets at which the batch
    starts and ends, as JSON texts of Spark. Returns None if the batch does not read exactly one Kafka source.
    """
    try:
        starts, ends = _only_source(start), _only_source(end)
    except KafkaReaderError:
        return None
    return sum(max(0, until - starts.get(place, 0)) for place, until in ends.items())


def stored_row_bytes(view: LiveFiles) -> int:
    """Returns the average bytes of a row in the files of a few buckets of a table; 0 for an empty table."""
    files = [f for bucket_id in islice(view.buckets(), _BUCKETS_LOOKED_AT) for f in view.files(bucket_id)]
    return sum(f.file_size for f in files) // max(1, sum(f.row_count for f in files))


def planned_ranges(frame: Any) -> Planned | None:
    """Returns the ranges that Spark's Kafka source has planned for a DataFrame; None for a batch without records.

    Raises KafkaReaderError if the plan does not read exactly one Kafka source, and the errors of Spark's planning.
    """
    try:
        return _planned(list(frame._jdf.queryExecution().toRdd().partitions()))
    except Py4JJavaError:
        raise
    except Py4JError as e:
        # Py4J raises this error if this version of Spark lacks a method.
        raise _unknown(f"{e}".strip().splitlines()[0][:200]) from e


def _planned(tasks: list[Any]) -> Planned | None:
    if any(_name(task) != _TASK for task in tasks):
        raise _unknown(f"a task is a {_name(tasks[0])}")
    partitions = _input_partitions(tasks)
    if any(_name(p) != _PARTITION for p in partitions):
        raise _unknown(f"it reads {_name(partitions[0])}")
    if not partitions:
        return None
    first = partitions[0]
    return Planned(
        ranges=tuple(_range(str(p.offsetRange().toString())) for p in partitions),
        group=str(first.executorKafkaParams().get(_GROUP)),
        poll_timeout_ms=int(first.pollTimeoutMs()),
        fails_on_data_loss=bool(first.failOnDataLoss()),
        headers=bool(first.includeHeaders()),
    )


def _input_partitions(tasks: list[Any]) -> list[Any]:
    """Takes the tasks of Spark's plan for a batch, and returns their input partitions (the offset ranges that Spark
    would read). Up to Spark 4.1 a task may have several input partitions; from 4.2 on it has at most one.
    """
    try:
        return [partition for task in tasks for partition in _elements(task.inputPartitions())]
    except Py4JJavaError:
        raise
    except Py4JError:
        return [partition for task in tasks for partition in _elements(task.inputPartition().toList())]


def check_ranges(planned: Planned, start: str | None, end: str | None) -> None:
    """Checks that the ranges cover the offsets of a batch, each record once. `start` and `end` are the offsets of the
    batch, as in `BatchIdentity`.

    For a new partition any first offset in Spark's plan is accepted. With `failOnDataLoss` = false, Spark's plan may
    leave a new partition out. Raises KafkaReaderError if the ranges do not cover the offsets.
    """
    starts, ends = _only_source(start), _only_source(end)
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for r in sorted(planned.ranges):
        by_partition.setdefault((r.topic, r.partition), []).append(r)
    for place, parts in by_partition.items():
        until = ends.get(place)
        joined = all(a.end == b.start for a, b in pairwise(parts))
        if until is None or parts[-1].end != until or not joined or starts.get(place, parts[0].start) != parts[0].start:
            raise _unknown(
                f"it plans {parts[0]} up to {parts[-1].end}, and its offsets are {starts.get(place)}, {until}"
            )
    left_out = [
        place
        for place, until in ends.items()
        if place not in by_partition and starts.get(place, 0 if planned.fails_on_data_loss else until) < until
    ]
    if left_out:
        raise _unknown(f"it plans nothing of topic {left_out[0][0]} partition {left_out[0][1]}")


def _only_source(offsets: str | None) -> dict[tuple[str, int], int]:
    sources = json.loads(offsets or "[]")
    if len(sources) != 1 or not (
        isinstance(sources[0], dict) and all(isinstance(p, dict) for p in sources[0].values())
    ):
        raise _unknown(f"its offsets belong to {len(sources)} sources")
    return {(t, int(p)): int(offset) for t, partitions in sources[0].items() for p, offset in partitions.items()}


def _range(text: str) -> OffsetRange:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise _unknown(f"it plans {text[:200]}")
    return OffsetRange(match[1], int(match[2]), int(match[3]), int(match[4]))


def _elements(sequence: Any) -> list[Any]:
    """Returns the elements of a sequence of Scala as a Python list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def _name(of_jvm: Any) -> str:
    return str(of_jvm.getClass().getSimpleName())


def _unknown(why: str) -> KafkaReaderError:
    return KafkaReaderError(
        f"this version of Spark plans the batch in an unknown way ({why}), so tasks cannot read Kafka themselves; set "
        "source.reader to spark"
    )
