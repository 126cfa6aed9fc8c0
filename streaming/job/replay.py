"""Bad records run through their job again: by batches of their own, under a user of their own, each once.

A batch takes records in the place, and then writes them as any batch of the job: what is still bad is a bad record of
this batch. So a replay that dies is found again, and done with the same records. Its snapshots hold no offsets.
"""

import logging
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BAD_RECORDS_TOPIC, SOURCE_DECODE, JobConfig, RecordFormat
from bucketline.conf.option import UNLIMITED
from bucketline.conf.sink_options import BAD_RECORDS_MAX, BAD_RECORDS_PATH, KEY_ORDER
from bucketline.conf.wording import counted
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.bad_records.stored import StoredRecords, stored_in
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.batch.history import read_history
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.rejects import RECORD_COLUMNS, ReasonCode
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from bucketline.streaming.job.bad_place import ready_place
from bucketline.streaming.job.check import check_with, sink_options_of
from bucketline.streaming.job.choose_reader import JobSink
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.job_table import open_existing
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.run import SESSION_ZONE
from bucketline.streaming.job.start.silence import broken_silence

MOST_RECORDS = 10_000
"""Records of one batch: the driver holds them."""
_RECORDS_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_LOG = logging.getLogger("bucketline.job")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay came to: records that were taken, and those of them that are bad again; those that were left, as
    they cannot be replayed, or as their batch is not in the table."""

    taken: int
    still_bad: int
    left: int

    def line(self) -> str:
        """For people."""
        left = f"; left: {counted(self.left, 'record')}" if self.left else ""
        return f"replayed {counted(self.taken, 'record')}, of which {self.still_bad:,} are still bad{left}"


def replay_bad_records(
    config: JobConfig, ending: Ending, spark: Any | None = None, log: SparkLog = SparkLog.OURS_ONCE
) -> Replayed:
    """Runs the bad records of a job through it again. Raises OptionError where that is not possible, and as
    `run_job`."""
    if config.source.decode is RecordFormat.NONE:
        raise OptionError(
            "--replay decodes records again, and source.decode is none: bad rows are kept as JSON",
            key=SOURCE_DECODE.key,
        )
    place = ready_place(config, {})
    stored = stored_in(place)
    if stored is None or place is None:
        raise OptionError(
            "--replay reads a folder or a table of bad records"
            + (
                "; a topic has them as they were: give it to a job as source.options.subscribe"
                if config.bad_records.topic is not None
                else f", and the job names none: set {BAD_RECORDS_PATH.key}"
            ),
            key=BAD_RECORDS_PATH.key if config.bad_records.topic is None else BAD_RECORDS_TOPIC.key,
        )
    table = handle_of(open_existing(config))
    check_with(config, table.table_schema)
    schema = table.table_schema
    if schema.primary_keys and not schema.settings.merge.sequence_fields:
        _LOG.warning(
            "%s has no sequence.field: a record that is replayed wins over rows of its key that came after it",
            table.path,
        )
    user = f"replay-{uuid5(NAMESPACE_URL, f'{place.name} {table.path}')}"
    with (
        explained(),
        broken_silence("replaying bad records") as silence,
        open_session(f"bucketline replay {table.path}", spark, ending, log, silence) as session,
    ):
        step = decode_step(
            config.source.decode, schema, config.bad_records, config.messages, config.registry, config.columns, now_us=0
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
        return _Replay(session, sink, table, stored, user).run(ending)


class _Replay:
    """Batch after batch, until nothing is left that was there at the start."""

    def __init__(self, spark: Any, sink: JobSink, table: TableHandle, stored: StoredRecords, user: str) -> None:
        self._spark, self._sink, self._table, self._stored, self._user = spark, sink, table, stored, user

    def run(self, ending: Ending) -> Replayed:
        rows, newest = self._rows(), self._newest_batch(self._user)
        number = first = 0 if newest is None else newest + 1
        taken, waiting = 0, self._waiting(rows)
        left = int(pc.sum(rows["replay"].is_null()).as_py() or 0) - waiting.num_rows
        begun = rows.filter(pc.equal(rows["replay"], number))
        if begun.num_rows:
            self._write(begun, number)
            number, taken = number + 1, begun.num_rows
        for start in range(0, waiting.num_rows, MOST_RECORDS):
            if ending.asked_by is not None:
                break
            part = waiting.slice(start, MOST_RECORDS)
            self._stored.claim(part, self._user, number)
            self._write(part, number)
            number, taken = number + 1, taken + part.num_rows
        return Replayed(taken, self._still_bad(first), left)

    def _rows(self) -> pa.Table:
        """The bad records of this table; a folder does not say of which table they are."""
        rows = self._stored.rows(self._user)
        return rows.filter(pc.fill_null(pc.equal(rows["table_name"], self._table.path), True))

    def _waiting(self, rows: pa.Table) -> pa.Table:
        """The records that are to be taken: those of batches that are in this table, oldest first."""
        can_be = pc.fill_null(pc.not_equal(rows["code"], ReasonCode.ROW.value), True)
        rows = rows.filter(pc.and_(rows["replay"].is_null(), can_be))
        newest = {user: self._newest_batch(user) for user in rows["query_id"].unique().to_pylist()}
        parts = [rows.slice(0, 0)]
        for user, batch in newest.items():
            if batch is not None:
                is_written = pc.less_equal(rows["batch_id"], pa.scalar(batch, pa.int64()))
                parts.append(rows.filter(pc.and_(pc.equal(rows["query_id"], user), is_written)))
        order = [(name, "ascending") for name in ("topic", "partition", "offset", "batch_id", "number")]
        return pa.concat_tables(parts).sort_by(order)

    def _newest_batch(self, user: str) -> int | None:
        """The newest batch of a writer in the table; None where none is known."""
        _, history = read_history(Target(table_at(self._table, {}), user).refreshed())
        known = (*history.commits, *(() if history.marker is None else (history.marker,)))
        return max((s.commit_identifier for s in known), default=None)

    def _write(self, rows: pa.Table, number: int) -> None:
        given = map(_plain, rows.select(list(RECORD_COLUMNS)).to_pylist())
        records = [tuple(row[name] for name in RECORD_COLUMNS) for row in given]
        frame = self._spark.createDataFrame(records, _RECORDS_DDL).coalesce(1)
        now_ms = SYSTEM_WORLD.clock.now_ms()
        identity = BatchIdentity(self._user, number, None, None, f"{self._user} {number}", time_ms=now_ms)
        self._sink.write(frame, identity)

    def _still_bad(self, first: int) -> int:
        rows = self._rows()
        own = pc.and_(pc.equal(rows["query_id"], self._user), pc.greater_equal(rows["batch_id"], first))
        return int(rows.filter(own).num_rows)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Spark takes it from Python."""
    if row["headers"] is not None:
        row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
    return row
