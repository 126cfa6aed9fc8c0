"""Rows are changed in tasks as in this process: on every sort of table, while attempts of tasks are repeated."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.sql.compute.expression import expr
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.merge import merge_by_clauses
from bucketline.state.store.table.merge_clauses import DeleteClause, InsertClause, MergeClauses, UpdateClause
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.models.row_changes import SCHEMA, SORTS, ChangedTable, data_of
from tests.support.spark.tasks import Cluster


@pytest.mark.parametrize("sort", SORTS)
def test_the_table_holds_what_a_dictionary_says(sort: str, tmp_path: Path) -> None:
    draw = random.Random(f"tasks {sort}")
    engine = SparkEngine(Cluster(draw, 3, unrest=0.1))
    changed = ChangedTable.create(str(tmp_path / "w.db" / "t"), sort, draw, engine)
    for act in [changed.change, changed.change, changed.overwrite] * 3:
        act()
        changed.check()
    assert engine.spark.tasks_run > 0


@pytest.mark.parametrize("bucket", ["2", "-1", "-2"])
def test_rows_outside_of_the_partition_that_is_overwritten_are_refused(bucket: str, tmp_path: Path) -> None:
    rows = data_of([("a", 1, 1, "x"), ("b", 2, 2, "x")])
    for name, key in (("own", ("dt", "id")), ("moving", ("id",))):
        if bucket != "-1" and name == "moving":
            continue
        table = create_table(str(tmp_path / "w.db" / name), rows.schema, key, ["dt"], {"bucket": bucket})
        table.write(rows)
        before = table.to_arrow().num_rows, table.snapshots().num_rows
        engine = SparkEngine(Cluster(random.Random(1), 2))
        with pytest.raises(SchemaMismatchError, match="rows of partition dt=b"):
            table.overwrite(rows, {"dt": "a"}, engine=engine)
        null = rows.set_column(1, "id", pa.nulls(2, pa.int64()))
        with pytest.raises(SchemaMismatchError, match="column id: expected BIGINT"):
            table.overwrite(null, engine=engine)
        assert (table.to_arrow().num_rows, table.snapshots().num_rows) == before
        assert table.doctor(rows=True) == []


@pytest.mark.parametrize("key", [("dt", "id"), ()])
def test_a_merge_of_several_clauses_says_what_it_says_in_this_process(key: tuple[str, ...], tmp_path: Path) -> None:
    """Keys that are null match nothing; a source larger than `merge-memory` has more shares; types are fitted."""
    stored = [("ab"[i % 2], i, i, "n") for i in range(40)]
    source = pa.table(
        {
            "id": pa.array([*range(30, 60), None], pa.int32()),
            "dt": [*("ab"[i % 2] for i in range(30, 60)), "a" if key else None],
            "v": [*range(30), 99],
            "name": ["x" * 50000] * 31,
        }
    )
    if key:
        source = source.slice(0, 30)
    clauses = MergeClauses(
        (DeleteClause(expr("source.v = 3")), UpdateClause({"v": expr("v + source.v"), "name": "m"}, expr("v > 31"))),
        (InsertClause(condition=expr("source.v IS NULL OR source.v <> 20")),),
        (UpdateClause({"name": "alone"}, expr("v < 5")), DeleteClause(expr("v = 7"))),
        on=expr("source.v > 0"),
    )
    found = []
    for name, engine in (("local", LOCAL_ENGINE), ("tasks", SparkEngine(Cluster(random.Random(4), 3, unrest=0.2)))):
        made = create_table(str(tmp_path / "w.db" / name), SCHEMA, key, ["dt"], {"bucket": "2"} if key else {})
        table = open_table(made.path, options={"merge-memory": "1 mb"})
        table.write(data_of(stored))
        on = ["id", "dt"]
        if key:
            with pytest.raises(SchemaMismatchError, match="matches no row of the table by the whole ON condition"):
                merge_by_clauses(handle_of(table), source, on, clauses, engine=engine)
        merge_by_clauses(handle_of(table), source.slice(1), on, clauses, engine=engine)
        before = table.snapshots().num_rows
        assert table.merge(source.slice(0, 0), on, {"v": 1}, engine=engine) == before
        assert table.merge(source.slice(0, 5), on, "delete", None, engine=engine) > before
        doubled = pa.concat_tables([source.slice(12, 1)] * 2)
        with pytest.raises(SchemaMismatchError, match="2 source rows match the row of the table with id = 42"):
            table.merge(doubled, on, {"v": 1}, engine=engine)
        assert table.doctor(rows=True) == []
        found.append(sorted(map(repr, table.to_arrow().to_pylist())))
    assert found[0] == found[1]
    assert len(found[0]) > 50


def test_a_merge_that_comes_second_is_planned_again(tmp_path: Path) -> None:
    for key in (("dt", "id"), ()):
        table = create_table(
            str(tmp_path / "w.db" / f"t{len(key)}"), SCHEMA, key, ["dt"], {"bucket": "1"} if key else {}
        )
        table.write(data_of([("a", 1, 1, "x")]))
        others = [lambda: table.update("id = 1", {"v": 10})]  # noqa: B023

        def other() -> None:
            if others and cluster.actions == 2:  # noqa: B023
                others.pop()()  # noqa: B023

        cluster = Cluster(random.Random(1), 2, after_action=other)
        done = table.merge(
            data_of([("a", 1, 5, "s"), ("a", 2, 5, "s")]),
            ["dt", "id"],
            {"v": expr("v + source.v")},
            engine=SparkEngine(cluster),
        )
        assert others == []
        assert done.replanned == 1
        assert sorted(row["v"] for row in table.to_arrow().to_pylist()) == [5, 15]


def test_postponed_tables_are_overwritten_and_merged(tmp_path: Path) -> None:
    engine = SparkEngine(Cluster(random.Random(7), 2))
    table = create_table(str(tmp_path / "w.db" / "t"), SCHEMA, ("dt", "id"), ["dt"], {"bucket": "-2"})
    table.overwrite(data_of([("a", i, i, "x") for i in range(20)]), engine=engine)
    source = data_of([("a", i, 100, "s") for i in range(15, 25)])
    assert table.merge(source, ["dt", "id"], {"v": expr("v + source.v")}, engine=engine).visible
    assert table.delete("id < 5", engine=engine).visible
    held = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert held == {i: i if i < 15 else i + 100 if i < 20 else 100 for i in range(5, 25)}
    assert table.doctor(rows=True) == []
    merged = open_table(table.path, options={"postpone.merge-on-read": "true"})
    with pytest.raises(UnsupportedTableError, match="leave out the argument engine"):
        merged.merge(source, ["dt", "id"], "delete", None, engine=engine)
