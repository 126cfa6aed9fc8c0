"""Commits a change that was planned on a table at a snapshot. If the commit fails, the new files are removed, unless
the files may be in the table.

Rows that cannot be merged with the table's rows are refused before the commit: sums that overflow, and products that
cannot be divided. After a commit such a value would become null in merges, and Paimon could neither read nor compact
the bucket. For most buckets, statistics of the files show that this cannot happen. In the other buckets, the rows of
the new keys are merged with the older rows before the commit, to see whether they can be merged.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, AppendCheck, Change, Compact, Replace
from bucketline.state.commit.conflict import ALREADY_ADDED, Conflict
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.commit.padded_keys import refuse_unpadded_keys
from bucketline.state.commit.partition_age import partition_time
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import ManifestEntry
from bucketline.state.format.paths import partition_path
from bucketline.state.lsm.merge.fold_choice import reading_fold, strict_fold
from bucketline.state.lsm.merge.overflow_risk import columns_at_risk, may_overflow
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.store.commit.publish import Base, publish
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.read.merge_read import merge_columns, merge_section
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.types.binary_row import encode_rows


@dataclass(frozen=True, slots=True)
class PlannedAt:
    """The snapshot on which a change was planned, and the time of planning in milliseconds. A PlannedAt is passed to
    `commit_change` if the table was read again, at a newer snapshot, after the change was planned.
    """

    snapshot_id: int
    planned_ms: int


def commit_change(at: TableAt, change: Change, author: Author, planned: PlannedAt | None = None) -> Committed:
    """Publishes a change, and returns the outcome. The change was planned on `at`, unless `planned` says that it was
    planned on another snapshot. `TableAt.after` makes the next state of the table from the outcome. A compaction that
    was lost to another commit is in `Committed.dropped`, even if nothing else was committed.

    Raises CommitConflictError if the rows are not in the table and will not get into it; the error is a FilesGoneError
    if another process has removed some files of the rows, so that the work must be done again. Raises
    SchemaMismatchError if the rows can never be merged with the rows of the table. Raises CommitOutcomeUnknownError if
    it is unknown whether the rows are in the table. Files that are certainly not in the table are removed.
    """
    base = _base(at, planned or PlannedAt(at.snapshot_id, at.planned_ms))
    if isinstance(change, Compact):
        return _compacted(at, base, change, author)
    try:
        _refuse(at, change)
    except BaseException:
        at.discard(change.messages)
        raise
    outcome = publish(base, change, author)
    if isinstance(outcome, Committed):
        return outcome
    if isinstance(outcome, Conflict) and outcome.rule != ALREADY_ADDED:
        at.discard(change.messages)
    raise outcome.error()


def appended(
    at: TableAt,
    messages: Iterable[CommitMessage],
    *,
    check: AppendCheck | None = None,
    ignore_empty: bool | None = None,
) -> Append:
    """Returns the change that appends the files of the commit messages. `check` says with which changes by other
    writers the commit conflicts; if it is None, the rule of the bucket mode applies. `ignore_empty` means the same as
    in `Append`.
    """
    common_keys = partial(hold_common_keys, at.plan.access)
    return Append(tuple(messages), check or at.plan.mode.append_check, common_keys, ignore_empty)


def _base(at: TableAt, planned: PlannedAt) -> Base:
    table = replace(at.table, table_schema=at.plan.schema)
    return Base(table, at.view, planned.snapshot_id, planned_ms=planned.planned_ms)


def _compacted(at: TableAt, base: Base, change: Compact, author: Author) -> Committed:
    # If the table was read again after the work was planned, the deletion vectors at the time of planning are not
    # known.
    vectors = at.deletion_entries() if base.based_on == at.snapshot_id else None
    try:
        outcome = publish(replace(base, vectors=vectors), change, author)
    except StorageError as e:
        return Committed(dropped=e)
    return outcome if isinstance(outcome, Committed) else Committed(dropped=outcome)


def _refuse(at: TableAt, change: Append | Replace) -> None:
    """Checks that the table can take the new rows: their partitions, their keys, and the results of merging the rows.
    Raises SchemaMismatchError if the table cannot take the rows.
    """
    if isinstance(change, Append) or not change.moves_rows:
        _refuse_timeless(at, change.messages)
    if isinstance(change, Append):
        _refuse_unpadded(at, change.messages)
        _refuse_overflow(at, change.messages)


def _refuse_timeless(at: TableAt, messages: Sequence[CommitMessage]) -> None:
    schema = at.plan.schema
    if not (schema.partition_keys and schema.settings.expiry.refuses_timeless):
        return
    for m in messages:
        if m.new_files and partition_time(schema, m.partition) is None:
            where = partition_path(schema, m.partition).rstrip("/")
            raise SchemaMismatchError(
                f"'partition.timestamp-pattern' and 'partition.timestamp-formatter' find no time in partition {where}; "
                "write rows of other partitions only, or set 'partition.timestamp-format.strict' = 'false'",
                partition=where,
            )


def _refuse_unpadded(at: TableAt, messages: Sequence[CommitMessage]) -> None:
    if any(m.new_files for m in messages):
        refuse_unpadded_keys(at.plan.schema, at.view)


def _refuse_overflow(at: TableAt, messages: Sequence[CommitMessage]) -> None:
    if not may_overflow(at.plan.schema):
        return
    access, memory_bytes = at.plan.access, at.plan.sink.merge_memory_bytes
    for m in messages:
        bucket_id = (m.partition, m.bucket)
        older = at.view.files(bucket_id)
        refuse_overflow(access, bucket_id, older, m.new_files, memory_bytes=memory_bytes)


def refuse_overflow(
    access: BucketAccess,
    bucket_id: BucketId,
    older: Sequence[DataFileMeta],
    new: Sequence[DataFileMeta],
    *,
    memory_bytes: int,
) -> None:
    """Checks that readers can merge the new files of a bucket with the older files: that no merged value is too large
    for its column. `older` are all files of the bucket except the new files. The rows of the affected files are merged
    on trial, with at most `memory_bytes` of memory.

    Raises SchemaMismatchError with the name of the column if a merged value cannot be computed or does not fit its
    type. Rows in the postpone bucket are not checked; if a compaction cannot merge these rows later, the merged value
    becomes null.
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


def hold_common_keys(access: BucketAccess, first: ManifestEntry, other: ManifestEntry) -> bool:
    """Returns True if both files have a key in common, or if one of the files no longer exists. Holds the keys of the
    smaller file in memory.
    """
    small, large = sorted((first, other), key=lambda e: e.file.row_count)
    try:
        keys = [batch_keys for batch_keys in _keys(access, small) if len(batch_keys)]
        if not keys:
            return False
        known = pa.concat_arrays(keys)
        return any(pc.any(pc.is_in(batch_keys, value_set=known)).as_py() for batch_keys in _keys(access, large))
    except StorageError as e:
        if not e.missing:
            raise
        return True


def _keys(access: BucketAccess, entry: ManifestEntry) -> Iterator[pa.Array]:
    fields = access.schema.select(access.schema.trimmed_primary_key)
    types, names = [f.type.as_nullable() for f in fields], [f.name for f in fields]
    bucket = BucketFiles(entry.partition, entry.bucket, total_buckets=entry.total_buckets, files=(entry.file,))
    for batch in access.files.rows(bucket, entry.file, names):
        yield encode_rows([batch[name] for name in names], types, with_arity=False)
