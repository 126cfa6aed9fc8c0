"""Rolling back: an older state is the newest again, and a run cut short can be repeated."""

import copy
from dataclasses import replace

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.expire import Retention
from bucketline.state.errors import CorruptFileError, MissingSnapshotError, StorageError
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.catalog.rollback import ROLLBACK_TAG, rollback_to
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.catalog.versions import Versions
from bucketline.state.store.maintenance.expiry import expire_snapshots
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.tables.aged_table import aged_table, assert_whole
from tests.support.tables.commit_table import CommitTable, message
from tests.support.tables.commits import data_file


def _tag(table: CommitTable, snapshot_id: int) -> str:
    found = table.snapshots.get(snapshot_id)
    assert found is not None
    assert Tags(table.storage, table.path).create(Tag(f"t{snapshot_id}", found))
    return f"t{snapshot_id}"


def test_newer_snapshots_and_their_tags_go() -> None:
    table = aged_table(1, 8)
    _tag(table, 2), _tag(table, 6)
    wanted = table.snapshots.get(4)
    assert rollback_to(table.storage, table.path, 4) == wanted
    assert table.snapshots.ids() == [1, 2, 3, 4]
    assert table.snapshots.latest() == wanted
    assert table.storage.read(f"{table.path}/snapshot/LATEST") == b"4"
    assert Tags(table.storage, table.path).names() == ["t2"]
    assert_whole(table)
    table.committer().commit(table.put_files([message(data_file("after"))]), user="v", identifier=1)
    assert table.latest().id == 5
    assert_whole(table)


def test_a_tag_brings_back_a_snapshot_that_has_expired() -> None:
    table = aged_table(3, 9)
    wanted, name = table.snapshots.get(2), _tag(table, 2)
    table.pause.clock.now += 1
    expire_snapshots(table.storage, table.path, table.schema, table.world, retention=Retention(2, 99, 0, 99))
    rollback_to(table.storage, table.path, name)
    assert table.snapshots.ids() == [2]
    found = table.snapshots.latest()
    assert found is not None and wanted is not None
    assert found.base_manifest_list == wanted.base_manifest_list and found.changelog_manifest_list is None
    assert table.snapshots.earliest_id() == 2
    assert_whole(table)


@pytest.mark.parametrize(("oldest", "left", "latest"), [(1, [1, 2], b"2"), (3, [], None)])
def test_changelogs_of_snapshots_that_are_taken_back_go(oldest: int, left: list[int], latest: bytes | None) -> None:
    table = aged_table(3, 7)
    name = _tag(table, 2)
    folder = f"{table.path}/changelog"
    # Paimon keeps the changelogs of expired snapshots so, where it is told to.
    for snapshot_id in range(oldest, 6):
        table.storage.overwrite(
            f"{folder}/changelog-{snapshot_id}", table.storage.read(table.snapshots.path(snapshot_id))
        )
    table.storage.overwrite(f"{folder}/LATEST", b"5")
    for snapshot_id in range(1, 6):
        table.snapshots.delete(snapshot_id)
    rollback_to(table.storage, table.path, name)
    names = set(table.storage.list_names(folder))
    assert names - {"LATEST"} == {f"changelog-{i}" for i in left}
    assert table.storage.read_optional(f"{folder}/LATEST") == latest


def _expired(target: int) -> tuple[CommitTable, str]:
    """A table whose oldest snapshots have expired, a tag at `target`, and one that a rollback to it removes."""
    table = aged_table(3, 7)
    name = _tag(table, target)
    _tag(table, 6)
    table.pause.clock.now += 1
    expire_snapshots(table.storage, table.path, table.schema, table.world, retention=Retention(5, 99, 0, 99))
    return table, name


def _cut_short(table: CommitTable, name: str | int, call: int) -> CommitTable:
    """A copy of the table after a rollback whose call of that number was its last."""
    found = copy.deepcopy(table)
    with pytest.raises(StorageError):
        rollback_to(FaultyIO(found.storage, {call: Fault.LOST}), found.path, name)
    return found


def _calls(table: CommitTable, name: str | int) -> range:
    counted = FaultyIO(copy.deepcopy(table).storage)
    rollback_to(counted, table.path, name)
    return range(1, len(counted.calls) + 1)


@pytest.mark.parametrize("target", [2, 5])
def test_a_run_cut_short_has_not_begun_or_shows_its_target_and_can_be_repeated(target: int) -> None:
    original, name = _expired(target)
    before = original.latest().id
    seen = set()
    for call in _calls(original, name):
        table = _cut_short(original, name, call)
        assert_whole(table)
        has_begun = before not in table.snapshots.ids()
        assert table.snapshots.latest_id() == (target if has_begun else before)
        seen.add(has_begun)
        rollback_to(table.storage, table.path, name)
        assert table.snapshots.latest_id() == max(table.snapshots.ids()) == target
        assert table.storage.read(f"{table.path}/snapshot/LATEST") == str(target).encode()
        assert all(t.snapshot.id <= target for t in Tags(table.storage, table.path).list())
        assert_whole(table)
    assert seen == {False, True}


