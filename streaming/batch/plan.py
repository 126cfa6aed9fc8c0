"""Plans one micro-batch as stages of work for tasks. The driver decides everything before any task starts."""

from dataclasses import replace
from itertools import repeat

from bucketline.state.commit.live_files import BucketId
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.read.bucket_deletions import masked_files
from bucketline.state.store.table.overwrite import emptying_stages
from bucketline.state.store.write.bucket_writer import BucketState, CompactTrigger, pick_unit
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.write_plan import Workers, WriteScope
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import Decoder, leaves_out_values
from bucketline.streaming.decode.moves.key_moves import FoundValues
from bucketline.streaming.decode.seen import RecordPlace
from bucketline.streaming.tasks.read_task import Records

MOST_REJECTS = 1 << 31
MOST_BYTES_IN_ONE_TASK = 32 << 20


def plan_batch(
    target: Target,
    identity: BatchIdentity,
    source: Records,
    workers: Workers,
    most_bytes: int = MOST_BYTES_IN_ONE_TASK,
) -> Stages[Records]:
    """Returns the stages of a batch, planned on the current view of the table.

    If one task does everything, it compacts at most `most_bytes`; larger compactions are divided among several tasks.
    """
    at, state = target.at, target.state
    plan = at.plan
    trigger = plan.trigger(identity.commit_number)
    if state.owes_full and trigger is not CompactTrigger.NONE:
        trigger = CompactTrigger.FULL
    scope = WriteScope(
        trigger,
        target.user,
        workers,
        expected_rows=state.rows_a_partition,
        touched=state.touched,
        key_shares=state.key_shares,
        checkpoint=identity.checkpoint,
        batch_id=identity.batch_id,
        by_share=source.is_alone or not state.shares_buckets,
    )
    limited = _limited(target, source)
    stages = _in_one_task(plan.mode.stages(plan, at, scope, limited), most_bytes)
    if state.shares_buckets and _writes_by_share(stages):
        stages = plan.mode.stages(plan, at, replace(scope, by_share=False), limited)
    if keeps_values(source.decode):
        stages = replace(stages, write=replace(stages.write, states=at.with_stored(stages.write.states)))
    return replace(stages, idle=_may_be_due(stages.write))


def plan_emptied(target: Target, source: Records, outcome: Outcome, workers: Workers) -> Stages[Records]:
    """Returns the stages of a batch in which the source's table was truncated. Only the rows after the last truncate
    are written, and they replace all rows of the table.
    """
    decode = source.decode
    assert isinstance(decode, DecodeStep), "only decoded records tell of a truncate"
    behind = replace(decode, emptied_at=RecordPlace(*outcome.truncated[-1]))
    return emptying_stages(target.at, replace(_limited(target, source), decode=behind), workers)


def keeps_values(decode: Decoder | None) -> bool:
    """Returns True if values that the source left out are filled in from the table's rows."""
    return decode is not None and leaves_out_values(decode)


def reads_rows(decode: Decoder | None) -> bool:
    """Returns True if rows of the batch get values from rows that the table has stored."""
    return keeps_values(decode) or (isinstance(decode, DecodeStep) and isinstance(decode.moves, FoundValues))


def shares_are_new(stages: Stages[Records], known: int | None) -> bool:
    """The keys are divided by their hash into shares: one share for each task that assigns keys to buckets. Returns
    True if the number of shares has changed in such a way that a bucket may hold keys of several shares. Then the tasks
    that assign keys must also write the rows.

    `known` is the number of shares in the stream's last batch; None if the snapshot of that batch does not say. If
    `known` is a multiple of the current number of shares, each bucket still holds keys of one share only, and the
    result is False. For example, if four shares become two, each new share consists of two old shares.
    """
    return stages.assigners.across_partitions and known is not None and known % (stages.key_shares or known) != 0


def _limited(target: Target, source: Records) -> Records:
    """Returns the source with a limit for bad records: each task reports at most 1000 more than the job allows."""
    return replace(source, reject_limit=min(target.at.plan.sink.bad_records_max, MOST_REJECTS) + 1000)


def _writes_by_share(stages: Stages[Records]) -> bool:
    """Returns True if several tasks write, and each task writes the rows of its share of the keys (the keys whose hash
    belongs to the task). Then a bucket must not hold keys of two shares, because two tasks would write the bucket.
    """
    is_one_task = stages.key_shares == 1 or (stages.source.is_alone and stages.tasks.write == 1)
    return stages.assigners.across_partitions and not is_one_task


def _in_one_task(stages: Stages[Records], most_bytes: int) -> Stages[Records]:
    """Changes the stages of a small batch so that one task writes all rows. This is done if one task reads the batch
    and little has to be compacted, because a shuffle would cost more than the rows. Otherwise returns the stages
    unchanged.

    In a dynamic table, the tasks that assign buckets stay as they are.
    """
    stage = stages.write
    if not stages.source.is_alone or stages.place is not None or stages.tasks.write is None:
        return stages
    if stage.groups is not None and not stages.assigners.across_partitions:
        return stages
    groups = None if stage.groups is None else stage.groups.in_one_task()
    if sum(map(_next_compaction_bytes, repeat(stage), stage.states.values())) > most_bytes:
        return stages
    return replace(stages, write=replace(stage, groups=groups), tasks=TaskCounts(1))


def _next_compaction_bytes(stage: WriteStage, state: BucketState) -> int:
    """Returns the bytes that a bucket's next compaction reads if the batch adds one file."""
    files = state.files
    if stage.write.trigger is CompactTrigger.NONE or not files or not state.complete:
        return 0
    if not stage.write.access.schema.primary_keys:
        return sum(f.file_size for f in files)
    newest = max(files, key=lambda f: f.max_sequence_number)
    added = replace(newest, file_name=f"{newest.file_name}-next", level=0, file_size=0)
    unit = pick_unit(stage.write, (*files, added), masked_files(state.vector_files))
    return 0 if unit is None else sum(f.file_size for f in unit.files)


def _may_be_due(stage: WriteStage) -> tuple[BucketId, ...]:
    """Returns the buckets that may be due for a compaction, including buckets for which the batch has no rows."""
    if stage.write.trigger is CompactTrigger.NONE:
        return ()
    return tuple(b for b, state in stage.states.items() if state.files and state.complete)
