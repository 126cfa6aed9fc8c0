"""Joins small files of append tables. The rows and their order do not change.

Source: Paimon 2.0 AppendCompactTask, BucketedAppendCompactManager, AppendDeleteFileMaintainer.
"""

from collections.abc import Sequence
from dataclasses import replace

from bucketline.conf.table.table_settings import TableSettings
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.lsm.tree.append_pick import AppendCompactOptions, pick_append
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.compactor import CompactResult
from bucketline.state.store.compact.watch import Watch, unwatched, watched
from bucketline.state.store.datafile.rolling_writer import write_data_files
from bucketline.state.store.read.bucket_deletions import BucketDeletions, VectorFiles, load_deletions, masked_files
from bucketline.state.store.read.prune import BucketFiles


def append_options(settings: TableSettings) -> AppendCompactOptions:
    """Returns the compaction settings of an append table."""
    target = settings.files.target_bytes(has_primary_key=False)
    return AppendCompactOptions(
        target, int(target * settings.compaction.small_file_ratio), settings.compaction.min_files
    )


def compact_append(
    access: BucketAccess,
    bucket_id: BucketId,
    files: Sequence[DataFileMeta],
    *,
    full: bool,
    vector_files: VectorFiles = (),
    watch: Watch = unwatched,
) -> CompactResult:
    """Joins the files that `pick_append` picks among `files` (with `full`, for a full compaction), and returns the
    result. One record batch is in memory at a time.

    After an error all new files are removed. Rows that `vector_files` mark as deleted are dropped. If an index file
    also has vectors of other data files, these vectors are written to a new index file. `watch` is called before each
    record batch, and can end the work by raising an error.
    """
    access = access.keeping
    columns = [f.name for f in access.schema.fields]
    bucket = BucketFiles(*bucket_id, total_buckets=0, files=tuple(files))
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    groups = pick_append(files, append_options(access.schema.settings), full=full)
    names = {f.file_name for group in groups for f in group}
    touched = tuple(e for e in vector_files if names & masked_files((e,)))
    deletions = load_deletions(access.files, touched)
    reading = replace(access.files, deletions=deletions)
    try:
        for group in groups:
            writer = access.writer(
                bucket_id, level=0, source=FileSource.COMPACT, first_sequence_number=group[0].min_sequence_number
            )
            rows = (b for f in group for b in reading.rows(bucket, f, columns))
            after += write_data_files(writer, watched(rows, watch))
            before += group
            for file in group:
                deletions.forget(file.file_name)
        if not touched:
            return CompactResult(tuple(before), tuple(after))
        return CompactResult(tuple(before), tuple(after), (), *index_change(access, bucket_id, touched, deletions))
    except BaseException:
        access.delete_own(after, bucket_id)
        raise


def index_change(
    access: BucketAccess, bucket_id: BucketId, touched: VectorFiles, deletions: BucketDeletions
) -> tuple[IndexManifestEntry | None, VectorFiles]:
    """Returns the new index file with the remaining deletion vectors (None if no file is needed), and the index files
    to remove.

    In a table with buckets, a bucket has one index file, which the new index file replaces; so no index files are
    returned for removal. In a table without buckets, the commit removes old index files by name, so they are returned.
    """
    by_name = not bucket_mode(access.schema).has_buckets
    if by_name and deletions.is_empty:
        return None, touched
    files = access.files
    new = deletions.write(files.io, files.table_path, bucket_id, schema=access.schema, world=access.world)
    return new, touched if by_name else ()
