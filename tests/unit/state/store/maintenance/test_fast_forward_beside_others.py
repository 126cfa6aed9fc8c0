"""A fast-forward beside expiry of its branch, and beside writers whose schema it removes or replaces."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import CommitConflictError, SchemaMismatchError
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
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
        assert _ids(other) in ([newest - 1, newest], [newest - 1, newest, newest + 1])
        assert [f for f in open_table(other.path).doctor(rows=True) if f.rule == "base"] == []
        assert set(open_table(other.path).to_arrow()["v"].to_pylist()) == {16}


def test_a_fast_forward_passes_a_snapshot_that_a_dead_expiry_has_half_removed(table: Table) -> None:
    """Seed 40039 of the simulation: it raised an error of the storage after it had changed the table."""
    first = handle_of(table).snapshot_store.get(1)
    assert first is not None
    for name in (first.base_manifest_list, first.delta_manifest_list):
        Path(table.path, "manifest", name).unlink()
    open_table(table.path, options={"branch": "b"}).write(rows(10))
    open_table(table.path).fast_forward("b")
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {10}
    open_table(table.path).expire_snapshots(retain_min=1, retain_max=1)
    assert open_table(table.path).doctor(rows=True) == []


def test_a_branch_keeps_the_files_of_its_snapshots_that_are_older_than_those_that_the_table_had(table: Table) -> None:
    """Seed 41101 of the simulation: the hint EARLIEST named the table's former oldest snapshot."""
    table.write(rows(4))
    table.expire_snapshots(retain_min=1, retain_max=1)
    branch = open_table(table.path, options={"branch": "b"})
    for v in (10, 11):
        branch.write(rows(v))
    open_table(table.path).fast_forward("b")
    assert Path(table.path, "snapshot", "EARLIEST").read_text() == "2"
    open_table(table.path).write(rows(12))
    open_table(table.path).expire_snapshots(retain_min=1, retain_max=1)
    assert branch.doctor(rows=True) == []


def _more(v: int) -> pa.Table:
    return pa.table({"id": [5], "v": [v], "more": pa.array([v], pa.int32())})


def _made(path: Path, *, replaced: bool) -> Table:
    """A table with the schemas 0 and 1, and a branch `b` without the table's schema 1."""
    made = create_table(str(path), COLUMNS, ("id",), options={"bucket": "1", "write-only": "true"})
    made.write(rows(1))
    made.create_tag("first")
    made.create_branch("b", "first")
    if replaced:
        open_table(made.path, options={"branch": "b"}).add_column("other", "STRING")
    made.add_column("more", "INT")
    return made


def _publication(log: list[str]) -> int:
    return next(n for n, call in enumerate(log, 1) if call.startswith("publish ") and "/snapshot-" in call)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_writer_whose_schema_a_fast_forward_takes_away_at_any_moment_leaves_a_readable_table(
    tmp_path: Path, replaced: bool
) -> None:
    """Seed 1037 of the simulation: the newest snapshot was the same before and after, so the writer noticed nothing."""
    made = _made(tmp_path / "made", replaced=replaced)
    with stopped_at(None) as counted:
        open_table(str(shutil.copytree(made.path, tmp_path / "counted"))).write(_more(0))
    refused, published = 0, _publication(counted.log)
    for at in range(published - 7, len(counted.log) + 1):
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


@pytest.mark.parametrize("replaced", [False, True])
def test_a_writer_that_dies_after_a_fast_forward_took_its_schema_leaves_a_readable_table(
    tmp_path: Path, replaced: bool
) -> None:
    made = _made(tmp_path / "made", replaced=replaced)
    copied = open_table(str(shutil.copytree(made.path, tmp_path / "counted")))
    with stopped_at(None) as counted:
        copied.write(_more(0))
    for lasts in (1, 2, 4):
        table = open_table(str(shutil.copytree(made.path, tmp_path / f"t{lasts}")))
        forward = open_table(table.path).fast_forward
        with stopped_at(_publication(counted.log), lambda: forward("b"), lasts=lasts) as writer:  # noqa: B023
            table.write(_more(9))
        assert writer.is_dead
        _check_forwarded(table.path)


def test_a_fast_forward_that_died_before_it_took_the_next_id_takes_it_when_it_is_repeated(tmp_path: Path) -> None:
    made = _made(tmp_path / "made", replaced=False)
    with stopped_at(None) as counted:
        open_table(str(shutil.copytree(made.path, tmp_path / "counted"))).fast_forward("b")
    with stopped_at(_publication(counted.log)) as dead:
        open_table(made.path).fast_forward("b")
    assert dead.is_dead and _ids(made) == [1]
    open_table(made.path).fast_forward("b")
    assert _ids(made) == [1, 2]
    open_table(made.path).fast_forward("b")
    assert _ids(made) == [1, 2]
    _check_forwarded(made.path)


