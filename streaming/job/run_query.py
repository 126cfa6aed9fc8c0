"""Runs the query of a job: starts it, waits for its end, and then does the compactions that are still due."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bucketline.conf.job import JobConfig
from bucketline.conf.secrets import mask_text
from bucketline.conf.sources.source_options import KAFKA, kafka_source
from bucketline.conf.wording import counted
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.job.await_end import Partitions, await_end, queries
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.gate import BatchGate
from bucketline.streaming.job.kafka.kafka_failure import kafka_failures
from bucketline.streaming.job.kafka.partition_lag import PartitionLag
from bucketline.streaming.job.start.silence import Silence
from bucketline.streaming.job.start_report import StartReport

_LOG = logging.getLogger("bucketline.job")


@dataclass(frozen=True, slots=True)
class Around:
    """The parts of a job's run that do not belong to its query: the name of the job, the object that asks the job to
    end, and the reports of the job's progress.
    """

    name: str
    ending: Ending
    silence: Silence
    log: SparkLog
    lag: PartitionLag


@dataclass(frozen=True, slots=True)
class QuerySink:
    """The sink of a query. `write` is the function that the query calls with each batch (`foreachBatch`). `finish` does
    the compactions that are still due after the query with the given id has ended, and returns the number of rows that
    readers still do not see. `stop` frees the threads and clients of the sink.
    """

    write: Any
    finish: Callable[[str], int]
    stop: Callable[[str], None]


def run_query(
    around: Around,
    session: Any,
    config: JobConfig,
    options: Mapping[str, str],
    partitions: Partitions,
    *,
    read: Callable[[], Any],
    sink: QuerySink,
) -> None:
    """Runs the query until its trigger is done, or the job is asked to end. `options` are the options of the source,
    `read` returns the DataFrame of the source, and `partitions` returns the partitions of a Kafka source.
    """
    kafka = config.source.format == KAFKA
    gate = BatchGate(sink.write)
    with kafka_failures(options if kafka else None), explained():
        writer = read().writeStream.foreachBatch(gate).option("checkpointLocation", config.checkpoint)
        _LOG.info("starting the query: reading from %s", source_name(config.source.format, options))
        running = queries(writer, config.trigger, session, config.checkpoint, partitions if kafka else dict)
        query = next(running)
    try:
        with kafka_failures(options if kafka else None):
            starting = StartReport(kafka=servers_of(options) if kafka else None)
            await_end(query, gate, around.ending, around.silence, starting, around.lag)
            for query in () if gate.is_closed else running:
                await_end(query, gate, around.ending, around.silence, starting, around.lag)
        if config.trigger.interval_ms is None and not gate.is_closed:
            starting.end(gate)
            around.silence.doing("compacting what is due")
            hidden = sink.finish(str(query.id))
            if hidden:
                _LOG.warning(
                    "the job ends with %s that are in the table but cannot be read before a compaction",
                    counted(hidden, "row"),
                )
    finally:
        sink.stop(str(query.id))


def servers_of(options: Mapping[str, str]) -> str:
    """Returns the servers of a Kafka source, for messages."""
    return mask_text(kafka_source(options).servers or "")


def source_name(name: str, options: Mapping[str, str]) -> str:
    """Returns the source's name for messages; for Kafka its servers and topics."""
    if name != KAFKA:
        return name
    source = kafka_source(options)
    return f"Kafka at {servers_of(options)}, {'no topic' if source.topics_text is None else source.topics_text}"
