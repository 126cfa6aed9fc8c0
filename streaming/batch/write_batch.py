"""The steps of a batch: identify → decide → conform → plan → run → commit → settle → report.

Each step is a function of values. A batch has one identity. A target is a table that the batch is written to: each step
takes the target and returns the changed target. The next batch gets the target of the last step.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bucketline.state.commit.change import AppendCheck
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.compaction import compact_buckets
from bucketline.state.store.engine.engine import GivenBack, Outcome
from bucketline.state.store.engine.make_visible import Again
from bucketline.state.store.maintenance.upkeep import Upkept
from bucketline.state.store.plans.make_plan import OpenItems
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.table_at import TableAt
from bucketline.streaming.bad_records.place import BadRecordsPlace, BatchName, settle_bad_records
from bucketline.streaming.bad_records.stored import place_of
from bucketline.streaming.batch import recover
from bucketline.streaming.batch.async_compaction import async_backlog, check_async, notice_batch
from bucketline.streaming.batch.back_pressure import Relief, relieve
from bucketline.streaming.batch.commit import (
    CommitReport,
    commit_batch,
    commit_owed_compaction,
    compactor,
    owed_compaction_committed,
    settle_skipped,
)
from bucketline.streaming.batch.conform import (
    at_time,
    fit_decoder,
    fit_frame,
    grow_table,
    of_one_source_table,
    refuse_need,
    refuse_unexpected,
)
from bucketline.streaming.batch.expired import planned_again_if_expired
from bucketline.streaming.batch.files.parquet_batch import ParquetReader, files_of
from bucketline.streaming.batch.history import check_rolled_back, other_queries, read_history
from bucketline.streaming.batch.identity import BatchIdentity, new_partitions, read_identity
from bucketline.streaming.batch.inputs.kafka_batch import KafkaReader, read_by_one_task, records_of, stored_row_bytes
from bucketline.streaming.batch.inputs.registry_wait import wait_of, when_registry_answers
from bucketline.streaming.batch.inputs.topic_ids import newest_ids
from bucketline.streaming.batch.inputs.topic_watch import TopicWatch
from bucketline.streaming.batch.key_order import (
    check_begun_partitions,
    check_truncates,
    origin_columns,
    policy_of,
    settle_mixed_keys,
    with_feeds,
)
from bucketline.streaming.batch.make_visible import hidden_rows, settle_visibility
from bucketline.streaming.batch.moved_values import next_moves
from bucketline.streaming.batch.plan import plan_batch, plan_emptied, reads_rows, shares_are_new
from bucketline.streaming.batch.plan_ahead import check_plan_ahead, plan_ahead, planned_backlog
from bucketline.streaming.batch.postponed import postponed_moved, waiting_rows
from bucketline.streaming.batch.preflight import check_session
from bucketline.streaming.batch.progress import BatchReport, describe_batch, describe_skipped, with_backlog
from bucketline.streaming.batch.target import Target, taken_over
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import Decoder
from bucketline.streaming.decode.moves.key_moves import FoundValues
from bucketline.streaming.tasks.parquet_fit import UnfitFileError
from bucketline.streaming.tasks.read_task import Frame, Records
from bucketline.streaming.tasks.spark_engine import SparkEngine

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of a job that hold for all its batches. Fields that `TableSink` also has mean the same there.

    If `kafka` is set, tasks read Kafka themselves; if `parquet` is set, tasks read Parquet files themselves. If
    `joins_partitions` is true, one task reads a batch of few records, however Spark splits it; only a job that made the
    DataFrame itself sets this, because it knows that the DataFrame holds Kafka's records and nothing else. `topics`
    checks that Kafka's topics are still the same. `most_records` is the largest number of Kafka records in a batch;
    None if it is not known. `bad_records` is the place that stores bad records; if it is None, the options of the sink
    set the place.

    There is one attribute for each setting that all batches share.
    """

    decoder: Decoder | None = None
    checkpoint: str | None = None
    source: str | None = None
    cluster: str | None = None
    allow_reprocess: bool = False
    kafka: KafkaReader | None = None
    joins_partitions: bool = False
    parquet: ParquetReader | None = None
    topics: TopicWatch | None = None
    most_records: int | None = None
    bad_records: BadRecordsPlace | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What was done for a batch so far.

    - `outcome` is what the tasks have done; None if the batch was in the table before.
    - `trigger` says which compactions were due with the batch.
    - `planned` is the time at which the batch was planned, and `ran` the time at which its tasks had ended, both in
      seconds of the monotonic clock.
    - `relief` says how many sorted runs the buckets had before the batch, and whether the batch waited or compacted
      because of them.
    """

    trigger: CompactTrigger
    messages: tuple[CommitMessage, ...]
    report: CommitReport
    outcome: Outcome | None = None
    planned: float = 0.0
    ran: float = 0.0
    relief: Relief = field(default_factory=Relief)


def write_batch(target: Target, identity: BatchIdentity, frame: Any, job: Job) -> tuple[Target, BatchReport]:
    """Writes a batch into a table, exactly once. Returns the target for the next batch, and the batch's report."""
    started, engine = time.monotonic(), SparkEngine(frame.sparkSession)
    check_async(target, engine.spark)
    work = partial(write_once, target, identity, engine, Frame(frame, job.decoder), job)
    target, done = when_registry_answers(lambda: repeat_if_gone(work), wait_of(job.decoder), target.at.table.world)
    target, done = settle(target, identity, engine, done)
    if done.outcome is not None and target.at.plan.mode.postpones:
        # The report shows the postponed rows that wait now; the next batch would have to read the new snapshot anyway.
        target = target.refreshed()
    return target, report(target, identity, done, started)