def _check_forwarded(path: str) -> None:
    assert open_table(path).to_arrow().num_rows == 2
    assert [f for f in open_table(path).doctor(rows=True) if f.rule not in ("hint", "half-forwarded")] == []
    held = open_table(path).to_arrow()
    open_table(path).write(held.set_column(held.column_names.index("v"), "v", pa.array([7, 7], pa.int64())))
    assert open_table(path).to_arrow()["v"].to_pylist() == [7, 7]


def test_nothing_older_is_left_if_the_branch_begins_right_after_the_newest_snapshot(
    table: Table, tmp_path: Path
) -> None:
    _grow_branch(table, 5)
    first = open_table(table.path, options={"branch": "b"}).snapshots()["snapshot_id"].to_pylist()[0]
    while _ids(table)[-1] < first - 1:
        open_table(table.path).write(rows(50))
    assert _ids(table)[-1] == first - 1
    kept = shutil.copytree(table.path, tmp_path / "kept")
    with stopped_at(None) as counted:
        open_table(table.path).fast_forward("b")
    for at in [n for n, call in enumerate(counted.log, 1) if call.startswith(("publish", "overwrite", "delete"))]:
        other = open_table(str(shutil.copytree(kept, tmp_path / f"t{at}")))
        with stopped_at(at):
            open_table(other.path).fast_forward("b")
        newest = open_table(other.path).fast_forward("b")
        assert _ids(other) in ([newest - 1, newest], [newest - 1, newest, newest + 1])


@pytest.mark.parametrize("replaced", [False, True])
def test_doctor_tells_that_a_fast_forward_is_to_be_repeated_if_it_died_and_so_did_a_writer(
    tmp_path: Path, replaced: bool
) -> None:
    """The writer publishes under a schema that the fast-forward had taken away before it died."""
    made = _made(tmp_path / "made", replaced=replaced)
    copied = open_table(str(shutil.copytree(made.path, tmp_path / "written")))
    with stopped_at(None) as writing:
        copied.write(_more(0))
    with stopped_at(None) as forwarding:
        open_table(str(shutil.copytree(made.path, tmp_path / "forwarded"))).fast_forward("b")
    changes = [n for n, c in enumerate(forwarding.log, 1) if c.startswith(("publish", "overwrite", "delete"))]
    taken = next(n for n in changes if "/schema/schema-1" in forwarding.log[n - 1])
    last = next(n for n in changes if "/snapshot-2" in forwarding.log[n - 1])
    for at in (next(n for n in changes if n > taken), last):
        table = open_table(str(shutil.copytree(made.path, tmp_path / f"t{at}")))

        def die(path: str = table.path, at: int = at) -> None:
            with stopped_at(at):
                open_table(path).fast_forward("b")

        with stopped_at(_publication(writing.log), die, lasts=1):
            table.write(_more(9))
        assert _ids(table) == [1, 2]
        told = [f.message for f in open_table(table.path).doctor() if f.rule == "half-forwarded"]
        assert ["`fast_forward('b')`" in message for message in told] == [True]
        open_table(table.path).fast_forward("b")
        _check_forwarded(table.path)
        assert [f for f in open_table(table.path).doctor() if f.rule == "half-forwarded"] == []


def test_doctor_tells_of_a_snapshot_that_a_late_writer_left_far_ahead_and_how_to_remove_it(tmp_path: Path) -> None:
    """The table ends long before the snapshot on which the writer builds, so nothing takes the id of that writer."""
    made = _made(tmp_path / "made", replaced=False)
    for v in range(2):
        open_table(made.path).write(_more(v))
    copied = open_table(str(shutil.copytree(made.path, tmp_path / "written")))
    with stopped_at(None) as writing:
        copied.write(_more(0))
    table = open_table(made.path)
    with stopped_at(_publication(writing.log), lambda: open_table(made.path).fast_forward("b"), lasts=1):
        table.write(_more(9))
    assert _ids(table) == [1, 2, 4] and open_table(made.path).to_arrow().num_rows == 2
    told = [f.message for f in open_table(made.path).doctor() if f.rule == "snapshot-gap"]
    assert ["`rollback_to(2)`" in message and "expire" not in message for message in told] == [True]
    open_table(made.path).rollback_to(2)
    assert _ids(table) == [1, 2] and open_table(made.path).doctor(rows=True) == []


