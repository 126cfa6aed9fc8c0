"""The foreachBatch function of a job of several tables.

An earlier process may have begun a batch with other settings of the job. The batch is then finished with the settings
of the earlier process, because some tables may already hold rows of the batch that were made with these settings.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bucketline.conf.routes.routed_job import Resolved
from bucketline.conf.wording import counted
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.batch_metrics import measure_parked, measure_tables
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.batch.history import read_history
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.inputs.kafka_batch import KafkaReader, read_by_one_task, records_of
from bucketline.streaming.batch.inputs.registry_wait import wait_of, when_registry_answers
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.target import Target
from bucketline.streaming.batch.write_batch import identify
from bucketline.streaming.decode.decode_step import RECORD_TYPES
from bucketline.streaming.job.many.kept_records import KeptRecords, day_and_minute
from bucketline.streaming.log import log_to_standard_error
from bucketline.streaming.many.batch import Input, write_many
from bucketline.streaming.many.entries import BatchSpan
from bucketline.streaming.many.job import ManyJob, ManyState, Told
from bucketline.streaming.metrics.outlets import show_outlets
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.many.spark_tables import SparkTables
from bucketline.streaming.tasks.read_task import Frame, Records
from bucketline.streaming.tasks.spark_engine import SparkEngine

_LOG = logging.getLogger("bucketline.many")
_SHOWN = 3
_NEVER = 1 << 62

Pinned = Callable[[str, str], tuple[ManyJob, ManyState]]
"""A function that takes pinned settings and the writer's name, and returns the job and its state with these
settings.
"""


@dataclass(slots=True)
class ManySink:
    """Writes the batches of one query into many tables; use it as `foreachBatch(sink)`, in one process.

    `make_state` makes the state when the query's name is known. `kafka` returns the reader with which tasks read Kafka
    themselves. `between` returns a DataFrame of Kafka's records between two offsets. `kept` says until when Kafka keeps
    the records that parked tables have missed.
    """

    job: ManyJob
    make_state: Callable[[str], ManyState]
    pinned: Pinned
    kafka: Callable[[], KafkaReader | None] | None = None
    joins_partitions: bool = False
    between: Callable[[Any, BatchSpan], Any] | None = None
    kept: KeptRecords | None = None
    _state: ManyState | None = field(default=None, init=False)
    _engine: SparkTables | None = field(default=None, init=False)

    def __call__(self, batch: Any, batch_id: int) -> None:
        log_to_standard_error()
        with explained_in_one_line():
            self.write(batch, identify(batch, batch_id, self.job.one))

    def write(self, batch: Any, identity: BatchIdentity) -> Told:
        """Writes a batch with a known identity. Returns the reports of the tables, and the errors of tables that
        failed; see `__call__`.
        """
        if self._engine is None or self._state is None:
            self._engine = SparkTables(batch.sparkSession)
            self._state = self.make_state(identity.commit_user(None))
        engine, job, state = self._engine, self.job, self._state
        other = begun_otherwise(job, state, identity)
        if other is not None:
            _LOG.warning(
                "batch %d was begun with other settings of the job, and some tables already have its rows: the batch "
                "is finished with those settings; the current settings apply from the next batch on",
                identity.batch_id,
            )
            job, state = self.pinned(other, identity.commit_user(None))

        source = Input(partial(self._records, batch, identity, engine), partial(self._missed, batch.sparkSession))
        told = when_registry_answers(
            lambda: write_many(job, state, identity, engine, source),
            wait_of(job.nameless),
            state.files.world,
        )
        if other is not None:
            self._state.forget()
        self._tell(told, identity, state)
        return told

    def _records(self, batch: Any, identity: BatchIdentity, engine: SparkTables) -> Records:
        """Returns the source from which the records of all tables are read. The source has every column that a table
        may need.
        """
        kafka = None if self.kafka is None else self.kafka()
        frame = Frame(batch, self.job.nameless)
        source = records_of(frame, identity, kafka, engine.parallelism)
        if isinstance(source, KafkaRanges):
            columns = tuple(c for c in RECORD_TYPES if c != "headers" or c in source.columns)
            return replace(source, columns=columns)
        return read_by_one_task(source, identity, engine.parallelism) if self.joins_partitions else source

    def _missed(self, spark: Any, span: BatchSpan) -> Records:
        """Returns the records in the offsets `span`, read from Kafka once more: a parked table has missed them."""
        if self.between is None:
            raise UnsupportedTableError("records for a parked table can only be read again from Kafka")
        return Frame(self.between(spark, span), self.job.nameless)

    def _tell(self, told: Told, identity: BatchIdentity, state: ManyState) -> None:
        for report in told.reports:
            _LOG.debug("%s", report.line(), extra={"bucketline": report})
        parked: dict[str, int | None] = {}
        if state.ledger is not None:
            kept = KeptRecords(lambda _: {}) if self.kept is None else self.kept
            parked = kept.until_ms(state.ledger)
            measure_parked(parked, state.tables.user)
        open_tables = state.tables.by_path()
        shown = [(r, open_tables[r.table].target.at.plan.sink.metrics) for r in told.reports if r.table in open_tables]
        measure_tables(shown, state.tables.user)
        if not shown:
            show_outlets(self.job.metrics)  # A batch for parked tables alone reports no table.
        _LOG.info("%s", line_of(told, identity, parked))

    def stop(self) -> None:
        """Ends the asynchronous compaction of all tables, destroys the data that the sink has broadcast, and closes the
        client that asks for the ids of topics. Called when the query has stopped.
        """
        if self._state is not None:
            self._state.tables.stop()
        if self._engine is not None:
            self._engine.close()
        if self.job.one.topics is not None:
            self.job.one.topics.ask.close()

    def finish(self, engine: SparkEngine, is_ending: Callable[[], bool] = lambda: False) -> int:
        """Does the compactions that are still due after a query has ended, as `Tables.finish` does. Returns the number
        of rows that readers still do not see.
        """
        if self._state is None:
            return 0
        return self._state.tables.finish(engine, self.job.commit_parallelism, is_ending)


def line_of(told: Told, identity: BatchIdentity, parked: Mapping[str, int | None]) -> str:
    """Returns the log line of a batch of many tables. `parked` has the tables that batches leave out because of an
    error, with the times that `KeptRecords.until_ms` returns.
    """
    parts = [f"batch {identity.batch_id}"]
    if told.is_skipped:
        return f"{parts[0]}: all tables already have their rows of this batch"
    rows, stored = _sum(told.reports, "input_rows"), _sum(told.reports, "stored_rows")
    parts.append(f"{counted(len(told.reports), 'table')}, {counted(rows, 'row')} in, {stored:,} stored")
    largest = sorted(told.reports, key=lambda r: -r.input_rows)[:_SHOWN]
    if largest:
        parts.append(", ".join(f"{r.table.rpartition('/')[2]} {r.input_rows:,}" for r in largest))
    if rejected := _sum(told.reports, "rejected_rows"):
        parts.append(f"rejected {rejected:,}")
    if told.left_out:
        parts.append(f"{counted(told.left_out, 'record')} of no table")
    if parked:
        first = sorted(parked.items(), key=lambda of: (_NEVER if of[1] is None or of[1] < 0 else of[1], of[0]))
        shown = "; ".join(_shown_parked(*of) for of in first[:_SHOWN]) + ("; ..." if len(first) > _SHOWN else "")
        parts.append(f"{counted(len(parked), 'table')} parked ({shown})")
    if told.reports:
        parts.append(f"{max(r.total_seconds for r in told.reports):.2f} s")
    return " | ".join(parts)


def _shown_parked(table: str, until_ms: int | None) -> str:
    name = table.rpartition("/")[2]
    if until_ms is None:
        return name
    until = "" if until_ms < 0 else f" until {day_and_minute(until_ms)}"
    return f"{name}, Kafka keeps its missed records{until}"


def _sum(reports: tuple[BatchReport, ...], name: str) -> int:
    return sum(int(getattr(report, name)) for report in reports)


def begun_otherwise(job: ManyJob, state: ManyState, identity: BatchIdentity) -> str | None:
    """Returns the settings with which the batch must be finished. Returns None if the job's own settings may be used,
    because the batch was begun with the same settings, or because no table holds the batch yet. Called only for the
    first batch of a process.
    """
    if state.has_looked:
        return None
    pin = state.files.read_pin(identity.batch_id)
    if pin is None or pin.hash == job.pin or pin.digest != identity.digest:
        return None
    if state.files.read(identity.batch_id) is not None:
        return None
    is_begun = any(_holds(state, name, route, identity) for name, route in pin.tables.items())
    return pin.settings if is_begun else None


def _holds(state: ManyState, name: str, route: int, identity: BatchIdentity) -> bool:
    """Returns True if the table `name` has a snapshot that this batch has committed."""
    opener = state.tables.opener
    config = opener.config(Resolved(route, name))
    handle = opener.open(config, None, may_create=False)
    if handle is None:
        return False
    _, history = read_history(Target(table_at(handle, opener.options(config)), state.tables.user).refreshed())
    return any(s.commit_identifier == identity.batch_id for s in history.known)
