"""A Spark job whose tasks get only bytes from Spark: the messages of other tasks, or the items of an RDD of bytes.

The job consists of RDDs: bytes go from a task to Spark's shuffle and to the next task unchanged. A query of DataFrames
would have to be planned and compiled for each job, and would turn each value into Arrow, into a row and back. Source:
Spark 4.0 pyspark.RDD (RDD.partitionBy, PipelinedRDD), PairwiseRDD, PythonPartitioner, PythonRunner.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import RDD, cloudpickle
from pyspark.serializers import CloudPickleSerializer, NoOpSerializer, pack_long
from pyspark.traceback_utils import SCCallSiteSync

from bucketline.conf.option import parse_bool
from bucketline.state.commit.message import encode_messages
from bucketline.state.store.engine.engine import GivenBack, TaskJob
from bucketline.streaming.tasks.read_task import drain, task_number
from bucketline.streaming.tasks.wire import (
    GIVEN_BACK,
    MESSAGES,
    Next,
    Routed,
    TaskResult,
    pack,
    pack_result,
    unpack,
    unpack_result,
)
from bucketline.streaming.worker import begin_task

FirstOfNothing = Callable[[], Iterator[Any]]
"""A task of the first stage. It yields Routed messages, or TaskResult if the job has only this stage."""

FirstOfBytes = Callable[[Iterator[bytes]], Iterator[Any]]
"""A task of the first stage for a job that has an RDD. The task takes the items of a partition, and yields the same as
a FirstOfNothing.
"""

SIMPLE_TRACEBACKS = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
_BROADCAST_BYTES = 1 << 20
"""The job's data for its tasks is broadcast if it has more bytes than this, as in PySpark."""
_END = b""
"""The last message of a task in the last stage."""
_AS_IN_QUERIES = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
"""The environment of workers of queries. Spark keeps workers with another environment apart, so a job that also runs
queries would have twice as many workers.
"""


def bytes_job(
    spark: Any, count: int, first: FirstOfNothing, after: Sequence[tuple[int, Next]] = ()
) -> list[TaskResult]:
    """Runs `count` tasks without input, and then one stage of tasks for each element of `after`. A task of a later
    stage gets the messages that tasks of the stage before have addressed to it.

    An element of `after` has the number of tasks in the stage, and the function that each of these tasks calls.
    Returns the results of the last stage, in the order of the tasks. Raises Py4JNetworkError if Spark's JVM ends
    before it has passed on all results.
    """
    return rdd_job(spark, nothing(spark, count), count, WithoutInput(first), after)


def nothing(spark: Any, count: int) -> Any:
    """Returns a Java RDD with `count` partitions and no items."""
    context = spark.sparkContext
    return context._jsc.parallelize(java_classes(context._jvm).array_list(), count)


def rdd_job(
    spark: Any, rdd: Any, count: int, first: FirstOfBytes, after: Sequence[tuple[int, Next]] = ()
) -> list[TaskResult]:
    """Runs a job like `bytes_job`, but the first stage gets the `count` partitions of a Java RDD of bytes: each task of
    `first` gets the items of one partition. `after` means the same as in `bytes_job`.
    """
    context, parent = spark.sparkContext, rdd
    last_count = after[-1][0] if after else count
    simple = is_simplified(spark)
    steps: list[_Step] = [FirstStep(first, sends=bool(after))]
    steps += [NextStep(task, sends=number < len(after)) for number, (_, task) in enumerate(after, 1)]
    java = java_classes(context._jvm)
    with ExitStack() as job, SCCallSiteSync(context):
        for step, (task_count, _) in zip(steps, after, strict=False):
            pairs = java.pairwise_rdd(python_rdd_of(job, context, parent, step, simple)).asJavaPairRDD()
            parent = java.python_rdd.valueOfPair(pairs.partitionBy(java.partitioner(task_count, 0)))
        last = python_rdd_of(job, context, parent, steps[-1], simple).asJavaRDD()
        said: list[bytes] = RDD(last, context, NoOpSerializer()).collect()
    return results_of(said, last_count)


def results_of(said: Sequence[bytes], task_count: int) -> list[TaskResult]:
    """Returns the results of `task_count` tasks. Raises Py4JNetworkError if some results are missing, because PySpark
    takes the end of the connection for the end of the results.
    """
    if said.count(_END) != task_count:
        raise Py4JNetworkError(
            f"only {said.count(_END)} of {task_count} tasks have sent all their results: Spark's JVM has "
            "ended meanwhile"
        )
    return [unpack_result(data) for data in said if data != _END]


def is_simplified(spark: Any) -> bool:
    """Returns True if the session asks for short tracebacks. Spark's queries pass this setting to their workers; jobs
    of RDDs have to pass it themselves.
    """
    return parse_bool(spark.conf.get(SIMPLE_TRACEBACKS, "true"))


