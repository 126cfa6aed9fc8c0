"""Fields of structs in statements without Spark: by name where columns are, else by position, as Spark has it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.errors import SchemaMismatchError
from tests.support.pages.sql_text import Run

_PAIR = "ROW<a INT, b INT>"
_SWAPPED = "ROW<b INT, a INT>"
_DEEP = "ROW<r {0}, l ARRAY<{0}>, m MAP<STRING, {0}>>"


def _shown(pair: Any) -> dict[str, Any]:
    return {"r": pair, "l": [pair], "m": [("k", pair)]}


@pytest.fixture
def tables(run: Run, tmp_path: Path) -> Run:
    """`own` with the struct's fields in one order, `other` in another."""
    run(f"CREATE TABLE own (id INT, s {_DEEP.format(_PAIR)}) WITH ('deletion-vectors.enabled'='true')")
    run(f"CREATE TABLE other (id INT, s {_DEEP.format(_SWAPPED)})")
    other = bl.open_table(str(tmp_path / "default.db" / "other"))
    other.write(pa.table({"id": [1], "s": [_shown({"b": 2, "a": 1})]}, other.schema))
    return run


def _rows(tmp_path: Path) -> list[Any]:
    return [row["s"] for row in bl.open_table(str(tmp_path / "default.db" / "own")).to_arrow().to_pylist()]


def test_insert_by_name_matches_fields_of_structs_by_name_at_any_depth(tables: Run, tmp_path: Path) -> None:
    tables("INSERT INTO own BY NAME SELECT * FROM other")
    assert _rows(tmp_path) == [_shown({"a": 1, "b": 2})]


@pytest.mark.parametrize("columns", ["", "(id, s)"])
def test_insert_by_position_matches_fields_of_structs_by_position_at_any_depth(
    tables: Run, tmp_path: Path, columns: str
) -> None:
    tables(f"INSERT INTO own {columns} SELECT * FROM other")
    assert _rows(tmp_path) == [_shown({"a": 2, "b": 1})]


def test_update_and_merge_match_fields_of_structs_by_name(tables: Run, tmp_path: Path) -> None:
    tables(
        "INSERT INTO own (id) VALUES (1), (2); MERGE INTO own USING other ON own.id = other.id "
        "WHEN MATCHED THEN UPDATE SET s = other.s"
    )
    assert sorted(_rows(tmp_path), key=str) == sorted([_shown({"a": 1, "b": 2}), None], key=str)
    tables("DELETE FROM own; MERGE INTO own USING other ON own.id = other.id WHEN NOT MATCHED THEN INSERT *")
    assert _rows(tmp_path) == [_shown({"a": 1, "b": 2})]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [("b INT", "s.r.a: missing"), ("b INT, a INT, c INT", "s.r.c: unknown"), ("b INT, x INT", "s.r.x: unknown")],
)
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO own BY NAME SELECT * FROM third",
        "MERGE INTO own USING third ON own.id = third.id WHEN MATCHED THEN UPDATE SET s = third.s",
        "MERGE INTO own USING third ON own.id = third.id WHEN NOT MATCHED THEN INSERT (id, s) VALUES (id, s)",
    ],
)
def test_a_nested_field_that_is_missing_or_unknown_is_named(
    tables: Run, tmp_path: Path, statement: str, fields: str, wrong: str
) -> None:
    tables(f"CREATE TABLE third (id INT, s {_DEEP.format(f'ROW<{fields}>')}); INSERT INTO third (id) VALUES (1)")
    with pytest.raises(SchemaMismatchError, match=wrong):
        tables(statement)
    assert _rows(tmp_path) == []


@pytest.mark.parametrize(
    ("fields", "wrong"), [("x INT", "s.r.b: missing"), ("x INT, y INT, z INT", "s.r.z: one field too many")]
)
def test_by_position_a_struct_of_another_width_is_refused(tables: Run, fields: str, wrong: str) -> None:
    tables(f"CREATE TABLE third (id INT, s {_DEEP.format(f'ROW<{fields}>')}); INSERT INTO third (id) VALUES (1)")
    with pytest.raises(SchemaMismatchError, match=wrong):
        tables("INSERT INTO own SELECT * FROM third")


def test_names_of_nested_fields_may_differ_in_case(tables: Run, tmp_path: Path) -> None:
    tables(f"CREATE TABLE third (id INT, s {_DEEP.format('ROW<B INT, A INT>')})")
    third = bl.open_table(str(tmp_path / "default.db" / "third"))
    third.write(pa.table({"id": [1], "s": [_shown({"B": 2, "A": 1})]}, third.schema))
    tables("INSERT INTO own BY NAME SELECT * FROM third")
    assert _rows(tmp_path) == [_shown({"a": 1, "b": 2})]


def test_a_dict_that_an_update_sets_has_the_names_of_the_struct(tables: Run, tmp_path: Path) -> None:
    tables("INSERT INTO own (id) VALUES (1)")
    own = bl.open_table(str(tmp_path / "default.db" / "own"))
    for pair, wrong in (({"a": 1, "b": 2, "c": 3}, "s.m.value.c: unknown"), ({"a": 1}, "s.m.value.b: missing")):
        with pytest.raises(SchemaMismatchError, match=wrong):
            own.update("id = 1", {"s": {**_shown({"a": 1, "b": 2}), "m": {"k": pair}}})
    own.update("id = 1", {"s": _shown({"b": 2, "a": 1})})
    assert _rows(tmp_path) == [_shown({"a": 1, "b": 2})]


def test_a_written_struct_has_its_fields_in_any_order_and_none_too_many(tables: Run, tmp_path: Path) -> None:
    own = bl.open_table(str(tmp_path / "default.db" / "own"))
    other = bl.open_table(str(tmp_path / "default.db" / "other")).to_arrow()
    own.write(other)
    assert _rows(tmp_path) == [_shown({"a": 1, "b": 2})]
    with pytest.raises(SchemaMismatchError, match=r"s\.r\.c: unknown to the table, whose s\.r has a, b"):
        own.write(pa.table({"id": [1], "s": pa.array([{"r": {"c": 3, "a": 1, "b": 2}, "l": [], "m": None}])}))
