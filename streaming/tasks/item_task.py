"""Items of compaction plans in Spark tasks: one task each, their messages back in the order of the items."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.state.commit.message import CommitMessage, decode_messages, encode_messages
from bucketline.state.store.plans.item_work import BucketJob, do_item
from bucketline.streaming.tasks.read_task import drain, task_number
from bucketline.streaming.tasks.worker import in_worker

_RESULT_DDL = "number int, payload binary"
_RESULT = pa.schema([("number", pa.int32()), ("payload", pa.binary())])


@dataclass(frozen=True, slots=True)
class ItemTask:
    """Does the item whose place in the list is the number of the task."""

    jobs: tuple[BucketJob, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        drain(batches)
        own = task_number()
        payload = encode_messages([do_item(self.jobs[own])])
        yield pa.record_batch([pa.array([own], pa.int32()), pa.array([payload], pa.binary())], schema=_RESULT)


@dataclass(frozen=True, slots=True)
class SparkItems:
    """Does items in tasks of a Spark application."""

    spark: Any

    @property
    def parallelism(self) -> int:
        """Tasks that Spark runs at a time."""
        return max(1, int(self.spark.sparkContext.defaultParallelism))

    def run(self, jobs: Sequence[BucketJob]) -> Sequence[CommitMessage]:
        """The messages of the jobs; an error is that of the first task that failed too often, and nothing is committed.

        What other tasks have written then is left for orphan removal.
        """
        count = len(jobs)
        frame = self.spark.range(0, count, 1, count).mapInArrow(in_worker(ItemTask(tuple(jobs))), _RESULT_DDL)
        found = {row["number"]: bytes(row["payload"]) for row in frame.collect()}
        return [decode_messages(found[number])[0] for number in range(count)]
