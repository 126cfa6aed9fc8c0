"""A branch that is deleted while a process writes to it: nothing is left of it, or later care clears it away; a branch
that has lost its schema is another thing."""

import logging
import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import (
    BranchNotFoundError,
    CorruptFileError,
    MissingSnapshotError,
    RemovalUnderWayError,
    SchemaMismatchError,
)
from bucketline.state.store.table.table import Table, open_table
from tests.support.storage.interleaved import stopped_at
from tests.support.tables.branched import branched_table, rows
from tests.support.tables.notes import make_notes_old


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return branched_table(str(tmp_path / "t"))


def _write_to_branch(table: Table) -> object:
    return open_table(table.path, options={"branch": "b"}).write(rows(9))


def _publication(table: Table) -> int:
    """The number of the call by which a write to the branch publishes its snapshot."""
    with stopped_at(None) as counted:
        _write_to_branch(table)
    table.delete_branch("b")
    table.create_branch("b", "old")
    return next(n for n, call in enumerate(counted.log, 1) if call.startswith("publish ") and "/snapshot-" in call)


def _folder(table: Table) -> Path:
    return Path(table.path, "branch", "branch-b")


def _care(table: Table) -> None:
    open_table(table.path).expire_snapshots(retain_min=1, retain_max=1)
    open_table(table.path).remove_orphan_files(dry_run=False)


def test_a_commit_to_a_branch_that_goes_meanwhile_is_taken_back(table: Table) -> None:
    at = _publication(table)
    with (
        stopped_at(at, lambda: open_table(table.path).delete_branch("b")),
        pytest.raises(
            BranchNotFoundError, match="'b' was deleted while rows were written to it; nothing was committed"
        ),
    ):
        _write_to_branch(table)
    assert open_table(table.path).branches() == []
    _care(table)
    assert not _folder(table).exists()
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {3}
    assert open_table(table.path).doctor(rows=True) == []


@pytest.mark.parametrize("after_an_hour", [False, True])
def test_what_a_late_writer_leaves_of_a_deleted_branch_is_cleared_away(table: Table, after_an_hour: bool) -> None:
    table.delete_branch("b")
    _leave(table)
    assert open_table(table.path).branches() == []
    if after_an_hour:
        make_notes_old(table)
    _care(table)
    assert not _folder(table).exists()
    make_notes_old(table)
    _care(table)
    assert list(Path(table.path, "bucketline").glob("*")) == []


def _leave(table: Table) -> None:
    """What a writer leaves that publishes to a branch after that was deleted, and dies."""
    folder = _folder(table) / "snapshot"
    folder.mkdir(parents=True)
    (folder / "snapshot-3").write_bytes(Path(table.path, "snapshot", "snapshot-3").read_bytes())
    (folder / "LATEST").write_text("3")


def test_a_branch_that_dies_while_it_is_taken_back_is_removed_by_later_care(table: Table, tmp_path: Path) -> None:
    """Seed 95530 of the simulation: the tag of the branch was left without its snapshot."""
    copied = open_table(str(shutil.copytree(table.path, tmp_path / "counted")))
    with stopped_at(None) as counted:
        copied.create_branch("c", "old")
    at = next(n for n, call in enumerate(counted.log, 1) if call.startswith("publish ") and "/tag-" in call)
    seen = set()
    for lasts in range(1, 14):
        other = open_table(str(shutil.copytree(table.path, tmp_path / f"t{lasts}")))
        go = open_table(other.path).delete_tag
        with stopped_at(at, lambda go=go: go("old"), lasts=lasts) as dead, suppress(OptionError):
            other.create_branch("c", "old")
        assert dead.is_dead
        has_begun = any("/bucketline/removal-" in c for c in dead.log[: dead.calls - 1])
        seen.add(has_begun)
        make_notes_old(other)
        for _ in range(2):
            _care(other)
            make_notes_old(other)
        assert open_table(other.path).branches() == (["b"] if has_begun else ["b", "c"]), dead.log[-1]
        for name in open_table(other.path).branches():
            assert open_table(other.path, options={"branch": name}).to_arrow().num_rows == 2
        assert [f for f in open_table(other.path).doctor(rows=True) if f.rule != "hint"] == []
        assert list(Path(other.path, "bucketline").glob("*")) == []
    assert seen == {False, True}


