"""Jobs in Spark tasks, one task each: idle buckets that are compacted, items of compaction plans."""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark import cloudpickle

from bucketline.state.commit.message import encode_messages
from bucketline.state.store.engine.engine import GivenBack, Job
from bucketline.streaming.tasks.read_task import task_number
from bucketline.streaming.tasks.wire import GIVEN_BACK, MESSAGES, Result


@dataclass(frozen=True, slots=True)
class JobTask:
    """Does the job whose place in the list is the number of the task. Jobs are pickled one by one: a task unpickles its
    own alone.
    """

    jobs: tuple[bytes, ...]

    def __call__(self) -> Iterator[Result]:
        """The message of the job, as one result; or that it was given back, as in `WriteTask`."""
        job: Job = pickle.loads(self.jobs[task_number()])
        try:
            result = Result(MESSAGES, encode_messages([job.message()]))
        except GivenBack as e:
            result = Result(GIVEN_BACK, str(e).encode())
        yield result


def job_task(jobs: Iterable[Job]) -> JobTask:
    """The task that does these jobs."""
    return JobTask(tuple(cloudpickle.dumps(job) for job in jobs))
