"""The streaming job of a job file: table → source → sink → query, until it is done or told to end.

SIGTERM and SIGINT end the job after the batch that is running; a second one does not wait. The signal must reach this
process: under spark-submit that is the Python process, not the JVM that started it. A job that dies in the middle of
a batch loses nothing: the next start recognises what has been written.
"""

import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.job import JobConfig, Trigger
from bucketline.conf.resolve import show_settings
from bucketline.conf.source_options import (
    KAFKA,
    SourceOptions,
    find_option,
    source_identity,
    source_options,
    start_at,
)
from bucketline.conf.spark_options import check_spark_settings
from bucketline.state.store.table import Table
from bucketline.streaming.job_check import check_job, sink_options_of
from bucketline.streaming.job_table import decode_step, open_or_create
from bucketline.streaming.sink import TableSink
from bucketline.streaming.source import read_stream
from bucketline.streaming.table_offsets import Topics, newest_offsets

_LOG = logging.getLogger("bucketline.job")
_POLL_SECONDS = 0.2
_LAUNCHED_BY_SPARK = "PYSPARK_GATEWAY_PORT"
_PYTHON_OF_WORKERS = "PYSPARK_PYTHON"


class _EndAsked(Exception):
    """A batch has not begun because the job was told to end."""


class BatchGate:
    """Lets batches into a sink until `close` is called; remembers what one of them raised.

    Spark hands errors of a sink on as text; here the error itself is kept.
    """

    def __init__(self, sink: TableSink) -> None:
        self._sink = sink
        self._closed = threading.Event()
        self._running = threading.Lock()
        self.error: BaseException | None = None

    def __call__(self, batch: Any, batch_id: int) -> None:
        with self._running:
            if self._closed.is_set():
                raise _EndAsked
            try:
                self._sink(batch, batch_id)
            except BaseException as e:
                self.error = e
                raise

    def close(self) -> None:
        """Lets no further batch in; the one inside goes on."""
        self._closed.set()

    def finish(self, spark: Any, query_id: str) -> None:
        """Compacts what the batches of a query that has ended still owe, and says what readers do not see even then."""
        hidden = self._sink.finish(spark, query_id)
        if hidden:
            _LOG.warning("the job ends with %d rows that cannot be read yet; they are in the table", hidden)

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def is_busy(self) -> bool:
        return self._running.locked()


def run_job(
    config: JobConfig, spark: Any | None = None, *, reset_identity: bool = False, allow_reprocess: bool = False
) -> None:
    """Runs the job until its trigger is done (availableNow) or it is told to end.

    `reset_identity` sets the checkpoint aside and begins a new one at the Kafka offsets that the table holds;
    `allow_reprocess` writes batches that checkpoint and table disagree about.
    Raises BucketlineError for what the sink, the table or the settings make impossible, and Spark's own errors.
    """
    check_job(config)
    given = source_options(config.source)
    table = open_or_create(config)
    step = decode_step(config.source.decode, table.table_schema, config.bad_records)
    for line in given.advice:
        _LOG.warning("%s", line)
    for key, shown, origin in show_settings(config.settings):
        _LOG.info("%s = %s (%s)", key, shown, origin)
    session = spark if spark is not None else start_session(config)
    for line in check_spark_settings(dict(session.sparkContext.getConf().getAll())):
        _LOG.warning("%s", line)
    if reset_identity:
        given = _reset(session, config, given, table)
    stream = read_stream(session, config.source, given, table.table_schema.fields, step)
    gate = BatchGate(
        TableSink(
            config.table,
            options=sink_options_of(config),
            checkpoint=config.checkpoint,
            decode=step,
            source=source_identity(config.source),
            allow_reprocess=allow_reprocess,
            storage_options=config.storage,
        )
    )
    writer = stream.writeStream.foreachBatch(gate).option("checkpointLocation", config.checkpoint)
    with _ending(gate):
        query = _with_trigger(writer, config.trigger).start()
        _await_end(query, gate)
        if config.trigger.interval_ms is None and not gate.is_closed:
            gate.finish(session, str(query.id))


