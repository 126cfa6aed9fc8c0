"""TableSink: the foreachBatch function. One micro-batch on one screen: recover → plan → tasks → commit → report.

The sink is a frozen value, so that it can be pickled; what lives between batches (the driver's view of the table) is
kept by path in this process and follows other writers by their snapshots.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.secrets import MaskedOptions
from bucketline.conf.storage_options import check_storage_options, refuse_storage_keys
from bucketline.state.bucket.mode import BucketMode
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.commit.replay import compactor_user
from bucketline.state.determinism import SYSTEM_CLOCK
from bucketline.state.format.entries import CommitKind
from bucketline.state.store.catalog.postpone_backlog import find_waiting
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.table.postpone_compact import plan_postponed
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.streaming.batch.commit import CommitReport, commit_batch, commit_owed_compaction, settle_skipped
from bucketline.streaming.batch.conform import fit_decode, fit_frame, grow_table, refuse_need
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.batch.identity import BatchIdentity, read_identity
from bucketline.streaming.batch.live_table import LiveTable, forget_table, live_table
from bucketline.streaming.batch.log import log_to_standard_error
from bucketline.streaming.batch.make_visible import compact_in_tasks, finish_visibility, hidden_rows, settle_visibility
from bucketline.streaming.batch.plan import BatchPlan, advise_shares, plan_batch
from bucketline.streaming.batch.plan_ahead import check_plan_ahead, plan_ahead
from bucketline.streaming.batch.preflight import check_session
from bucketline.streaming.batch.progress import BatchReport, describe_batch, describe_skipped, tell
from bucketline.streaming.batch.recover import CheckpointMismatchError, SkipBatch, decide
from bucketline.streaming.batch.run import run_batch
from bucketline.streaming.tasks.compact_task import compact_over_spark
from bucketline.streaming.tasks.outcome import BatchOutcome
from bucketline.streaming.tasks.place_task import PlaceTask
from bucketline.streaming.tasks.rebucket_task import rebucket_over_spark
from bucketline.streaming.tasks.route_task import Decode

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableSink:
    """Writes micro-batches into one table, each exactly once; use as `foreachBatch(sink)`.

    `options` override the table's for this job; `storage_options` (`s3.endpoint`, ...) say how its storage is reached,
    and are never stored; `sink_id` tells two sinks of one query apart; `checkpoint` is the query's checkpoint location,
    needed only where Spark does not tell it. `decode` turns records into rows (the job's `decode:`); `source` names the
    cluster that is read; `allow_reprocess` lets a batch be written that checkpoint and table disagree about. Raises
    BucketlineError before anything is written when the table, the batch or the checkpoint do not fit.
    """

    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    sink_id: str | None = None
    checkpoint: str | None = None
    decode: Decode | None = None
    source: str | None = None
    cluster: str | None = None
    allow_reprocess: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_storage_keys(self.options, "the sink's options")
        # Settings print without their secrets.
        object.__setattr__(self, "options", MaskedOptions(self.options))
        object.__setattr__(self, "storage_options", check_storage_options(self.storage_options))
        if self.sink_id is not None and not self.sink_id.replace("-", "").replace("_", "").isalnum():
            raise OptionError(
                f"sink_id {self.sink_id!r} becomes part of file names: use letters, digits, '-' and '_'",
                sink_id=self.sink_id,
            )

    def __call__(self, batch: Any, batch_id: int) -> None:
        log_to_standard_error()
        with explained_in_one_line():
            identity = read_identity(batch.sparkSession, batch_id, self.checkpoint)
            identity = replace(identity, source=self.source, cluster=self.cluster)
            check_session(batch.sparkSession)
            self.write(batch, identity)

    def write(self, batch: Any, identity: BatchIdentity) -> None:
        """As a call, for a batch whose identity is known."""
        user = identity.commit_user(self.sink_id)
        table = live_table(self.path, self.options, user, self.storage_options)
        try:
            with table.batch(identity):
                tell(self._write(table, batch, identity))
        except BaseException:
            # What the error left of the view is not worth knowing: the next batch reads the table anew.
            forget_table(self.path, user)
            raise

    def _write(self, table: LiveTable, batch: Any, identity: BatchIdentity) -> BatchReport:
        started = time.monotonic()
        spark, session = batch.sparkSession, table.session
        session.refresh()
        check_plan_ahead(session)
        table.take_over()
        history = table.history()
        try:
            decision = decide(identity, history, allow_reprocess=self.allow_reprocess)
        except CheckpointMismatchError as e:
            table.check_rolled_back(e)
            raise
        if isinstance(decision, SkipBatch):
            return self._settle_skipped(table, spark, identity, started)
        if self.decode is None:
            batch = fit_frame(batch, session)
        # Where files were removed before they were committed, all of the batch is written again.
        plan, outcome, report, planned, ran = repeat_if_gone(
            lambda: self._written(table, batch, identity), again=session.refresh
        )
        table.owes_full = plan.trigger is CompactTrigger.FULL and report.committed.dropped is not None
        report = report.followed_by(self._compact_postponed(table, spark, identity))
        report = self._make_visible(table, spark, identity, plan.trigger, outcome.messages, report)
        table.touched = frozenset(m.partition for m in outcome.messages if m.new_files)
        plan_ahead(session, table.user, identity.batch_id)
        table.rows_a_partition = outcome.accepted_rows // max(1, len(table.touched))
        seconds = (planned - started, ran - planned, time.monotonic() - ran)
        name, waiting, hidden = session.table.path, self._waiting(table), hidden_rows(table)
        return describe_batch(name, identity.batch_id, outcome, report, seconds, identity.behind, waiting, hidden)

    def _written(
        self, table: LiveTable, batch: Any, identity: BatchIdentity
    ) -> tuple[BatchPlan, BatchOutcome, CommitReport, float, float]:
        """A batch written and committed: its plan, what became of it, and when it was planned and its tasks ended."""
        spark, session = batch.sparkSession, table.session
        plan = self._plan(table, spark, identity)
        planned = time.monotonic()
        outcome = run_batch(batch, plan)
        if not pa.types.is_null(outcome.need):
            grow_table(session, outcome)
            plan = self._plan(table, spark, identity)
            outcome = run_batch(batch, plan)
            refuse_need(session, outcome)
        ran = time.monotonic()
        return plan, outcome, commit_batch(table, identity, outcome, plan.key_shares), planned, ran

    def _make_visible(
        self,
        table: LiveTable,
        spark: Any,
        identity: BatchIdentity,
        trigger: CompactTrigger,
        messages: Sequence[CommitMessage],
        report: CommitReport,
    ) -> CommitReport:
        """The report, with what was compacted so that readers see the batch, and what earlier ones owed."""
        later: list[CommitReport] = []

        def commit(made: Sequence[CommitMessage]) -> Committed:
            later.append(commit_owed_compaction(table, identity.batch_id, tuple(made)))
            return later[-1].committed

        rounds = settle_visibility(
            table,
            compact_in_tasks(table, spark),
            commit,
            trigger=trigger,
            messages=messages,
            committed=report.committed,
        )
        return report.with_rounds(rounds, later)

    def _waiting(self, table: LiveTable) -> tuple[int, int]:
        """How many rows wait in a postpone table, and the seconds the oldest have waited."""
        session = table.session
        if session.plan.mode is not BucketMode.POSTPONE:
            return 0, 0
        # The next batch would read the new snapshot in any case.
        session.refresh()
        found = find_waiting((b, session.view.files(b)) for b in session.view.buckets() if b[1] < 0)
        return found.rows, found.age_seconds(SYSTEM_CLOCK.local_ms())

    def _plan(self, table: LiveTable, spark: Any, identity: BatchIdentity) -> BatchPlan:
        parallelism = spark.sparkContext.defaultParallelism
        plan = plan_batch(
            table.session,
            identity,
            user=table.user,
            parallelism=parallelism,
            decode=fit_decode(self.decode, table.session),
            expected_rows=table.rows_a_partition,
            touched=table.touched,
            shares_before=table.key_shares(),
            owes_full=table.owes_full,
        )
        if isinstance(plan.place, PlaceTask) and not table.told_shares:
            table.told_shares = advise_shares(table.session, plan, parallelism)
        return plan

    def _compact_postponed(self, table: LiveTable, spark: Any, identity: BatchIdentity) -> CommitReport | None:
        """Deals what waits in a postpone table to its buckets, when this batch's turn has come; None when it has
        not."""
        session, every = table.session, table.session.plan.sink.postpone_compact_batches
        if session.plan.mode is not BucketMode.POSTPONE or every is None:
            return None
        if (identity.batch_id + 1) % every and not table.owes_postponed:
            return None
        messages = self._rebucket_postponed(table, spark)
        report = commit_owed_compaction(table, identity.batch_id, messages) if messages else None
        table.owes_postponed = report is not None and report.committed.dropped is not None
        return report

    def _rebucket_postponed(self, table: LiveTable, spark: Any) -> tuple[CommitMessage, ...]:
        """The messages of a compaction that takes all postponed rows to their buckets, on the newest snapshot."""
        session = table.session
        session.refresh()
        write = session.plan.bucket_write(CompactTrigger.MINOR)
        parallelism = spark.sparkContext.defaultParallelism
        work = plan_postponed(
            session.plan,
            session.view,
            write,
            lambda partition: True,
            new_buckets=parallelism,
            vectors=session.deletion_entries(),
        )
        sink = session.plan.sink
        return tuple(
            rebucket_over_spark(spark, work, buffer_bytes=sink.merge_memory_bytes, directory=sink.local_directory)
        )

    def _settle_skipped(self, table: LiveTable, spark: Any, identity: BatchIdentity, started: float) -> BatchReport:
        """A batch that is in the table may still owe the compaction that was due with it, idle buckets included."""
        session = table.session
        settle_skipped(table)
        trigger = session.plan.trigger(identity.batch_id)
        due = session.due(trigger) if trigger is not CompactTrigger.NONE else []
        states = session.bucket_states(trigger) if due else {}
        messages = compact_over_spark(spark, session.plan.bucket_write(trigger), [(b, states[b]) for b in due])
        report = commit_owed_compaction(table, identity.batch_id, messages) if messages else None
        table.owes_full = trigger is CompactTrigger.FULL and report is not None and report.committed.dropped is not None
        report = report or self._compact_postponed(table, spark, identity) or CommitReport(Committed(), 0, 0)
        report = self._make_visible(table, spark, identity, trigger, messages, report)
        seconds = time.monotonic() - started
        return describe_skipped(session.table.path, identity.batch_id, messages, report, seconds, hidden_rows(table))

    def finish(self, spark: Any, query_id: str) -> int:
        """Compacts, once a query has ended, what its batches still owe; the rows that readers do not see even then.

        For bounded queries: a later start does it as well. What could not be done is a warning.
        """
        user = query_id if self.sink_id is None else f"{query_id}-{self.sink_id}"
        try:
            table = live_table(self.path, self.options, user, self.storage_options)
            table.session.refresh()
            table.take_over()
            finish_visibility(table, spark)
            budget = table.budget()
            while table.owes_postponed and budget.left_ms > 0:
                made = self._rebucket_postponed(table, spark)
                done = table.session.commit(made, user=compactor_user(table.user), kind=CommitKind.COMPACT)
                table.owes_postponed = done.dropped is not None
                if table.owes_postponed:
                    budget.wait()
            return hidden_rows(table).rows
        except BucketlineError as e:
            _LOG.warning("%s: what the query still owes could not be compacted: %s", self.path, e)
            return 0
