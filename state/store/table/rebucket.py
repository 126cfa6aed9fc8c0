"""Rows that already are in the table, on their way into other buckets: postponed rows, and buckets being rescaled.

Files are read in order, and their rows sealed into sorted runs of the buckets they belong to; what then happens to a
run is the same as in a write.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.fold import drop_deletes
from bucketline.state.lsm.merge.fold_choice import reading_fold
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.read.bucket_deletions import VectorFiles, load_deletions
from bucketline.state.store.read.merge_read import merge_columns, merge_section
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan
from bucketline.state.types.arrow import VALUE_KIND


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one bucket whose rows are moved; `origin` says where they stand among all: lower ones are older.

    `vector_files` are those with the bucket's deletion vectors.
    """

    bucket_id: BucketId
    files: tuple[DataFileMeta, ...]
    origin: int
    vector_files: VectorFiles = ()


def postponed_runs(access: BucketAccess, source: Source, plan: SealPlan) -> Iterator[SealedRun]:
    """The rows of postponed files as runs of buckets, their kinds kept, in the order they were written."""
    bucket = BucketFiles(*source.bucket_id, total_buckets=source.bucket_id[1], files=source.files)
    columns = [f.name for f in plan.schema.fields]
    batches = (b for f in source.files for b in access.files.rows(bucket, f, [*columns, VALUE_KIND]))
    return _sealed(batches, columns, RunSealer(plan, origin=source.origin))


def current_runs(access: BucketAccess, source: Source, plan: SealPlan, *, memory_bytes: int) -> Iterator[SealedRun]:
    """The current rows of a real bucket, one a key, as runs of other buckets."""
    schema = plan.schema
    bucket = BucketFiles(*source.bucket_id, total_buckets=0, files=source.files)
    columns = [f.name for f in schema.fields]
    fold, needed = reading_fold(schema), merge_columns(schema, columns)
    deletions = load_deletions(access.files, source.vector_files)
    files = replace(access.files, deletions=deletions)
    merged = (
        batch
        for section in sections(list(source.files), access.key_order)
        for batch in drop_deletes(
            merge_section(
                files,
                bucket,
                section,
                needed,
                fold=fold,
                memory_bytes=memory_bytes,
            )
        )
    )
    return _sealed(merged, columns, RunSealer(plan, origin=source.origin))


def _sealed(batches: Iterable[pa.RecordBatch], columns: Sequence[str], sealer: RunSealer) -> Iterator[SealedRun]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        yield from sealer.add(AcceptedRows(rows.select(list(columns)), rows[VALUE_KIND].combine_chunks()))
    yield from sealer.finish()


def as_one_change(message: CommitMessage, delete: Callable[[Sequence[DataFileMeta], BucketId], None]) -> CommitMessage:
    """What a message leaves behind, without the files that its own compaction has used up: these are deleted.

    New files that were merely moved up count as made at their new level; what the input logged is part of the change.
    """
    new = {f.file_name for f in message.new_files}
    after = {f.file_name for f in message.compact_after}
    gone = [f for f in message.compact_before if f.file_name in new and f.file_name not in after]
    consumed = {f.file_name for f in message.compact_before}
    delete(gone, (message.partition, message.bucket))
    made = (*(f for f in message.new_files if f.file_name not in consumed), *message.compact_after)
    return replace(
        message,
        new_files=(),
        changelog_files=(),
        compact_changelog=(*message.changelog_files, *message.compact_changelog),
        compact_before=tuple(f for f in message.compact_before if f.file_name not in new),
        compact_after=made,
    )
