"""The engine of Spark: each run of stages or jobs is one action, whose tasks read, place and write.

Sealed runs cross between tasks as a few rows of bytes, and so does what comes back. Nothing is cached but a DataFrame
that is read more than once.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.engine.compaction import idle_jobs
from bucketline.state.store.engine.engine import Jobs, Outcome, Parts, Rows
from bucketline.state.store.engine.joined import Joined
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.tasks.given_frame import given_frame
from bucketline.streaming.tasks.job_task import job_task
from bucketline.streaming.tasks.join_task import join_stage
from bucketline.streaming.tasks.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.outcome import read_outcome
from bucketline.streaming.tasks.place_task import PlaceTask
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import Reading, ReadKafkaTask, ReadPartsTask, ReadTask, Records
from bucketline.streaming.tasks.wire import RESULT_DDL, ROUTED_DDL
from bucketline.streaming.tasks.worker import Task, in_worker
from bucketline.streaming.tasks.write_task import WriteTask, owning

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Bounds what a write task receives at once; without it ten thousand runs would come in one record batch."""

ARROW_BYTES_LIMIT = 64 << 20

ADAPTIVE = "spark.sql.adaptive.enabled"
"""Spark 4.1 and later leave it on in streams without state. A run knows its tasks before they start, so that planning
anew between them brings a second job and nothing else; and a task must find the buckets of its number."""

_MOST_TASKS = 1 << 31


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs stages and jobs in tasks of a Spark session. Errors of tasks arrive as Spark's, and what other tasks of the
    same run have written by then is left for orphan removal; but for GivenBack, which leaves nothing behind."""

    spark: Any

    @property
    def workers(self) -> Workers:
        return Workers(self.spark.sparkContext.defaultParallelism, _MOST_TASKS)

    def rows(self, data: object, row_kinds: object = None) -> AbstractContextManager[Rows]:
        """As `SpreadEngine.rows`: rows of a DataFrame, or Arrow data that this process sends."""
        return given_frame(self.spark, data, row_kinds)

    def run(self, work: Stages[Parts] | Stages[Joined] | Stages[Records] | Jobs) -> Outcome:
        """As `Engine.run`; rows may come from a DataFrame, and from Kafka, as well."""
        if isinstance(work, Jobs):
            return self._done(work)
        if isinstance(work.source, Parts) and not work.source.parts:
            return self._done(idle_jobs(work), work.retired)
        return self._written(work)

    def _done(self, work: Jobs, retired: tuple[CommitMessage, ...] = ()) -> Outcome:
        """Jobs send nothing to each other: the session is as they find it, and another thread may use it meanwhile."""
        jobs = tuple(work.jobs)
        if not jobs:
            return Outcome(retired)
        frame = self._tasks(len(jobs)).mapInArrow(in_worker(job_task(jobs)), RESULT_DDL)
        # Rows are collected by the number of their task.
        return read_outcome(frame.collect(), jobs[0].access, retired)

    def _written(self, stages: Stages[Parts] | Stages[Joined] | Stages[Records]) -> Outcome:
        _bound_arrow(self.spark)
        with _planned_once(self.spark):
            return read_outcome(self._results(stages).collect(), stages.write.write.access, stages.retired)

    def _results(self, stages: Stages[Parts] | Stages[Joined] | Stages[Records]) -> Any:
        """The frame of the tasks' results."""
        source, write, place = stages.source, stages.tasks.write, stages.place
        is_alone = write == 1 and place is None and _reads_alone(source)
        # Runs of a task that writes them itself do not travel: they are compressed only where they go to disk.
        rows, read = self._read(replace(stages, seal=replace(stages.seal, packs=False)) if is_alone else stages)
        if write is None:
            return rows.mapInArrow(in_worker(_after(read, WriteTask(stages.write))), RESULT_DDL)
        if is_alone:
            alone = owning(stages, Destination(1, stages.assigners), packs_spills=True)
            return rows.mapInArrow(in_worker(_after(read, alone)), RESULT_DDL)
        routed = rows.mapInArrow(in_worker(read), ROUTED_DDL)
        among = Destination(write, stages.assigners)
        if place is not None:
            to_place = routed.repartition(stages.tasks.place, "shard_key")
            budget, directory = stages.write.write.merge_memory_bytes, stages.write.write.local_directory
            routed = to_place.mapInArrow(in_worker(PlaceTask(place, among, budget, directory)), ROUTED_DDL)
        return routed.repartition(write, "shard_key").mapInArrow(in_worker(owning(stages, among)), RESULT_DDL)

    def _read(self, stages: Stages[Parts] | Stages[Joined] | Stages[Records]) -> tuple[Any, Task]:
        """The frame over which tasks read, and what they do."""
        source = stages.source
        to = read_destination(stages)
        if isinstance(source, Parts):
            count = min(to.task_count, len(source.parts))
            return self._tasks(count), ReadPartsTask(stages.seal, to, tuple(source.parts), count)
        if isinstance(source, Joined):
            return join_stage(self._tasks, source, stages.seal, to, 2 * self.workers.parallelism)
        reading = Reading(stages.seal, to, source.decode, source.reject_limit)
        if isinstance(source, KafkaRanges):
            return self._tasks(len(source.shares)), ReadKafkaTask(reading, source)
        return source.frame, ReadTask(reading)

    def _tasks(self, count: int) -> Any:
        """A frame of so many tasks that get nothing."""
        return self.spark.range(0, count, 1, count)


def read_destination(stages: Stages[Any]) -> Destination:
    """Where rows go from the tasks that read them."""
    count = stages.tasks.write or 1 if stages.place is None else stages.tasks.place
    return Destination(count, stages.assigners)


def _reads_alone(source: Parts | Joined | Records) -> bool:
    """Whether one task reads all; what it reads needs no shuffle to get to one task that writes."""
    if isinstance(source, Parts):
        return len(source.parts) == 1
    return not isinstance(source, Joined) and source.is_alone


def _after(read: Task, write: Task) -> Task:
    """Both tasks as one."""

    def read_and_write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write(read(batches))

    return read_and_write


def _bound_arrow(spark: Any) -> None:
    """Sets how many bytes of runs a task of this session receives at once, where nobody has set it lower."""
    current = spark.conf.get(ARROW_BYTES, None)
    if current is None or not current.isdigit() or int(current) > ARROW_BYTES_LIMIT:
        spark.conf.set(ARROW_BYTES, str(ARROW_BYTES_LIMIT))


@contextmanager
def _planned_once(spark: Any) -> Iterator[None]:
    """Actions inside keep the plan that they start with; what the session said before holds again afterwards."""
    before = spark.conf.get(ADAPTIVE)
    spark.conf.set(ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(ADAPTIVE, before)
