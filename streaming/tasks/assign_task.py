"""Executor, between route and write: rows of dynamic tables with a large index get buckets from a share of it.

One task owns a share of a partition's keys and loads what the HASH files say of them; rows, and the hashes of new keys,
go on to the tasks that own their buckets.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketline.state.bucket.allocation import Int32s
from bucketline.state.format.hash_index import encode_hash_index
from bucketline.state.store.write.dynamic_write import AssignWrite, assign_runs
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.streaming.tasks.buffer_runs import buffer_runs
from bucketline.streaming.tasks.placement import shard_keys, shard_of_bucket
from bucketline.streaming.tasks.wire import routed_hashes, routed_run


@dataclass(frozen=True, slots=True)
class AssignTask:
    """What an assigning task does; plain values only, so that it travels."""

    assign: AssignWrite
    buffer_bytes: int
    local_directory: str | None
    shard_count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Routed rows of key shares in, routed rows of buckets and the hashes of new keys out."""
        keys = shard_keys(self.shard_count)
        with RunBuffer(budget_bytes=self.buffer_bytes, directory=self.local_directory) as buffer:
            yield from buffer_runs(batches, buffer, note_key=keys[0])
            for bucket_id in buffer.buckets():
                share = share_of_group(bucket_id[1])
                assert share is not None, "rows come by share"
                grown: list[tuple[bytes, int, Int32s]] = []
                for run in assign_runs(self.assign, share, buffer.take(bucket_id), grown.append):
                    yield routed_run(run, keys[self._shard_of(run.partition, run.bucket)])
                for partition, bucket, hashes in grown:
                    shard_key = keys[self._shard_of(partition, bucket)]
                    yield routed_hashes(partition, bucket, encode_hash_index(hashes), shard_key=shard_key)

    def _shard_of(self, partition: bytes, bucket: int) -> int:
        return shard_of_bucket(partition, self.assign.dynamic.owner(partition, bucket), self.shard_count)
