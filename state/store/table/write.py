"""Writes the rows of a caller as one batch: an engine writes and compacts the rows, and one commit adds the rows to the
table.

Source: Paimon 2.0 BatchTableWrite (one commit, whose identifier says "batch").
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.commit.author import Author
from bucketline.state.commit.message import CommitMessage
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.entries import Operation
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.engine import Engine, Parts, ShapedFrame, SparkFrame
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.given_streams import ArrowArray, ArrowStream, given
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.cycle import Commit, carry_out, noted
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.commit_change import appended
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_plan import WriteScope

Data: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | ArrowArray
SpreadData: TypeAlias = Data | SparkFrame | ShapedFrame
"""Data for an operation that takes an engine: Arrow data, or with Spark's engine also a DataFrame."""

_TABLE_ROWS, _TABLE_BYTES = 2048, 8 << 20
"""Record batches are joined into one table until it has this many rows or bytes."""


def write_table(
    table: TableHandle,
    data: Data,
    row_kinds: pa.Array | pa.ChunkedArray | str | None = None,
    *,
    options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Commits the rows of `data`, and returns the id of the newest snapshot; 0 if the table has no snapshot yet.

    `row_kinds` is an int8 array with one row kind for each row, or the name of the column that holds the row kinds.

    Raises SchemaMismatchError, OptionError, UnsupportedTableError before anything is committed; CommitConflictError,
    CommitOutcomeUnknownError from the commit. Raises CommittedNotVisibleError after the commit if this writer compacts,
    but readers do not see the rows within `visibility-timeout`. If files of the rows were removed before the commit,
    the rows are written again; a RecordBatchReader can be read only once, so FilesGoneError is raised for a
    RecordBatchReader.
    """

    rows = given(data)

    def write() -> WriteResult:
        return _write_once(table, rows, row_kinds, options or {})

    return write() if isinstance(rows, pa.RecordBatchReader) else repeat_if_gone(write)


def _write_once(
    table: TableHandle,
    data: Data,
    row_kinds: pa.Array | pa.ChunkedArray | str | None,
    options: Mapping[str, str],
) -> WriteResult:
    table.io.require_publish()
    at = table_at(table, options).refreshed()
    source = Parts([GivenRows(with_kinds(data, row_kinds))])
    return write_source(at, source, LOCAL_ENGINE)


def write_source(
    at: TableAt,
    source: Any,
    engine: Engine,
) -> WriteResult:
    """Writes the rows of a source into a table in one commit, and returns the result. `source` is a source that the
    engine can read. `at` is the table at the snapshot on which the write is planned. Raises the errors of
    `write_table`.
    """
    plan = at.plan
    trigger, user = plan.trigger(0), at.table.world.ids.new_uuid()
    scope = WriteScope(trigger, user, engine.workers)

    def work(made: list[CommitMessage]) -> Commit:
        stages = plan.mode.in_batch(plan).stages(plan, at, scope, source)
        if trigger is CompactTrigger.FULL:
            stages = replace(stages, idle=tuple(at.due(trigger)))
        outcome = engine.run(stages)
        made += outcome.messages
        author = Author(user, properties=noted(outcome), operation=Operation.WRITE)
        return Commit(appended(at, made), author, brought=made)

    return carry_out(at, engine, work, trigger).result


def with_kinds(data: SpreadData, row_kinds: pa.Array | pa.ChunkedArray | str | None) -> Iterator[pa.Table]:
    """Yields the data as tables. If `row_kinds` is an array, the tables have the column `_row_kind` with these row
    kinds. If `row_kinds` is the name of a column of the data, this column is renamed to `_row_kind`. If `row_kinds` is
    None, the columns stay unchanged.
    """
    data = given(data)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not isinstance(data, pa.Table | pa.RecordBatchReader):
        is_sparks = type(data).__module__.startswith("pyspark.")
        raise SchemaMismatchError(
            "data must be a pyarrow Table, RecordBatch or RecordBatchReader, or Arrow data of another library "
            f"(__arrow_c_stream__), found {type(data).__name__}"
            + ("; Spark's tasks read one with engine=bucketline.spark_engine(spark)" if is_sparks else "")
        )
    if row_kinds is None:
        return _tables(data)
    if isinstance(row_kinds, str):
        if row_kinds not in data.schema.names:
            raise SchemaMismatchError(
                f"there is no column {row_kinds!r} for the row kinds; name a column of the data", column=row_kinds
            )
        renamed = [ROW_KIND_COLUMN if n == row_kinds else n for n in data.schema.names]
        return (t.rename_columns(renamed) for t in _tables(data))
    if not isinstance(data, pa.Table):
        raise SchemaMismatchError(
            "row_kinds can be an array only if data is a Table or RecordBatch; give the name of a column instead",
            column=ROW_KIND_COLUMN,
        )
    if not isinstance(row_kinds, pa.Array | pa.ChunkedArray):
        raise SchemaMismatchError(
            "row_kinds must be an int8 array of pyarrow or the name of a column, as pa.array([0, 3], pa.int8()), but "
            f"is {type(row_kinds).__name__}",
            column=ROW_KIND_COLUMN,
        )
    if len(row_kinds) != data.num_rows:
        raise SchemaMismatchError(
            f"{counted(len(row_kinds), 'row kind')} for {counted(data.num_rows, 'row')}: give one row kind for each "
            "row",
            column=ROW_KIND_COLUMN,
        )
    if ROW_KIND_COLUMN in data.column_names:
        raise SchemaMismatchError(
            f"row kinds are given twice: as an argument and as column {ROW_KIND_COLUMN}; leave out the argument",
            column=ROW_KIND_COLUMN,
        )
    return iter([data.append_column(ROW_KIND_COLUMN, row_kinds)])


def _tables(data: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yields the rows as tables. Small record batches of a reader are joined, because each table costs time for each of
    its columns, however few rows it has. Large record batches are not copied.
    """
    if isinstance(data, pa.Table):
        yield data
        return
    yield pa.Table.from_batches([], schema=data.schema)  # The columns of a reader without rows are checked as well.
    together: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in data:
        if together and (batch.num_rows >= _TABLE_ROWS or batch.nbytes >= _TABLE_BYTES):
            yield pa.Table.from_batches(together).combine_chunks()
            together, rows, size = [], 0, 0
        together.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _TABLE_ROWS or size >= _TABLE_BYTES:
            yield pa.Table.from_batches(together).combine_chunks()
            together, rows, size = [], 0, 0
    if together:
        yield pa.Table.from_batches(together).combine_chunks()
