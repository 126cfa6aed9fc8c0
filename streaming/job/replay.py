"""Replays the bad records of a job: decodes each bad record again and writes its rows, once. A replay writes in its own
batches, under its own commit user.

A batch marks the records that it takes, and then writes them like any batch of the job. Records that are still bad
become bad records of this batch. If a replay dies, the next replay finds the marks and finishes the batch with the same
records. The snapshots of a replay hold no offsets.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CHECKPOINT, SOURCE_DECODE, BadRecords, JobConfig, RecordFormat
from bucketline.conf.option import UNLIMITED
from bucketline.conf.sink_options import BAD_RECORDS_MAX, BAD_RECORDS_PATH, KEY_ORDER
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.bad_records.replays import Replay, Replayed, up_to
from bucketline.streaming.bad_records.topic import Topic
from bucketline.streaming.bad_records.topic_notes import BESIDE
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.batch.history import read_history
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.rejects import RECORD_COLUMNS
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from bucketline.streaming.job.check import check_with, sink_options_of
from bucketline.streaming.job.choose_reader import JobSink
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.job_table import open_existing
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.run import SESSION_ZONE
from bucketline.streaming.job.start.silence import broken_silence
from bucketline.streaming.job.stored_places import look_for_topics, place_with_options, stored_records

_RECORDS_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_LOG = logging.getLogger("bucketline.job")


def replay_bad_records(
    config: JobConfig, ending: Ending, spark: Any | None = None, log: SparkLog = SparkLog.OURS_ONCE
) -> Replayed:
    """Replays the bad records of a job, and returns how many were replayed. Raises OptionError if they cannot be
    replayed, and the errors of `run_job`.
    """
    if config.source.decode is RecordFormat.NONE:
        raise OptionError(
            "--replay cannot be used if source.decode is none: bad rows are stored as JSON, which the job "
            "cannot decode",
            key=SOURCE_DECODE.key,
        )
    check_places([config.bad_records] if config.bad_records.has_place else [])
    place = place_with_options(config)
    assert place is not None, "the job names a place"
    table = handle_of(open_existing(config))
    check_with(config, table.table_schema)
    schema = table.table_schema
    warn_of_order(table)
    with broken_silence("waiting for Kafka") as silence:
        look_for_topics([config], spark, silence)
    user = f"replay-{uuid5(NAMESPACE_URL, f'{place.name} {table.path}')}"
    with (
        explained(),
        broken_silence("replaying bad records") as silence,
        open_session(f"bucketline replay {table.path}", spark, ending, log, silence) as session,
    ):
        stored = stored_records(session, config)
        assert stored is not None, "the job names a place"
        newest = newest_batch(table, {}, user)
        check_notes(place, config.checkpoint, has_replayed=newest is not None)
        # There is no limit for records that are still bad: the batch stores them again, or they would be lost.
        unlimited = replace(config.bad_records, max_count=UNLIMITED)
        step = decode_step(
            config.source.decode, schema, unlimited, config.messages, config.registry, config.columns, now_us=0
        )
        assert step is not None, "records are decoded"
        options = {**sink_options_of(config), BAD_RECORDS_MAX.key: str(UNLIMITED)}
        options.pop(KEY_ORDER.key, None)
        sink = JobSink(
            table.uri,
            options=options,
            decode=step_for(replace(step, zone=session.conf.get(SESSION_ZONE)), schema),
            storage_options=table.storage,
            bad_records=place,
        )

        def write(rows: pa.Table, number: int) -> None:
            sink.write(records_frame(session, rows), replayed_identity(user, number))

        replay = Replay(
            user,
            (stored,),
            own=lambda rows: rows.filter(pc.fill_null(pc.equal(rows["table_name"], table.path), True)),
            written=lambda rows: up_to(rows, lambda writer, _: newest_batch(table, {}, writer)),
            newest=newest,
            write=write,
        )
        return replay.run(lambda: ending.asked_by is not None)


def check_places(places: Sequence[BadRecords]) -> None:
    """Checks that a job stores bad records. Raises OptionError if it stores none."""
    if not places:
        raise OptionError(
            f"the job does not store bad records: set {BAD_RECORDS_PATH.key} in the job file", key=BAD_RECORDS_PATH.key
        )


def check_notes(place: BadRecordsPlace, checkpoint: str, *, has_replayed: bool) -> None:
    """Raises OptionError if records of a topic were replayed before (`has_replayed`), but no note in the folder next to
    the checkpoint says which records these were.
    """
    if isinstance(place, Topic) and place.notes is not None and has_replayed and not place.notes.taken():
        raise OptionError(
            f"records of {place.name} were replayed before, but the folder {checkpoint.rstrip('/')}{BESIDE} does not "
            "say which records: copy this folder from the path next to the job's former checkpoint",
            key=CHECKPOINT.key,
        )


def warn_of_order(table: TableHandle) -> None:
    """Logs a warning if the table has no `sequence.field`, because then a replayed record replaces newer rows with the
    same key.
    """
    schema = table.table_schema
    if schema.primary_keys and not schema.settings.merge.sequence_fields:
        _LOG.warning(
            "%s has no sequence.field: a replayed record replaces the row of its key, even if that row is newer",
            table.path,
        )


def newest_batch(table: TableHandle, options: Mapping[str, str], user: str) -> int | None:
    """Returns the number of a writer's newest batch in a table; None if the table knows no batch of the writer."""
    _, history = read_history(Target(table_at(table, options), user).refreshed())
    return history.newest_batch


def records_frame(spark: Any, rows: pa.Table) -> Any:
    """Returns the original records of bad records as a DataFrame with the columns of Spark's Kafka source."""
    given = map(_plain, rows.select(list(RECORD_COLUMNS)).to_pylist())
    records = [tuple(row[name] for name in RECORD_COLUMNS) for row in given]
    return spark.createDataFrame(records, _RECORDS_DDL).coalesce(1)


def replayed_identity(user: str, number: int) -> BatchIdentity:
    """Returns the identity of a replay's batch. Each attempt at the batch has this identity, except for the time."""
    now_ms = SYSTEM_WORLD.clock.now_ms()
    return BatchIdentity(user, number, None, None, f"{user} {number}", time_ms=now_ms)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of a bad record, changed so that Spark accepts it: each header is a pair of key and value instead
    of a dict.
    """
    if row["headers"] is not None:
        row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
    return row
