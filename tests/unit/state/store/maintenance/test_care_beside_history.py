"""Expiry and the end of tags beside those who refer to what they remove: either is stopped at each of its calls to
storage while the other runs whole. Nothing refers to what is gone, and a refused operation has changed nothing."""

import os
import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import CommitConflictError, CorruptFileError, RemovalUnderWayError, SnapshotExpiredError
from bucketline.state.format.json_files.pin_json import Removal
from bucketline.state.store.catalog.consumers import begin_consumer, next_of_consumers
from bucketline.state.store.catalog.pins import Notebook
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.storage.interleaved import stopped_at
from tests.support.tables.notes import make_notes_old, notes_of

_NONE = timedelta(0)
EVERY_MOMENT = "BUCKETLINE_EVERY_MOMENT" in os.environ
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
OPERATIONS: dict[str, Callable[[Table], object]] = {
    "expire": lambda t: t.expire_snapshots(retain_min=1, retain_max=2),
    "rollback": lambda t: t.rollback_to(5),
    "rollback to a tag": lambda t: t.rollback_to("old"),
    "tag": lambda t: t.create_tag("new", snapshot=4),
    "branch": lambda t: t.create_branch("b", "old"),
    "delete the tag": lambda t: t.delete_tag("old"),
    "consumer": lambda t: _consumer(t),
}
PAIRS = [
    ("expire", "rollback"), ("rollback", "expire"), ("expire", "tag"), ("tag", "expire"),
    ("branch", "delete the tag"), ("delete the tag", "branch"),
    ("rollback to a tag", "delete the tag"), ("delete the tag", "rollback to a tag"),
    ("rollback to a tag", "expire"), ("expire", "rollback to a tag"),
    ("expire", "consumer"), ("consumer", "expire"),
]  # fmt: skip


