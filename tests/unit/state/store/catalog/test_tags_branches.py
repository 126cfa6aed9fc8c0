"""Tags and branches: names for states, and what is on disk for them."""

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import StorageError
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags, rename_tag, tag_snapshot
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.storage.memory_io import MemoryIO
from tests.support.tables.aged_table import aged_table, assert_whole
from tests.support.tables.commit_table import CommitTable


def test_a_tag_names_a_snapshot() -> None:
    table = aged_table(1, 4)
    io, path = table.storage, table.path
    made = tag_snapshot(io, path, "old", 2)
    newest = tag_snapshot(io, path, "timed", retained_ms=5000, world=table.world)
    assert newest.snapshot == table.latest() and newest.created_local_ms == table.pause.clock.now
    assert Tags(io, path).list() == [made, newest]
    assert io.read(f"{path}/tag/tag-old") == io.read(table.snapshots.path(2))
    Tags(io, path).delete("old")
    Tags(io, path).delete("old")
    assert (Tags(io, path).names(), Tags(io, path).get("old")) == (["timed"], None)


def test_names_that_are_taken_and_snapshots_that_are_not_there_are_refused() -> None:
    table = aged_table(1, 2)
    tag_snapshot(table.storage, table.path, "t")
    with pytest.raises(OptionError, match="already exists"):
        tag_snapshot(table.storage, table.path, "t")
    with pytest.raises(OptionError, match="no snapshot 99"):
        tag_snapshot(table.storage, table.path, "u", 99)
    empty = CommitTable(storage=MemoryIO()).create()
    with pytest.raises(OptionError, match=r"has no snapshot$"):
        tag_snapshot(empty.storage, empty.path, "u")


def test_a_snapshot_that_expires_while_it_is_tagged_gets_no_tag() -> None:
    table = aged_table(1, 4)
    io = FaultyIO(table.storage)

    def expire(name: str, path: str) -> None:
        if name == "publish":
            table.storage.delete(table.snapshots.path(2))

    io.before_call = expire
    with pytest.raises(OptionError, match="any more"):
        tag_snapshot(io, table.path, "t", 2)
    assert Tags(table.storage, table.path).names() == []


def test_a_tag_that_is_deleted_while_it_is_renamed_is_gone() -> None:
    table = aged_table(1, 4)
    tag_snapshot(table.storage, table.path, "old", 2)
    io = FaultyIO(table.storage)

    def delete(name: str, path: str) -> None:
        if name == "publish":
            Tags(table.storage, table.path).delete("old")

    io.before_call = delete
    with pytest.raises(OptionError, match="'old' doesn't exist any more"):
        rename_tag(io, table.path, "old", "new")
    assert Tags(table.storage, table.path).names() == []


def test_a_branch_holds_schema_snapshot_and_tag_and_no_hints() -> None:
    table = aged_table(1, 4)
    io, path = table.storage, table.path
    branches = Branches(io, path)
    branches.create("empty")
    branches.create("b", tag_snapshot(io, path, "t", 2))
    assert branches.names() == ["b", "empty"]
    below = {f.path.removeprefix(f"{path}/branch/") for f in io.list_files(f"{path}/branch")}
    assert below == {
        "branch-empty/schema/schema-0",
        "branch-b/schema/schema-0",
        "branch-b/snapshot/snapshot-2",
        "branch-b/tag/tag-t",
    }
    assert Snapshots(io, branches.path("b")).latest() == table.snapshots.get(2)
    assert branches.delete("b") and not branches.delete("b")
    assert branches.names() == ["empty"]
    assert_whole(table)


def test_a_branch_half_deleted_still_has_its_schema_and_can_be_deleted() -> None:
    table = aged_table(1, 3)
    branches = Branches(table.storage, table.path)
    branches.create("b", tag_snapshot(table.storage, table.path, "t"))
    with pytest.raises(StorageError):
        Branches(FaultyIO(table.storage, {4: Fault.AFTER}), table.path).delete("b")
    assert Schemas(table.storage, branches.path("b")).latest_id() == 0
    assert branches.delete("b")
    assert branches.names() == []


@pytest.mark.parametrize("name", ["", " ", "main", "123", "a/b", "b"])
def test_a_branch_must_have_a_name_of_its_own(name: str) -> None:
    table = aged_table(1, 1)
    branches = Branches(table.storage, table.path)
    branches.create("b")
    with pytest.raises(OptionError):
        branches.create(name)
