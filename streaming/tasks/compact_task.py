"""Compaction as a Spark job of its own: one task a bucket, the same units that write tasks compact inline."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from bucketline.state.commit.message import CommitMessage, encode_messages
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, write_bucket
from bucketline.streaming.tasks.outcome import read_outcome
from bucketline.streaming.tasks.wire import MESSAGES, RESULT_DDL, result
from bucketline.streaming.tasks.worker import in_worker


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Compacts the buckets of this task: every n-th of the list, n the number of tasks."""

    write: BucketWrite
    buckets: tuple[tuple[BucketId, BucketState], ...]
    task_count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            del batch
        context = TaskContext.get()
        own = 0 if context is None else context.partitionId()
        for bucket_id, state in self.buckets[own :: self.task_count]:
            yield result(MESSAGES, encode_messages([write_bucket(self.write, bucket_id, state, [])]))


def compact_over_spark(
    spark: Any, write: BucketWrite, buckets: Sequence[tuple[BucketId, BucketState]]
) -> tuple[CommitMessage, ...]:
    """Compacts buckets in Spark tasks and returns their messages; nothing is committed."""
    if not buckets:
        return ()
    task_count = len(buckets)
    task = CompactTask(write, tuple(buckets), task_count)
    rows = spark.range(0, task_count, 1, task_count).mapInArrow(in_worker(task), RESULT_DDL).collect()
    return read_outcome(rows).messages
