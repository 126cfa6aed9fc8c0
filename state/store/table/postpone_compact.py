"""Compaction of a postpone table: what waits is moved to real buckets, which then compact, in one COMPACT snapshot.

Unlike Paimon's Spark procedure it keeps deletes and update kinds, keeps the order of a key's changes, and takes
partitions to restrict itself to. Source: Paimon 2.0 SparkPostponeCompactProcedure, Flink's PostponeBucketCompactSink.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.catalog.live_files import BucketId, TableView
from bucketline.state.store.read.bucket_deletions import NO_VECTORS, VectorFiles, masked_files
from bucketline.state.store.read.postponed import written
from bucketline.state.store.table.partition_choice import PartitionTest
from bucketline.state.store.table.rebucket import Source
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, CompactTrigger, pick_unit
from bucketline.state.store.write.sealed_runs import SealPlan
from bucketline.state.store.write.write_plan import WritePlan


@dataclass(frozen=True, slots=True)
class PostponeWork:
    """What one compaction does: the files to deal out, how, and what is known of the buckets they go to.

    `retired` are messages that take the postponed files away; `idle` are buckets that get no rows and are compacted all
    the same.
    """

    sources: tuple[Source, ...]
    seal: SealPlan
    write: BucketWrite
    states: Mapping[BucketId, BucketState]
    retired: tuple[CommitMessage, ...]
    idle: tuple[BucketId, ...]

    @property
    def is_empty(self) -> bool:
        return not self.sources and not self.idle


def plan_postponed(
    plan: WritePlan,
    view: TableView,
    write: BucketWrite,
    chosen: PartitionTest,
    *,
    new_buckets: int | None = None,
    vectors: Mapping[BucketId, VectorFiles] = NO_VECTORS,
) -> PostponeWork:
    """What waits in the chosen partitions at the view's snapshot, and where it goes.

    A partition keeps its bucket count; a new one gets one by `postpone.target-row-num-per-bucket`, else
    `postpone.default-bucket-num`, else `new_buckets`. `vectors` are the deletion-vector files of real buckets.
    """
    waiting = {b[0]: view.files(b) for b in view.buckets() if b[1] == POSTPONE_BUCKET and chosen(b[0])}
    real = [b for b in view.buckets() if b[1] >= 0 and chosen(b[0])]
    totals = _real_totals(view)
    for partition, files in waiting.items():
        totals.setdefault(partition, _buckets_for(plan, files, new_buckets))
    states = {
        b: BucketState(view.next_sequence_number(b), view.files(b), vector_files=vectors.get(b, ())) for b in real
    }
    sources = [
        Source((partition, POSTPONE_BUCKET), (file,), origin)
        for partition, files in waiting.items()
        for origin, file in enumerate(sorted(files, key=written))
    ]
    return PostponeWork(
        sources=tuple(sources),
        seal=plan.rebucket_plan(totals),
        write=plan.with_totals(write, totals),
        states=states,
        retired=tuple(
            CommitMessage(partition, POSTPONE_BUCKET, POSTPONE_BUCKET, compact_before=files)
            for partition, files in waiting.items()
        ),
        idle=tuple(b for b in real if _is_due(write, states[b])),
    )


def _is_due(write: BucketWrite, state: BucketState) -> bool:
    """Whether a bucket is compacted also without new rows: if it has level 0, or is not yet as a full one leaves it."""
    if any(f.level == 0 for f in state.files):
        return True
    return write.trigger is CompactTrigger.FULL and bool(
        pick_unit(write, state.files, masked_files(state.vector_files))
    )


def _real_totals(view: TableView) -> dict[bytes, int]:
    found = {}
    for bucket_id in view.buckets():
        total = view.total_of_bucket(bucket_id)
        if bucket_id[1] >= 0 and total > 0:
            found[bucket_id[0]] = total
    return found


def _buckets_for(plan: WritePlan, files: Sequence[DataFileMeta], new_buckets: int | None) -> int:
    settings = plan.schema.settings.postpone
    rows_each = settings.rows_per_bucket
    if rows_each is not None:
        return max(1, -(-sum(f.row_count for f in files) // rows_each))
    if new_buckets is not None and not settings.has_default_buckets:
        return new_buckets
    return settings.default_buckets
