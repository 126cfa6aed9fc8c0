"""Delete and update by a condition: what is changed, and where it is refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.table.table import Table, create_table, open_table

COLUMNS = "dt STRING, id BIGINT, v BIGINT, name STRING"
MODES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "fixed": (("dt", "id"), {"bucket": "2"}),
    "dynamic": (("dt", "id"), {"bucket": "-1"}),
    "cross-partition": (("id",), {"bucket": "-1"}),
    "vectors": (("dt", "id"), {"bucket": "2", "deletion-vectors.enabled": "true"}),
    "lookup": (("dt", "id"), {"bucket": "2", "changelog-producer": "lookup"}),
    "sequence": (("dt", "id"), {"bucket": "2", "sequence.field": "v"}),
}
V, ID = pc.field("v"), pc.field("id")


def make(path: Path, key: tuple[str, ...] = ("dt", "id"), columns: str = COLUMNS, **options: str) -> Table:
    partition = ["dt"] if key or options.get("bucket") == "-1" else []
    return create_table(str(path / "w.db" / "t"), columns, key, partition, {"bucket": "1"} | options)


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    key, options = MODES[request.param]
    found = make(tmp_path, key, **options)
    for number in range(2):
        found.write(rows(*[("ab"[i % 2], i, i * 10 + number, f"n{i}") for i in range(10)]))
    return found


def rows(*found: tuple[str, int, int, str | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(("dt", "id", "v", "name"), row, strict=True)) for row in found],
        schema=pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("name", pa.string())]),
    )


def held(table: Table) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["v"], r["name"]) for r in open_table(table.path).to_arrow().to_pylist())


def test_the_rows_that_pass_are_deleted(table: Table) -> None:
    assert table.delete((V > 40) & (pc.field("dt") == "b")) == table.snapshots()["snapshot_id"].to_pylist()[-1]
    assert [row[0] for row in held(table)] == [0, 1, 2, 3, 4, 6, 8]
    table.compact()
    assert [row[0] for row in held(table)] == [0, 1, 2, 3, 4, 6, 8]
    assert table.doctor(rows=True) == []


def test_columns_of_the_rows_that_pass_are_set(tmp_path: Path, table: Table) -> None:
    table.update(ID < 3, {"name": "small"})
    assert held(table)[:4] == [(0, 1, "small"), (1, 11, "small"), (2, 21, "small"), (3, 31, "n3")]
    if "sequence.field" in table.options:
        return
    table.update(ID == 2, {"v": V * 2 + ID, "name": None})
    assert held(table)[1:3] == [(1, 11, "small"), (2, 44, None)]
    assert len(held(table)) == 10
    assert table.doctor(rows=True) == []


def test_no_row_that_passes_is_no_commit(table: Table) -> None:
    before = table.snapshots().num_rows
    assert table.delete(ID > 100) == table.update(ID > 100, {"name": "x"})
    assert table.snapshots().num_rows == before


def test_changes_are_logged(tmp_path: Path) -> None:
    table = make(tmp_path, **{"changelog-producer": "input"})
    table.write(rows(("a", 1, 1, "x"), ("a", 2, 2, "y")))
    table.update(ID == 1, {"v": 7})
    table.delete(ID == 2)
    found = table.to_arrow(columns=["id", "v"], changes_since=1).to_pylist()
    assert found == [{"id": 1, "v": 7, "_row_kind": 0}, {"id": 2, "v": 2, "_row_kind": 3}]


def test_a_table_that_stores_row_kinds_stores_those_of_deletes(tmp_path: Path) -> None:
    table = make(tmp_path, columns=COLUMNS + ", op STRING", **{"rowkind.field": "op"})
    data = rows(("a", 1, 1, "x"), ("a", 2, 2, "y")).append_column("op", pa.array(["+I", "+U"]))
    table.write(data)
    table.update(ID == 1, {"name": "z"})
    table.delete(ID == 2)
    assert held(table) == [(1, 1, "z")]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_engines_that_remove_rows_on_deletes_take_them(engine: str, tmp_path: Path) -> None:
    options = {"merge-engine": engine, f"{engine}.remove-record-on-delete": "true"}
    table = make(tmp_path, **options)
    table.write(rows(("a", 1, 1, "x"), ("a", 2, 2, "y")))
    table.delete(ID == 2)
    assert held(table) == [(1, 1, "x")]
    with pytest.raises(UnsupportedTableError, match="combines a row"):
        table.update(ID == 1, {"name": "z"})


@pytest.mark.parametrize(
    ("key", "options", "why"),
    [
        ((), {"bucket": "-1"}, "no primary key"),
        (("dt", "id"), {"bucket": "-2"}, "postpone bucket"),
        (("dt", "id"), {"merge-engine": "first-row"}, "first-row"),
        (("dt", "id"), {"merge-engine": "partial-update"}, "unless 'partial-update.remove-record-on-delete' is true"),
        (("dt", "id"), {"ignore-delete": "true"}, "would be ignored"),
    ],
)
def test_tables_in_which_a_delete_removes_nothing_are_refused(
    key: tuple[str, ...], options: dict[str, str], why: str, tmp_path: Path
) -> None:
    table = make(tmp_path, key, **options)
    with pytest.raises(UnsupportedTableError, match=why):
        table.delete(ID == 1)


def test_a_table_opened_as_it_was_is_not_changed(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(("a", 1, 1, "x")))
    past = open_table(table.path, options={"scan.snapshot-id": "1"})
    with pytest.raises(OptionError, match=r"without 'scan\.snapshot-id'"):
        past.delete(ID == 1)


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ({}, "needs a column"),
        ({"nope": 1}, "there is no column 'nope'"),
        ({"id": 1}, "part of the primary key"),
        ({"v": "x"}, "no value of column 'v'"),
        ({"v": pc.field("name")}, "v"),
        ({"v": pc.field("nope")}, "nope"),
        ({"v": pc.field("name") + 1}, "computed"),
        ({"v": V / 0}, "divide by zero"),
        ({"name": timedelta(1)}, "no value of column 'name'"),
    ],
)
def test_assignments_that_do_not_fit_are_refused(assignments: dict[str, object], why: str, tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(("a", 1, 1, "x")))
    with pytest.raises(SchemaMismatchError, match=why):
        table.update(ID == 1, assignments)
    assert table.snapshots().num_rows == 1


def test_a_sequence_column_is_not_set(tmp_path: Path) -> None:
    table = make(tmp_path, **{"sequence.field": "v"})
    with pytest.raises(SchemaMismatchError, match=r"in 'sequence\.field'"):
        table.update(ID == 1, {"v": 5})
