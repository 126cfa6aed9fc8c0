"""The steps that a batch takes for one table, if the batch has records for the table: decide whether the table lacks
the batch, plan the write, check the results of the tasks, and commit. The steps are the same as in a job of one
table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bucketline.state.commit.change import AppendCheck
from bucketline.state.errors import MissingSnapshotError, TableNotFoundError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.engine.engine import Engine, Outcome
from bucketline.state.store.write.stages import Stages
from bucketline.streaming.batch import recover
from bucketline.streaming.batch.async_compaction import check_async
from bucketline.streaming.batch.back_pressure import Relief, relieve
from bucketline.streaming.batch.commit import commit_batch
from bucketline.streaming.batch.conform import at_time, grow_table, of_one_source_table, refuse_need, refuse_unexpected
from bucketline.streaming.batch.identity import BatchIdentity, numbered_offsets
from bucketline.streaming.batch.key_order import (
    check_begun_partitions,
    check_truncates,
    policy_of,
    settle_mixed_keys,
)
from bucketline.streaming.batch.moved_values import next_moves
from bucketline.streaming.batch.plan import reads_rows
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.batch.target import Target
from bucketline.streaming.batch.write_batch import Done, compact_what_was_due, decide, report, settle
from bucketline.streaming.decode.moves.key_moves import Asking, FoundValues
from bucketline.streaming.many.birth import birth_of
from bucketline.streaming.many.entries import BatchSpan, at_least, check_entry, identity_for
from bucketline.streaming.many.job import ManyJob, ManyState
from bucketline.streaming.many.ledger import Entry
from bucketline.streaming.many.ledger_files import ledger_lost
from bucketline.streaming.many.tables import Known
from bucketline.streaming.tasks.many.split import Feed
from bucketline.streaming.tasks.many.table_notes import TableNote
from bucketline.streaming.tasks.read_task import Records
from bucketline.streaming.tasks.spark_engine import SparkEngine


@dataclass(slots=True)
class Turn:
    """The state of one table in a batch.

    - `entry` is the stored state of the table in the job's ledger, and `identity` is the identity of the batch for
      this table.
    - `note` says what tasks have read for the table.
    - `decided` is true once it is known whether the table lacks the batch. `is_new` is then true if the table lacks
      the batch.
    - `moves` is set if updates have changed the keys of rows. It has either the old keys, whose rows tasks must send,
      or the values of these rows, which tasks must put into the new rows.

    The attributes belong together because each step of the table reads and changes them.
    """

    known: Known
    entry: Entry | None
    identity: BatchIdentity
    target: Target
    note: TableNote
    decided: bool = False
    is_new: bool = True
    has_grown: bool = False
    relief: Relief = field(default_factory=Relief)
    stages: Stages[Records] | None = None
    moves: Asking | FoundValues | None = None
    outcome: Outcome | None = None
    rejected: int = 0

    @property
    def name(self) -> str:
        return self.known.name

    @property
    def wrote(self) -> bool:
        """True if the table holds a commit of the batch, or will get one."""
        if not self.is_new:
            return True
        return self.outcome is not None and bool(self.outcome.messages or self.rejected or self.outcome.truncated)

    def discard(self) -> None:
        """Removes the files that tasks have written for the table."""
        if self.outcome is not None:
            self.target.at.discard(self.outcome.messages)


def decide_turn(
    turn: Turn, job: ManyJob, state: ManyState, batch: BatchIdentity, span: BatchSpan, engine: Engine
) -> None:
    """Decides whether the table lacks the batch, and notes the decision in `turn` (the work of one batch on one table).
    The table is not changed, except that buckets with too many sorted runs are compacted first.

    Raises CheckpointMismatchError if the table, the ledger (the stored state of the job's tables) and the checkpoint
    disagree. Raises CompactionFailedError if the table's asynchronous compaction has failed.
    """
    known, entry = turn.known, turn.entry
    if isinstance(engine, SparkEngine):
        check_async(turn.target, engine.spark)
    check_entry(known.name, entry, known.birth, span)
    try:
        turn.target, decision = decide(turn.target, turn.identity, replace(job.one, topics=None), at_least(entry))
    except (CheckpointMismatchError, MissingSnapshotError, TableNotFoundError):
        # If the table was dropped while the job runs, the error says so, and not what follows from it.
        check_entry(known.name, entry, birth_of(turn.target.at.table), span)
        raise
    own = turn.target.state.commits
    has_lost = state.ledger is None and batch.batch_id > 0 and not job.one.allow_reprocess
    if has_lost and any(recover.PIN in s.properties for s in own) and _is_before(own, batch):
        raise ledger_lost(state.files, known.name, batch.batch_id)
    if entry is None and own and span.end:
        # A job of this table alone may have written the batch: its bad records count too.
        entry = Entry(known.birth, fed=_fed(own))
        turn.identity = identity_for(batch, span, entry, turn.note.spans, job.pin)
    turn.decided, turn.is_new = True, isinstance(decision, recover.WriteBatch)
    if not turn.is_new:
        return
    if isinstance(engine, SparkEngine):
        most = job.one.most_records
        turn.target = check_begun_partitions(turn.target, turn.identity, engine.spark, known.step, most)
    turn.target, turn.relief = relieve(turn.target, engine)


def _is_before(own: Sequence[Snapshot], batch: BatchIdentity) -> bool:
    """Returns True if one of the query's own snapshots in the table holds an earlier batch. The snapshots are read,
    because a job has no ledger (stored state of its tables) before its first batch.
    """
    return any(s.commit_identifier < batch.batch_id for s in own)


def _fed(own: Sequence[Snapshot]) -> frozenset[Feed]:
    return frozenset(feed for s in own for feed in numbered_offsets(s.properties.get(recover.END_OFFSETS)))


def plan_turn(turn: Turn) -> None:
    """Plans the write of the table. If the records need more columns, the table's schema is changed first."""
    if turn.note.need:
        need = Outcome(need=turn.note.need)
        if turn.has_grown:
            refuse_need(turn.target.at, need)
        turn.target = turn.target.with_table(grow_table(turn.target.at, need))
        turn.has_grown = True
    check_truncates(turn.identity, turn.known.step)
    seen, step = turn.note.seen, turn.known.step
    if turn.known.reading is not None:
        step = turn.known.reading.decode
    if step.moves == turn.moves:  # otherwise tasks have read with values of an earlier batch
        turn.moves = next_moves(turn.target.at, step, seen.moves, is_emptied=bool(seen.truncated))
    if seen.truncated:
        turn.stages = turn.known.emptying(turn.target, Outcome(truncated=seen.truncated), turn.moves)
    else:
        turn.stages = turn.known.stages(turn.target, turn.identity, turn.moves)
    at_time(turn.stages.source.decode, turn.identity.time_ms)


def check_turn(turn: Turn, batch: BatchIdentity) -> None:
    """Checks, before the commit, the rows that tasks have written for one table. `turn` is the state of the table in
    this batch. Raises an error if the rows came from several source tables, if rows do not meet the expectations, or if
    rows of one key came from several topic partitions, as a job of one table would do.
    """
    assert turn.outcome is not None and turn.stages is not None, "only a table that was written is checked"
    outcome, decode = turn.outcome, turn.stages.source.decode
    turn.target = of_one_source_table(turn.target, outcome, decode)
    refuse_unexpected(turn.target, outcome, decode)
    turn.target = settle_mixed_keys(turn.target, batch, outcome, policy_of(turn.target.at.plan, decode))


def commit_turn(turn: Turn, engine: Any, times: tuple[float, float, float]) -> BatchReport | None:
    """Commits the table's rows, or finishes a batch that the table already holds. Returns None if there is nothing to
    do. `times` are the times at which the batch began, was planned, and had been written, in seconds of the monotonic
    clock.
    """
    started, planned, ran = times
    if not turn.is_new:
        turn.target, done = compact_what_was_due(turn.target, turn.identity, engine)
    elif not turn.wrote:
        turn.known.target = turn.target
        return None
    else:
        assert turn.outcome is not None and turn.stages is not None, "the table was written"
        check = None
        counts_buckets = turn.target.at.plan.mode.append_check is AppendCheck.BUCKET_COUNT
        if reads_rows(turn.stages.source.decode) and counts_buckets:
            check = AppendCheck.ROWS_READ
        turn.target, said = commit_batch(
            turn.target,
            turn.identity,
            turn.outcome,
            turn.stages.key_shares,
            check,
            empties=bool(turn.outcome.truncated),
            rejected_rows=turn.rejected,
        )
        trigger = turn.stages.write.write.trigger
        done = Done(trigger, turn.outcome.messages, said, turn.outcome, planned, ran, turn.relief)
    turn.target, done = settle(turn.target, turn.identity, engine, done)
    if done.outcome is not None and turn.target.at.plan.mode.postpones:
        turn.target = turn.target.refreshed()
    turn.known.target = turn.target
    return report(turn.target, turn.identity, done, started)
