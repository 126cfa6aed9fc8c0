"""Executor, between reading and writing: rows whose buckets are not known get them, share by share of the keys."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.engine.engine import TaskStats
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.placing import BucketNews, Placing, SnapshotNote
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.wire import (
    NOTE,
    RUN,
    STATS,
    read_routed,
    routed_news,
    routed_note,
    routed_run,
    stats_blob,
)


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """Owns shares of the keys, and sends their rows on to the tasks that own their buckets; plain values only."""

    place: Placing
    to: Destination
    buffer_bytes: int
    local_directory: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Routed rows of key shares in, routed rows of buckets out."""
        with RunBuffer(budget_bytes=self.buffer_bytes, directory=self.local_directory) as buffer:
            for batch in batches:
                for kind, run in read_routed(batch):
                    if kind == RUN:
                        buffer.add(run)
                    else:
                        yield self._note(kind, run.blob, origin=run.origin, row_count=run.row_count)
            for bucket_id in buffer.buckets():
                yield from self._placed(bucket_id, buffer)

    def _placed(self, bucket_id: tuple[bytes, int], buffer: RunBuffer) -> Iterator[pa.RecordBatch]:
        share = share_of_group(bucket_id[1])
        assert share is not None, "rows come by share"
        runs = buffer.take(bucket_id)
        accepted = sum(run.consumed_rows for run, _ in runs)
        for placed in self.place.place(share, runs):
            assert not isinstance(placed, CommitMessage), "files are written by the next stage"
            if isinstance(placed, SnapshotNote):
                yield self._note(NOTE, placed.token.encode(), origin=share)
                continue
            key = self.to.key(placed.partition, placed.bucket)
            if isinstance(placed, BucketNews):
                yield routed_news(placed, key)
                continue
            yield routed_run(placed, key, accepted_rows=accepted)
            accepted = 0
        if accepted:
            # No row went anywhere: there is none to count them with.
            yield self._note(STATS, stats_blob(TaskStats(accepted, 0.0, 0.0, 0)), origin=share)

    def _note(self, kind: str, blob: bytes, *, origin: int, row_count: int = 0) -> pa.RecordBatch:
        return routed_note(kind, shard_key=self.to.any_key, origin=origin, row_count=row_count, blob=blob)