def test_a_branch_can_be_made_anew_over_what_a_late_writer_left(table: Table) -> None:
    table.delete_branch("b")
    _leave(table)
    table.create_branch("b", "old")
    branch = open_table(table.path, options={"branch": "b"})
    assert branch.snapshots()["snapshot_id"].to_pylist() == [2]
    assert set(branch.to_arrow()["v"].to_pylist()) == {1}
    _care(table)
    assert open_table(table.path).branches() == ["b"]


def test_a_branch_that_lost_its_schema_stops_care_also_after_one_of_that_name_was_deleted(table: Table) -> None:
    table.delete_branch("b")
    table.create_branch("b", "old")
    (_folder(table) / "schema" / "schema-0").unlink()
    with pytest.raises(CorruptFileError, match="there is no schema"):
        open_table(table.path).remove_orphan_files(dry_run=False)
    assert (_folder(table) / "snapshot" / "snapshot-2").exists()


def test_a_branch_half_deleted_by_a_dead_process_goes_also_after_an_hour(table: Table) -> None:
    with stopped_at(None) as counted:
        table.delete_branch("b")
    table.create_branch("b", "old")
    removed = [n for n, call in enumerate(counted.log, 1) if call.startswith("delete ") and "/branch-b/" in call]
    with stopped_at(removed[1]) as dead:
        table.delete_branch("b")
    assert dead.is_dead and _folder(table).exists()
    make_notes_old(table)
    _care(table)
    assert not _folder(table).exists() and open_table(table.path).branches() == []


@pytest.mark.parametrize("gone", range(1, 7))
def test_a_tag_can_be_deleted_while_a_branch_goes(table: Table, gone: int) -> None:
    """Seed 500030 of the simulation."""
    table.create_tag("first", snapshot=1)
    table.expire_snapshots(retain_min=1, retain_max=1)
    with stopped_at(None) as counted:
        table.delete_branch("b")
    table.create_branch("b", "old")
    removed = [n for n, call in enumerate(counted.log, 1) if call.startswith("delete ") and "/branch-b/" in call]
    with stopped_at(removed[min(gone, len(removed) - 1)]) as dead:
        table.delete_branch("b")
    assert dead.is_dead
    assert open_table(table.path).delete_tag("first")
    make_notes_old(table)
    _care(table)
    assert open_table(table.path).doctor(rows=True) == []


def test_orphans_are_removed_while_a_branch_goes(table: Table) -> None:
    with stopped_at(None) as counted:
        open_table(table.path).remove_orphan_files(dry_run=False)
    looks = [n for n, call in enumerate(counted.log, 1) if "branch" in call]
    assert len(looks) > 5
    for at in looks:
        with stopped_at(at, lambda: open_table(table.path).delete_branch("b")):
            open_table(table.path).remove_orphan_files(dry_run=False)
        table.create_branch("b", "old")
    assert open_table(table.path).doctor(rows=True) == []


def test_a_deleter_that_was_stopped_leaves_a_new_branch_of_that_name_alone(table: Table) -> None:
    with stopped_at(None) as counted:
        table.delete_branch("b")
    table.create_branch("b", "old")
    first = next(n for n, call in enumerate(counted.log, 1) if call.startswith("exists ") and "/removal-" in call)

    def meanwhile() -> None:
        open_table(table.path).remove_orphan_files(dry_run=False)
        open_table(table.path).create_branch("b", "old")

    with stopped_at(first, meanwhile):
        table.delete_branch("b")
    assert set(open_table(table.path, options={"branch": "b"}).to_arrow()["v"].to_pylist()) == {1}


def test_a_writer_whose_schema_a_fast_forward_removed_commits_nothing(table: Table) -> None:
    _write_to_branch(table)
    table.add_column("more", "INT")
    new = pa.table({"id": [5], "v": [5], "more": pa.array([5], pa.int32())})
    copied = open_table(table.path)
    with stopped_at(None) as counted:
        copied.write(new)
    open_table(table.path).rollback_to(4)
    at = next(n for n, call in enumerate(counted.log, 1) if call.startswith("publish ") and "/snapshot-" in call)
    with (
        stopped_at(at, lambda: open_table(table.path).fast_forward("b")),
        pytest.raises(SchemaMismatchError, match="schema 1, under which rows were written, was removed meanwhile"),
    ):
        open_table(table.path).write(new)
    assert sorted(open_table(table.path).to_arrow()["v"].to_pylist()) == [9, 9]
    assert open_table(table.path).doctor(rows=True) == []


