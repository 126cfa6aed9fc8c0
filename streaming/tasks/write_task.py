"""Executor, reduce side: the runs of each bucket → level-0 files, a compaction where one is due → commit messages.

One task owns the buckets of its shard: it alone writes them in this batch. Files get fresh names in every attempt, and
only messages that reach the driver are committed, so a retried or speculative attempt leaves orphans at worst.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from bucketline.state.bucket.allocation import Int32s
from bucketline.state.commit.message import encode_messages
from bucketline.state.format.hash_index import decode_hash_index
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.table.rebucket import as_one_change
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, CompactTrigger, write_bucket
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.streaming.tasks.placement import shard_of_bucket
from bucketline.streaming.tasks.wire import HASHES, MESSAGES, RUN, TaskStats, read_routed, result, stats_result


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What a reduce task does; plain values only, so that it travels. `states` holds the buckets that the table has.

    With `as_one_change` a message is all of one snapshot: what the task's own compaction used up is gone (`deal`).
    """

    write: BucketWrite
    states: Mapping[BucketId, BucketState]
    buffer_bytes: int
    local_directory: str | None
    shard_count: int
    as_one_change: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Routed rows in, results out: one row of messages a bucket, one of statistics a task."""
        context = TaskContext.get()
        return self.run(batches, shard=0 if context is None else context.partitionId())

    def run(self, batches: Iterator[pa.RecordBatch], *, shard: int | None) -> Iterator[pa.RecordBatch]:
        """As a call. `shard` is the number of the task's shard; None where runs are not placed by bucket."""
        started = time.monotonic()
        rows = 0
        new_hashes: dict[BucketId, Int32s] = {}
        with RunBuffer(budget_bytes=self.buffer_bytes, directory=self.local_directory) as buffer:
            for batch in batches:
                for kind, run in read_routed(batch):
                    if kind == RUN:
                        buffer.add(run)
                        rows += run.consumed_rows
                    elif kind == HASHES:
                        new_hashes[run.partition, run.bucket] = decode_hash_index(run.blob)
                    else:
                        yield result(kind, run.blob)
            received = time.monotonic()
            busy: set[BucketId] = set()
            for message in write_buckets(self.write, buffer, self.states, new_hashes=new_hashes):
                busy.add((message.partition, message.bucket))
                told = as_one_change(message, self.write.access.delete_own) if self.as_one_change else message
                yield result(MESSAGES, encode_messages([told]))
            for bucket_id in self._idle(shard, busy):
                message = write_bucket(self.write, bucket_id, self.states[bucket_id], [])
                yield result(MESSAGES, encode_messages([message]))
        yield stats_result(
            TaskStats(
                shard=-1 if shard is None else shard,
                accepted_rows=rows,
                receive_seconds=received - started,
                write_seconds=time.monotonic() - received,
                spilled_bytes=buffer.spilled_bytes,
            )
        )

    def _idle(self, shard: int | None, busy: set[BucketId]) -> list[BucketId]:
        """The shard's buckets without rows in this batch that may still owe a compaction."""
        if shard is None or self.write.trigger is CompactTrigger.NONE:
            return []
        return [
            b
            for b, state in self.states.items()
            if state.files and state.complete and b not in busy and self._shard_of(b) == shard
        ]

    def _shard_of(self, bucket_id: BucketId) -> int:
        partition, bucket = bucket_id
        return shard_of_bucket(partition, self.write.owner(partition, bucket), self.shard_count)