def _table(path: Path) -> Table:
    table = create_table(str(path / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    for v in range(4):
        table.write(pa.table({"id": [1, 2], "v": [v, v]}, schema=COLUMNS))
        table.compact()
    table.create_tag("old", snapshot=2)
    return table


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Table]:
    """A table with a tag; and one whose tag is all that is left of its snapshot."""
    whole, expired = (_table(tmp_path_factory.mktemp(name)) for name in ("whole", "expired"))
    expired.expire_snapshots(retain_min=1, retain_max=4)
    return {False: whole, True: expired}


def _consumer(table: Table) -> None:
    handle = handle_of(table)
    begin_consumer(handle.snapshot_store, handle.io, table.path, "c", 4, handle.world)
    if "c" not in next_of_consumers(handle.io, table.path):
        raise SnapshotExpiredError("snapshot 4 has expired", snapshot=4)


def _copied(table: Table, path: Path) -> Table:
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(table.path, path)
    return open_table(str(path))


def _values(table: Table, **options: str) -> set[int]:
    return set(open_table(table.path, options=options).to_arrow()["v"].to_pylist())


def _done(table: Table, operation: str) -> bool:
    try:
        OPERATIONS[operation](open_table(table.path))
    except BucketlineError:
        return False
    return True


def _check(table: Table, done: dict[str, bool]) -> None:
    """The table is sound, and what an operation said is so."""
    newest = 2 if done.get("rollback") else 0 if done.get("rollback to a tag") else 3
    tags = set(table.tags()["tag_name"].to_pylist())
    assert not done.get("tag") or "new" in tags
    assert not done.get("branch") or table.branches() == ["b"]
    held = {r["consumer_id"]: r["next_snapshot_id"] for r in table.system("consumers").to_pylist()}
    assert held == ({"c": 4} if done.get("consumer") else {})
    assert not held or {4, 5} <= set(table.snapshots()["snapshot_id"].to_pylist()), "it can go on where it stands"
    for _ in range(2):
        assert _values(table) == {newest}
        assert open_table(table.path).doctor(rows=True) == []
        for tag in tags:
            assert _values(table, **{"scan.tag-name": tag}) == {0 if tag == "old" else 1}
        for branch in table.branches():
            assert _values(table, branch=branch) == {0}
        open_table(table.path).expire_snapshots(retain_min=1, retain_max=1)
        open_table(table.path).remove_orphan_files(dry_run=False, older_than=_NONE, no_writers=True)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_whichever_is_stopped_nothing_refers_to_what_is_gone(
    first: str, second: str, tables: dict[bool, Table], tmp_path: Path
) -> None:
    base = tables["expire" not in (first, second) or "rollback to a tag" in (first, second)]
    both = 0
    for at in count(1):
        table, done = _copied(base, tmp_path / "t"), dict[str, bool]()

        def meanwhile(table: Table = table, done: dict[str, bool] = done) -> None:
            done[second] = _done(table, second)

        with stopped_at(at, meanwhile) as stopped:
            done[first] = _done(table, first)
        if not stopped.where:
            break
        both += all(done.values())
        assert any(done.values()), stopped.where
        _check(table, done)
    assert both > 0, "at some moments both can be done"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_a_process_leaves_that_has_died_stops_no_later_care(
    operation: str, tables: dict[bool, Table], tmp_path: Path
) -> None:
    base = tables[operation not in ("expire", "tag", "rollback")]
    for at in count(1):
        table = _copied(base, tmp_path / "t")
        with stopped_at(at) as stopped:
            _done(table, operation)
        if not stopped.where:
            break
        newest = _values(table)
        open_table(table.path).expire_snapshots(retain_min=1, retain_max=3)
        assert _values(table) == newest
        _check_later_care(table)


def _check_later_care(table: Table) -> None:
    """Whatever was left: it is cleared away after an hour, all operations work, and nothing is kept for ever. Notes of
    branches that this care, or a later one, has deleted stay for an hour of their own."""
    table.write(pa.table({"id": [1, 2], "v": [9, 9]}, schema=COLUMNS))
    make_notes_old(table)
    open_table(table.path).expire_snapshots(retain_min=1, retain_max=1)
    open_table(table.path).remove_orphan_files(dry_run=False, older_than=_NONE, no_writers=True)
    assert [n.name for n in notes_of(table) if not n.name.startswith("deleted-")] == []
    assert _values(table) == {9} and open_table(table.path).doctor(rows=True) == []
    open_table(table.path).create_tag("later")
    assert len(open_table(table.path).snapshots()) == 1
    assert open_table(table.path).rollback_to("later") > 0
    for name in open_table(table.path).branches():
        assert open_table(table.path).delete_branch(name)
    make_notes_old(table)
    open_table(table.path).expire_snapshots(retain_min=1, retain_max=1)
    assert notes_of(table) == []


def test_an_announcement_that_was_left_is_finished_by_the_next_expiry_and_stops_references_until_then(
    tables: dict[bool, Table], tmp_path: Path
) -> None:
    table = _copied(tables[False], tmp_path / "t")
    with stopped_at(None) as counted:
        _copied(table, tmp_path / "counted").expire_snapshots(retain_min=1, retain_max=2)
    first_removed = next(n for n, call in enumerate(counted.log, 1) if call.startswith("delete "))
    with stopped_at(first_removed + 1) as dead:
        table.expire_snapshots(retain_min=1, retain_max=2)
    assert dead.is_dead
    with stopped_at(None), pytest.raises(RemovalUnderWayError, match="`expire_snapshots` finishes what it began"):
        table.create_tag("late", snapshot=table.snapshots()["snapshot_id"].to_pylist()[0])
    assert list(Path(table.path, "bucketline").glob("pin-*")) == []
    open_table(table.path).expire_snapshots(retain_min=1, retain_max=8)
    assert table.snapshots()["snapshot_id"].to_pylist() == [7, 8]
    assert list(Path(table.path, "bucketline").glob("*")) == []
    assert table.doctor(rows=True) == []


def test_orphans_are_looked_for_beside_an_expiry_that_has_removed_the_files_of_a_snapshot_and_not_yet_the_snapshot(
    tables: dict[bool, Table], tmp_path: Path
) -> None:
    table = _copied(tables[False], tmp_path / "t")
    handle = handle_of(table)
    first, last = (handle.snapshot_store.get(i) for i in (1, 4))
    assert first is not None and last is not None
    Notebook(handle.io, table.path).announce(Removal("", 5, last.base_manifest_list), handle.world)
    for name in (first.base_manifest_list, first.delta_manifest_list):
        Path(table.path, "manifest", name).unlink()
    open_table(table.path).remove_orphan_files(dry_run=False)
    for note in notes_of(table):
        note.unlink()
    with pytest.raises(CorruptFileError, match="snapshot 1 cannot be read"):
        open_table(table.path).remove_orphan_files(dry_run=False)


def test_a_rollback_that_was_stopped_takes_nothing_of_those_who_went_on_from_its_snapshot(tmp_path: Path) -> None:
    """Seed 700330 of the simulation: writers finish a rollback that has begun, and what they write then stays. What
    they write before it has begun is rolled back too. A stop between the look at a snapshot and its removal is not
    noticed, as no storage removes a file on a condition."""
    table = _five_snapshots(tmp_path)
    _copied(table, tmp_path / "first").rollback_to(2)  # What a process keeps is kept from here on: calls are the same.
    with stopped_at(None) as counted:
        _copied(table, tmp_path / "counted").rollback_to(2)
    removals = [n for n, call in enumerate(counted.log, 1) if _removes_a_snapshot(call)]
    assert len(removals) == 4 and removals[-1] < counted.calls - 3
    last = range(removals[-1] + 1, counted.calls + 1)
    for at in (*_some_of(range(1, removals[-1])), *last):
        path = tmp_path / f"stopped-{at}"
        copied = _copied(table, path)
        with stopped_at(at, lambda path=path: _go_on(path)) as stopped:
            copied.rollback_to(2)
        has_begun = any(map(_removes_a_snapshot, stopped.log[: at - 1]))
        if not (has_begun and _removes_a_snapshot(stopped.where)):
            wrote = {7, 8, 9, 10} if has_begun and stopped.where else set()
            _check_who_went_on(copied, {1, *wrote}, stopped.where)


@pytest.mark.parametrize("removed", [1, 2])
def test_a_writer_that_was_stopped_while_it_finished_a_rollback_takes_nothing_of_those_who_went_on(
    removed: int, tmp_path: Path
) -> None:
    table = _five_snapshots(tmp_path)
    with stopped_at(None) as counted:
        _copied(table, tmp_path / "counted").rollback_to(2)
    removals = [n for n, call in enumerate(counted.log, 1) if _removes_a_snapshot(call)]
    with stopped_at(removals[removed]) as dead:
        table.rollback_to(2)
    assert dead.is_dead
    _one_row(_copied(table, tmp_path / "first"), 6)
    with stopped_at(None) as counted:
        _one_row(_copied(table, tmp_path / "counted"), 6)
    last = max(n for n, call in enumerate(counted.log, 1) if _removes_a_snapshot(call))
    for at in _some_of(range(1, last + 12)):
        path = tmp_path / f"stopped-{at}"
        copied = _copied(table, path)
        with stopped_at(at, lambda path=path: _go_on(path)) as stopped:
            _one_row(copied, 6)
        if stopped.where and not _removes_a_snapshot(stopped.where):
            _check_who_went_on(copied, {1, 6, 7, 8, 9, 10}, stopped.where)


def test_a_rollback_is_refused_if_an_older_one_removes_its_snapshot_meanwhile(tmp_path: Path) -> None:
    """Seed 4 of the simulation: the snapshot came back with a gap before it, and then LATEST named it for ever."""
    table = _five_snapshots(tmp_path)
    alone = _copied(table, tmp_path / "counted")
    with stopped_at(None) as counted:
        alone.rollback_to(4)
    refused = 0
    for at in _some_of(range(1, counted.calls)):
        path = tmp_path / f"stopped-{at}"
        copied, both = _copied(table, path), list[bool]()

        def older(path: Path = path, both: list[bool] = both) -> None:
            open_table(str(path)).rollback_to(2)
            both.append(True)

        with stopped_at(at, older) as stopped, suppress(BucketlineError):
            copied.rollback_to(4)
            both.append(True)
        if not _removes_a_snapshot(stopped.where):
            refused += len(both) == 1
            assert _values(copied) == {1}, stopped.where
            assert {f.rule for f in open_table(str(path)).doctor(rows=True)} <= {"hint"}, stopped.where
    assert refused


def test_a_rescale_does_not_bring_back_rows_that_were_rolled_back_while_it_ran(tmp_path: Path) -> None:
    """Seed 20034 of the simulation: a snapshot of the same id had come in the place of the one that it had read."""
    table = _five_snapshots(tmp_path)
    with stopped_at(None) as counted:
        _copied(table, tmp_path / "counted").rescale(2)
    at = next(n for n, call in enumerate(counted.log, 1) if call.startswith("open_output "))
    copied = _copied(table, tmp_path / "stopped")

    def go_on() -> None:
        open_table(copied.path).rollback_to(2)
        for id in (7, 8, 9, 10):
            _one_row(copied, id)

    with stopped_at(at, go_on), pytest.raises(CommitConflictError, match="was taken back meanwhile"):
        copied.rescale(2)
    assert _values(copied) == {1, 7, 8, 9, 10}


def _some_of(moments: Iterable[int]) -> Sequence[int]:
    """Drawn moments; all of them in `.ci/run interleavings-long`."""
    every = list(moments)
    return every if EVERY_MOMENT else sorted(random.Random(1).sample(every, 5))


def _five_snapshots(path: Path) -> Table:
    table = create_table(str(path / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    for v in range(5):
        table.write(pa.table({"id": [1], "v": [v]}, schema=COLUMNS))
    return table


def _one_row(table: Table, id: int) -> None:
    open_table(table.path).write(pa.table({"id": [id], "v": [id]}, schema=COLUMNS))


def _go_on(path: Path) -> None:
    for id in (7, 8, 9, 10):
        _one_row(open_table(str(path)), id)
    open_table(str(path)).create_tag("kept", snapshot=5)


def _check_who_went_on(table: Table, values: set[int], where: str) -> None:
    assert _values(table) == values, where
    if len(values) > 1:
        assert _values(table, **{"scan.tag-name": "kept"}) >= {1, 7, 8, 9} - ({9} if 6 in values else set()), where
    else:
        assert open_table(table.path).tags().num_rows == 0, where
    assert {f.rule for f in open_table(table.path).doctor(rows=True)} <= {"hint"}, where


def _removes_a_snapshot(call: str) -> bool:
    return call.startswith("delete ") and "/snapshot-" in call
