"""Makes the stages (the steps of a write) that move rows from the postpone bucket to real buckets, and then compact
these buckets.

Unlike Paimon's Spark procedure, this keeps deletes and update kinds, keeps the order of a key's changes, and can be
restricted to partitions. Source: Paimon 2.0 SparkPostponeCompactProcedure, Flink's PostponeBucketCompactSink.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bucketline.state.commit.change import PartitionTest
from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.table_rows import PostponedFile
from bucketline.state.store.read.bucket_deletions import masked_files
from bucketline.state.store.read.postponed import written
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, CompactTrigger, pick_unit
from bucketline.state.store.write.stages import BucketResult, Stages, TaskCounts, WriteStage
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.write_plan import Workers, WritePlan


def waiting_files(view: LiveFiles, chosen: PartitionTest) -> dict[bytes, Sequence[DataFileMeta]]:
    """Returns the files in the postpone bucket of each partition for which the test `chosen` is true. Partitions
    without a postpone bucket are left out.
    """
    return {b[0]: view.files(b) for b in view.buckets() if b[1] == POSTPONE_BUCKET and chosen(b[0])}


def real_counts(view: LiveFiles) -> dict[bytes, int]:
    """Returns the number of real buckets of each partition. Partitions without real buckets are left out."""
    counts = {}
    for bucket_id in view.buckets():
        total = view.total_of_bucket(bucket_id)
        if bucket_id[1] >= 0 and total > 0:
            counts[bucket_id[0]] = total
    return counts


def move_stages(
    at: TableAt,
    write: BucketWrite,
    waiting: Mapping[bytes, Sequence[DataFileMeta]],
    workers: Workers,
    chosen: PartitionTest,
) -> Stages[Parts]:
    """Returns the stages (the steps of a write) that move the rows of files in the postpone bucket to real buckets,
    and compact the real buckets of the chosen partitions, as one change. `waiting` has the files in the postpone
    bucket by partition.

    A partition keeps its bucket count. The bucket count of a new partition follows from
    `postpone.target-row-num-per-bucket`, or else from `postpone.default-bucket-num`; if neither is set, it is the
    number of tasks that run at a time.
    """
    plan, view, vectors = at.plan, at.view, at.deletion_entries()
    real = [b for b in view.buckets() if b[1] >= 0 and chosen(b[0])]
    counts = real_counts(view)
    for partition, files in waiting.items():
        counts.setdefault(partition, _buckets_for(plan, files, workers.parallelism))
    states = {
        b: BucketState(view.next_sequence_number(b), view.files(b), vector_files=vectors.get(b, ())) for b in real
    }
    parts = [
        PostponedFile(write.access, (partition, POSTPONE_BUCKET), file, origin, write.watch)
        for partition, files in waiting.items()
        for origin, file in enumerate(sorted(files, key=written))
    ]
    return Stages(
        source=Parts(parts),
        seal=plan.moving_seal_plan(counts),
        write=WriteStage(
            replace(write, counts=plan.counts(counts), moves_rows=True), states, result=BucketResult.ONE_CHANGE
        ),
        tasks=TaskCounts(workers.tasks(2 * workers.parallelism)),
        idle=tuple(b for b in real if _is_due(write, states[b])),
        retired=tuple(
            CommitMessage(partition, POSTPONE_BUCKET, POSTPONE_BUCKET, compact_before=tuple(files))
            for partition, files in waiting.items()
        ),
    )


def _is_due(write: BucketWrite, state: BucketState) -> bool:
    """Returns True if a bucket is compacted even without new rows: if it has files on level 0, or if a full compaction
    would change it.
    """
    if any(f.level == 0 for f in state.files):
        return True
    return write.trigger is CompactTrigger.FULL and bool(
        pick_unit(write, state.files, masked_files(state.vector_files))
    )


def _buckets_for(plan: WritePlan, files: Sequence[DataFileMeta], parallelism: int) -> int:
    settings = plan.schema.settings.postpone
    rows_each = settings.rows_per_bucket
    if rows_each is not None:
        return max(1, -(-sum(f.row_count for f in files) // rows_each))
    return settings.default_buckets if settings.has_default_buckets else parallelism
