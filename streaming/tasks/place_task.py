"""Executor, between route and write: rows of cross-partition tables get partition and bucket from the key index.

One task owns a share of all keys, opens its index, and sends the placed rows on to the tasks that own their buckets.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketline.state.store.write.cross_write import CrossWrite, place_runs
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.streaming.tasks.buffer_runs import buffer_runs
from bucketline.streaming.tasks.placement import shard_keys, shard_of_bucket
from bucketline.streaming.tasks.wire import NOTE, STATS, TaskStats, routed_note, routed_run, stats_blob


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """What a placing task does; plain values only, so that it travels."""

    cross: CrossWrite
    buffer_bytes: int
    local_directory: str | None
    shard_count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Routed rows of key shares in, routed rows of buckets out."""
        keys = shard_keys(self.shard_count)
        with RunBuffer(budget_bytes=self.buffer_bytes, directory=self.local_directory) as buffer:
            yield from buffer_runs(batches, buffer, note_key=keys[0])
            for bucket_id in buffer.buckets():
                share = share_of_group(bucket_id[1])
                assert share is not None, "rows come by share"
                runs = buffer.take(bucket_id)
                accepted = sum(run.consumed_rows for run, _ in runs)
                notes: list[str] = []
                for placed in place_runs(self.cross, share, runs, noted=notes.append):
                    owner = shard_of_bucket(placed.partition, placed.bucket, self.shard_count)
                    yield routed_run(placed, keys[owner], accepted_rows=accepted)
                    accepted = 0
                if accepted:
                    # No row went anywhere: there is none to tell of them with.
                    told = stats_blob(TaskStats(-1, accepted, 0.0, 0.0, 0))
                    yield routed_note(STATS, shard_key=keys[0], origin=share, row_count=0, blob=told)
                for token in notes:
                    yield routed_note(NOTE, shard_key=keys[0], origin=share, row_count=0, blob=token.encode())
