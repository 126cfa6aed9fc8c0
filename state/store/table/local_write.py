"""A batch write without Spark: the same sealing, writing, compaction and commit, in this process.

Source: Paimon 2.0 BatchTableWrite (one commit, whose identifier says "batch").
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.bucket.mode import BucketMode
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import (
    SYSTEM_CLOCK,
    SYSTEM_IDS,
    SYSTEM_PAUSE,
    SYSTEM_RANDOM,
    Clock,
    IdSource,
    Pause,
    Random,
)
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.key_index.note import NOTE_PROPERTY
from bucketline.state.store.table.postpone_local import write_fixed
from bucketline.state.store.table.settled_write import settle_write
from bucketline.state.store.write.bucket_writer import BucketWrite, CompactTrigger, write_bucket
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import RunSealer
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_result import WriteResult
from bucketline.state.store.write.write_session import WriteSession

Data: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader


def write_table(
    table: TableHandle,
    data: Data,
    row_kinds: pa.Array | pa.ChunkedArray | str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
    random: Random = SYSTEM_RANDOM,
    pause: Pause = SYSTEM_PAUSE,
) -> WriteResult:
    """Commits the rows of `data` and returns the newest snapshot's id, 0 for a table that has none yet.

    `row_kinds` is an int8 array with one kind a row, or the name of the column that holds them. Raises
    SchemaMismatchError, OptionError, UnsupportedTableError before anything is committed; CommitConflictError,
    CommitOutcomeUnknownError from the commit; CommittedNotVisibleError after it, when readers do not see the rows
    within `visibility-timeout` although this writer compacts. Where files were removed before they were committed, the
    rows are written again; those of a reader, which can be read only once, make it a FilesGoneError.
    """

    def write() -> WriteResult:
        return _write_once(table, data, row_kinds, options or {}, clock, ids, random, pause)

    return write() if isinstance(data, pa.RecordBatchReader) else repeat_if_gone(write)


def _write_once(
    table: TableHandle,
    data: Data,
    row_kinds: pa.Array | pa.ChunkedArray | str | None,
    options: Mapping[str, str],
    clock: Clock,
    ids: IdSource,
    random: Random,
    pause: Pause,
) -> WriteResult:
    session = WriteSession(table.uri, options, table=table, clock=clock, ids=ids)
    session.refresh()
    entries = session.hash_entries()
    # An index that is too large for memory is gone through share by share.
    dynamic = session.plan.dynamic_write(entries, shards=session.plan.index_shares(entries), expected_rows=0)
    write = session.plan.bucket_write(session.plan.trigger(0), dynamic, clock=clock, ids=ids)
    user = ids.new_uuid()
    if session.plan.mode is BucketMode.CROSS_PARTITION:
        write = replace(write, cross=session.plan.cross_write(session.view.snapshot, shares=1))
    if not session.plan.schema.settings.postpone.batch_writes_to_buckets:
        write = session.plan.postponing(write, user, session.view)
    notes: list[str] = []
    messages = _messages(session, write, with_kinds(data, row_kinds), notes)
    committed = session.commit(messages, user=user, properties={NOTE_PROPERTY: ",".join(notes)} if notes else None)
    return settle_write(
        session,
        messages,
        committed,
        trigger=write.trigger,
        user=user,
        clock=clock,
        ids=ids,
        random=random,
        pause=pause,
    )


def with_kinds(data: Data, row_kinds: pa.Array | pa.ChunkedArray | str | None) -> Iterator[pa.Table]:
    """The data as tables that carry their row kinds in `_row_kind`, where kinds are given."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not isinstance(data, pa.Table | pa.RecordBatchReader):
        raise SchemaMismatchError(
            f"data must be a pyarrow Table, RecordBatch or RecordBatchReader, found {type(data).__name__}"
        )
    if row_kinds is None:
        return _tables(data)
    if isinstance(row_kinds, str):
        if row_kinds not in data.schema.names:
            raise SchemaMismatchError(f"there is no column {row_kinds!r} to take row kinds from", column=row_kinds)
        renamed = [ROW_KIND_COLUMN if n == row_kinds else n for n in data.schema.names]
        return (t.rename_columns(renamed) for t in _tables(data))
    if not isinstance(data, pa.Table):
        raise SchemaMismatchError(
            "row kinds as an array need all rows at once; name the column of kinds instead, or give a Table",
            column=ROW_KIND_COLUMN,
        )
    if len(row_kinds) != data.num_rows:
        raise SchemaMismatchError(
            f"{counted(len(row_kinds), 'row kind')} for {counted(data.num_rows, 'row')}: give one for each row",
            column=ROW_KIND_COLUMN,
        )
    if ROW_KIND_COLUMN in data.column_names:
        raise SchemaMismatchError(
            f"row kinds are given twice: as an argument and as column {ROW_KIND_COLUMN}", column=ROW_KIND_COLUMN
        )
    return iter([data.append_column(ROW_KIND_COLUMN, row_kinds)])


def _tables(data: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    if isinstance(data, pa.Table):
        yield data
        return
    yield pa.Table.from_batches([], schema=data.schema)  # an empty reader's columns are checked as well
    for batch in data:
        yield pa.Table.from_batches([batch])


def _messages(
    session: WriteSession, write: BucketWrite, tables: Iterable[pa.Table], notes: list[str]
) -> list[CommitMessage]:
    """Writes all rows; when one bucket fails, the files of the others are removed again. `notes` takes tokens."""
    plan = session.plan
    trigger = write.trigger
    states = {} if plan.mode is BucketMode.UNAWARE else session.bucket_states(trigger)
    sealer = RunSealer(plan.seal_plan(session.view, session.hash_entries(), write.dynamic), origin=0)
    assign = plan.assign_write(session.hash_entries(), write.dynamic)
    acceptance = RowAcceptance(plan.schema)
    messages: list[CommitMessage] = []
    to_real = plan.mode is BucketMode.POSTPONE and write.postponed_user is None
    with RunBuffer(budget_bytes=plan.sink.merge_memory_bytes, directory=plan.sink.local_directory) as buffer:
        for rows in tables:
            for run in sealer.add(acceptance.accept(rows)):
                buffer.add(run)
        for run in sealer.finish():
            buffer.add(run)
        try:
            written = (
                write_fixed(session, write, buffer, states)
                if to_real
                else write_buckets(write, buffer, states, notes.append, assign=assign)
            )
            for message in written:
                messages.append(message)
            idle = {(m.partition, m.bucket) for m in messages}
            for bucket_id in session.due(trigger) if trigger is CompactTrigger.FULL else []:
                if bucket_id not in idle:
                    messages.append(write_bucket(write, bucket_id, states[bucket_id], []))
        except BaseException:
            for message in messages:
                write.access.delete_own(message.made_files, (message.partition, message.bucket))
            raise
    return messages