def write_once(
    target: Target, identity: BatchIdentity, engine: SparkEngine, rows: Frame, job: Job
) -> tuple[Target, Done]:
    """Decides whether the batch must be written; if so, writes and commits it. Returns the target afterwards, and what
    was done. If somebody removed files of the batch before the commit, the caller repeats all of this.
    """
    target, decision = decide(target, identity, job)
    if isinstance(decision, recover.SkipBatch):
        return compact_what_was_due(target, identity, engine)
    check_truncates(identity, rows.decode)
    target = check_begun_partitions(target, identity, engine.spark, rows.decode, job.most_records)
    target, relief = relieve(target, engine)
    of_kafka = job.joins_partitions or job.kafka is not None
    row_bytes = stored_row_bytes(target.at.view) if of_kafka else 0
    target, fitting = conform(target, replace(rows, decode=at_time(rows.decode, identity.time_ms)))
    place = job.bad_records or place_of(target.at.plan.sink, target.at.table.storage)
    if job.parquet is not None:
        target, done = _of_files(target, identity, engine, fitting, rows.frame, job.parquet, place)
        return target, replace(done, relief=relief)
    records = records_of(fitting, identity, job.kafka, engine.workers.parallelism, row_bytes)
    if job.joins_partitions:
        records = read_by_one_task(records, identity, engine.workers.parallelism, row_bytes)
    target, done = plan_run_commit(target, identity, engine, records, job.topics, place)
    return target, replace(done, relief=relief)


def _of_files(
    target: Target,
    identity: BatchIdentity,
    engine: SparkEngine,
    fitting: Frame,
    frame: Any,
    parquet: ParquetReader,
    place: BadRecordsPlace | None,
) -> tuple[Target, Done]:
    """Writes a batch of files. Tasks read the files themselves; if a task finds a file that only Spark can read, the
    batch is written again and Spark reads it.
    """
    files = files_of(fitting, frame, identity, parquet)
    try:
        return plan_run_commit(target, identity, engine, files, place=place)
    except UnfitFileError as e:
        parquet.give_up(e)
    return plan_run_commit(target, identity, engine, fitting, place=place)


def identify(frame: Any, batch_id: int, job: Job) -> BatchIdentity:
    """Returns the identity of the batch: who writes it, and which input it holds. Raises the errors of `read_identity`
    and `check_session`.
    """
    identity = read_identity(frame.sparkSession, batch_id, job.checkpoint)
    check_session(frame.sparkSession)
    identity = replace(identity, source=job.source, cluster=job.cluster)
    return identity if job.topics is None else replace(identity, topic_ids=job.topics.ids_of(identity))