def start_session(config: JobConfig) -> Any:
    """The running Spark session, or a new one; workers get this Python unless someone has chosen another."""
    if _LAUNCHED_BY_SPARK not in os.environ:
        os.environ.setdefault(_PYTHON_OF_WORKERS, sys.executable)
    name = config.table.rstrip("/").rsplit("/", 1)[-1]
    return SparkSession.builder.appName(f"bucketline {name}").getOrCreate()


def _with_trigger(writer: Any, trigger: Trigger) -> Any:
    if trigger.interval_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{trigger.interval_ms} milliseconds")


def _await_end(query: Any, gate: BatchGate) -> None:
    """Returns when the query is done or has ended after a batch; raises what stopped it."""
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            if gate.is_closed and not gate.is_busy and not query.status["isTriggerActive"]:
                query.stop()
    except StreamingQueryException as e:
        if isinstance(gate.error, BucketlineError):
            raise gate.error from e
        if gate.error is None and gate.is_closed:
            return  # the gate has kept a batch out, as it was told to
        raise
    except BaseException:
        query.stop()
        raise


@contextmanager
def _ending(gate: BatchGate) -> Iterator[None]:
    """Closes the gate at the first SIGTERM or SIGINT; a second one has the effect it had before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def close(number: int, frame: FrameType | None) -> None:
        del frame
        _LOG.info("%s: the job ends after the batch that is running", signal.Signals(number).name)
        gate.close()
        _restore(before)

    for number in before:
        signal.signal(number, close)
    try:
        yield
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _reset(spark: Any, config: JobConfig, given: SourceOptions, table: Table) -> SourceOptions:
    """Sets the checkpoint aside; the options of a source that begins where the table has got to."""
    if config.source.format != KAFKA:
        raise OptionError(
            f"--reset-identity begins again at the Kafka offsets that the table holds, and the source is "
            f"{config.source.format!r}; restore the checkpoint, or use a new one with --allow-reprocess",
            key="source.format",
        )
    offsets = next((f for f in (_chosen(w.topics, given.options) for w in newest_offsets(table)) if f), None)
    if offsets is None:
        raise OptionError(
            f"--reset-identity: no snapshot or tag of {table.path} holds offsets of the topics of this job; set "
            "source.options.startingOffsets and a new checkpoint instead",
            key="checkpoint",
        )
    kept = set_aside(spark, config.checkpoint)
    if kept is not None:
        _LOG.warning("the checkpoint was set aside as %s", kept)
    text = json.dumps(offsets, separators=(",", ":"), sort_keys=True)
    _LOG.warning("a new checkpoint begins at the offsets that the table holds: %s", text)
    return replace(given, options=start_at(given.options, text))


def _chosen(topics: Topics, options: Mapping[str, str]) -> Topics:
    """Those of the topics that the source reads."""
    names, pattern, assigned = (find_option(options, key) for key in ("subscribe", "subscribePattern", "assign"))
    if names is not None:
        wanted = {name.strip() for name in names.split(",")}
        return {topic: found for topic, found in topics.items() if topic in wanted}
    if pattern is not None:
        return {topic: found for topic, found in topics.items() if re.fullmatch(pattern, topic)}
    chosen = json.loads(assigned or "{}")
    return {t: {p: o for p, o in found.items() if int(p) in chosen[t]} for t, found in topics.items() if t in chosen}


def set_aside(spark: Any, checkpoint: str) -> str | None:
    """Renames a checkpoint folder so that a new one can take its place; the new name, None when there is no folder.

    Raises OptionError when the storage does not rename it.
    """
    context = spark.sparkContext
    new_path = context._jvm.org.apache.hadoop.fs.Path
    location = new_path(checkpoint)
    files = location.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(location):
        return None
    number = 1
    while files.exists(new_path(f"{checkpoint.rstrip('/')}.before-reset-{number}")):
        number += 1
    kept = f"{checkpoint.rstrip('/')}.before-reset-{number}"
    if not files.rename(location, new_path(kept)):
        raise OptionError(f"the checkpoint {checkpoint} could not be renamed to {kept}; move it away", key="checkpoint")
    return kept
