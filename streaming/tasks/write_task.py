"""The last stage, on executors: turns the sealed runs (sorted, packed rows) of each bucket into level-0 files, compacts
the bucket if a compaction is due, and makes commit messages.

Each bucket belongs to one task; only that task writes the bucket's files in a batch. Files get new names in every
attempt, and only commit messages that reach the driver are committed. So a repeated or speculative attempt at worst
leaves orphan files.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage, encode_messages
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.engine.compaction import IdleBucket
from bucketline.state.store.engine.engine import GivenBack, TaskStats
from bucketline.state.store.write.bucket_threads import threads_that_wait
from bucketline.state.store.write.placing import SharedBucket, SnapshotNote
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.state.store.write.stages import Stages, WriteStage
from bucketline.state.store.write.stored_values import WITHOUT_VALUES
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.streaming.decode.rejects import rejected_rows
from bucketline.streaming.tasks.owned_buckets import OwnedBuckets, owned_buckets
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import task_number
from bucketline.streaming.tasks.wire import (
    GIVEN_BACK,
    MESSAGES,
    MIXED,
    NEWS,
    NOTE,
    REJECTS,
    RUN,
    RUNS,
    Sent,
    TaskResult,
    stats_result,
)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the sealed runs (sorted, packed rows) that are sent to this task. Then compacts those buckets of the task
    that got no rows and are due for a compaction.

    `owned` has the buckets of each task, with the states that the task uses instead of the states in `stage`. If
    `owned` is None, sealed runs are not sent by bucket, and the task has no buckets of its own. If `packs_spills` is
    true, sealed runs come uncompressed from the same task, and are compressed when they go to disk.
    """

    stage: WriteStage
    owned: OwnedBuckets | None = None
    packs_spills: bool = False

    def __call__(self, sent: Iterator[Sent]) -> Iterator[TaskResult]:
        """Takes what other tasks have sent to this task: sealed runs (sorted, packed rows) to write, and notes for the
        driver. Yields the results of the task: its commit messages, its statistics, and the notes. After an error no
        new files are left.

        If this task cannot do the work, because the batch has to be run in another way, the only result says so. The
        task raises no error then, because an error would make Spark end the other tasks before they have removed their
        files.
        """
        try:
            yield from self._results(sent)
        except (GivenBack, SharedBucket) as e:
            yield TaskResult(GIVEN_BACK, str(e).encode())

    def _results(self, sent: Iterator[Sent]) -> Iterator[TaskResult]:
        mixed: list[MixedKey] = []
        refused: list[pa.Table] = []
        stage = replace(self.stage, write=replace(self.stage.write, mixed=mixed.append, refuse=refused.append))
        write, rows = stage.write, 0
        idle: tuple[BucketId, ...] = ()
        if self.owned is not None:
            owned = self.owned.of(task_number())
            stage, idle = replace(stage, states=owned.states), owned.idle
        news: dict[BucketId, bytes] = {}
        with RunBuffer(
            budget_bytes=write.merge_memory_bytes, directory=write.local_directory, packs_spills=self.packs_spills
        ) as buffer:
            for kind, run in sent:
                if kind in (RUN, RUNS):
                    buffer.add(run)
                    rows += run.consumed_rows
                elif kind == NEWS:
                    assert isinstance(run, SealedRun), "news is about one bucket"
                    news[run.partition, run.bucket] = bytes(run.blob)
                else:
                    yield TaskResult(kind, bytes(run.blob))
            busy: set[BucketId] = set()
            with discarded_on_error(write.access) as messages:
                for made in write_buckets(stage, buffer, news, threads=threads_that_wait(write)):
                    if isinstance(made, MixedKey):
                        mixed.append(made)
                        continue
                    if isinstance(made, SnapshotNote):
                        yield TaskResult(NOTE, made.token.encode())
                        continue
                    busy.add((made.partition, made.bucket))
                    assert self._knows(made), "rows of a bucket came to a task that does not know it"
                    messages.append(made)
                for bucket_id in idle:
                    if bucket_id not in busy:
                        messages.append(IdleBucket(write, bucket_id, stage.states[bucket_id]).message())
        for bad in refused:
            reasons = pa.array([WITHOUT_VALUES] * bad.num_rows, pa.string())
            yield TaskResult(REJECTS, rejected_rows(bad, reasons, bad.num_rows).blob)
        if messages:
            yield TaskResult(MESSAGES, encode_messages(messages))
        if mixed:
            yield TaskResult(MIXED, min(mixed).to_bytes())
        yield stats_result(TaskStats(accepted_rows=rows, spilled_bytes=buffer.spilled_bytes))

    def _knows(self, message: CommitMessage) -> bool:
        return self.owned is None or self.owned.knows(task_number(), (message.partition, message.bucket))


def owning(stages: Stages[Any], among: Destination, *, packs_spills: bool = False) -> WriteTask:
    """Returns the task that writes the buckets which `among` sends to it. `packs_spills` means the same as in
    `WriteTask`.
    """
    if not isinstance(stages.write.states, dict):
        # If the states of buckets depend on the rows, `states` is an object with which the task looks them up itself.
        assert not stages.idle, "buckets that wait for a compaction are known"
        return WriteTask(stages.write, None, packs_spills)
    owned = owned_buckets(stages.write, stages.idle, among)
    return WriteTask(replace(stages.write, states={}), owned, packs_spills)