def decide(
    target: Target, identity: BatchIdentity, job: Job, at_least: int | None = None
) -> tuple[Target, recover.WriteBatch | recover.SkipBatch]:
    """Returns the target (the batch's table) at its newest snapshot, and the decision: write or skip the batch.

    See `recover.decide` for `at_least` and the errors.
    """
    target = target.refreshed()
    check_plan_ahead(target.at)
    target, history = read_history(taken_over(target))
    if (history.commits or history.marker) and new_partitions(identity):
        history = replace(history, others=other_queries(target))
    try:
        decision = recover.decide(identity, history, allow_reprocess=job.allow_reprocess, at_least=at_least)
    except recover.CheckpointMismatchError as e:
        check_rolled_back(target.at, e)
        raise
    if job.topics is not None and isinstance(decision, recover.WriteBatch):
        job.topics.accept(newest_ids(target.state.commits, identity.cluster), identity.topic_ids)
    return target, decision


def conform(target: Target, rows: Frame) -> tuple[Target, Frame]:
    """Fits the rows to the table's columns. Returns the target and the rows. If the job's policy allows a change, the
    table may have new columns afterwards; the target then has the changed table.

    Records that tasks decode stay as they are, because their fields are not known yet.
    """
    if rows.decode is not None:
        return target, rows
    origin = origin_columns(rows.frame.columns, target.at.plan)
    at, frame = fit_frame(rows.frame, target.at, origin)
    return target.with_table(at), replace(rows, frame=frame)


def plan_run_commit(
    target: Target,
    identity: BatchIdentity,
    engine: SparkEngine,
    rows: Records,
    topics: TopicWatch | None = None,
    place: BadRecordsPlace | None = None,
) -> tuple[Target, Done]:
    """Writes a batch that is not in the table yet: plans it, lets the tasks write it, and commits it. Returns the
    target after the commit, and what was done. `topics` checks before the commit that Kafka's topics are still the
    same; bad records are stored in `place`.
    """
    with planned_again_if_expired(target.at):
        stages = plan(target, identity, engine, rows)
        planned = time.monotonic()
        target, stages, outcome = run(target, identity, engine, stages, rows)
    ran = time.monotonic()
    target = settle_mixed_keys(target, identity, outcome, policy_of(target.at.plan, rows.decode))
    if topics is not None:
        identity = confirm_topics(target, identity, outcome, topics)
    rejected = set_aside(target, identity, outcome, place)
    check = None
    if reads_rows(stages.source.decode) and target.at.plan.mode.append_check is AppendCheck.BUCKET_COUNT:
        check = AppendCheck.ROWS_READ
    empties = bool(outcome.truncated)
    target, report = commit_batch(
        target, identity, outcome, stages.key_shares, check, empties=empties, rejected_rows=rejected
    )
    target = _advised(target, stages, engine)
    return target, Done(stages.write.write.trigger, outcome.messages, report, outcome, planned, ran)


def plan(target: Target, identity: BatchIdentity, engine: SparkEngine, rows: Records) -> Stages[Records]:
    """Returns the stages of the batch for the current state of the table, which may have changed since the job
    started.
    """
    fitting = replace(rows, decode=fit_decoder(rows.decode, target.at))
    return plan_batch(target, identity, with_feeds(fitting, target.at.plan, identity), engine.workers)


def run(
    target: Target, identity: BatchIdentity, engine: SparkEngine, stages: Stages[Records], rows: Records
) -> tuple[Target, Stages[Records], Outcome]:
    """Runs the tasks of a batch. Returns the target, which may have a new schema by then, the stages that ran last, and
    what the tasks have written.

    The tasks run a second time in three cases: if records need columns that the table lacks; if the source's table was
    truncated (then only rows after the truncate are written); and if rows whose key changed lack values.
    """
    target, stages, outcome = _run_by_share(target, identity, engine, stages, rows)
    target = of_one_source_table(target, outcome, rows.decode)
    refuse_unexpected(target, outcome, rows.decode)
    if outcome.need:
        target = target.with_table(grow_table(target.at, outcome))
        stages = plan(target, identity, engine, rows)
        target, stages, outcome = _run_by_share(target, identity, engine, stages, rows)
        refuse_unexpected(target, outcome, rows.decode)
        refuse_need(target.at, outcome)
    if outcome.truncated:
        target.at.discard(outcome.messages)
        fitting = replace(rows, decode=fit_decoder(rows.decode, target.at))
        stages = plan_emptied(target, fitting, outcome, engine.workers)
        outcome = engine.run(stages)
    if outcome.moves:
        return _run_with_moves(target, identity, engine, stages, rows, outcome)
    return target, stages, outcome


