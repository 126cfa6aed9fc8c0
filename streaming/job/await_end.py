"""Starts the query of a job, and waits until it is done, fails, or is asked to end.

With the trigger availableNow, the job may first need a query that only repeats the unfinished batch of the job's last
run. Spark's availableNow notes at its start which partitions exist, and refuses a batch that lacks one of them. An
unfinished batch lacks the partitions that were added after it was planned, so without the first query every start of
the job would fail.

Source: Spark 4.0 KafkaMicroBatchStream.verifyEndOffsetForTriggerAvailableNow, Trigger.Once.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import Trigger
from bucketline.streaming.batch.failure import SparkFailedError, explain
from bucketline.streaming.batch.identity import newest_done_batch, newest_planned_batch
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.gate import BatchGate
from bucketline.streaming.job.kafka.kafka_checkpoint import read_offsets
from bucketline.streaming.job.start.silence import Silence

_LOG = logging.getLogger("bucketline.job")
_POLL_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STOP_TIMEOUT, _NO_LIMIT, _LONGEST_STOP = "spark.sql.streaming.stopTimeout", "0", "5s"
_LATE = "java.util.concurrent.TimeoutException"


Partitions = Callable[[], Mapping[str, Sequence[str]]]


class QueryWatch(Protocol):
    """An object whose `watch` is called again and again while a query runs, to look at the query."""

    def watch(self, query: Any, batch: BatchGate, /) -> None: ...


def queries(writer: Any, trigger: Trigger, spark: Any, checkpoint: str, partitions: Partitions) -> Iterator[Any]:
    """Starts and yields the queries of a job one after the other; the next query starts when the caller asks for it.
    Most jobs have one query. `partitions` returns the partitions of a Kafka source by topic; empty for other sources.
    """
    if trigger.interval_ms is not None:
        yield writer.trigger(processingTime=f"{trigger.interval_ms} milliseconds").start()
        return
    if _lacks_partitions(spark, checkpoint, partitions):
        _LOG.info("partitions were added after the last batch was planned: this batch is repeated first, without them")
        yield writer.trigger(once=True).start()
    yield writer.trigger(availableNow=True).start()


def _lacks_partitions(spark: Any, checkpoint: str, partitions: Partitions) -> bool:
    """Returns True if the newest planned batch is not done and lacks partitions that Kafka has now."""
    planned = newest_planned_batch(spark, checkpoint)
    done = newest_done_batch(spark, checkpoint)
    if planned is None or (done is not None and done >= planned):
        return False
    now = partitions()
    known = read_offsets(spark, checkpoint) if now else {}
    return any(not {*numbers} <= known.get(topic, {}).keys() for topic, numbers in now.items())


def await_end(query: Any, gate: BatchGate, ending: Ending, silence: Silence, *watches: QueryWatch) -> None:
    """Waits until the query is done. If the job is asked to end, the running batch is finished, and then the query is
    stopped. Raises the error that stopped the query.

    Several times a second, each of `watches` is called with the query; this ends when the job is asked to end.
    """
    silence.doing(None)
    free_since: float | None = None
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            if ending.asked_by is None:
                for each in watches:
                    each.watch(query, gate)
            elif not gate.is_closed:
                gate.close()
                _LOG.info("%s: the job ends after the running batch", ending.asked_by)
                silence.doing("writing the last batch")
            elif not gate.is_busy:
                # When the sink has written a batch, Spark records that the batch is done. If this function waits for
                # that, the next start need not check whether the batch is in the table.
                free_since = free_since if free_since is not None else time.monotonic()
                silence.doing("waiting for Spark to end the query")
                late = time.monotonic() - free_since > _LONGEST_PAUSE_SECONDS
                if (late or gate.is_holding or not query.status["isTriggerActive"]) and not _stop(query):
                    return
    except (PySparkException, Py4JError, ConnectionError) as e:
        error = _error_of(e, gate.error)
        if ending.asked_by is None or not isinstance(error, SparkFailedError):
            raise error from e
        _LOG.warning(
            "%s: the running batch was not finished; the next start of the job writes it: %s",
            ending.asked_by,
            error.message,
        )
    except BaseException:
        query.stop()
        raise


def _stop(query: Any) -> bool:
    """Stops a query that runs no batch. Returns True if the query has ended.

    Spark closes its Kafka client when it stops a query. The client waits until a broker answers, and this may take
    forever. So Spark may wait for the end of the query for five seconds, or for the time in
    `spark.sql.streaming.stopTimeout` if the user has set this option. A query that has not ended by then ends with
    the JVM; none of its batches can reach the sink any more.
    """
    settings = query._jsq.sparkSession().conf()
    is_ours = str(settings.get(_STOP_TIMEOUT, _NO_LIMIT)) == _NO_LIMIT
    if is_ours:
        settings.set(_STOP_TIMEOUT, _LONGEST_STOP)
    try:
        query.stop()
    except Py4JJavaError as e:
        if not str(e.java_exception.toString()).startswith(_LATE):
            raise
        _LOG.warning(
            "Spark could not end the query in time, most often because no Kafka broker answers; no batch was running, "
            "and the next start of the job continues after the last batch"
        )
        return False
    finally:
        if is_ours:
            settings.unset(_STOP_TIMEOUT)
    return True


def _error_of(error: Exception, of_sink: BaseException | None) -> BucketlineError:
    """Returns the error of a failed query. This is the error that the sink has raised, if it has raised one; otherwise
    the error that Spark has raised.
    """
    if isinstance(of_sink, BucketlineError) and not isinstance(of_sink, SparkFailedError):
        return of_sink
    return explain(error, of_sink)
