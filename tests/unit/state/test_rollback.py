"""Rolling back: an older state is the newest again, and a run cut short can be repeated."""

import copy

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.expire import Retention
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.tag_json import Tag
from bucketline.state.store.expiry import expire_snapshots
from bucketline.state.store.rollback import rollback_to
from bucketline.state.store.tags import Tags
from tests.support.aged_table import aged_table, assert_whole
from tests.support.commit_table import CommitTable, message
from tests.support.commits import data_file
from tests.support.faulty_io import Fault, FaultyIO


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
    expire_snapshots(table.storage, table.path, table.schema, table.pause.clock, retention=Retention(2, 99, 0, 99))
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


@pytest.mark.parametrize("target", [2, 5])
def test_a_run_cut_short_leaves_a_readable_table_and_can_be_repeated(target: int) -> None:
    original = aged_table(3, 7)
    name = _tag(original, target)
    _tag(original, 6)
    original.pause.clock.now += 1
    clock = original.pause.clock
    expire_snapshots(original.storage, original.path, original.schema, clock, retention=Retention(5, 99, 0, 99))
    counted = FaultyIO(copy.deepcopy(original).storage)
    rollback_to(counted, original.path, name)
    for call in range(1, len(counted.calls) + 1):
        table = copy.deepcopy(original)
        with pytest.raises(StorageError):
            rollback_to(FaultyIO(table.storage, {call: Fault.AFTER}), table.path, name)
        assert_whole(table)
        assert table.snapshots.latest_id() == max(table.snapshots.ids())
        rollback_to(table.storage, table.path, name)
        assert table.snapshots.latest_id() == target
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