def _run_with_moves(
    target: Target,
    identity: BatchIdentity,
    engine: SparkEngine,
    stages: Stages[Records],
    rows: Records,
    outcome: Outcome,
) -> tuple[Target, Stages[Records], Outcome]:
    """Runs the tasks again, because rows with a changed key take values from the rows with their old keys. Returns the
    target, the stages of the last run, and the outcome of the last run.

    The tasks read the batch, and send the rows that the driver asks for, until the driver knows all values. Then the
    tasks read the batch once more and write it.
    """
    first, moves = outcome, None
    while not isinstance(moves, FoundValues):
        target.at.discard(outcome.messages)
        decode = stages.source.decode
        assert isinstance(decode, DecodeStep), "only decoded records have moved keys"
        moves = next_moves(target.at, decode, outcome.moves, is_emptied=bool(first.truncated))
        assert moves is not None, "tasks ask for values"
        asking = replace(rows, decode=replace(decode, moves=moves, emptied_at=None))
        if first.truncated:
            fitting = replace(asking, decode=fit_decoder(asking.decode, target.at))
            stages = plan_emptied(target, fitting, first, engine.workers)
        else:
            stages = plan(target, identity, engine, asking)
        if not isinstance(moves, FoundValues):
            outcome = engine.run(replace(stages, idle=()))
    if first.truncated:
        return target, stages, replace(engine.run(stages), truncated=first.truncated)
    return _run_by_share(target, identity, engine, stages, replace(rows, decode=stages.source.decode))


def _run_by_share(
    target: Target, identity: BatchIdentity, engine: SparkEngine, stages: Stages[Records], rows: Records
) -> tuple[Target, Stages[Records], Outcome]:
    """Runs the stages of a batch. Returns the target, the stages that have run, and their outcome.

    In a cross-partition table, each task writes a share of the keys (the keys whose hash belongs to the task), so no
    bucket may hold keys of two shares. If the number of shares has changed (`shares_are_new`), or a task finds such a
    bucket, the batches get one more stage, which sends the rows to the task that writes their bucket.
    """
    known = target.state.key_shares
    if not target.state.shares_buckets and shares_are_new(stages, known):
        why = f"the number of tasks that share the keys has changed from {known} to {stages.key_shares}"
    else:
        try:
            return target, stages, engine.run(stages)
        except GivenBack as e:
            if not stages.assigners.across_partitions:
                raise
            why = str(e)
    _LOG.info("%s: %s; from now on the batches of this stream take one more stage", target.at.table.path, why)
    target = target.with_state(replace(target.state, shares_buckets=True))
    stages = plan(target, identity, engine, rows)
    return target, stages, engine.run(stages)


def set_aside(target: Target, identity: BatchIdentity, outcome: Outcome, place: BadRecordsPlace | None) -> int:
    """Stores the bad records of the batch and returns their number.

    If there are too many bad records, or they cannot be stored, the files of the batch are removed. Raises the errors
    of `settle_bad_records`.
    """
    batch = BatchName(target.user, identity.batch_id, identity.digest, identity.run_id, target.at.table.path)
    try:
        aside = settle_bad_records(place, target.at.plan.sink.bad_records_max, outcome.rejects, batch)
    except BaseException:
        target.at.discard(outcome.messages)
        raise
    if aside is None:
        return 0
    _LOG.warning("batch %d: %s", identity.batch_id, aside.line())
    return aside.count


def confirm_topics(target: Target, identity: BatchIdentity, outcome: Outcome, topics: TopicWatch) -> BatchIdentity:
    """Asks again for the ids of the batch's topics, after the records were read. Returns the batch's identity with
    these ids.

    If a topic has another id than before, the topic was deleted and created again. Then the files of the batch are
    removed, and TopicCreatedAgainError is raised.
    """
    try:
        return replace(identity, topic_ids=topics.confirm(identity, target.state.commits))
    except recover.TopicCreatedAgainError:
        target.at.discard(outcome.messages)
        raise


