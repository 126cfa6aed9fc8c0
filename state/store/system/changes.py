"""The system tables that show rows of the table: `$ro`, `$audit_log` and `$binlog`.

A batch read of `$audit_log` sees the snapshot's newest record of each key, including deletes until a compaction drops
them.

Source: Paimon 2.0 ReadOptimizedTable, AuditLogTable, BinlogTable, MergeFileSplitRead.forceKeepDelete.
"""

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.lsm.merge.fold_choice import reading_fold
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.sql.compute.condition import ALL_ROWS
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.datafile.data_files import BATCH_ROWS
from bucketline.state.store.read.difference import DifferencePlan, read_difference
from bucketline.state.store.read.fallback import own_view
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import is_merged, merge_columns, merge_section, read_stored_rows
from bucketline.state.store.read.projection import plan_projection, refuse_unreadable
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.read.table_read import (
    ReadRequest,
    ReadRows,
    file_access,
    index_entries,
    plan_views,
    read_table,
    rows_schema,
)
from bucketline.state.types.arrow import VALUE_KIND, arrow_schema
from bucketline.state.types.order import key_order
from bucketline.state.types.row_kind import SHORT_NAMES, RowKind

ROW_KIND = "rowkind"
_KIND_TEXTS = pa.array(list(SHORT_NAMES))
_ADDED = pa.array([int(RowKind.INSERT), int(RowKind.UPDATE_AFTER)], pa.int8())


def read_optimized(table: TableHandle) -> ReadRows:
    """Returns the columns and rows of `$ro`: the rows of the highest level only; for an append table, the rows of all
    files.
    """
    return read_table(table, ReadRequest(read_optimized=True))


def audit_log(table: TableHandle) -> ReadRows:
    """Returns the columns and rows of `$audit_log`: `rowkind`, then the columns of the table."""
    return _as_log(*read_kept(table))


def changes_between(table: TableHandle, since: int, until: int, *, as_log: bool) -> ReadRows:
    """Returns the changes after the snapshot `since`, up to and including the snapshot `until`, with the columns of
    `until`. With `as_log`, the rows have the form of `audit_log`; otherwise only rows that were added are returned.
    Raises the errors of `Table.to_batches`.
    """
    version = None if since == until else until
    schema = rows_schema(table, ReadRequest(version=version))
    rows: Iterator[pa.RecordBatch] = iter(())
    if since < until:
        _, rows = read_table(table, ReadRequest(version=version, changes_since=since))
    if as_log:
        return _as_log(schema.append(pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False)), rows)
    return schema, _kept_changes(schema, rows)


def differing_rows(plan: DifferencePlan, *, as_log: bool) -> ReadRows:
    """Returns the rows in which two snapshots differ, with the columns of the later snapshot. New and changed rows have
    their values at the later snapshot. If `as_log` is true, removed rows are included, with their values at the earlier
    snapshot, and the first column has the row kind as text (`+I`, `+U` or `-D`).
    """
    schema = arrow_schema(plan.place.schema.fields)
    rows = chain.from_iterable(read_difference(plan.place, pair) for pair in plan.pairs)
    if as_log:
        return _as_log(schema.append(pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False)), rows)
    return schema, _kept_changes(schema, rows)


def _kept_changes(schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        added = batch.filter(pc.is_in(batch.columns[-1], _ADDED))
        if added.num_rows:
            yield pa.RecordBatch.from_arrays(added.columns[:-1], schema=schema)


def _as_log(schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> ReadRows:
    """Returns the rows with their row kind moved from the last column, where it is an integer, to the first column,
    where it is a string.
    """
    out = pa.schema([pa.field(ROW_KIND, pa.string(), nullable=False), *list(schema)[:-1]])

    def shown() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            *columns, kinds = batch.columns
            yield pa.RecordBatch.from_arrays([pc.take(_KIND_TEXTS, kinds), *columns], schema=out)

    return out, shown()


def binlog(table: TableHandle) -> ReadRows:
    """Returns the columns and rows of `$binlog`: `rowkind`, then each column as a list that holds one value, or for an
    update the old and the new value.
    """
    schema, rows = audit_log(table)
    lists = [pa.field(f.name, pa.list_(f.type)) for f in list(schema)[1:]]
    out = pa.schema([schema.field(0), *lists])

    def listed() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            offsets = pa.array(range(batch.num_rows + 1), pa.int32())
            columns = [
                pa.ListArray.from_arrays(offsets, c, type=f.type) for c, f in zip(batch.columns[1:], lists, strict=True)
            ]
            yield pa.RecordBatch.from_arrays([batch.column(0), *columns], schema=out)

    return out, listed()


def read_kept(table: TableHandle) -> ReadRows:
    """Returns the rows of the table, with `_row_kind` (int8) as the last column. Rows in the postpone bucket are left
    out. Raises the errors of `read_table`.
    """
    view = own_view(table, None)
    refuse_unreadable(view.schema)
    schema = view.schema
    out = arrow_schema(schema.fields).append(pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False))
    (planned,) = plan_views([view], None, read_optimized=False)
    access = file_access(table, schema, index_entries(view))
    if not schema.primary_keys:
        rows = read_stored_rows(access, planned.buckets, plan_projection(schema, None, ALL_ROWS))
    else:
        rows = chain.from_iterable(_kept(access, bucket) for bucket in planned.buckets)
    return out, (pa.RecordBatch.from_arrays(batch.columns, schema=out) for batch in rows)


def _kept(access: FileAccess, bucket: BucketFiles) -> Iterator[pa.RecordBatch]:
    """Yields one row for each key of a bucket, with the row kind in the last column. The table has a primary key."""
    schema = access.schema
    columns = [*(f.name for f in schema.fields), VALUE_KIND]
    order = key_order([f.type for f in schema.select(schema.trimmed_primary_key)])
    for runs in sections(bucket.files, order):
        if not is_merged(schema, runs):
            for file in chain.from_iterable(run.files for run in runs):
                yield from access.rows(bucket, file, columns, batch_rows=BATCH_ROWS)
            continue
        with_system = merge_columns(schema, columns[:-1])
        for batch in merge_section(access, bucket, runs, with_system, fold=reading_fold(schema)):
            yield batch.select(columns)
