"""A Spark job with one shuffle, run in two steps. In the first step, one task of the second stage passes to the driver
what the first stage has sent to it. In the second step the other tasks of the second stage run.

In the first step Spark has to run all tasks of the first stage, and keeps what they have sent in the files of the
shuffle. The second step runs over the same RDD: Spark finds these files, and runs no task of the first stage again,
unless files are lost with their executor.

Source: Spark 4.0 DAGScheduler (stages whose shuffle files exist are skipped), SparkContext.runJob of PySpark.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.traceback_utils import SCCallSiteSync

from bucketline.streaming.tasks.bytes_job import (
    FirstOfBytes,
    FirstOfNothing,
    FirstStep,
    NextStep,
    WithoutInput,
    is_simplified,
    java_classes,
    nothing,
    python_rdd_of,
    results_of,
)
from bucketline.streaming.tasks.wire import Next, TaskResult


class TwoSteps:
    """The two stages of a Spark job. `first` is the function that the tasks of the first stage run, and `count` is the
    number of tasks in the second stage. Use the object in a `with` block, which frees the data that the first stage has
    sent.
    """

    def __init__(self, spark: Any, rdd: Any, first: FirstOfBytes, count: int) -> None:
        self._spark, self._context = spark, spark.sparkContext
        self._simple = is_simplified(spark)
        self._open = ExitStack()
        java = java_classes(self._context._jvm)
        with SCCallSiteSync(self._context):
            step = FirstStep(first, sends=True)
            read = python_rdd_of(self._open, self._context, rdd, step, self._simple)
            pairs = java.pairwise_rdd(read).asJavaPairRDD()
            self._sent = java.python_rdd.valueOfPair(pairs.partitionBy(java.partitioner(count, 0)))

    def run(self, task: Next, numbers: Sequence[int]) -> list[TaskResult]:
        """Runs `task` in the tasks of the second stage that have these `numbers`, and returns their results."""
        if not numbers:
            return []
        with ExitStack() as job, SCCallSiteSync(self._context):
            step = NextStep(task, sends=False)
            last = python_rdd_of(job, self._context, self._sent, step, self._simple).asJavaRDD()
            said = self._context.runJob(_AsItIs(last, self._context, NoOpSerializer()), None, list(numbers))
        return results_of(list(said), len(numbers))

    def __enter__(self) -> "TwoSteps":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def steps_without_input(spark: Any, tasks: int, first: FirstOfNothing, count: int) -> TwoSteps:
    """Returns the two steps of a job whose first stage gets no records from Spark. The first stage runs `first` in
    `tasks` tasks, which find their input themselves. `count` is the number of tasks in the second stage.
    """
    return TwoSteps(spark, nothing(spark, tasks), WithoutInput(first), count)


class _AsItIs(RDD):  # type: ignore[misc]
    """An RDD that `runJob` runs as it is. On another RDD, `runJob` calls `mapPartitions` to add a step, and this step
    would start a second Python worker for each task.
    """

    def mapPartitions(self, f: Any, preservesPartitioning: bool = False) -> "_AsItIs":
        return self