def compact_what_was_due(target: Target, identity: BatchIdentity, engine: SparkEngine) -> tuple[Target, Done]:
    """Does the compaction that was due with a batch that is in the table already, also in buckets without new rows.
    Returns the target afterwards, and what was done.
    """
    settle_skipped(target)
    at = target.at
    trigger = at.plan.trigger(identity.commit_number)
    with planned_again_if_expired(at):
        due = at.due(trigger) if trigger is not CompactTrigger.NONE else []
        states = at.bucket_states(trigger) if due else {}
        write = at.plan.bucket_write(trigger)
        messages = compact_buckets(engine, write, [(b, states[b]) for b in due])
    report = CommitReport(Committed(), 0, Upkept())
    if messages:
        report = commit_owed_compaction(target, identity.batch_id, messages)
    return target.after(report.committed), Done(trigger, messages, report)


def settle(target: Target, identity: BatchIdentity, engine: SparkEngine, done: Done) -> tuple[Target, Done]:
    """Does the compactions that this batch and earlier batches have left: moves postponed rows, and makes rows visible.
    Returns the target afterwards, and `done` with this work added.

    Work that fails is noted in the state of the target, and is done after the next batch.
    """
    owes_full = done.trigger is CompactTrigger.FULL and done.report.committed.dropped is not None
    state = replace(target.state, owes_full=owes_full)
    if done.outcome is not None:
        touched = frozenset(m.partition for m in done.messages if m.new_files)
        rows_each = done.outcome.accepted_rows // max(1, len(touched))
        state = replace(state, touched=touched, rows_a_partition=rows_each)
    target, done = _move_postponed(target.with_state(state), identity, engine, done)
    later: list[CommitReport] = []

    def told(at: TableAt, messages: Sequence[CommitMessage], committed: Committed) -> None:
        later.append(owed_compaction_committed(target, at, messages, committed))

    again = Again(engine, compactor(target, identity.batch_id), done.trigger, target.budget(), told)
    target, rounds = settle_visibility(target, again, done.messages, done.report.committed)
    if done.outcome is not None:
        plan_ahead(target.at, target.user, identity.commit_number)
    notice_batch(target, identity.commit_number)
    hidden = frozenset(partition for partition, _ in target.state.hidden or {})
    report = done.report.with_rounds(rounds, later)
    marked = Upkept(done_partitions=target.upkeep.mark_done(target.at, hidden=hidden))
    return target, replace(done, report=replace(report, upkept=report.upkept.followed_by(marked)))


def report(target: Target, identity: BatchIdentity, done: Done, started: float) -> BatchReport:
    """Returns the report of the batch."""
    name, world, now = target.at.table.path, target.at.table.world, time.monotonic()
    if done.outcome is None:
        hidden = hidden_rows(target)
        return describe_skipped(name, identity.batch_id, done.messages, done.report, now - started, hidden, world)
    seconds = (done.planned - started, done.ran - done.planned, now - done.ran)
    waiting, hidden = waiting_rows(target), hidden_rows(target)
    described = describe_batch(
        name, identity.batch_id, done.outcome, done.report, seconds, identity.behind, waiting, hidden, world
    )
    return with_backlog(described, done.relief, _open_items(target), world)


def _open_items(target: Target) -> OpenItems:
    """Returns the items of compaction plans that were open when this stream last looked."""
    if target.at.plan.compacts_async:
        return async_backlog(target)
    return planned_backlog(target.at, target.user)


def _move_postponed(target: Target, identity: BatchIdentity, engine: SparkEngine, done: Done) -> tuple[Target, Done]:
    """Moves postponed rows to their buckets, if this is due after this batch. Returns the target afterwards, and `done`
    with this work added.
    """
    plan, every = target.at.plan, target.at.plan.sink.postpone_compact_batches
    is_due = every is not None and ((identity.commit_number + 1) % every == 0 or target.state.owes_postponed)
    if not plan.mode.postpones or not is_due:
        return target, done
    target, messages = postponed_moved(target, engine)
    report = commit_owed_compaction(target, identity.batch_id, messages) if messages else None
    lost = report is not None and report.committed.dropped is not None
    done = replace(done, report=done.report.followed_by(report))
    target = target if report is None else target.after(report.committed)
    return target.with_state(replace(target.state, owes_postponed=lost)), done


def _advised(target: Target, stages: Stages[Records], engine: SparkEngine) -> Target:
    """Logs advice about the job, once in a run of the job. Returns the target, which remembers the logging."""
    plan = target.at.plan
    advice = None if target.state.is_advised else plan.mode.advice(plan, stages, engine.workers)
    if advice is None:
        return target
    _LOG.warning("%s: %s", target.at.table.path, advice)
    return target.with_state(replace(target.state, is_advised=True))
