"""Executor, last stage: the runs of each bucket → level-0 files, a compaction where one is due → commit messages.

One task owns the buckets that are sent to it: it alone writes them in this run. Files get fresh names in every attempt,
and only messages that reach the driver are committed, so a retried or speculative attempt leaves orphans at worst.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketline.state.commit.message import encode_messages
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.engine.compaction import IdleBucket
from bucketline.state.store.engine.engine import TaskStats
from bucketline.state.store.write.placing import SnapshotNote
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.stages import WriteStage
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import task_number
from bucketline.streaming.tasks.wire import MESSAGES, NEWS, NOTE, RUN, read_routed, result, stats_result


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes what it is sent, then compacts those of the idle buckets that it owns and that got no rows.

    Without `among`, runs are not sent by bucket, and no bucket is this task's. With `packs_spills` runs do not travel:
    they come as they are, and are compressed where they go to disk.
    """

    stage: WriteStage
    idle: tuple[BucketId, ...] = ()
    among: Destination | None = None
    packs_spills: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Routed rows in, results out: one row of messages a bucket, one of statistics a task."""
        started = time.monotonic()
        number = -1 if self.among is None else task_number()
        write, rows = self.stage.write, 0
        news: dict[BucketId, bytes] = {}
        with RunBuffer(
            budget_bytes=write.merge_memory_bytes, directory=write.local_directory, packs_spills=self.packs_spills
        ) as buffer:
            for batch in batches:
                for kind, run in read_routed(batch):
                    if kind == RUN:
                        buffer.add(run)
                        rows += run.consumed_rows
                    elif kind == NEWS:
                        news[run.partition, run.bucket] = run.blob
                    else:
                        yield result(kind, run.blob)
            received = time.monotonic()
            busy: set[BucketId] = set()
            for made in write_buckets(self.stage, buffer, news):
                if isinstance(made, SnapshotNote):
                    yield result(NOTE, made.token.encode())
                    continue
                busy.add((made.partition, made.bucket))
                yield result(MESSAGES, encode_messages([made]))
            for bucket_id in self.idle:
                if bucket_id not in busy and self.among is not None and self.among.task(*bucket_id) == number:
                    idle = IdleBucket(write, bucket_id, self.stage.states[bucket_id])
                    yield result(MESSAGES, encode_messages([idle.message()]))
        yield stats_result(
            TaskStats(
                accepted_rows=rows,
                receive_seconds=received - started,
                write_seconds=time.monotonic() - received,
                spilled_bytes=buffer.spilled_bytes,
            )
        )