def test_a_fast_forward_to_a_branch_that_is_being_deleted_says_so_and_changes_nothing(table: Table) -> None:
    """Seed 64 of the simulation."""
    with stopped_at(None) as counted:
        table.delete_branch("b")
    table.create_branch("b", "old")
    gone = next(n for n, call in enumerate(counted.log, 1) if call.startswith("delete ") and "/snapshot-2" in call)
    with stopped_at(gone + 1) as dead:
        table.delete_branch("b")
    assert dead.is_dead and not (_folder(table) / "snapshot" / "snapshot-2").exists()
    with pytest.raises(
        RemovalUnderWayError, match=r"'b' is being deleted.* Finish the deletion with `delete_branch\('b'\)`"
    ):
        open_table(table.path).fast_forward("b")
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {3}
    assert open_table(table.path).delete_branch("b") and not _folder(table).exists()


def test_a_fast_forward_to_a_branch_that_lost_its_snapshots_otherwise_says_what_is_lost(table: Table) -> None:
    (_folder(table) / "snapshot" / "snapshot-2").unlink()
    with pytest.raises(MissingSnapshotError, match="tag old names snapshot 2"):
        open_table(table.path).fast_forward("b")


def test_a_fast_forward_that_died_is_told_with_the_way_on(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    _write_to_branch(table)
    with stopped_at(None) as counted:
        open_table(table.path).fast_forward("b")
    table.rollback_to(2)
    for v in range(3):
        table.write(rows(v))
    first = next(n for n, call in enumerate(counted.log, 1) if call.startswith("delete ") and "/snapshot-" in call)
    with stopped_at(first) as dead:
        open_table(table.path).fast_forward("b")
    assert dead.is_dead
    told = [f for f in open_table(table.path).doctor() if f.rule == "half-forwarded"]
    assert ["`fast_forward('b')`" in f.message for f in told] == [True]
    make_notes_old(table)
    with caplog.at_level(logging.WARNING):
        _care(table)
    assert "repeat it with fast_forward('b')" in caplog.text
    open_table(table.path).fast_forward("b")
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {9}
    assert open_table(table.path).doctor(rows=True) == []


@pytest.mark.parametrize("left", ["tag/tag-old", "schema/schema-0"])
def test_a_branch_that_is_being_deleted_is_neither_read_nor_written(table: Table, left: str) -> None:
    branch = open_table(table.path, options={"branch": "b"})
    with stopped_at(None) as counted:
        table.delete_branch("b")
    table.create_branch("b", "old")
    gone = [n for n, call in enumerate(counted.log, 1) if call.startswith("delete ") and call.endswith(left)]
    with stopped_at(gone[0]) as dead:
        table.delete_branch("b")
    assert dead.is_dead and (_folder(table) / left).exists()
    said = r"branch 'b' is being deleted, .* Finish the deletion with `delete_branch\('b'\)`"
    with pytest.raises(BranchNotFoundError, match=said):
        branch.to_arrow()
    with pytest.raises(BranchNotFoundError, match=said):
        _write_to_branch(table)
    _care(table)
    assert not _folder(table).exists()
    table.create_branch("b", "old")
    assert set(open_table(table.path, options={"branch": "b"}).to_arrow()["v"].to_pylist()) == {1}


def test_a_commit_to_a_branch_asks_once_for_its_schema_after_it_was_published(table: Table) -> None:
    open_table(table.path, options={"branch": "b"}).add_column("more", "INT")
    branch = open_table(table.path, options={"branch": "b"})
    with stopped_at(None) as counted:
        branch.write(pa.table({"id": [5], "v": [5], "more": pa.array([5], pa.int32())}))
    published = next(n for n, c in enumerate(counted.log) if c.startswith("publish ") and "/snapshot-" in c)
    assert sum("/branch-b/schema/schema-1" in call for call in counted.log[published:]) == 1
