"""Postponed files moved to real buckets over Spark: the files are read in tasks, their rows shuffled as sealed runs,
and each bucket written and compacted by one task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.table.postpone_compact import PostponeWork
from bucketline.state.store.table.rebucket import Source, current_runs, postponed_runs
from bucketline.state.store.table.rescale import RescaleWork, as_new_files
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite
from bucketline.state.store.write.sealed_runs import SealedRun, SealPlan
from bucketline.streaming.tasks.compact_task import compact_over_spark
from bucketline.streaming.tasks.outcome import bound_arrow, read_outcome
from bucketline.streaming.tasks.placement import shard_keys, shard_of_bucket
from bucketline.streaming.tasks.wire import RESULT_DDL, ROUTED_DDL, routed_run
from bucketline.streaming.tasks.worker import in_worker
from bucketline.streaming.tasks.write_task import WriteTask


@dataclass(frozen=True, slots=True)
class RebucketTask:
    """Reads every n-th source and routes its rows; plain values, so that it travels.

    With `merge_memory_bytes` sources are real buckets, read merged in that much memory; else they are postponed files.
    """

    access: BucketAccess
    seal: SealPlan
    sources: tuple[Source, ...]
    task_count: int
    shard_count: int
    merge_memory_bytes: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            del batch
        context = TaskContext.get()
        own = 0 if context is None else context.partitionId()
        keys = shard_keys(self.shard_count)
        for source in self.sources[own :: self.task_count]:
            for run in self._runs(source):
                yield routed_run(run, keys[shard_of_bucket(run.partition, run.bucket, self.shard_count)])

    def _runs(self, source: Source) -> Iterator[SealedRun]:
        if self.merge_memory_bytes is None:
            return postponed_runs(self.access, source, self.seal)
        return current_runs(self.access, source, self.seal, memory_bytes=self.merge_memory_bytes)


def rebucket_over_spark(
    spark: Any, work: PostponeWork, *, buffer_bytes: int, directory: str | None
) -> list[CommitMessage]:
    """The messages of one COMPACT snapshot that takes all postponed rows to their buckets."""
    if work.is_empty:
        return []
    write = work.write
    rebucketed = _rebucket(
        spark, work.sources, work.seal, write, work.states, buffer_bytes=buffer_bytes, directory=directory
    )
    busy = {(m.partition, m.bucket) for m in rebucketed}
    idle = compact_over_spark(spark, write, [(b, work.states[b]) for b in work.idle if b not in busy])
    return [*rebucketed, *idle, *work.retired]


def rescale_over_spark(
    spark: Any, work: RescaleWork, *, buffer_bytes: int, directory: str | None
) -> list[CommitMessage]:
    """The messages of one OVERWRITE snapshot that holds the current rows of partitions in other buckets."""
    write = work.write
    found = _rebucket(
        spark,
        work.sources,
        work.seal,
        write,
        {},
        buffer_bytes=buffer_bytes,
        directory=directory,
        merge_memory_bytes=write.compact_memory_bytes,
    )
    return [as_new_files(m, write) for m in found]


def _rebucket(
    spark: Any,
    sources: tuple[Source, ...],
    seal: SealPlan,
    write: BucketWrite,
    states: Mapping[BucketId, BucketState],
    *,
    buffer_bytes: int,
    directory: str | None,
    merge_memory_bytes: int | None = None,
) -> tuple[CommitMessage, ...]:
    if not sources:
        return ()
    shards = 2 * spark.sparkContext.defaultParallelism
    tasks = max(1, min(shards, len(sources)))
    deal = RebucketTask(write.access, seal, sources, tasks, shards, merge_memory_bytes)
    end = WriteTask(write, states, buffer_bytes, directory, shards, as_one_change=True)

    def write_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return end.run(batches, shard=None)

    bound_arrow(spark)
    routed = spark.range(0, tasks, 1, tasks).mapInArrow(in_worker(deal), ROUTED_DDL)
    placed = routed.repartition(shards, "shard_key")
    return read_outcome(placed.mapInArrow(in_worker(write_buckets), RESULT_DDL).collect()).messages
