"""One micro-batch as stages: what tasks will do, fixed on the driver before any of them starts."""

from dataclasses import replace

from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.stages import Stages, WriteStage
from bucketline.state.store.write.write_plan import Workers, WriteScope
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.tasks.read_task import Records

MOST_REJECTS = 1 << 31


def plan_batch(target: Target, identity: BatchIdentity, source: Records, workers: Workers) -> Stages[Records]:
    """The stages of a batch on the table as its session sees it."""
    session, state = target.session, target.state
    plan = session.plan
    trigger = plan.trigger(identity.batch_id)
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
    )
    limited = replace(source, reject_limit=min(plan.sink.bad_records_max, MOST_REJECTS) + 1000)
    stages = plan.mode.stages(plan, session, scope, limited)
    return replace(stages, idle=_may_be_due(stages.write))


def _may_be_due(stage: WriteStage) -> tuple[BucketId, ...]:
    """The buckets that may owe a compaction, whether rows come to them or not."""
    if stage.write.trigger is CompactTrigger.NONE:
        return ()
    return tuple(b for b, state in stage.states.items() if state.files and state.complete)