def _beside_a_rollback(made: Table, folder: Path, what: str, *, writes: bool) -> tuple[Table, bool]:
    """The fast-forward is stopped at its last call of this kind (`what` is its beginning) while the table is rolled
    back to snapshot 1, and perhaps written. Its pin is gone by then, as after an hour, so the rollback is not refused.
    Returns the table, and whether the fast-forward was refused."""
    with stopped_at(None) as counted:
        open_table(str(shutil.copytree(made.path, folder / "counted"))).fast_forward("b")
    counted_path = str(folder / "counted")
    at = max(n for n, call in enumerate(counted.log, 1) if call.replace(counted_path, "").startswith(what))
    table = open_table(str(shutil.copytree(made.path, folder / "beside")))

    def roll_back() -> None:
        _without_pins(table)
        open_table(table.path).rollback_to(1)
        for v in (7, 8, 9) if writes else ():
            open_table(table.path).write(rows(v))

    with stopped_at(at, roll_back) as stopped:
        try:
            open_table(table.path).fast_forward("b")
        except CommitConflictError as e:
            assert "rolled back" in e.message
            return table, True
    assert stopped.where
    return table, False


def _without_pins(table: Table) -> None:
    for pin in Path(table.path, "bucketline").glob("pin-*"):
        pin.unlink()


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize(
    "what",
    [
        "publish /snapshot/snapshot-3",  # the snapshot without changes; interleavings with the seed 21
        "read_optional /snapshot/snapshot-2",  # right after it
        "overwrite /snapshot/LATEST",
    ],
)
def test_the_last_snapshot_of_a_fast_forward_follows_no_snapshot_that_was_rolled_back(
    tmp_path: Path, what: str, writes: bool
) -> None:
    """A gap was left, or LATEST named a snapshot that was gone, or the next commit of another writer was removed."""
    made = create_table(str(tmp_path / "made"), COLUMNS, ("id",), options={"bucket": "1", "write-only": "true"})
    for v in (1, 2):
        made.write(rows(v))
    made.create_tag("x")
    made.create_branch("b", "x")
    made.add_column("more", "INT")
    table, is_refused = _beside_a_rollback(made, tmp_path, what, writes=writes)
    assert is_refused
    assert _ids(table) == ([1, 2, 3, 4] if writes else [1])
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {9 if writes else 1}
    assert [f for f in open_table(table.path).doctor(rows=True) if f.rule != "hint"] == []


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize(
    "what", ["publish /snapshot/snapshot-4", "overwrite /snapshot/LATEST", "overwrite /tag/tag-old"]
)
def test_a_fast_forward_beside_a_rollback_below_their_last_common_snapshot_leaves_no_gap(
    table: Table, tmp_path: Path, what: str, writes: bool
) -> None:
    """The table had the snapshots 1, 3 and 4, or LATEST named one that was gone, so that nobody could write."""
    for v in (20, 21):
        open_table(table.path, options={"branch": "b"}).write(rows(v))
    forwarded, is_refused = _beside_a_rollback(table, tmp_path, what, writes=writes)
    assert is_refused
    assert _ids(forwarded) == ([1, 2, 3, 4] if writes else [1])
    assert [f for f in open_table(forwarded.path).doctor(rows=True) if f.rule != "hint"] == []
    open_table(forwarded.path).fast_forward("b")
    assert set(open_table(forwarded.path).to_arrow()["v"].to_pylist()) == {21}


def test_a_rollback_beside_a_fast_forward_that_has_removed_its_target_leaves_the_history_of_the_branch(
    table: Table, tmp_path: Path
) -> None:
    """Both have finished the rollback, and the branch begins later. The table was left without any snapshot."""
    for v in (20, 21):
        open_table(table.path, options={"branch": "b"}).write(rows(v))
    with stopped_at(None) as counted:
        open_table(str(shutil.copytree(table.path, tmp_path / "counted"))).rollback_to(1)
    removed = next(n for n, c in enumerate(counted.log, 1) if c.startswith("delete ") and c.endswith("/snapshot-3"))

    def forward() -> None:
        _without_pins(table)
        open_table(table.path).fast_forward("b")

    with stopped_at(removed + 1, forward) as stopped:
        open_table(table.path).rollback_to(1)
    assert stopped.where.startswith("list_names ")
    assert _ids(table) == [2, 3, 4]
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {21}
