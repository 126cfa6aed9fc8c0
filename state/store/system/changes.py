"""System tables of rows: `$ro`, `$audit_log` and `$binlog`.

A batch read of the log sees the snapshot's newest record of each key, deletes included until a compaction drops them.
Source: Paimon 2.0 ReadOptimizedTable, AuditLogTable, BinlogTable.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.read.kept_rows import read_kept
from bucketline.state.store.read.table_read import ReadRequest, ReadRows, read_table, rows_schema
from bucketline.state.types.row_kind import SHORT_NAMES, RowKind

ROW_KIND = "rowkind"
_KIND_TEXTS = pa.array(list(SHORT_NAMES))
_ADDED = pa.array([int(RowKind.INSERT), int(RowKind.UPDATE_AFTER)], pa.int8())


def read_optimized(table: TableHandle) -> ReadRows:
    """Returns the rows of the last level alone, or of all files of an append table."""
    return read_table(table, ReadRequest(read_optimized=True))


def audit_log(table: TableHandle) -> ReadRows:
    """Returns the columns and rows of `$audit_log`: `rowkind`, then the columns of the table."""
    return _as_log(*read_kept(table))


def changes_between(table: TableHandle, since: int, until: int, *, as_log: bool) -> ReadRows:
    """Returns the changes after snapshot `since`, up to and including `until`, with the columns of `until`. With
    `as_log` the rows have the form of `audit_log`; else they come without the rows that were removed or replaced.
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


def _kept_changes(schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        added = batch.filter(pc.is_in(batch.columns[-1], _ADDED))
        if added.num_rows:
            yield pa.RecordBatch.from_arrays(added.columns[:-1], schema=schema)


def _as_log(schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> ReadRows:
    """Returns the rows with their kind moved from the last column, where it is a number, to the first, where it is a
    text.
    """
    out = pa.schema([pa.field(ROW_KIND, pa.string(), nullable=False), *list(schema)[:-1]])

    def shown() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            *columns, kinds = batch.columns
            yield pa.RecordBatch.from_arrays([pc.take(_KIND_TEXTS, kinds), *columns], schema=out)

    return out, shown()


def binlog(table: TableHandle) -> ReadRows:
    """Returns the columns and rows of `$binlog`: `rowkind`, then each column as a list with one value, or with the old
    and the new value of an update.
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
