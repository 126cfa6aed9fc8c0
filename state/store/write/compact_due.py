"""Finds the buckets that a trigger would compact: on the driver, from file metadata alone."""

from collections.abc import Collection, Mapping, Sequence

from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.append_pick import AppendCompactOptions, pick_append
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.run import run_count
from bucketline.state.store.compact.append_compact import append_options
from bucketline.state.store.read.bucket_deletions import NO_VECTORS, VectorFiles, masked_files
from bucketline.state.store.write.bucket_writer import CompactTrigger, pick_unit
from bucketline.state.store.write.write_plan import WritePlan


def may_compact(files: Sequence[DataFileMeta], trigger: CompactTrigger, options: CompactOptions) -> bool:
    """Whether a bucket may be compacted once this batch has added a run; False only if it certainly is not."""
    if trigger is CompactTrigger.FULL or not options.waits_for_runs:
        return True
    return run_count(files) + 1 >= options.compaction_trigger


def may_join(files: Sequence[DataFileMeta], trigger: CompactTrigger, options: AppendCompactOptions) -> bool:
    """Whether a compaction may be due in an append bucket once a new file has come to these files."""
    small = [f for f in files if f.file_size < options.small_bytes]
    enough = len(small) + 1 >= options.min_files or sum(f.file_size for f in small) >= options.small_bytes
    return trigger is CompactTrigger.FULL or enough


def due_buckets(
    view: LiveFiles,
    plan: WritePlan,
    trigger: CompactTrigger,
    vectors: Mapping[BucketId, VectorFiles] = NO_VECTORS,
    *,
    among: Collection[BucketId] | None = None,
) -> list[BucketId]:
    """Returns the buckets, in order, in which the trigger finds something to compact in the present files. `vectors`
    are the deletion-vector files by bucket; `among` restricts the buckets that are checked.
    """
    if trigger is CompactTrigger.NONE:
        return []
    looked_at = [b for b in view.buckets() if b[1] >= 0 and (among is None or b in among)]
    if not plan.schema.primary_keys:
        options, full = append_options(plan.schema.settings), trigger is CompactTrigger.FULL
        return [b for b in looked_at if pick_append(view.files(b), options, full=full)]
    write = plan.bucket_write(trigger)
    return [b for b in looked_at if pick_unit(write, view.files(b), masked_files(vectors.get(b, ()))) is not None]