@pytest.mark.parametrize("target", [2, 5])
def test_a_run_cut_short_is_finished_by_the_next_commit(target: int) -> None:
    original, name = _expired(target)
    before = original.latest().id
    for call in _calls(original, name):
        table = _cut_short(original, name, call)
        has_begun = before not in table.snapshots.ids()
        base = table.snapshots.latest()
        live = table.manifests.live_entries(base) if base is not None else []
        table.pause.clock.now += 1000
        table.committer().commit(table.put_files([message(data_file("after"))]), user="v", identifier=1)
        assert table.latest().id == max(table.snapshots.ids()) == (target if has_begun else before) + 1
        assert table.snapshots.latest() == table.latest()
        now = {e.file.file_name for e in table.live()}
        assert now == {e.file.file_name for e in live} | {"after"}
        for tag in Tags(table.storage, table.path).list():
            # What is left of the tags names what the snapshot of its id is, or one that has expired.
            own = table.snapshots.get(tag.snapshot.id)
            if tag.name != ROLLBACK_TAG:
                assert tag.snapshot.id <= before
                assert own is None or own.delta_manifest_list == tag.snapshot.delta_manifest_list
        assert_whole(table)


@pytest.mark.parametrize("late", [3, 4, 6])
def test_a_late_hint_does_not_change_the_target_of_a_run_that_was_cut_short(late: int) -> None:
    """A writer that was stopped for long writes LATEST after the rollback has lowered it."""
    original = aged_table(1, 8)
    before = original.latest().id
    for call in _calls(original, 5):
        table = _cut_short(original, 5, call)
        if not table.snapshots.exists(late) or late == max(table.snapshots.ids()):
            continue  # a hint to the newest file is believed without a further look
        has_begun = before not in table.snapshots.ids()
        table.snapshots.write_latest_hint(late)
        assert table.snapshots.latest_id() == (5 if has_begun else before)
        table.pause.clock.now += 1000
        table.committer().commit(table.put_files([message(data_file("after"))]), user="v", identifier=1)
        assert table.snapshots.ids() == list(range(1, (5 if has_begun else before) + 2))
        assert_whole(table)


def test_a_hole_that_a_rollback_cut_short_has_left_beside_a_writer_is_explained() -> None:
    """Seed 50156 of the simulation: the error advised a copy of the file, and expiry removed the tag that explains."""
    table = aged_table(1, 8)
    newest = table.latest()
    counted = FaultyIO(copy.deepcopy(table.storage))
    rollback_to(counted, table.path, 4)
    first = next(n for n, call in enumerate(counted.calls, 1) if call == ("delete", table.snapshots.path(newest.id)))
    with pytest.raises(StorageError):
        rollback_to(FaultyIO(table.storage, {first: Fault.AFTER}), table.path, 4, world=table.world)
    assert table.snapshots.ids() == [*range(1, newest.id)]
    table.snapshots.publish(replace(newest, id=newest.id + 1))  # a writer had seen `newest` before
    table.snapshots.write_latest_hint(newest.id + 1)
    expire_snapshots(table.storage, table.path, table.schema, table.world, retention=Retention(99, 99, 0, 99))
    rollback_to(table.storage, table.path, newest.id + 1)  # to the newest snapshot, so that nothing is removed
    with pytest.raises(MissingSnapshotError, match=r"a rollback to snapshot 4 removed it.* snapshot 4 again, or read"):
        Versions(table.storage, table.path).changes_at(newest.id, with_changelogs=True)
    rollback_to(table.storage, table.path, 4)
    assert table.snapshots.ids() == [1, 2, 3, 4] and Tags(table.storage, table.path).names() == []


def test_another_target_after_a_run_that_was_cut_short_counts() -> None:
    original = aged_table(1, 6)
    before = original.latest().id
    for first in _calls(original, 4)[::3]:
        begun = _cut_short(original, 4, first)
        if before in begun.snapshots.ids():
            continue
        for call in _calls(begun, 2)[::3]:
            table = _cut_short(begun, 2, call)
            seen = table.snapshots.latest_id()
            assert seen in (2, 4)
            table.pause.clock.now += 1000
            table.committer().commit(table.put_files([message(data_file("after"))]), user="v", identifier=1)
            assert table.snapshots.ids() == list(range(1, seen + 2))
            assert_whole(table)


def test_a_commit_after_a_rollback_stays_though_a_tag_names_a_later_id_of_before() -> None:
    """The tags of Paimon's rollback go last. Beside them the hint of a new commit may lag for a moment."""
    table = aged_table(1, 8)
    name = _tag(table, table.latest().id)
    tag = Tags(table.storage, table.path).get(name)
    rollback_to(table.storage, table.path, 4)
    assert tag is not None and Tags(table.storage, table.path).create(tag)
    table.pause.clock.now += 1000
    table.committer().commit(table.put_files([message(data_file("after"))]), user="v", identifier=1)
    table.snapshots.write_latest_hint(4)
    assert table.snapshots.latest_id() == 5
    table.committer().commit(table.put_files([message(data_file("then"))]), user="v", identifier=2)
    assert table.snapshots.ids() == [1, 2, 3, 4, 5, 6]


def test_an_undone_rollback_goes_to_the_tag_that_it_leaves() -> None:
    original, name = _expired(5)
    before = original.latest()
    cut = (_cut_short(original, name, call) for call in _calls(original, name))
    table = next(t for t in cut if before.id not in t.snapshots.ids())
    assert rollback_to(table.storage, table.path, ROLLBACK_TAG).id == before.id
    assert table.snapshots.latest_id() == before.id
    assert_whole(table)


def test_there_must_be_something_to_roll_back_to() -> None:
    table = aged_table(1, 3)
    for target in (99, "no-such-tag"):
        with pytest.raises(OptionError):
            rollback_to(table.storage, table.path, target)
    assert_whole(table)


def test_a_tag_of_another_history_is_refused() -> None:
    table = aged_table(1, 5)
    name = _tag(table, 4)
    table.storage.overwrite(
        table.snapshots.path(4), table.storage.read(table.snapshots.path(3)).replace(b'"id": 3', b'"id": 4')
    )
    with pytest.raises(CorruptFileError):
        rollback_to(table.storage, table.path, name)
