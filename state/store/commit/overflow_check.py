"""Finds level-0 files whose rows cannot be merged with the table's rows, before they are committed: sums that overflow,
products that cannot be divided.

After a commit such values would become null in merges, and Paimon could neither read nor compact the bucket. Statistics
show for most buckets that this cannot happen; only in other buckets the new keys are merged with the older rows.
"""

from collections.abc import Sequence

from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.fold_choice import reading_fold, strict_fold
from bucketline.state.lsm.merge.overflow_risk import columns_at_risk
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.read.merge_read import merge_columns, merge_section
from bucketline.state.store.read.prune import BucketFiles


def refuse_overflow(
    access: BucketAccess,
    bucket_id: BucketId,
    older: Sequence[DataFileMeta],
    new: Sequence[DataFileMeta],
    *,
    memory_bytes: int,
) -> None:
    """Checks that the new files can be merged with the older files, which are all other files of the bucket.

    Raises SchemaMismatchError that names the column whose result does not exist, or does not fit. Rows that wait for a
    bucket are not checked: if merging them gives no result, it is null.
    """
    schema = access.schema
    if bucket_id[1] < 0 or not new:
        return
    files = (*older, *new)
    columns = columns_at_risk(schema, [(f, access.files.schema_of(f.schema_id)) for f in files])
    if not columns:
        return
    bucket = BucketFiles(*bucket_id, total_buckets=0, files=files)
    for section in sections(files, access.key_order):
        if any(f in new for run in section for f in run.files):
            for _ in merge_section(
                access.files,
                bucket,
                section,
                merge_columns(schema, columns),
                fold=strict_fold(reading_fold(schema)),
                memory_bytes=memory_bytes,
            ):
                pass
