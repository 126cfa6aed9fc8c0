"""A table's own care, end to end on real files: expire, tag, branch, roll back, alter; rows stay what they were."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("p", pa.string())])


def _rows(table: Table, snapshot: int | str | None = None) -> list[dict[str, object]]:
    return table.to_arrow(snapshot=snapshot).sort_by("id").to_pylist()


def _write(table: Table, start: int, v: int, rows: int = 20) -> None:
    data = {"id": range(start, start + rows), "v": [v] * rows, "p": ["a", "b"] * (rows // 2)}
    table.write(pa.table(data, schema=SCHEMA))


@pytest.fixture(params=[(), ("p",)], ids=["unpartitioned", "partitioned"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    keys = ("id", *request.param)
    made = create_table(
        str(tmp_path / "t"), SCHEMA, primary_key=keys, partition_by=request.param, options={"bucket": "2"}
    )
    for number in range(6):
        _write(made, number * 5, number)
    return made


def test_expiry_keeps_rows_and_leaves_a_sound_table_without_orphans(table: Table) -> None:
    before = {i: _rows(table, i) for i in handle_of(table).snapshot_store.ids()}
    table.create_tag("old", 2)
    table.create_branch("b", "old")
    result = table.expire_snapshots(retain_min=2, older_than=timedelta(0), limit=3)
    assert result.snapshots == 3
    table.expire_snapshots(retain_min=2, older_than=timedelta(0))
    left = handle_of(table).snapshot_store.ids()
    assert len(left) == 2
    assert {i: _rows(table, i) for i in left} == {i: before[i] for i in left}
    assert _rows(table, "old") == before[2]
    assert _rows(open_table(table.path, options={"branch": "b"})) == before[2]
    assert table.doctor(rows=True) == []
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
    assert table.delete_tag("old") and not table.delete_tag("old")
    assert table.delete_branch("b") and not table.delete_branch("b")
    assert table.branches() == []
    orphans = table.remove_orphan_files(dry_run=False, older_than=timedelta(0), no_writers=True)
    assert orphans.deleted and orphans.size_bytes > 0
    assert {i: _rows(table, i) for i in left} == {i: before[i] for i in left}
    assert table.doctor(rows=True) == []


def test_by_hand_the_tables_options_fill_in_what_is_not_said(table: Table) -> None:
    assert table.expire_snapshots().snapshots == 0
    assert table.expire_snapshots(retain_max=3).snapshots > 0
    assert len(handle_of(table).snapshot_store.ids()) == 3
    with pytest.raises(OptionError):
        table.expire_snapshots(retain_min=4, retain_max=3)


def test_young_orphans_stay(table: Table) -> None:
    stray = Path(table.path, "bucket-0" if not table.partition_by else "p=a/bucket-0", "data-x.parquet")
    stray.write_bytes(b"x")
    assert table.remove_orphan_files(dry_run=False).files == ()
    os.utime(stray, (0, 0))
    assert [Path(f.path) for f in table.remove_orphan_files().files] == [stray]
    assert stray.exists()
    assert table.remove_orphan_files(dry_run=False).deleted and not stray.exists()


def test_tags_are_shown_as_paimon_shows_them(table: Table) -> None:
    table.create_tag("b", retained=timedelta(days=1))
    table.create_tag("a", 1)
    found = table.tags()
    assert found.column_names[:3] == ["tag_name", "snapshot_id", "schema_id"]
    assert found["tag_name"].to_pylist() == ["a", "b"]
    assert found["time_retained"].to_pylist() == [None, timedelta(days=1)]
    with pytest.raises(OptionError):
        table.create_branch("x", "no-such-tag")


def test_rolling_back_makes_old_rows_new(table: Table) -> None:
    before = _rows(table, 3)
    assert table.rollback_to(3) == 3
    assert _rows(table) == before
    _write(table, 100, 9)
    assert len(_rows(table)) == len(before) + 20
    assert [f for f in table.doctor() if f.rule != "orphans"] == []


def test_a_branch_keeps_what_its_options_say_and_takes_tags_and_changes_of_its_own(table: Table) -> None:
    table.create_tag("t", 2)
    table.create_branch("b", "t")
    branch = open_table(table.path, options={"branch": "b"})
    assert branch.expire_snapshots().snapshots == 0
    branch.create_tag("own")
    assert (branch.tags()["tag_name"].to_pylist(), table.tags()["tag_name"].to_pylist()) == (["own", "t"], ["t"])
    assert branch.delete_tag("own") and not branch.delete_tag("own")
    assert branch.add_column("n", "INT").schema.names == ["id", "v", "p", "n"]
    assert table.refreshed().schema.names == ["id", "v", "p"]
    assert "branch" not in open_table(table.path).options


def test_old_rows_are_read_through_every_change_of_schema(table: Table) -> None:
    before = _rows(table)
    altered = table.add_column("n", "DECIMAL(9, 2)", comment="new", position="after id")
    altered = altered.rename_column("v", "w").alter_column("w", type="BIGINT", comment="c")
    altered = altered.add_column("r", pa.struct([("a", pa.int32())]))
    altered = altered.add_column(["r", "b"], "STRING").rename_column(["r", "a"], "c")
    assert altered.schema.names == ["id", "n", "w", "p", "r"]
    assert altered.schema.field("w").type == pa.int64()
    expected = [{"id": r["id"], "n": None, "w": r["v"], "p": r["p"], "r": None} for r in before]
    assert _rows(altered) == expected == _rows(open_table(table.path))
    row = {"id": [1000], "n": [None], "w": [2**40], "p": ["a"], "r": [{"c": 1, "b": "x"}]}
    altered.write(pa.table(row, altered.schema))
    assert _rows(altered)[-1] == {"id": 1000, "n": None, "w": 2**40, "p": "a", "r": {"c": 1, "b": "x"}}
    dropped = altered.drop_column("w").add_column("w", "INT")
    assert {r["w"] for r in _rows(dropped)} == {None}
    dropped.compact()
    assert dropped.doctor(rows=True) == []
    assert _rows(table, 1)[0]["v"] == 0


def test_options_change_with_the_schema(table: Table) -> None:
    altered = table.set_options({"num-sorted-run.compaction-trigger": "3"})
    assert altered.options["num-sorted-run.compaction-trigger"] == "3"
    assert "num-sorted-run.compaction-trigger" not in altered.unset_options("num-sorted-run.compaction-trigger").options
    with pytest.raises(OptionError):
        table.set_options({"merge-engine": "first-row"})
    with pytest.raises(SchemaMismatchError):
        table.alter_column("id", type="INT")


def test_what_users_set_needs_units_and_what_a_table_holds_is_read_as_paimon_does(tmp_path: Path) -> None:
    bare = {"bucket": "2", "snapshot.time-retained": "3600000"}
    with pytest.raises(OptionError, match="in the new table's options has no unit"):
        create_table(str(tmp_path / "t"), SCHEMA, primary_key=("id",), options=bare)
    assert not (tmp_path / "t").exists()
    made = create_table(str(tmp_path / "t"), SCHEMA, primary_key=("id",), options={"bucket": "2"})
    with pytest.raises(OptionError, match="has no unit"):
        made.set_options({"snapshot.time-retained": "1"})
    # Paimon takes a bare number for milliseconds, and stores it so.
    path = tmp_path / "t" / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["options"] = bare
    path.write_text(json.dumps(schema))
    made = open_table(made.path)
    _write(made, 0, 1)
    assert len(_rows(made.set_options({"num-levels": "4"}))) == 20
    assert made.expire_snapshots().snapshots == 0
    with pytest.raises(OptionError, match=r"older_than = 5 has no unit: pass a datetime\.timedelta"):
        made.remove_orphan_files(older_than=5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="retained = 5 has no unit"):
        made.create_tag("t", retained=5)  # type: ignore[arg-type]
