"""Runs the streaming job of a job file with several tables: source → sink → query, until it is done or asked to end.

A table is opened when the first records for it come. At its start, the job reads only the checkpoint.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import JobConfig
from bucketline.conf.metrics_options import metrics_options
from bucketline.conf.resolve import show_settings
from bucketline.conf.routes.one_route import as_routed
from bucketline.conf.routes.routed_job import Resolved, RoutedJob
from bucketline.conf.sources.source_options import (
    KAFKA,
    gives_headers,
    most_records,
    source_identity,
    source_options,
    with_headers,
)
from bucketline.state.determinism import SystemIds
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.batch.write_batch import Job
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.rejects import RECORD_COLUMNS
from bucketline.streaming.job.background import background_work
from bucketline.streaming.job.bad_place import BadRecordPlaces
from bucketline.streaming.job.check import check_without_table, sink_options_of
from bucketline.streaming.job.choose_reader import choose_reader, splits
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.kafka.ask_topic_ids import AskTopicIds
from bucketline.streaming.job.kafka.kafka_admin import ClusterNow, jvm_admin
from bucketline.streaming.job.kafka.kafka_checkpoint import read_offsets
from bucketline.streaming.job.kafka.partition_lag import PartitionLag
from bucketline.streaming.job.many.begin_again import begin_again, first_offsets, go_on
from bucketline.streaming.job.many.kept_records import KeptRecords
from bucketline.streaming.job.many.pin import pinned_settings, with_pinned
from bucketline.streaming.job.many.sink import ManySink
from bucketline.streaming.job.many.table_opener import JobTableOpener
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.run import (
    SESSION_ZONE,
    ending_by_signals,
    look_around,
    run_job,
    watch_topics,
)
from bucketline.streaming.job.run_query import Around, QuerySink, run_query
from bucketline.streaming.job.source import read_records, records_between
from bucketline.streaming.job.start.needs import shown_as_up
from bucketline.streaming.job.start.silence import broken_silence
from bucketline.streaming.many.entries import BatchSpan
from bucketline.streaming.many.job import ManyJob, ManyState
from bucketline.streaming.many.ledger import offsets_text
from bucketline.streaming.many.ledger_files import LedgerFiles, ledger_files
from bucketline.streaming.many.tables import Tables
from bucketline.streaming.tasks.spark_engine import SparkEngine

_LOG = logging.getLogger("bucketline.job")
_NAME, _TABLES = "bucketline tables", "several"
_KEPT = "spark.sql.streaming.minBatchesToRetain"
_MOST_REJECTS = 1 << 31
_NO_COLUMN = DataField(0, "_no_table", DataType(TypeRoot.VARCHAR, length=2**31 - 1))
"""The column of the decoder for records that belong to no table. (A decoder needs a column.)"""


def run_any(job: JobConfig | RoutedJob, *, ending: Ending, log: SparkLog, **flags: bool) -> None:
    """Runs a job of one table or of several. `flags` are passed on to the function that runs the job, such as
    `run_job`.

    A job of one table whose checkpoint has a ledger (the state of a job of several tables) keeps the ledger: it runs as
    a job with one route.
    """
    if isinstance(job, RoutedJob):
        run_routed(job, ending=ending, log=log, **flags)
    elif keeps_ledger(job):
        _LOG.info(
            "the checkpoint %s belongs to a job with 'tables': this job continues it as a job with one route",
            job.checkpoint,
        )
        run_routed(as_routed(job), ending=ending, log=log, **flags)
    else:
        run_job(job, ending=ending, log=log, **flags)


def keeps_ledger(job: JobConfig) -> bool:
    """Returns True if the checkpoint of a job of one table has a ledger, that is the stored state of a job of several
    tables. Returns False if bucketline cannot reach the storage of the checkpoint, because then no job could have
    stored a ledger there.
    """
    try:
        files = ledger_files(job.checkpoint, job.storage)
        return bool(files.numbers()) or files.read_start() is not None
    except BucketlineError as e:
        _LOG.debug(
            "it cannot be seen whether %s is the checkpoint of a job with 'tables': %s", job.checkpoint, e.message
        )
        return False


def run_routed(
    routed: RoutedJob,
    spark: Any | None = None,
    *,
    reset_identity: bool = False,
    allow_reprocess: bool = False,
    ending: Ending | None = None,
    log: SparkLog = SparkLog.OURS_ONCE,
) -> None:
    """Runs a job of several tables, as `run_job` runs a job of one table.

    Raises OptionError for settings that such a job does not support.
    """
    with (
        nullcontext(ending) if ending is not None else ending_by_signals() as asked,
        broken_silence("looking at the checkpoint") as silence,
    ):
        check_routed(routed)
        metrics = metrics_options(sink_options_of(routed.common))
        with explained(), shown_as_up(metrics, _NAME, _TABLES) as labels:
            around = Around(_NAME, asked, silence, log, PartitionLag(labels, metrics))
            _run_until(around, routed, spark, reset_identity=reset_identity, allow_reprocess=allow_reprocess)


def _run_until(
    around: Around, routed: RoutedJob, spark: Any | None, *, reset_identity: bool, allow_reprocess: bool
) -> None:
    common, ending, silence = routed.common, around.ending, around.silence
    files = ledger_files(common.checkpoint, common.storage)
    source = source_options(common.source)
    for line in source.advice:
        _LOG.warning("%s", line)
    for key, shown, origin in show_settings(routed.settings):
        _LOG.info("%s = %s (%s)", key, shown, origin)
    reads_headers = common.source.decode.is_avro or common.bad_records.has_place
    options = dict(with_headers(source.options)) if reads_headers else dict(source.options)
    kafka = common.source.format == KAFKA
    look_around(common, source, spark, silence)
    with (
        open_session(around.name, spark, ending, around.log, silence) as session,
        background_work(session.sparkContext, lambda: ending.asked_by is not None) as in_thread,
        jvm_admin(session, options) as admin,
    ):
        silence.doing("asking Kafka for its topics" if kafka else "starting the query")
        reader = choose_reader(session, common.source, options, in_thread)
        cluster = admin.cluster() if kafka else ClusterNow()
        topics = watch_topics(AskTopicIds(admin, reader), options, cluster) if kafka else None
        if topics is not None:
            topics.accept({}, cluster.topic_ids)
        if reset_identity:
            begin_again(session, routed, files, partial(first_offsets, admin))
        if kafka:
            options = go_on(session, common, files, options, admin.partitions)
            around.lag.begin(admin, options, read_offsets(session, common.checkpoint))
        silence.doing("starting the query")
        registry = None
        if common.registry is not None:
            registry = RegistrySchemas(common.registry, SystemIds().new_uuid())
        one = Job(
            checkpoint=common.checkpoint,
            source=source_identity(common.source),
            cluster=cluster.id,
            allow_reprocess=allow_reprocess,
            topics=topics,
            most_records=most_records(options) if kafka else None,
        )
        zone = session.conf.get(SESSION_ZONE)
        has_headers = gives_headers(options)
        files = LedgerFiles(files.io, files.root, _kept(session), files.world)
        made = partial(_made, files=files, zone=zone, registry=registry, has_headers=has_headers)

        def pinned(text: str, user: str) -> tuple[ManyJob, ManyState]:
            begun = with_pinned(routed, text)
            return many_job(begun, one, registry), made(begun, user)

        sink = ManySink(
            many_job(routed, one, registry),
            lambda user: made(routed, user),
            pinned,
            kafka=reader,
            joins_partitions=kafka and not splits(options),
            between=partial(_between, options) if kafka else None,
            kept=KeptRecords(admin.retention_ms) if kafka else None,
        )
        query_sink = QuerySink(
            sink,
            lambda _: sink.finish(SparkEngine(session), lambda: ending.asked_by is not None),
            lambda _: sink.stop(),
        )
        read = partial(read_records, session, common.source, options)
        try:
            run_query(around, session, common, options, admin.partitions, read=read, sink=query_sink)
        finally:
            if registry is not None:
                registry.forget()


def _between(options: Mapping[str, str], spark: Any, span: BatchSpan) -> Any:
    """Returns a DataFrame of Kafka's records between offsets. A partition without a start offset begins at its first
    record.
    """
    start, end = (json.dumps(json.loads(offsets_text(offsets))[0]) for offsets in (span.start, span.end))
    return records_between(spark, options, start, end)


def check_routed(routed: RoutedJob) -> None:
    """Checks that a job of several tables can run with its settings. Raises BucketlineError if it cannot."""
    for route in routed.routes:
        config = routed.config_of(Resolved(route.number, route.target))
        check_without_table(config)


def many_job(routed: RoutedJob, one: Job, registry: RegistrySchemas | None = None) -> ManyJob:
    """Returns the settings that all batches of a job of several tables share. `one` are the settings that a job of one
    table has as well.
    """
    common = routed.common
    text, pin = pinned_settings(routed)
    nameless = DecodeStep(
        common.source.decode,
        (_NO_COLUMN,),
        reject_limit=_MOST_REJECTS,
        messages=common.messages,
        registry=registry,
        kept=RECORD_COLUMNS if common.bad_records.has_place else (),
    )
    return ManyJob(
        routes=routed,
        unmatched=routed.unmatched,
        on_failure=routed.on_table_failure,
        commit_parallelism=routed.commit_parallelism,
        nameless=nameless,
        bad_records=common.bad_records,
        places=BadRecordPlaces(common, source_options(common.source).options),
        pin=pin,
        settings=text,
        one=one,
        metrics=metrics_options(sink_options_of(common)),
    )


def _made(
    routed: RoutedJob, user: str, *, files: LedgerFiles, zone: str, registry: RegistrySchemas | None, has_headers: bool
) -> ManyState:
    """Returns the state that a process keeps between the batches of a query. No table is open yet."""
    return ManyState(files, Tables(JobTableOpener(routed, zone, registry, has_headers), user))


def _kept(session: Any) -> int:
    """Returns the number of batches whose offsets Spark keeps."""
    text = session.conf.get(_KEPT, "100")
    return max(2, int(text)) if text.isdigit() else 100
