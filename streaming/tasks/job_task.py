"""Jobs in Spark tasks, one task each: idle buckets that are compacted, items of compaction plans."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketline.state.commit.message import encode_messages
from bucketline.state.store.engine.engine import Job
from bucketline.streaming.tasks.read_task import drain, task_number
from bucketline.streaming.tasks.wire import MESSAGES, result


@dataclass(frozen=True, slots=True)
class JobTask:
    """Does the job whose place in the list is the number of the task."""

    jobs: tuple[Job, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The message of the job, as one result row."""
        drain(batches)
        yield result(MESSAGES, encode_messages([self.jobs[task_number()].message()]))
