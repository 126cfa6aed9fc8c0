"""Commits a change that was planned on a table at a snapshot; files that are certainly lost are removed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, AppendCheck, Change, Compact, Replace
from bucketline.state.commit.conflict import ALREADY_ADDED, Conflict
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.commit.padded_keys import refuse_unpadded_keys
from bucketline.state.commit.partition_age import partition_time
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.state.format.paths import partition_path
from bucketline.state.lsm.merge.overflow_risk import may_overflow
from bucketline.state.store.commit.overflow_check import refuse_overflow
from bucketline.state.store.commit.publish import Base, publish
from bucketline.state.store.compact.common_keys import hold_common_keys
from bucketline.state.store.write.table_at import TableAt


@dataclass(frozen=True, slots=True)
class PlannedAt:
    """The snapshot on which a change was planned, and the time of planning, if the table was looked at again since."""

    snapshot_id: int
    planned_ms: int


def commit_change(at: TableAt, change: Change, author: Author, planned: PlannedAt | None = None) -> Committed:
    """Publishes a change that was planned on the table at that state, and returns the outcome (`TableAt.after`). A lost
    compaction is in `Committed.dropped`, even if there is nothing else to commit. Raises CommitConflictError when the
    messages' rows are not in the table and will not be (FilesGoneError if another process has removed some of their
    files, so that the work must be repeated), SchemaMismatchError when they could never be merged with it;
    CommitOutcomeUnknownError when the outcome is not known. Files that are certainly not in the table are removed.
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
    """Returns the change that appends the messages; `check` says what must not have happened meanwhile, in addition to
    the rule of the bucket mode.
    """
    common_keys = partial(hold_common_keys, at.plan.access)
    return Append(tuple(messages), check or at.plan.mode.append_check, common_keys, ignore_empty)


def _base(at: TableAt, planned: PlannedAt) -> Base:
    table = replace(at.table, table_schema=at.plan.schema)
    return Base(table, at.view, planned.snapshot_id, planned_ms=planned.planned_ms)


def _compacted(at: TableAt, base: Base, change: Compact, author: Author) -> Committed:
    # If the table was looked at again since, the state on which the work was planned is not known any more.
    vectors = at.deletion_entries() if base.based_on == at.snapshot_id else None
    try:
        outcome = publish(replace(base, vectors=vectors), change, author)
    except StorageError as e:
        return Committed(dropped=e)
    return outcome if isinstance(outcome, Committed) else Committed(dropped=outcome)


def _refuse(at: TableAt, change: Append | Replace) -> None:
    """Checks that the rows can be merged with those of the table. Raises SchemaMismatchError if not."""
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
                f"partition {where} holds no time that 'partition.timestamp-pattern' and "
                "'partition.timestamp-formatter' can read, which 'partition.timestamp-format.strict' asks for",
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