@dataclass(frozen=True, slots=True)
class WithoutInput:
    """A task without input."""

    task: FirstOfNothing

    def __call__(self, items: Iterator[bytes]) -> Iterator[Any]:
        drain(items)
        return self.task()


@dataclass(frozen=True, slots=True)
class FirstStep:
    """Wraps a task of the first stage as the function that a worker calls. The items that Spark passes to the task are
    read to the end, even if the task does not use them, because Spark would not use the worker again otherwise.
    """

    task: FirstOfBytes
    sends: bool

    def __call__(self, split: int, items: Iterator[bytes]) -> Iterator[bytes]:
        begin_task()
        yield from _packed(self.task(items), self.sends)
        drain(items)


@dataclass(frozen=True, slots=True)
class NextStep:
    """The function that a Spark worker calls for a task of the second or a later stage. It unpacks the messages for
    the task, calls `task`, and packs the results. `sends` is true if the results are messages to tasks of a further
    stage.
    """

    task: Next
    sends: bool

    def __call__(self, split: int, items: Iterator[bytes]) -> Iterator[bytes]:
        begin_task()
        yield from _packed(self.task(map(unpack, items)), self.sends)


_Step = FirstStep | NextStep


def _packed(said: Iterator[Any], sends: bool) -> Iterator[bytes]:
    """Yields the items that a task yields as bytes. If `sends` is true, the items are messages to tasks of the next
    stage, and the number of the receiving task comes before each message. Otherwise the items are results for the
    driver.
    """
    if not sends:
        yield from map(pack_result, said)
        yield _END
        return
    routed: Routed
    for routed in said:
        yield pack_long(routed.task)
        yield pack(routed)


def python_rdd_of(job: ExitStack, context: Any, parent: Any, step: _Step, simple_tracebacks: bool) -> Any:
    """Returns an RDD in the JVM with the results of `step`, a Python function that is applied to the items of the RDD
    `parent`. Items and results are bytes. If `simple_tracebacks` is true, errors have short tracebacks.

    A large function is sent as a broadcast. The broadcast is destroyed when the block `job` ends; otherwise its file
    would stay on the driver as long as the application runs.
    """
    pickler = CloudPickleSerializer()
    command: bytes = pickler.dumps((step, None, NoOpSerializer(), NoOpSerializer()))
    if len(command) > _BROADCAST_BYTES:
        broadcast = context.broadcast(command)
        job.callback(_destroy, broadcast)
        command = pickler.dumps(broadcast)
    broadcasts = [b._jbroadcast for b in context._pickled_broadcast_vars]
    context._pickled_broadcast_vars.clear()
    java = java_classes(context._jvm)
    function = java.function(
        bytearray(command),
        {**context.environment, **(_AS_IN_QUERIES if simple_tracebacks else {})},
        context._python_includes,
        context.pythonExec,
        context.pythonVer,
        broadcasts,
        context._javaAccumulator,
    )
    return java.python_rdd(parent.rdd(), function, False, False)


def _destroy(broadcast: Any) -> None:
    """Destroys a broadcast. Errors are ignored if Spark has ended: then the broadcast has ended too, and the error of
    the job itself is the one to report.
    """
    with suppress(Py4JError, OSError):
        broadcast.destroy()


@dataclass(frozen=True, slots=True)
class _Classes:
    """The JVM classes that jobs need."""

    array_list: Any
    function: Any
    pairwise_rdd: Any
    partitioner: Any
    python_rdd: Any


@lru_cache(1)
def java_classes(jvm: Any) -> _Classes:
    """Returns the JVM classes that jobs need. They are looked up once, because Py4J searches each package in turn for a
    short name.
    """
    return _Classes(
        jvm.java.util.ArrayList, jvm.SimplePythonFunction, jvm.PairwiseRDD, jvm.PythonPartitioner, jvm.PythonRDD
    )


@dataclass(frozen=True, slots=True)
class JobTask:
    """A task that does one of the `jobs`: the task with number n does job n. Jobs are pickled one by one, so a task
    unpickles only its own job.
    """

    jobs: tuple[bytes, ...]

    def __call__(self) -> Iterator[TaskResult]:
        """Does the job whose number is the number of this Spark task, and yields one result. The result holds the
        commit message of the job. If the job was given back to the driver, the result says so, as in `WriteTask`.
        """
        job: TaskJob = pickle.loads(self.jobs[task_number()])
        try:
            result = TaskResult(MESSAGES, encode_messages([job.message()]))
        except GivenBack as e:
            result = TaskResult(GIVEN_BACK, str(e).encode())
        yield result


def job_task(jobs: Iterable[TaskJob]) -> JobTask:
    """Returns the function that Spark's tasks call to do the jobs: task number i does job number i."""
    return JobTask(tuple(cloudpickle.dumps(job) for job in jobs))
