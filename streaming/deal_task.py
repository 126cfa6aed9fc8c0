"""Postponed files dealt to real buckets over Spark: the files are read in tasks, their rows shuffled as sealed runs,
and each bucket written and compacted by one task."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.bucket_access import BucketAccess
from bucketline.state.store.deal import Source, postponed_runs
from bucketline.state.store.postpone_compact import PostponeWork
from bucketline.state.store.sealed_runs import SealPlan
from bucketline.streaming.compact_task import compact_over_spark
from bucketline.streaming.placement import shard_keys, shard_of_bucket
from bucketline.streaming.route import read_outcome
from bucketline.streaming.wire import RESULT_DDL, ROUTED_DDL, routed_run
from bucketline.streaming.write_task import WriteTask


@dataclass(frozen=True, slots=True)
class DealTask:
    """Reads every n-th file and routes its rows; plain values, so that it travels."""

    access: BucketAccess
    seal: SealPlan
    sources: tuple[Source, ...]
    task_count: int
    shard_count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            del batch
        context = TaskContext.get()
        own = 0 if context is None else context.partitionId()
        keys = shard_keys(self.shard_count)
        for source in self.sources[own :: self.task_count]:
            for run in postponed_runs(self.access, source, self.seal):
                yield routed_run(run, keys[shard_of_bucket(run.partition, run.bucket, self.shard_count)])


def deal_over_spark(spark: Any, work: PostponeWork, *, shelf_bytes: int, directory: str | None) -> list[CommitMessage]:
    """The messages of one COMPACT snapshot that takes all postponed rows to their buckets."""
    if work.is_empty:
        return []
    parallelism = spark.sparkContext.defaultParallelism
    tasks = max(1, min(2 * parallelism, len(work.sources)))
    deal = DealTask(work.write.access, work.seal, work.sources, tasks, 2 * parallelism)
    write = WriteTask(work.write, work.states, shelf_bytes, directory, 2 * parallelism, as_one_change=True)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return deal(batches)

    def write_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write.run(batches, shard=None)

    routed = spark.range(0, tasks, 1, tasks).mapInArrow(read, ROUTED_DDL)
    placed = routed.repartition(2 * parallelism, "shard_key")
    dealt = read_outcome(placed.mapInArrow(write_buckets, RESULT_DDL).collect()).messages
    busy = {(m.partition, m.bucket) for m in dealt}
    idle = compact_over_spark(spark, work.write, [(b, work.states[b]) for b in work.idle if b not in busy])
    return [*dealt, *idle, *work.retired]
