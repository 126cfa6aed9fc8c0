"""Runs the streaming job of a job file (table → source → sink → query) until it is done or asked to end.

SIGTERM, SIGINT and SIGHUP end the job after the running batch, whether this process or Spark's JVM gets the signal. A
second signal ends the job at once. A job that dies during a batch loses nothing: the next start recognises what has
been written.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from pyspark import __version__ as pyspark_version

from bucketline.conf.column_options import NO_COLUMN_OPTIONS
from bucketline.conf.errors import OptionError
from bucketline.conf.job import CHECKPOINT, SOURCE_FORMAT, JobConfig
from bucketline.conf.metrics_options import metrics_options
from bucketline.conf.resolve import show_settings
from bucketline.conf.sources.source_options import (
    KAFKA,
    SourceOptions,
    fails_on_data_loss,
    kafka_source,
    most_records,
    source_identity,
    source_options,
    start_at,
)
from bucketline.state.store.table.table import Table, handle_of
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.batch.identity import has_ledger
from bucketline.streaming.batch.inputs.topic_watch import TopicWatch
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from bucketline.streaming.job.background import background_work
from bucketline.streaming.job.bad_place import ready_place
from bucketline.streaming.job.check import check_job, sink_options_of
from bucketline.streaming.job.choose_reader import JobSink, choose_file_reader, choose_reader, splits
from bucketline.streaming.job.create_declared import create_declared, is_declared_later
from bucketline.streaming.job.ending import Ending, process_ending, signals_to
from bucketline.streaming.job.job_table import open_or_create
from bucketline.streaming.job.kafka.ask_topic_ids import AskTopicIds
from bucketline.streaming.job.kafka.kafka_admin import ClusterNow, JvmAdmin, jvm_admin
from bucketline.streaming.job.kafka.kafka_checkpoint import (
    check_source,
    check_start,
    check_written,
    is_of_cluster,
    read_checkpoint,
    read_offsets,
    restart_offsets,
    topics_as_now,
)
from bucketline.streaming.job.kafka.kafka_failure import kafka_failures
from bucketline.streaming.job.kafka.partition_lag import PartitionLag
from bucketline.streaming.job.kafka.table_offsets import newest_offsets
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.run_query import Around, QuerySink, run_query, servers_of
from bucketline.streaming.job.session import settings_to_start_with, starts_java
from bucketline.streaming.job.source import choose_rows, read_stream
from bucketline.streaming.job.start.needs import require_kafka_jar, require_packages, shown_as_up
from bucketline.streaming.job.start.reach_kafka import reach_kafka
from bucketline.streaming.job.start.silence import Silence, broken_silence
from bucketline.streaming.tasks.kafka.kafka_errors import topic_missing

SESSION_ZONE = "spark.sql.session.timeZone"
_LOG = logging.getLogger("bucketline.job")


def run_job(
    config: JobConfig,
    spark: Any | None = None,
    *,
    reset_identity: bool = False,
    allow_reprocess: bool = False,
    ending: Ending | None = None,
    log: SparkLog = SparkLog.OURS_ONCE,
) -> None:
    """Runs the job until its trigger is done (availableNow) or it is asked to end.

    `reset_identity` renames the checkpoint and starts a new one at the Kafka offsets that the table holds.
    `allow_reprocess` writes a batch although checkpoint and table disagree. `ending` says when the job must end; by
    default it ends on signals of this process. `log` says how much Spark logs of an error that ends the job. Raises
    BucketlineError if the sink, the table, the settings or Spark fail.
    """
    name = f"bucketline {config.table.rstrip('/').rsplit('/', 1)[-1]}"
    with (
        nullcontext(ending) if ending is not None else ending_by_signals() as asked,
        broken_silence("looking at the table and its storage") as silence,
    ):
        check_job(config)
        metrics = metrics_options(sink_options_of(config))
        with explained(), shown_as_up(metrics, name, config.table) as labels:
            around = Around(name, asked, silence, log, PartitionLag(labels, metrics))
            _run_until(around, config, spark, reset_identity=reset_identity, allow_reprocess=allow_reprocess)


@contextmanager
def ending_by_signals() -> Iterator[Ending]:
    ending = process_ending()
    with signals_to(ending):
        yield ending


def _run_until(
    around: Around, config: JobConfig, spark: Any | None, *, reset_identity: bool, allow_reprocess: bool
) -> None:
    ending, silence = around.ending, around.silence
    source = source_options(config.source)
    for line in source.advice:
        _LOG.warning("%s", line)
    for key, shown, origin in show_settings(config.settings):
        _LOG.info("%s = %s (%s)", key, shown, origin)
    look_around(config, source, spark, silence)
    table = None if is_declared_later(config) else open_or_create(config)
    with (
        open_session(around.name, spark, ending, around.log, silence) as session,
        background_work(session.sparkContext, lambda: ending.asked_by is not None) as in_thread,
        jvm_admin(session, source.options) as admin,
    ):
        reader = choose_reader(session, config.source, source.options, in_thread)
        kafka = config.source.format == KAFKA
        silence.doing("asking Kafka for its topics" if kafka else "starting the query")
        if table is None:
            with kafka_failures(source.options if kafka else None), explained():
                made = create_declared(session, config, source, lambda: ending.asked_by is not None)
            if made is None:
                return  # There is no record that could be lost.
            table, source = made
        schema = handle_of(table).table_schema
        step = decode_step(
            config.source.decode, schema, config.bad_records, config.messages, config.registry, config.columns, now_us=0
        )
        if step is not None:
            step = step_for(replace(step, zone=session.conf.get(SESSION_ZONE)), schema)
        cluster = admin.cluster() if kafka else ClusterNow()
        topics = watch_topics(AskTopicIds(admin, reader), source.options, cluster) if kafka else None
        if has_ledger(session, config.checkpoint):
            raise OptionError(
                f"{config.checkpoint} is the checkpoint of a job with 'tables', and bucketline cannot reach the ledger "
                "in the checkpoint with the settings in 'storage': take these settings from the job with 'tables'",
                key=CHECKPOINT.key,
            )
        if reset_identity:
            source = _reset(session, config, source, table, cluster, admin)
        elif kafka:
            _check_checkpoint(session, config, source, table, cluster, topics, allow_reprocess=allow_reprocess)
        if topics is not None:
            topics.accept({}, cluster.topic_ids)
        if kafka:
            read = {} if reset_identity else read_offsets(session, config.checkpoint)
            around.lag.begin(admin, source.options, read)
        silence.doing("starting the query")
        sink = JobSink(
            config.table if config.catalog is None else table.uri,
            options=sink_options_of(config),
            checkpoint=config.checkpoint,
            decode=step,
            source=source_identity(config.source),
            cluster=cluster.id,
            allow_reprocess=allow_reprocess,
            storage_options=handle_of(table).storage,
            kafka=reader,
            joins_partitions=kafka and not splits(source.options),
            parquet=choose_file_reader(config.source, source.options) if config.columns == NO_COLUMN_OPTIONS else None,
            topics=topics,
            most_records=most_records(source.options) if kafka else None,
            bad_records=ready_place(config, source.options),
        )
        tells_partitions = kafka and config.key_order is not None

        def rows() -> Any:
            stream = read_stream(session, config.source, source, schema.fields, step, tells_partitions=tells_partitions)
            if step is not None:
                return stream
            keys = (*schema.primary_keys, *schema.partition_keys)
            return choose_rows(stream, config.columns, config.source.format, keys)

        query_sink = QuerySink(
            sink, lambda query: sink.finish(session, query, lambda: ending.asked_by is not None), sink.stop
        )
        try:
            run_query(around, session, config, source.options, admin.partitions, read=rows, sink=query_sink)
        finally:
            if step is not None and step.registry is not None:
                step.registry.forget()


def look_around(config: JobConfig, source: SourceOptions, spark: Any | None, silence: Silence) -> None:
    """Checks that everything that the job needs exists, as far as this can be known before Spark starts."""
    if spark is None and starts_java():
        require_packages(config, source.options)
        require_kafka_jar(config.source.format, *settings_to_start_with(), pyspark_version)
    if config.source.format == KAFKA:
        silence.doing(f"waiting for Kafka at {servers_of(source.options)}")
        reach_kafka(source.options, config.source.token_provider)


def _check_checkpoint(
    session: Any,
    config: JobConfig,
    source: SourceOptions,
    table: Table,
    cluster: ClusterNow,
    topics: TopicWatch | None,
    *,
    allow_reprocess: bool,
) -> None:
    """Raises BucketlineError if the checkpoint belongs to other topics or another cluster, or does not fit the
    table.
    """
    checkpoint = read_checkpoint(session, config.checkpoint, table)
    check_source(checkpoint, source.options, None if allow_reprocess else cluster.id)
    if allow_reprocess:
        return
    check_start(checkpoint, source.options, table, cluster.id)
    check_written(checkpoint, table)
    if topics is not None:
        topics.accept(checkpoint.topic_ids(cluster.id), cluster.topic_ids)


def watch_topics(ask: AskTopicIds, options: Mapping[str, str], cluster: ClusterNow) -> TopicWatch | None:
    """Returns a TopicWatch, which notices if a topic of the job was deleted and created again: the topic then has
    another id. `ask` asks Kafka for the ids. Returns None if the id of the cluster is not known, because ids of topics
    can be compared only within one cluster.
    """
    if cluster.id is None:
        _LOG.warning(
            "the id of the Kafka cluster is not known: the job may not notice if a topic is deleted and created again"
        )
        return None
    return TopicWatch(ask, fails_on_data_loss(options))


def _reset(
    spark: Any, config: JobConfig, source: SourceOptions, table: Table, cluster: ClusterNow, admin: JvmAdmin
) -> SourceOptions:
    """Renames the folder of the checkpoint, so that the query begins with a new checkpoint. Returns the options of a
    source that starts at the offsets that the table holds.
    """
    if config.source.format != KAFKA:
        raise OptionError(
            f"--reset-identity needs Kafka offsets in the table, but the source is {config.source.format!r}; restore "
            "the checkpoint, or use a new checkpoint with --allow-reprocess",
            key=SOURCE_FORMAT.key,
        )
    partitions, reads = admin.partitions(), kafka_source(source.options)
    missing = [topic for topic in reads.topics if partitions and topic not in partitions]
    if missing:
        raise topic_missing(missing[0], reads.servers or "")
    newest = (w for w in newest_offsets(table) if is_of_cluster(w.snapshot, cluster.id))
    written = (topics_as_now(w, cluster.id, cluster.topic_ids, partitions) for w in newest)
    offsets = restart_offsets(written, source.options, partitions)
    if not offsets:
        raise OptionError(
            f"--reset-identity: no snapshot or tag of {table.path} holds offsets of the topics of this job in this "
            "cluster; set source.options.startingOffsets and a new checkpoint instead",
            key=CHECKPOINT.key,
        )
    kept = set_aside(spark, config.checkpoint)
    if kept is not None:
        _LOG.warning("the old checkpoint was renamed to %s", kept)
    text = json.dumps(offsets, separators=(",", ":"), sort_keys=True)
    _LOG.warning("the new checkpoint starts at the offsets that the table holds: %s", text)
    return replace(source, options=start_at(source.options, text))


def set_aside(spark: Any, checkpoint: str) -> str | None:
    """Renames a checkpoint folder, so that a new one can be created. Returns the new name; None if there is no folder.

    Raises OptionError if the storage cannot rename the folder.
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
        raise OptionError(
            f"the checkpoint {checkpoint} could not be renamed to {kept}; move the checkpoint away", key=CHECKPOINT.key
        )
    return kept
