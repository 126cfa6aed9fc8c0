"""Spark's log while a job runs. Errors that the job reports itself are not printed again with tracebacks."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Any

from py4j.protocol import Py4JError

from bucketline.streaming.batch.failure import SparkLog

_LEVELS: Mapping[str, str] = {
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution": "OFF",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution": "OFF",
    "org.apache.spark.executor.Executor": "OFF",
    "org.apache.spark.util.Utils": "OFF",
    "org.apache.spark.scheduler.TaskSetManager": "WARN",
    "org.apache.spark.scheduler.DAGScheduler": "ERROR",
    "org.apache.spark.sql.execution.python": "ERROR",
    "org.apache.spark.sql.execution.python.ArrowPythonRunner": "OFF",
    "org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin": "ERROR",
    "org.apache.spark.sql.kafka010.KafkaOffsetReaderConsumer": "ERROR",
}
"""Loggers that print the error of a task or of the query, with its traceback (their packages differ by Spark version).
Some of them also warn at every stop and every failed task (no job to cancel, interrupted tasks), or each time that
Kafka did not answer a request for offsets. `ArrowPythonRunner` of Spark 3.5 prints two tracebacks when Spark cannot
read the rows that a task needs.
"""
_REPORTED_BY_US = r"(?s)(.*\n\s+(at |File \").*|(\[.*\] )?Task \d+ in stage .* failed \d+ times; aborting job.*)"
"""Messages that contain a traceback of Java or Python: several loggers repeat the error of a task. Spark 4.3 puts the
name of the query in front of a message. Messages about lost executors are kept.
"""
_PYTHON_REPEATING = "py4j"


@contextmanager
def spark_log(context: Any, log: SparkLog) -> Iterator[None]:
    """Keeps Spark and Py4J from logging errors that the job reports in one line, unless `log` is EVERYTHING."""
    if log is SparkLog.EVERYTHING:
        yield
        return
    python, root = logging.getLogger(_PYTHON_REPEATING), logging.getLogger()
    python_before = python.level
    python.setLevel(logging.CRITICAL + 1)
    root.addFilter(_is_not_of_py4j)
    accumulators = getattr(context, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.handle_error = _say_nothing
    log4j = context._jvm.org.apache.logging.log4j
    result = getattr(log4j.core, "Filter$Result")
    reported = log4j.core.filter.RegexFilter.createFilter(_REPORTED_BY_US, None, False, result.DENY, result.NEUTRAL)
    before = _quiet(log4j, reported)
    try:
        yield
    finally:
        with suppress(Py4JError, ConnectionError):
            _restore(log4j, reported, before)
            # If the JVM has ended, this is not reached and the settings stay: threads still log their failed calls.
            python.setLevel(python_before)
            root.removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Returns False for a log record of Py4J. Py4J logs a call without an answer, and its traceback, through Python's
    root logger.
    """
    return PurePath(record.pathname).parent.name != _PYTHON_REPEATING


def _say_nothing(request: object, address: object) -> None:
    """Replaces the function with which PySpark's server prints a traceback when the JVM has ended. This function prints
    nothing.
    """


def _quiet(log4j: Any, reported: Any) -> dict[str, Any]:
    """Sets the levels of Spark's loggers, and adds a filter for `reported` messages. Returns the former level of each
    logger; None if a logger had no level of its own.
    """
    context = log4j.LogManager.getContext(False)
    config = context.getConfiguration()
    before = {}
    for name, level in _LEVELS.items():
        own = config.getLoggerConfig(name)
        before[name] = own.getLevel() if own.getName() == name else None
        log4j.core.config.Configurator.setLevel(name, log4j.Level.valueOf(level))
    config.getRootLogger().addFilter(reported)
    context.updateLoggers()
    return before


def _restore(log4j: Any, reported: Any, before: Mapping[str, Any]) -> None:
    context = log4j.LogManager.getContext(False)
    config = context.getConfiguration()
    config.getRootLogger().removeFilter(reported)
    for name, level in before.items():
        own = config.getLoggerConfig(name)
        if own.getName() != name:
            continue
        if level is None:
            config.removeLogger(name)
        else:
            own.setLevel(level)
    context.updateLoggers()
