"""Overwrite without Spark: rows take the place of all that partitions hold, in one snapshot.

Nothing of what is replaced is read: buckets start empty, as does the index of dynamic buckets. What others write to the
partitions meanwhile is replaced as well: the last overwrite wins.
Source: Paimon 2.0 FileStoreCommitImpl.overwritePartition, AbstractFileStoreWrite.withIgnorePreviousFiles.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from bucketline.conf.table.changelog_options import CHANGELOG_PRODUCER
from bucketline.state.bucket.mode import BucketMode
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS, Clock, IdSource
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.paths import partition_path
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.table.local_write import Data, with_kinds
from bucketline.state.store.table.partition_choice import PartitionTest, choose_partitions
from bucketline.state.store.table.postpone_local import write_fixed
from bucketline.state.store.table.rescale import as_new_files
from bucketline.state.store.write.bucket_writer import BucketWrite, CompactTrigger
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import RunSealer
from bucketline.state.store.write.visibility import Waits, left_on_level0, what_waits
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_plan import WritePlan
from bucketline.state.store.write.write_result import WriteResult
from bucketline.state.store.write.write_session import WriteSession


def overwrite_table(
    table: TableHandle,
    data: Data,
    partition: Mapping[str, object] | None = None,
    row_kinds: pa.Array | pa.ChunkedArray | str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
) -> WriteResult | None:
    """Replaces partitions by the rows of `data`; the new snapshot's id, None when nothing was to be replaced.

    `partition` names what is replaced: the partitions that match it, and rows must lie in them. Without it, those that
    get files are replaced, or the whole table where it has no partitions or `dynamic-partition-overwrite` is false.
    Raises SchemaMismatchError for rows outside, OptionError and UnsupportedTableError before anything is committed,
    CommitConflictError and CommitOutcomeUnknownError from the commit. Rows whose files were removed before they were
    committed are written again, as by `write_table`.
    """

    def write() -> WriteResult | None:
        return _overwrite_once(table, data, partition, row_kinds, options or {}, clock, ids)

    return write() if isinstance(data, pa.RecordBatchReader) else repeat_if_gone(write)


def _overwrite_once(
    table: TableHandle,
    data: Data,
    partition: Mapping[str, object] | None,
    row_kinds: pa.Array | pa.ChunkedArray | str | None,
    options: Mapping[str, str],
    clock: Clock,
    ids: IdSource,
) -> WriteResult | None:
    session = WriteSession(table.uri, options, table=table, clock=clock, ids=ids)
    session.refresh()
    plan = session.plan
    if plan.mode is BucketMode.CROSS_PARTITION:
        raise UnsupportedTableError(
            f"{table.path} cannot be overwritten: its keys move between partitions, and one that is in a partition "
            "that stays would be in two; write -D rows instead",
            mode=plan.mode.value,
        )
    target = _target(plan, partition)
    messages = _messages(session, _write(plan, clock, ids), with_kinds(data, row_kinds), target)
    if target is None:
        replaced = frozenset(m.partition for m in messages if m.new_files)
        if not replaced:
            return None
        target = replaced.__contains__
    done = session.replace_partitions(messages, user=ids.new_uuid(), target=target)
    hidden = what_waits(plan.schema) is Waits.ROWS and bool(left_on_level0(messages, done))
    return WriteResult(done.snapshots[-1].id, visible=not hidden)


def _target(plan: WritePlan, partition: Mapping[str, object] | None) -> PartitionTest | None:
    """Which partitions are replaced; None: those that get files."""
    schema = plan.schema
    if partition is not None:
        return choose_partitions(schema, [partition])
    if schema.partition_keys and schema.settings.commit.overwrites_dynamic_partitions:
        return None
    return lambda found: True


def _write(plan: WritePlan, clock: Clock, ids: IdSource) -> BucketWrite:
    """How buckets are written that hold nothing yet: at once on the last level, where the table has keys."""
    compacts = bool(plan.schema.primary_keys)
    trigger = CompactTrigger.FULL if compacts else CompactTrigger.NONE
    write = plan.bucket_write(trigger, plan.dynamic_write({}, shards=1, expected_rows=0), clock=clock, ids=ids)
    # Source: Paimon 2.0 drops the changelog of an overwrite: readers of one cannot follow it.
    schema = replace(plan.schema, options={**plan.schema.options, CHANGELOG_PRODUCER.key: "none"})
    return replace(write, access=replace(write.access, schema=schema))


def _messages(
    session: WriteSession, write: BucketWrite, tables: Iterable[pa.Table], target: PartitionTest | None
) -> list[CommitMessage]:
    """Writes all rows; an error leaves none of the new files behind."""
    plan = session.plan
    seal = replace(plan.seal_plan(session.view, {}, write.dynamic), other_totals={})
    sealer = RunSealer(seal, origin=0)
    acceptance = RowAcceptance(plan.schema)
    messages: list[CommitMessage] = []
    with RunBuffer(budget_bytes=plan.sink.merge_memory_bytes, directory=plan.sink.local_directory) as buffer:
        for rows in tables:
            for run in sealer.add(acceptance.accept(rows)):
                _check_inside(plan, run.partition, target)
                buffer.add(run)
        for run in sealer.finish():
            _check_inside(plan, run.partition, target)
            buffer.add(run)
        try:
            for message in _written(session, write, buffer):
                messages.append(as_new_files(message, write))
        except BaseException:
            for message in messages:
                write.access.delete_own(message.made_files, (message.partition, message.bucket))
            raise
    return messages


def _written(session: WriteSession, write: BucketWrite, buffer: RunBuffer) -> Iterator[CommitMessage]:
    if session.plan.mode is BucketMode.POSTPONE:
        return write_fixed(session, write, buffer, {})
    return write_buckets(write, buffer, {})


def _check_inside(plan: WritePlan, partition: bytes, target: PartitionTest | None) -> None:
    if target is not None and not target(partition):
        where = partition_path(plan.schema, partition)
        raise SchemaMismatchError(
            f"there are rows of partition {where.rstrip('/')}, which is not being overwritten; leave them out, or name "
            "the partitions that are",
            partition=where,
        )
