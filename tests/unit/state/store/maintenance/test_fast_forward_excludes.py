"""A fast-forward and a rollback exclude each other. A fast-forward that removes all snapshots of the table excludes
all who refer to one. Either is stopped at calls to storage while the other runs whole, or it dies there."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import CommitConflictError, RemovalUnderWayError
from bucketline.state.store.catalog.consumers import begin_consumer, next_of_consumers
from bucketline.state.store.table.table import Table, handle_of, open_table
from tests.support.storage.interleaved import stopped_at
from tests.support.tables.branched import branched_table, rows
from tests.support.tables.notes import make_notes_old, notes_of

EVERY_MOMENT = "BUCKETLINE_EVERY_MOMENT" in os.environ


def _consumer(table: Table) -> None:
    handle = handle_of(table)
    begin_consumer(handle.snapshot_store, handle.io, table.path, "c", 3, handle.world)


OPERATIONS: dict[str, Callable[[Table], object]] = {
    "fast-forward": lambda t: t.fast_forward("b"),
    "rollback": lambda t: t.rollback_to(1),
    "rollback to a tag": lambda t: t.rollback_to("old"),
    "tag": lambda t: t.create_tag("new", snapshot=3),
    "consumer": _consumer,
}
BESIDE_ALL = ("rollback", "rollback to a tag")
BESIDE_REPLACING = (*BESIDE_ALL, "tag", "consumer")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Table]:
    """A table, and the branch `b` that begins at its snapshot 2. The second branch has lost its beginning, so nothing
    of the table stays."""
    made = {}
    for replaces in (False, True):
        made[replaces] = table = branched_table(str(tmp_path_factory.mktemp(f"replaces-{replaces}") / "t"))
        branch = open_table(table.path, options={"branch": "b"})
        for v in (20, 21, 22):
            branch.write(rows(v))
        if replaces:
            branch.expire_snapshots(retain_min=2, retain_max=2)
    return made


def _copied(table: Table, path: Path) -> Table:
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(table.path, path)
    return open_table(str(path))


def _done(table: Table, operation: str) -> bool:
    try:
        OPERATIONS[operation](open_table(table.path))
    except BucketlineError:
        return False
    return True


def _ids(table: Table) -> list[int]:
    found: list[int] = open_table(table.path).snapshots()["snapshot_id"].to_pylist()
    return found


def _values(table: Table) -> set[int]:
    return set(open_table(table.path).to_arrow()["v"].to_pylist())


def _found(table: Table) -> list[str]:
    """What `doctor` finds; it does not wait."""
    with stopped_at(None):
        found = open_table(table.path).doctor(rows=True)
    return [f.rule for f in found if f.rule != "hint"]


def _calls(table: Table, operation: str, path: Path) -> list[str]:
    alone = _copied(table, path)
    with stopped_at(None) as counted:
        _done(alone, operation)
    return [call.replace(alone.path, "") for call in counted.log]


def _moments(calls: list[str]) -> list[int]:
    """All moments in the long run; else one at which the pin has just been written, those at which the last two
    snapshots are removed, and one that is drawn."""
    every = range(1, len(calls) + 1)
    if EVERY_MOMENT:
        return list(every)
    removals = [n for n in every if calls[n - 1].startswith("delete /snapshot/snapshot-")]
    return sorted({_pinned(calls) + 2, *removals[-2:], random.Random(1).choice(every)})


def _pinned(calls: list[str]) -> int:
    return next(n for n, call in enumerate(calls, 1) if call.startswith("publish /bucketline/pin-"))


PAIRS = [
    (first, second, replaces)
    for replaces, others in ((False, BESIDE_ALL), (True, BESIDE_REPLACING))
    for other in others
    for first, second in (("fast-forward", other), (other, "fast-forward"))
]


@pytest.mark.parametrize(("first", "second", "replaces"), PAIRS)
def test_a_fast_forward_and_who_refers_to_what_it_removes_are_done_in_turn_or_refused(
    first: str, second: str, replaces: bool, tables: dict[bool, Table], tmp_path: Path
) -> None:
    """A rollback that was stopped right before it removed a snapshot removed the branch's snapshot of that id."""
    refused = 0
    for at in _moments(_calls(tables[replaces], first, tmp_path / "counted")):
        table, done = _copied(tables[replaces], tmp_path / "t"), dict[str, bool]()

        def meanwhile(table: Table = table, done: dict[str, bool] = done) -> None:
            done[second] = _done(table, second)

        with stopped_at(at, meanwhile) as stopped:
            done[first] = _done(table, first)
        where = stopped.where.replace(table.path, "")
        assert any(done.values()), where
        refused += not all(done.values())
        _check(table, done, where)
    assert refused > 0


