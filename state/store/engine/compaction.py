"""Compaction of buckets as they are, by any engine."""

from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.engine.engine import NO_ROWS, Engine
from bucketline.state.store.write.bucket_writer import BucketWrite, Work
from bucketline.state.store.write.grouping import OneBucket
from bucketline.state.store.write.stages import Stages, WriteStage
from bucketline.state.store.write.write_plan import WritePlan


def compact_buckets(engine: Engine, plan: WritePlan, write: BucketWrite, work: Work) -> tuple[CommitMessage, ...]:
    """The messages of these buckets, of which each is compacted as `write` says; nothing is committed."""
    if not work:
        return ()
    seal = plan.seal_plan(OneBucket())
    stages = Stages(NO_ROWS, seal, WriteStage(write, dict(work)), idle=tuple(bucket_id for bucket_id, _ in work))
    return engine.run(stages).messages
