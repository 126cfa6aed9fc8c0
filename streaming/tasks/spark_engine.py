"""The engine of Spark: it runs stages or jobs as one Spark action, whose tasks read rows, decide their buckets, and
write.

Tasks send sealed runs (sorted, packed rows) to other tasks as a few large values, and send results to the driver in the
same way. Only a DataFrame that is read more than once is cached.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.engine.compaction import idle_jobs
from bucketline.state.store.engine.engine import Jobs, Outcome, Parts, Rows
from bucketline.state.store.engine.joined import Joined
from bucketline.state.store.write.sealed_runs import RunForm
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.tasks.bytes_job import bytes_job, job_task, rdd_job
from bucketline.streaming.tasks.frame_job import frame_job
from bucketline.streaming.tasks.frame_messages import frame_messages
from bucketline.streaming.tasks.given_frame import given_frame
from bucketline.streaming.tasks.join_task import join_stage
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.outcome import read_outcome
from bucketline.streaming.tasks.parquet_files import ParquetFiles
from bucketline.streaming.tasks.place_task import PlaceTask
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import (
    ReadKafkaTask,
    ReadMessagesTask,
    ReadParquetTask,
    ReadPartsTask,
    ReadPlan,
    ReadTask,
    Records,
)
from bucketline.streaming.tasks.wire import Next, Routed, TaskResult
from bucketline.streaming.tasks.write_task import WriteTask, owning

_MOST_TASKS = 1 << 31


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs stages and jobs in tasks of a Spark session.

    Errors of tasks arrive as errors of Spark. After such an error, files that other tasks of the same run have written
    stay until orphan files are removed. After GivenBack no files are left.
    """

    spark: Any

    @property
    def workers(self) -> Workers:
        return Workers(self.spark.sparkContext.defaultParallelism, _MOST_TASKS)

    def rows(self, data: object, row_kinds: object = None) -> AbstractContextManager[Rows]:
        """Makes the rows of `data` available to tasks for the time of a `with` block, as `SpreadEngine.rows` says.
        `data` is a DataFrame, or Arrow data that this process sends to the tasks.
        """
        return given_frame(self.spark, data, row_kinds)

    def run(self, work: Stages[Parts] | Stages[Joined] | Stages[Records] | Jobs) -> Outcome:
        """Runs stages or jobs; see `Engine.run`. The rows of `work` may also come from a DataFrame or from Kafka."""
        if isinstance(work, Jobs):
            return self._done(work)
        if isinstance(work.source, Parts) and not work.source.parts:
            return self._done(idle_jobs(work), work.retired)
        return self._written(work)

    def _done(self, work: Jobs, retired: tuple[CommitMessage, ...] = ()) -> Outcome:
        """Runs each job in a task of its own, and returns the outcome of all jobs. The tasks exchange no rows. The
        settings of the Spark session are not changed, so another thread may use the session at the same time.
        """
        jobs = tuple(work.jobs)
        if not jobs:
            return Outcome(retired)
        results = bytes_job(self.spark, len(jobs), job_task(jobs))
        return read_outcome(results, jobs[0].access, retired)

    def _written(self, stages: Stages[Parts] | Stages[Joined] | Stages[Records]) -> Outcome:
        write = stages.tasks.write
        if write is None:
            results = self._results(stages, WriteTask(stages.write))
        elif write == 1 and stages.place is None and _reads_alone(stages.source):
            # Sealed runs that a task writes itself are not sent, so they are compressed only when they go to disk.
            alone = owning(stages, Destination(1, stages.assigners), packs_spills=True)
            results = self._results(replace(stages, seal=replace(stages.seal, form=RunForm.PLAIN)), alone)
        else:
            results = self._results(stages, None, *_after_reading(stages, write))
        return read_outcome(results, stages.write.write.access, stages.retired)

    def _results(
        self,
        stages: Stages[Parts] | Stages[Joined] | Stages[Records],
        write: WriteTask | None,
        *after: tuple[int, Next],
    ) -> list[TaskResult]:
        """Runs the tasks that read, and then the tasks of further stages. Each item of `after` has the number of tasks
        in a stage, and the task. Returns the results of the last stage. If `write` is set, the tasks that read also
        write.
        """
        source, to = stages.source, read_destination(stages)
        if isinstance(source, Joined):
            frame, join = join_stage(self._tasks, source, stages.seal, to, 2 * self.workers.parallelism)
            return frame_job(self.spark, frame, _then(join, write), after)
        if isinstance(source, Parts):
            count = min(to.task_count, len(source.parts))
            parts = ReadPartsTask(stages.seal, to, tuple(source.parts), count)
            return bytes_job(self.spark, count, _then(parts, write), after)
        feeds = None if isinstance(source, ParquetFiles) else source.feeds
        reading = ReadPlan(stages.seal, to, source.decode, source.reject_limit, feeds)
        if isinstance(source, KafkaRanges):
            return bytes_job(self.spark, len(source.shares), _then(ReadKafkaTask(reading, source), write), after)
        if isinstance(source, ParquetFiles):
            return bytes_job(self.spark, len(source.shares), _then(ReadParquetTask(reading, source), write), after)
        few = frame_messages(self.spark, source.frame) if source.is_alone else None
        if few is not None:
            return rdd_job(self.spark, few.rdd, 1, _then(ReadMessagesTask(reading, few.schema), write), after)
        frame = source.frame.coalesce(1) if source.is_alone else source.frame
        return frame_job(self.spark, frame, _then(ReadTask(reading), write), after)

    def _tasks(self, count: int) -> Any:
        """Returns a DataFrame for `count` tasks without input."""
        return self.spark.range(0, count, 1, count)


def read_destination(stages: Stages[Any]) -> Destination:
    """Returns the tasks to which the reading tasks send rows: the tasks that decide the buckets of rows, if there are
    any, or else the tasks that write.
    """
    count = stages.tasks.write or 1 if stages.place is None else stages.tasks.place
    return Destination(count, stages.assigners)


def _reads_alone(source: Parts | Joined | Records) -> bool:
    """Returns True if one task reads everything. Then no shuffle is needed if only one task writes."""
    if isinstance(source, Parts):
        return len(source.parts) == 1
    return not isinstance(source, Joined) and source.is_alone


def _after_reading(stages: Stages[Any], write: int) -> list[tuple[int, Next]]:
    """Returns the stages that follow the stage that reads rows, each with its number of tasks. If rows have no bucket
    yet, the first stage decides their buckets. The last stage has `write` tasks, which write the rows.
    """
    among = Destination(write, stages.assigners)
    writing: tuple[int, Next] = (write, owning(stages, among))
    if stages.place is None:
        return [writing]
    plan = stages.write.write
    place = PlaceTask(stages.place, among, plan.merge_memory_bytes, plan.local_directory)
    return [(stages.tasks.place, place), writing]


def _then(read: Callable[..., Iterator[Routed]], write: WriteTask | None) -> Callable[..., Iterator[Any]]:
    """Returns the function that a task runs: `read` alone, or `read` and then `write` in the same task."""
    return read if write is None else _Both(read, write)


@dataclass(frozen=True, slots=True)
class _Both:
    """A task that reads rows and writes them itself."""

    read: Callable[..., Iterator[Routed]]
    write: WriteTask

    def __call__(self, *arguments: Any) -> Iterator[TaskResult]:
        return self.write((routed.kind, routed.run) for routed in self.read(*arguments))
