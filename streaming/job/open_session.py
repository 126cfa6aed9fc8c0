"""The Spark session of a query. While it is open, signals to this process and to Spark's JVM are handled.

Signals to Spark's JVM are passed on to Python, because under spark-submit a supervisor knows only the JVM.
"""

import logging
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started

from bucketline.conf.spark_options import check_spark_settings
from bucketline.streaming.batch.failure import SparkLog
from bucketline.streaming.batch.preflight import require_classic
from bucketline.streaming.job.ending import Ending, signals_to
from bucketline.streaming.job.session import awaited_packages, end_session, start_session, submit_arguments
from bucketline.streaming.job.spark_log import spark_log
from bucketline.streaming.job.start.silence import Silence

_LOG = logging.getLogger("bucketline.job")
_SIGNALS = ("TERM", "INT", "HUP")


@contextmanager
def open_session(
    name: str,
    spark: Any | None,
    ending: Ending,
    log: SparkLog,
    silence: Silence,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Yields `spark`, or a new session with that name and settings if `spark` is None. A new session is stopped at the
    end. While the session is open, a signal lets the job end after the running batch.
    """
    if spark is not None:
        with _listening(spark, ending, log):
            yield spark
        return
    packages = awaited_packages(submit_arguments())
    _LOG.info("starting Spark%s", f", which first fetches {packages}" if packages else "")
    silence.doing("starting Spark")
    session = start_session(name, settings)
    with signals_to(ending), _listening(session, ending, log):  # again, as PySpark has taken SIGINT for itself
        _LOG.info("Spark %s is up: %s", session.version, session.sparkContext.master)
        try:
            yield session
        finally:
            silence.doing("ending Spark")
            end_session(session)


@contextmanager
def _listening(session: Any, ending: Ending, log: SparkLog) -> Iterator[None]:
    require_classic(session)
    context = session.sparkContext
    for line in check_spark_settings(dict(context.getConf().getAll())):
        _LOG.warning("%s", line)
    ensure_callback_server_started(context._gateway)
    with spark_log(context, log), jvm_signals_to(ending, context._jvm):
        ending.session_is_up()
        yield


class _JvmHandler:
    """The object that Java calls when a signal arrives, in a thread of its own."""

    def __init__(self, ending: Ending, number: signal.Signals) -> None:
        self._ending, self._number = ending, number

    def handle(self, number: Any) -> None:
        del number
        self._ending.ask(self._number)

    class Java:
        implements = ("sun.misc.SignalHandler",)


@contextmanager
def jvm_signals_to(ending: Ending, jvm: Any) -> Iterator[None]:
    """Sends the signals of Spark's JVM to `ending`, so that they do not end the JVM during a batch.

    Python's callback server must run. A signal that the JVM ignores stays ignored. If the JVM leaves a signal to the
    system (-Xrs), a warning is logged.
    """
    java = jvm.sun.misc
    before = {}
    for name in _SIGNALS:
        try:
            handler = _JvmHandler(ending, signal.Signals[f"SIG{name}"])
            before[name] = java.Signal.handle(java.Signal(name), handler)
        except Py4JJavaError as e:
            _LOG.warning(
                "the JVM does not let this job catch SIG%s, so the signal ends the job in the middle of a batch: %s",
                name,
                e.java_exception.getMessage(),
            )
    try:
        yield
    finally:
        for name, handler in before.items():
            with suppress(Py4JError, ConnectionError):  # the JVM may have ended
                java.Signal.handle(java.Signal(name), handler)
