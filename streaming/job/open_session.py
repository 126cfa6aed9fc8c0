"""The session of a query, with signals of both processes handled."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started

from bucketline.conf.spark_options import check_spark_settings
from bucketline.streaming.batch.failure import SparkLog
from bucketline.streaming.batch.preflight import require_classic
from bucketline.streaming.job.ending import Ending, signals_to
from bucketline.streaming.job.jvm_signals import jvm_signals_to
from bucketline.streaming.job.session import awaited_packages, end_session, start_session, submit_arguments
from bucketline.streaming.job.spark_log import spark_log
from bucketline.streaming.job.start.silence import Silence

_LOG = logging.getLogger("bucketline.job")


@contextmanager
def open_session(
    name: str,
    spark: Any | None,
    ending: Ending,
    log: SparkLog,
    silence: Silence,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """The given session, or a new one with that name and settings, which is stopped at the end. While it is open,
    requests to end wait for the running batch.
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
