"""A fast-forward beside expiry of its branch, and beside writers whose schema it removes or replaces."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import Table, create_table, open_table
from tests.support.storage.interleaved import stopped_at
from tests.support.tables.branched import COLUMNS, branched_table, rows


def _ids(table: Table) -> list[int]:
    found: list[int] = open_table(table.path).snapshots()["snapshot_id"].to_pylist()
    return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return branched_table(str(tmp_path / "t"))


def _grow_branch(table: Table, commits: int) -> None:
    """Commits to the branch, and lets all but its newest two snapshots expire."""
    for v in range(commits):
        open_table(table.path, options={"branch": "b"}).write(rows(10 + v))
    open_table(table.path, options={"branch": "b"}).expire_snapshots(retain_min=2, retain_max=2)


@pytest.mark.parametrize("commits", [2, 3, 4, 5, 7])
def test_a_table_gets_the_history_of_a_branch_whose_beginning_has_expired(table: Table, commits: int) -> None:
    """Seeds 927 and 393 of the simulation: snapshots 4, 7 and 8 were left."""
    _grow_branch(table, commits)
    newest = open_table(table.path).fast_forward("b")
    assert _ids(table) == [newest - 1, newest]
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {9 + commits}
    assert set(open_table(table.path, options={"scan.tag-name": "old"}).to_arrow()["v"].to_pylist()) == {1}
    table.write(rows(99))
    open_table(table.path).remove_orphan_files(dry_run=False)
    assert open_table(table.path).doctor(rows=True) == []


def test_such_a_fast_forward_that_dies_anywhere_is_repeated(table: Table, tmp_path: Path) -> None:
    _grow_branch(table, 7)
    kept = shutil.copytree(table.path, tmp_path / "kept")
    with stopped_at(None) as counted:
        open_table(table.path).fast_forward("b")
    changes = [n for n, call in enumerate(counted.log, 1) if call.startswith(("publish", "overwrite", "delete"))]
    assert len(changes) > 5
    for at in changes:
        other = open_table(str(shutil.copytree(kept, tmp_path / f"t{at}")))
        with stopped_at(at) as dead:
            open_table(other.path).fast_forward("b")
        assert dead.is_dead
        assert set(open_table(other.path).to_arrow()["v"].to_pylist()) <= {3, 15, 16}
        newest = open_table(other.path).fast_forward("b")
        assert _ids(other) == [newest - 1, newest]
        assert [f for f in open_table(other.path).doctor(rows=True) if f.rule == "base"] == []
        assert set(open_table(other.path).to_arrow()["v"].to_pylist()) == {16}


def _more(v: int) -> pa.Table:
    return pa.table({"id": [5], "v": [v], "more": pa.array([v], pa.int32())})


@pytest.mark.parametrize("replaced", [False, True])
def test_a_writer_whose_schema_a_fast_forward_takes_away_at_any_moment_leaves_a_readable_table(
    tmp_path: Path, replaced: bool
) -> None:
    """Seed 1037 of the simulation: the newest snapshot was the same before and after, so the writer noticed nothing."""
    made = create_table(str(tmp_path / "made"), COLUMNS, ("id",), options={"bucket": "1", "write-only": "true"})
    made.write(rows(1))
    made.create_tag("first")
    made.create_branch("b", "first")
    if replaced:
        open_table(made.path, options={"branch": "b"}).add_column("other", "STRING")
    made.add_column("more", "INT")
    with stopped_at(None) as counted:
        open_table(str(shutil.copytree(made.path, tmp_path / "counted"))).write(_more(0))
    published = next(n for n, call in enumerate(counted.log) if call.startswith("publish ") and "/snapshot-" in call)
    refused = 0
    for at in range(published - 8, len(counted.log) + 1):
        table = open_table(str(shutil.copytree(made.path, tmp_path / f"t{at}")))
        with stopped_at(at, lambda: open_table(table.path).fast_forward("b")):  # noqa: B023 (called at once)
            try:
                table.write(_more(at))
            except SchemaMismatchError as e:
                assert "nothing was committed" in e.message
                refused += 1
        found = open_table(table.path).to_arrow()
        assert found.num_rows in (2, 3)
        assert [f for f in open_table(table.path).doctor(rows=True) if f.rule != "hint"] == []
    assert refused > 3
