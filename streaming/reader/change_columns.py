"""Turns changes of a table into rows for Spark. The rows may have columns that describe the change (its kind, its
snapshot); if no requested column shows the kind, removed rows are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.reader_options import CHANGE_COLUMNS, ChangeColumns, ReaderOptions
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.row_kind import RowKind, is_retract
from bucketline.streaming.reader.spark_rows import fit, spark_arrow

_, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = CHANGE_COLUMNS

_COLUMNS = pa.schema(
    [
        pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False),
        pa.field(CHANGE_TYPE, pa.string(), nullable=False),
        pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
        pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC"), nullable=False),
    ]
)
_TYPES = pa.array(["insert", "update_preimage", "update_postimage", "delete"])
assert list(range(4)) == [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE]


@dataclass(frozen=True, slots=True)
class ChangeNames:
    """The columns of a read of changes: all requested columns (`names`), and the columns of the table among them
    (`of_table`). Both are in the requested order.
    """

    names: tuple[str, ...]
    of_table: tuple[str, ...]
    keeps_removed: bool
    """True if rows of the kinds -U and -D are returned too. They are returned only if a requested column shows the
    kind.
    """


def change_names(options: ReaderOptions, schema: TableSchema) -> ChangeNames:
    """Returns which columns a read of changes returns, and whether it returns rows of the kinds -U and -D. Raises
    OptionError or SchemaMismatchError for options that do not fit the table.
    """
    choice = options.change_columns
    known = [f.name for f in schema.fields]
    wanted = bool(schema.primary_keys) if choice is ChangeColumns.AUTO else choice is ChangeColumns.TRUE
    unknown = next((n for n in options.columns or () if n not in _COLUMNS.names and n not in known), None)
    if unknown is not None:
        raise SchemaMismatchError(f"unknown column {unknown!r}; the table has {', '.join(known)}", column=unknown)
    again = next((n for i, n in enumerate(options.columns or ()) if n in (options.columns or ())[:i]), None)
    if again is not None:
        raise SchemaMismatchError(f"column {again!r} is requested twice in 'columns'", column=again)
    requested = options.columns
    named = tuple(f.name for f in schema.fields) if requested is None else requested
    extra = [name for name in named if name in _COLUMNS.names] if requested is not None else []
    if extra and choice is ChangeColumns.FALSE:
        raise OptionError(
            f"'columns' contains {extra[0]!r}, but 'read.changelog' = false leaves this column out", key="columns"
        )
    if not extra and not wanted:
        return ChangeNames(named, named, False)
    twice = next((f.name for f in schema.fields if f.name in _COLUMNS.names), None)
    if twice is not None:
        raise SchemaMismatchError(
            f"the table has a column {twice!r}, which is also the name of a column that describes changes; read the "
            "table with 'read.changelog' = false",
            column=twice,
        )
    names = named if extra else (*named, *_COLUMNS.names)
    says_kind = ROW_KIND_COLUMN in names or CHANGE_TYPE in names
    return ChangeNames(names, tuple(n for n in names if n not in _COLUMNS.names), says_kind)


def with_change_columns(rows: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Returns the schema of the requested columns `names`. A name may be a column that describes a change, or a column
    of the table; `rows` is the schema of the table's columns.
    """
    return pa.schema([_COLUMNS.field(n) if n in _COLUMNS.names else rows.field(n) for n in names])


@dataclass(frozen=True, slots=True)
class ChangeShape:
    """How rows of changes are passed to Spark: the table's columns in Spark's types (`table_rows`), the columns of the
    result (`out`), and whether removed rows are returned (`keeps_removed`).
    """

    table_rows: pa.Schema
    out: pa.Schema
    keeps_removed: bool

    @staticmethod
    def of(table_rows: pa.Schema, names: ChangeNames) -> "ChangeShape":
        fitted = spark_arrow(table_rows)
        return ChangeShape(fitted, with_change_columns(fitted, names.names), names.keeps_removed)

    def fit(self, rows: pa.RecordBatch, kinds: pa.Array, snapshot_id: int, time_ms: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows with the requested columns. `rows` has the table's columns, and `kinds` has a row kind for
        each row. The rows are changes of snapshot `snapshot_id`, which was committed at `time_ms`. No record batch is
        empty.
        """
        if not self.keeps_removed:
            kept = pc.invert(is_retract(kinds))
            rows, kinds = rows.filter(kept), kinds.filter(kept)
        count = len(kinds)
        if not count:
            return
        fitted = fit(rows, self.table_rows)
        extra = {
            ROW_KIND_COLUMN: lambda: kinds,
            CHANGE_TYPE: lambda: _TYPES.take(kinds),
            COMMIT_VERSION: lambda: pa.array(np.full(count, snapshot_id, np.int64)),
            COMMIT_TIMESTAMP: lambda: pa.array(np.full(count, time_ms * 1000, np.int64)).cast(
                pa.timestamp("us", "UTC")
            ),
        }
        arrays = [extra[n]() if n in extra and n not in fitted.schema.names else fitted[n] for n in self.out.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.out)
