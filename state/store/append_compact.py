"""Joins small files of append tables, row order and rows unchanged.

Source: Paimon 2.0 AppendCompactTask, BucketedAppendCompactManager.
"""

from collections.abc import Mapping, Sequence

from bucketline.conf.table_options import COMPACTION_MIN_FILE_NUM, SMALL_FILE_RATIO, target_file_size
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.lsm.append_pick import AppendCompactOptions, pick_append
from bucketline.state.store.bucket_access import BucketAccess
from bucketline.state.store.compactor import CompactResult
from bucketline.state.store.rolling_writer import write_data_files
from bucketline.state.store.scan import BucketFiles
from bucketline.state.store.table_view import BucketId


def append_options(options: Mapping[str, str]) -> AppendCompactOptions:
    """The settings of an append table."""
    target = target_file_size(options, has_primary_key=False)
    return AppendCompactOptions(
        target, int(target * SMALL_FILE_RATIO.get(options)), COMPACTION_MIN_FILE_NUM.get(options)
    )


def compact_append(
    access: BucketAccess, bucket_id: BucketId, files: Sequence[DataFileMeta], *, full: bool
) -> CompactResult:
    """Joins what `pick_append` picks, a record batch in memory at a time. An error leaves none of the new files."""
    columns = [f.name for f in access.schema.fields]
    bucket = BucketFiles(*bucket_id, total_buckets=0, files=tuple(files))
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    try:
        for group in pick_append(files, append_options(access.schema.options), full=full):
            writer = access.writer(
                bucket_id, level=0, source=FileSource.COMPACT, first_sequence_number=group[0].min_sequence_number
            )
            after += write_data_files(writer, (b for f in group for b in access.files.rows(bucket, f, columns)))
            before += group
    except BaseException:
        access.delete_own(after, bucket_id)
        raise
    return CompactResult(tuple(before), tuple(after))
