"""Rows that are in a table and cannot be merged as its columns ask for block no compaction."""

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from bucketline.state.lsm.merge.row_checks import RowChecks
from bucketline.state.store.table.table import Table, create_table, open_table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("g", pa.int64())])


def _rows(v: int | None, g: int, kind: int) -> pa.Table:
    rows = pa.table({"id": [1], "v": [v], "g": [g]}, schema=COLUMNS)
    return rows.append_column("_row_kind", pa.array([kind], pa.int8()))


def _write_unchecked(table: Table, rows: pa.Table) -> None:
    """As another program writes them, which has no such checks."""
    with patch.object(RowChecks, "find", lambda *_: iter(())), patch.object(RowChecks, "reasons", lambda *_: None):
        open_table(table.path).write(rows)


def test_a_null_where_a_column_became_not_null_takes_the_newest_value_that_was_added(tmp_path: Path) -> None:
    options = {"bucket": "-2", "merge-engine": "aggregation", "fields.v.aggregate-function": "last_value"}
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options=options)
    table.write(_rows(5, 1, 0))
    table.write(_rows(5, 1, 3))
    open_table(table.path).set_options({"alter-column-null-to-not-null.disabled": "false"})
    open_table(table.path).alter_column("v", nullable=False)
    open_table(table.path).compact()
    assert open_table(table.path).to_arrow().to_pylist() == [{"id": 1, "v": 5, "g": None}]


def test_a_delete_that_a_function_cannot_take_back_leaves_the_column_as_it_is(tmp_path: Path) -> None:
    options = {"bucket": "-2", "merge-engine": "aggregation", "fields.v.aggregate-function": "max"}
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options=options)
    table.write(_rows(5, 1, 0))
    _write_unchecked(table, _rows(3, 1, 3))
    open_table(table.path).compact()
    assert open_table(table.path).to_arrow()["v"].to_pylist() == [5]
