"""Starts Spark's Python workers before the first batch needs them. Otherwise the first batch waits two to three seconds
until they have started and have loaded the modules of its tasks.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from bucketline.streaming.tasks.bytes_job import FirstOfNothing, bytes_job
from bucketline.streaming.tasks.wire import TaskResult

_PARALLELISM, _FEW = "spark.default.parallelism", 8

_BEGUN: set[str] = set()
"""The ids of the Spark applications for which this process has started workers."""
_lock = threading.Lock()


def start_workers(spark: Any, loads: tuple[type, ...]) -> None:
    """Starts as many Python workers as Spark can run tasks at the same time, or only a few if Spark does not tell that
    number. Spark keeps the workers for the first batch. Each worker loads the modules of the classes in `loads`.
    """
    run_everywhere(spark, _Start(loads))


def session_of_program() -> Any | None:
    """Returns the active Spark session of this process; None if there is none, or if its JVM does not answer."""
    with suppress(Exception):
        return SparkSession.getActiveSession()
    return None


def start_workers_beside(
    spark: Any | None, loads: tuple[type, ...], begun: set[str] = _BEGUN
) -> threading.Thread | None:
    """Starts the Python workers of a Spark session in a thread, and does not wait for them. Returns the thread.

    Does nothing and returns None if `spark` is None, or if the workers of this Spark application were started before:
    `begun` has the ids of such applications. Errors are ignored, because the first batch starts the workers that are
    missing.
    """
    with suppress(Exception):  # a session that has ended has no application
        if spark is not None and _begin(spark, begun):
            thread = threading.Thread(target=_start, args=(spark, loads), name="bucketline-workers", daemon=True)
            thread.start()
            return thread
    return None


def run_everywhere(spark: Any, task: FirstOfNothing) -> list[bytes]:
    """Runs copies of `task`, as many as Spark can run at the same time, or only a few if Spark does not tell that
    number. Returns the payloads of all results. Afterwards `start_workers_beside` starts no workers for this Spark
    application, because the copies of `task` have started them.
    """
    _begin(spark, _BEGUN)
    return [result.payload for result in bytes_job(spark, _at_a_time(spark.sparkContext), task)]


def _begin(spark: Any, begun: set[str]) -> bool:
    """Adds the id of the Spark application to `begun`. Returns True if the id was not in `begun` before."""
    application = spark.sparkContext.applicationId
    with _lock:
        is_first = application not in begun
        begun.add(application)
    return is_first


def _start(spark: Any, loads: tuple[type, ...]) -> None:
    with suppress(Exception):  # the session may have ended
        spark.sparkContext.setJobDescription("bucketline: Python workers start")
        try:
            start_workers(spark, loads)
        finally:
            # Without PYSPARK_PIN_THREAD all threads of the program share the description.
            spark.sparkContext.setJobDescription(None)


def _at_a_time(context: Any) -> int:
    """Returns how many tasks can run at a time, at least one.

    Spark does not tell this number if `spark.default.parallelism` is set: it tells the value of this setting, which may
    be too large. The result is then at most a few tasks, because the first batch waits for these tasks.
    """
    tasks = max(1, int(context.defaultParallelism))
    return tasks if context.getConf().get(_PARALLELISM) is None else min(tasks, _FEW)


@dataclass(frozen=True, slots=True)
class _Start:
    """A task that only reports that it runs. A worker that gets the task loads the modules of the classes in `loads`,
    because the task holds these classes.
    """

    loads: tuple[type, ...]

    def __call__(self) -> Iterator[TaskResult]:
        yield TaskResult("up", b"")
