"""Merge: rows of a source joined to those of a table with a primary key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.sql.compute.expression import expr
from bucketline.state.store.engine.engine import Outcome, Parts
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE, LocalEngine
from bucketline.state.store.table.merge import merge_rows
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.stages import Stages

COLUMNS = "dt STRING, id BIGINT, v BIGINT, name STRING"
MODES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "fixed": (("dt", "id"), {"bucket": "2"}),
    "cross-partition": (("id",), {"bucket": "-1"}),
    "vectors": (("dt", "id"), {"bucket": "2", "deletion-vectors.enabled": "true"}),
}


def make(path: Path, key: tuple[str, ...] = ("dt", "id"), **options: str) -> Table:
    return create_table(str(path / "w.db" / "t"), COLUMNS, key, ["dt"], {"bucket": "1"} | options)


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    key, options = MODES[request.param]
    found = make(tmp_path, key, **options)
    found.write(rows(*[("ab"[i % 2], i, i * 10, f"n{i}") for i in range(6)]))
    return found


def rows(*found: tuple[str | None, int | None, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(("dt", "id", "v", "name"), row, strict=True)) for row in found],
        schema=pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("name", pa.string())]),
    )


def held(table: Table) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["dt"], r["v"], r["name"]) for r in open_table(table.path).to_arrow().to_pylist())


def test_matched_rows_are_updated_and_others_inserted(table: Table) -> None:
    source = rows(("b", 1, 7, "new"), ("a", 2, None, "two"), ("a", 8, 80, "eight"))
    new = {"v": expr("coalesce(source.v, 0) + v"), "name": expr("source.name || name")}
    done = table.merge(source, ["dt", "id"] if "dt" in table.primary_key else ["id"], new)
    assert done == table.snapshots()["snapshot_id"].to_pylist()[-1]
    assert held(table)[:3] == [(0, "a", 0, "n0"), (1, "b", 17, "newn1"), (2, "a", 20, "twon2")]
    assert held(table)[-1] == (8, "a", 80, "eight")
    assert len(held(table)) == 7
    table.compact()
    assert len(held(table)) == 7
    assert table.doctor(rows=True) == []


def test_matched_rows_are_deleted_or_left_alone(table: Table) -> None:
    table.merge(rows(("b", 1, 0, ""), ("b", 9, 9, "nine")), ["id"], "delete", None)
    assert [row[0] for row in held(table)] == [0, 2, 3, 4, 5]
    table.merge(rows(("a", 0, 99, "x"), ("a", 10, 10, "ten")), ["dt", "id"][-len(table.primary_key) :])
    assert [row[0] for row in held(table)] == [0, 2, 3, 4, 5, 10]
    assert held(table)[0] == (0, "a", 0, "n0")


def test_a_merge_that_matches_nothing_commits_nothing(table: Table) -> None:
    before = table.snapshots().num_rows
    assert table.merge(rows(("b", 77, 0, "")), ["id"], "delete", None) == before
    assert table.merge(rows(), ["id"], {"v": 1}) == before
    assert table.snapshots().num_rows == before


def test_a_stream_larger_than_the_memory_is_joined_share_by_share(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(*[("ab"[i % 2], i, i, "old") for i in range(2000)]))
    small = open_table(table.path, options={"merge-memory": "1 mb", "local-directory": str(tmp_path)})
    source = rows(*[("ab"[i % 2], i, 5, f"{i:01000}") for i in range(1000, 3000)])
    stream = pa.RecordBatchReader.from_batches(source.schema, source.to_batches(max_chunksize=300))
    small.merge(stream, ["dt", "id"], {"v": expr("v + source.v"), "name": expr("source.name")})
    found = held(table)
    assert [row[0] for row in found] == list(range(3000))
    assert [row[2] for row in found] == [*range(1000), *(i + 5 for i in range(1000, 2000)), *[5] * 1000]
    small.merge(source, ["id"], "delete", None)
    assert len(held(table)) == 1000


@pytest.mark.parametrize("key", [("dt", "id"), ()])
def test_a_merge_that_comes_second_is_planned_again(key: tuple[str, ...], tmp_path: Path) -> None:
    """A stream of source rows is kept, so that it can be joined again."""
    table = make(tmp_path, key, bucket="1", **({} if key else {"bucket-key": "id"}))
    table.write(rows(("a", 1, 1, "x")))
    others: list[Callable[[], object]] = [
        lambda: table.write(rows(("a", 1, 10, "y"))),
        lambda: table.write(rows(("a", 2, 20, "y"))),
    ]
    if not key:
        others = [lambda: table.update("id = 1", {"v": 10, "name": "y"})]

    class Racing(LocalEngine):
        def run(self, stages: Stages[Parts]) -> Outcome:
            found = LOCAL_ENGINE.run(stages)
            if others:
                others.pop(0)()
            return found

    source = rows(("a", 1, 5, "s"), ("a", 2, 5, "s"))
    stream = pa.RecordBatchReader.from_batches(source.schema, source.to_batches())
    merge_rows(handle_of(table), stream, ["dt", "id"], {"v": expr("v + source.v")}, "insert", engine=Racing())
    assert others == []
    assert held(table) == [(1, "a", 15, "y"), (2, "a", 25, "y") if key else (2, "a", 5, "s")]
    assert "MERGE" in table.snapshots()["operation"].to_pylist()


def test_several_source_rows_for_one_row_are_an_error(table: Table) -> None:
    double = rows(("b", 1, 1, "x"), ("b", 1, 2, "y"))
    for when_matched in ({"v": 1}, "delete"):
        with pytest.raises(SchemaMismatchError, match="2 source rows match the row of the table with id = 1"):
            table.merge(double, ["id"], when_matched, None)
    assert table.merge(double, table.primary_key) == table.snapshots().num_rows
    with pytest.raises(SchemaMismatchError, match="several source rows without a match have the key"):
        table.merge(rows(("a", 9, 1, "x"), ("a", 9, 2, "y")), table.primary_key)
    assert len(held(table)) == 6


def test_a_null_matches_nothing(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(("a", 1, None, "x"), ("a", 2, 5, "y")))
    table.merge(rows(("a", 0, None, "new"), ("a", 0, 5, "new")), ["v"], {"name": expr("source.name")}, None)
    assert held(table) == [(1, "a", None, "x"), (2, "a", 5, "new")]


def test_the_source_may_have_columns_of_its_own(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(("a", 1, 1, "x")))
    table.merge(pa.table({"id": [1], "add": [41]}), ["id"], {"v": expr("v + source.add")}, None)
    assert held(table) == [(1, "a", 42, "x")]


GOOD = pa.table({"dt": ["a"], "id": [1], "v": [1], "name": ["x"]})


@pytest.mark.parametrize(
    ("source", "on", "matched", "unmatched", "kind", "why"),
    [
        (GOOD, [], "delete", None, SchemaMismatchError, "columns to join by"),
        (GOOD, "id", "delete", None, SchemaMismatchError, "columns to join by"),
        (GOOD, ["nope"], "delete", None, SchemaMismatchError, "no column 'nope' to join by"),
        (GOOD.drop_columns(["id"]), ["id"], "delete", None, SchemaMismatchError, "source has no column 'id'"),
        (GOOD, ["id"], "update", None, OptionError, "'delete' or None"),
        (GOOD, ["id"], None, "upsert", OptionError, "'insert' or None"),
        (GOOD, ["id"], None, None, OptionError, "changes nothing"),
        (GOOD, ["v"], "delete", "insert", SchemaMismatchError, "joined by columns of the primary key"),
        (GOOD.drop_columns(["v"]), ["id"], "delete", "insert", SchemaMismatchError, "no column 'v' to insert"),
        (GOOD.set_column(1, "id", [["x"]]), ["id"], "delete", None, SchemaMismatchError, r"source\.id"),
        (GOOD.set_column(2, "v", [["x"]]), ["id"], None, "insert", SchemaMismatchError, "v"),
        (GOOD, ["id"], {"id": 2}, None, SchemaMismatchError, "part of the primary key"),
        (GOOD, ["id"], {"v": expr("source.w")}, None, OptionError, r"did you mean 'source\.v'"),
        (GOOD, ["id"], {"v": expr("source.name")}, None, SchemaMismatchError, "v"),
        (GOOD.append_column("_row_kind", [[0]]), ["id"], "delete", None, SchemaMismatchError, "cannot have row kinds"),
        ([1], ["id"], "delete", None, SchemaMismatchError, "data must be a pyarrow Table"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_read(
    source: Any, on: Any, matched: Any, unmatched: Any, kind: type[BucketlineError], why: str, tmp_path: Path
) -> None:
    table = make(tmp_path)
    with pytest.raises(kind, match=why):
        table.merge(source, on, matched, unmatched)


@pytest.mark.parametrize("engine", ["first-row", "aggregation"])
def test_engines_that_combine_rows_take_no_merge(engine: str, tmp_path: Path) -> None:
    table = make(tmp_path, **{"merge-engine": engine})
    with pytest.raises(UnsupportedTableError, match="combines a row"):
        table.merge(GOOD, ["id"])
