"""The stage between reading and writing, on executors: decides the buckets of rows. The keys are divided into groups,
called shares, and a task decides the buckets of one share at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bucketline.state.commit.message import CommitMessage
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.engine.engine import TaskStats
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.placing import BucketNews, Placing, SnapshotNote
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import to_each
from bucketline.streaming.tasks.wire import (
    ANY_TASK,
    NOTE,
    RUN,
    RUNS,
    STATS,
    UNFIT,
    Routed,
    Sent,
    routed_mixed,
    routed_news,
    routed_note,
    stats_blob,
)


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """A task that decides the buckets of the rows that are sent to it, and sends these rows to the tasks that write the
    buckets. The object holds only plain values, so that it can be sent to executors.
    """

    place: Placing
    to: Destination
    buffer_bytes: int
    local_directory: str | None

    def __call__(self, sent: Iterator[Sent]) -> Iterator[Routed]:
        """Takes sealed runs (sorted, packed rows) of shares (groups of keys), and yields sealed runs of buckets."""
        with RunBuffer(budget_bytes=self.buffer_bytes, directory=self.local_directory) as buffer:
            for kind, run in sent:
                if kind in (RUN, RUNS):
                    buffer.add(run)
                elif kind == UNFIT:
                    yield from to_each(Routed(ANY_TASK, kind, run), self.to)
                else:
                    yield Routed(ANY_TASK, kind, run)
            for bucket_id in buffer.buckets():
                yield from self._placed(bucket_id, buffer)

    def _placed(self, bucket_id: tuple[bytes, int], buffer: RunBuffer) -> Iterator[Routed]:
        share = share_of_group(bucket_id[1])
        assert share is not None, "rows come by share"
        runs = buffer.take(bucket_id)
        accepted = sum(run.consumed_rows for run, _ in runs)
        for placed in self.place.place(share, runs):
            assert not isinstance(placed, CommitMessage), "only the next stage writes files"
            if isinstance(placed, MixedKey):
                yield routed_mixed(placed, share)
                continue
            if isinstance(placed, SnapshotNote):
                yield routed_note(NOTE, origin=share, row_count=0, blob=placed.token.encode())
                continue
            task = self.to.task(placed.partition, placed.bucket)
            if isinstance(placed, BucketNews):
                yield routed_news(placed, task)
                continue
            yield Routed(task, RUN, replace(placed, consumed_rows=accepted))
            accepted = 0
        if accepted:
            # No row was sent to the next stage, so no other message holds the counts.
            stats = stats_blob(TaskStats(accepted))
            yield routed_note(STATS, origin=share, row_count=0, blob=stats)