def _check(table: Table, done: dict[str, bool], where: str) -> None:
    ids = _ids(table)
    assert ids == list(range(ids[0], ids[-1] + 1)), where
    assert notes_of(table) == [], where
    rolled_back = {0} if done.get("rollback") else {1} if done.get("rollback to a tag") else {22}
    if done["fast-forward"]:
        assert _values(table) in ([rolled_back, {22}] if all(done.values()) else [{22}]), where
    else:
        assert _values(table) == ({3} if rolled_back == {22} else rolled_back), where
    assert _found(table) == [], where
    for tag in open_table(table.path).tags()["tag_name"].to_pylist():
        assert open_table(table.path, options={"scan.tag-name": tag}).to_arrow().num_rows == 2, where
    if not done["fast-forward"] and "consumer" in done:
        assert ("c" in next_of_consumers(handle_of(table).io, table.path)) == done["consumer"], where


@pytest.mark.parametrize("operation", BESIDE_REPLACING)
def test_what_a_dead_process_leaves_stops_a_fast_forward_for_an_hour_at_most(
    operation: str, tables: dict[bool, Table], tmp_path: Path
) -> None:
    refused = 0
    for at in _moments(_calls(tables[True], operation, tmp_path / "counted")):
        table = _copied(tables[True], tmp_path / "t")
        with stopped_at(at) as dead:
            _done(table, operation)
        assert dead.is_dead
        if notes_of(table):
            refused += 1
            with stopped_at(None), pytest.raises(RemovalUnderWayError, match="an hour after it began"):
                open_table(table.path).fast_forward("b")
            make_notes_old(table)
        open_table(table.path).fast_forward("b")
        assert notes_of(table) == [] and _values(table) == {22}
        assert _found(table) == []
    assert refused > 0


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_dead_fast_forward_stops_a_rollback_until_it_is_repeated_or_an_hour_old(
    replaces: bool, is_repeated: bool, tables: dict[bool, Table], tmp_path: Path
) -> None:
    calls = _calls(tables[replaces], "fast-forward", tmp_path / "counted")
    for at in [n for n in _moments(calls) if n > _pinned(calls)]:
        table = _copied(tables[replaces], tmp_path / "t")
        with stopped_at(at):
            open_table(table.path).fast_forward("b")
        with stopped_at(None), pytest.raises(RemovalUnderWayError, match=r"`fast_forward\('b'\)` finishes"):
            open_table(table.path).rollback_to("old")
        if is_repeated:
            open_table(table.path).fast_forward("b")
            assert _values(table) == {22}
        else:
            make_notes_old(table)
        open_table(table.path).create_tag("newest")
        open_table(table.path).rollback_to("newest")
        assert notes_of(table) == []


@pytest.mark.parametrize("replaces", [False, True])
def test_a_fast_forward_that_was_stopped_while_another_one_repeated_it_removes_no_later_commit(
    replaces: bool, tables: dict[bool, Table], tmp_path: Path
) -> None:
    ended = 0
    calls = _calls(tables[replaces], "fast-forward", tmp_path / "counted")
    for at in _moments(calls):
        table = _copied(tables[replaces], tmp_path / "t")

        def repeated(table: Table = table) -> None:
            open_table(table.path).fast_forward("b")
            open_table(table.path).write(rows(50))
            open_table(table.path).write(rows(51))
            open_table(table.path).create_tag("after")

        with stopped_at(at, repeated) as stopped:
            try:
                open_table(table.path).fast_forward("b")
            except CommitConflictError as e:
                assert "another process has repeated it meanwhile" in e.message
                ended += 1
            except RemovalUnderWayError:
                pass
        assert stopped.where and notes_of(table) == []
        assert at < _pinned(calls) or _values(table) == {51}, stopped.where
        assert at < _pinned(calls) or "after" in open_table(table.path).tags()["tag_name"].to_pylist(), stopped.where
        assert _found(table) == []
    assert ended > 0


def test_a_table_is_fast_forwarded_to_one_branch_at_a_time(tables: dict[bool, Table], tmp_path: Path) -> None:
    table = _copied(tables[True], tmp_path / "t")
    table.create_branch("c", "old")
    open_table(table.path, options={"branch": "c"}).write(rows(60))
    calls = _calls(table, "fast-forward", tmp_path / "counted")
    removes = next(n for n, call in enumerate(calls, 1) if call.startswith("delete /snapshot/"))

    def other() -> None:
        with pytest.raises(RemovalUnderWayError, match="fast-forwarding the table to branch 'b'"):
            open_table(table.path).fast_forward("c")

    with stopped_at(removes, other):
        open_table(table.path).fast_forward("b")
    assert _values(table) == {22}


def test_a_pin_that_cannot_be_read_stops_a_fast_forward_until_it_is_an_hour_old(
    tables: dict[bool, Table], tmp_path: Path
) -> None:
    table = _copied(tables[False], tmp_path / "t")
    Path(table.path, "bucketline").mkdir(exist_ok=True)
    Path(table.path, "bucketline", "pin-of-a-later-release").write_text("{}")
    with stopped_at(None), pytest.raises(RemovalUnderWayError, match="cannot be read"):
        open_table(table.path).fast_forward("b")
    make_notes_old(table)
    open_table(table.path).fast_forward("b")
    assert _values(table) == {22} and notes_of(table) == []
