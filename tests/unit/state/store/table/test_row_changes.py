"""Delete and update by a condition: what is changed, and where it is refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CommitConflictError, SchemaMismatchError, UnsupportedTableError
from bucketline.state.sql.compute.expression import expr
from bucketline.state.store.engine.engine import Outcome, Parts
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE, LocalEngine
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.stages import Stages
from tests.support.storage.interleaved import stopped_at

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
    assert "DELETE" in table.snapshots()["operation"].to_pylist()[-2:]
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
    assert [tuple(row.values()) for row in found] == [(1, 1, 1), (1, 7, 2), (2, 2, 3)]


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
    if engine == "aggregation":
        with pytest.raises(UnsupportedTableError, match="combines a row"):
            table.update(ID == 1, {"name": "z"})
        return
    table.update(ID == 1, {"name": "z"})
    with pytest.raises(SchemaMismatchError, match="a null keeps the older value"):
        table.update(ID == 1, {"name": None})
    assert held(table) == [(1, 1, "z")]


def test_a_partial_update_is_refused_where_the_table_would_not_take_it(tmp_path: Path) -> None:
    options = {"merge-engine": "partial-update", "fields.v.sequence-group": "name"}
    table = make(tmp_path, **options, **{"partial-update.remove-record-on-sequence-group": "v"})
    table.write(rows(("a", 1, 5, "x"), ("a", 2, None, None)))  # type: ignore[arg-type]
    table.update("id = 1", {"name": None})
    assert held(table) == [(1, 5, None), (2, None, None)]
    for assignments in ({"v": 4}, {"v": 4, "name": "y"}):
        with pytest.raises(SchemaMismatchError, match="no newer sequence"):
            table.update("id = 1", assignments)
    with pytest.raises(SchemaMismatchError, match="no newer sequence"):
        table.update("id = 2", {"name": "y"})
    with pytest.raises(SchemaMismatchError, match="removes only"):
        table.delete("id = 2")
    table.delete("id = 1")
    assert held(table) == [(2, None, None)]


def test_an_update_of_aggregates_is_refused(tmp_path: Path) -> None:
    group = {"fields.v.sequence-group": "name", "fields.name.aggregate-function": "listagg"}
    table = make(tmp_path, **{"merge-engine": "partial-update"}, **group)
    with pytest.raises(UnsupportedTableError, match="aggregates of name once more"):
        table.update("id = 1", {"v": 2})


def test_a_sequence_may_grow_and_not_shrink(tmp_path: Path) -> None:
    for number, (order, worse, better) in enumerate((("ascending", 4, 6), ("descending", 6, 4))):
        options = {"sequence.field": "v", "sequence.field.sort-order": order}
        table = make(tmp_path / str(number), **options)
        table.write(rows(("a", 1, 5, "x")))
        table.update("id = 1", {"v": better, "name": "y"})
        with pytest.raises(SchemaMismatchError, match=r"an older 'sequence\.field'"):
            table.update("id = 1", {"v": worse})
        assert held(table) == [(1, better, "y")]


def test_values_are_computed_by_sql(table: Table) -> None:
    if "sequence.field" in table.options:
        return
    table.update("id < 3 AND v % 20 = 1", {"v": expr("v * 2 + id"), "name": expr("upper(name) || '!'")})
    assert held(table)[:4] == [(0, 2, "N0!"), (1, 11, "n1"), (2, 44, "N2!"), (3, 31, "n3")]
    with pytest.raises(SchemaMismatchError, match="cannot hold"):
        table.update("id = 1", {"v": expr("v / 3")})
    with pytest.raises(OptionError, match="only a merge has a source"):
        table.update("id = 1", {"v": expr("source.v")})
    table.delete("v > id * 20")
    assert [row[0] for row in held(table)] == list(range(1, 2)) + list(range(3, 10))


def test_a_key_moves_with_its_partition(tmp_path: Path) -> None:
    """A fixed bucket of a key that lacks the partition keeps the row in the old one too, as in Paimon."""
    for number, (bucket, expected) in enumerate((("-1", 1), ("1", 2))):
        table = make(tmp_path / str(number), ("id",), bucket=bucket)
        table.write(rows(("a", 1, 1, "x")))
        table.update("id = 1", {"dt": "b", "v": 2})
        assert len(held(table)) == expected
        assert (1, 2, "x") in held(table)


def test_changes_of_a_postpone_table_wait_behind_its_rows(tmp_path: Path) -> None:
    table = make(tmp_path, bucket="-2")
    table.write(rows(("a", 1, 1, "x"), ("a", 2, 2, "y"), ("b", 3, 3, "z")))
    table.delete("id = 1")
    assert [row[0] for row in held(table)] == [2, 3]
    job = {"postpone.batch-write-fixed-bucket": "false"}
    write_table(handle_of(table), rows(("a", 2, 20, "newer")), options=job)
    assert not table.update("id = 2", {"name": "updated"}).visible
    assert not table.delete("id = 3").visible
    assert [row[0] for row in held(table)] == [2, 3]
    table.compact()
    assert held(table) == [(2, 2, "updated")]
    assert table.doctor(rows=True) == []


def test_a_row_that_somebody_else_changes_meanwhile_is_changed_as_it_is_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path, bucket="1")
    table.write(rows(("a", 1, 1, "x"), ("a", 2, 2, "y"), ("a", 9, 9, "y")))
    others = iter([("a", 1, 100, "theirs"), ("a", 1, 200, "theirs")])

    class Racing(LocalEngine):
        def run(self, stages: Stages[Parts]) -> Outcome:
            found = LOCAL_ENGINE.run(stages)
            for row in others:
                table.write(rows(row))
                break
            return found

    done = table.update("id <= 2", {"v": expr("v + 1")}, engine=Racing())
    assert (done, done.replanned) == (table.snapshots()["snapshot_id"].to_pylist()[-1], 2)
    assert held(table) == [(1, 201, "theirs"), (2, 3, "y"), (9, 9, "y")]
    assert caplog.text.count("planned again on the newest snapshot") == 2
    others = iter([("a", 2, 1, "between"), ("a", 5, 1, "between")])
    table.delete("id = 1 OR id = 9", engine=Racing())
    assert caplog.text.count("planned again on the newest snapshot") == 2
    assert held(table) == [(2, 1, "between")]
    table.update("id = 2", {"v": 9}, engine=Racing())
    assert held(table) == [(2, 9, "between"), (5, 1, "between")]
    table.compact()
    others = iter([("a", 2, 3, "moved up")])

    class Compacting(Racing):
        def run(self, stages: Stages[Parts]) -> Outcome:
            found = super().run(stages)
            table.compact()
            return found

    table.update("id <= 5", {"name": "ours"}, engine=Compacting())
    assert held(table) == [(2, 3, "ours"), (5, 1, "ours")]
    assert table.doctor(rows=True) == []


def test_a_row_that_waits_on_level_0_is_changed_as_it_will_be(tmp_path: Path) -> None:
    table = make(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.write(rows(("a", 1, 1, "x"), ("a", 2, 2, "y")))
    lazy = open_table(table.path, options={"compaction": "none"})
    lazy.write(rows(("a", 1, 10, "newer"), ("a", 3, 3, "z")))
    assert held(table) == [(1, 1, "x"), (2, 2, "y")]
    lazy.update("id <= 3 AND v > 2", {"name": "changed"})
    lazy.delete("id = 3")
    table.compact()
    assert held(table) == [(1, 10, "changed"), (2, 2, "y")]
    assert table.doctor(rows=True) == []


def test_a_change_that_always_comes_second_is_given_up(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(("a", 1, 1, "x")))

    class Faster(LocalEngine):
        def run(self, stages: Stages[Parts]) -> Outcome:
            found = LOCAL_ENGINE.run(stages)
            table.write(rows(("a", 1, 0, "theirs")))
            return found

    with pytest.raises(CommitConflictError, match="planned 6 times") as error:
        table.delete("id = 1", engine=Faster())
    assert error.value.fields["rule"] == "rows-changed"
    assert held(table) == [(1, 0, "theirs")]
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


@pytest.mark.parametrize(
    ("key", "options", "why"),
    [
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
        ({}, "must set at least one column"),
        ({"nope": 1}, "there is no column 'nope'"),
        ({"id": 1}, "part of the primary key"),
        ({"v": "x"}, "not a value of column 'v'"),
        ({"v": pc.field("name")}, "v"),
        ({"v": pc.field("nope")}, "nope"),
        ({"v": pc.field("name") + 1}, "computed"),
        ({"v": V / 0}, "divide by zero"),
        ({"name": timedelta(1)}, "not a value of column 'name'"),
    ],
)
def test_assignments_that_do_not_fit_are_refused(assignments: dict[str, object], why: str, tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(("a", 1, 1, "x")))
    with pytest.raises(SchemaMismatchError, match=why):
        table.update(ID == 1, assignments)
    assert table.snapshots().num_rows == 1


def test_an_update_whose_snapshot_expires_meanwhile_is_planned_again(tmp_path: Path) -> None:
    """The missing file was taken for damage."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    table = create_table(str(tmp_path / "t"), columns, ("id",), options={"bucket": "-1"})
    table.write(pa.table({"id": [1], "v": [1]}, schema=columns))
    with stopped_at(None) as counted:
        open_table(table.path).update("id = 1", {"v": 2})
    looks = [n for n, call in enumerate(counted.log, 1) if call.startswith("read ") and "/index/" in call]
    assert looks

    def meanwhile() -> None:
        open_table(table.path).write(pa.table({"id": [2], "v": [1]}, schema=columns))
        open_table(table.path).compact()
        open_table(table.path).expire_snapshots(retain_min=1, retain_max=1)

    with stopped_at(looks[0], meanwhile):
        open_table(table.path).update("id = 1", {"v": 3})
    assert sorted(open_table(table.path).to_arrow().to_pydict()["v"]) == [1, 3]
