"""Orphans: found when old, never a file that something names."""

from dataclasses import dataclass, field

import pytest

from bucketline.conf.errors import FilesTooYoungError, OptionError
from bucketline.state.commit.file_age import REMOVABLE_MS
from bucketline.state.commit.message import CommitMessage
from bucketline.state.errors import CorruptFileError, MissingSnapshotError, UnsupportedTableError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.paths import BRANCH_DIR
from bucketline.state.format.tag_json import Tag
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.commit.committer import Committed
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from tests.support.aged_table import aged_table, assert_whole, stored_files
from tests.support.commit_table import CommitTable, StillClock
from tests.support.commits import data_file
from tests.support.faulty_io import FaultyIO
from tests.support.memory_io import MemoryIO

UUID = "0b1c2d3e-0000-4000-8000-00000000000a"


@dataclass
class Later(StillClock):
    """Files in memory are from 1970: now is a day and a bit after."""

    now: int = field(default=REMOVABLE_MS + 2)


def _handle(table: CommitTable) -> TableHandle:
    return TableHandle(table.storage, table.path, table.schema)


def _orphans(table: CommitTable, *, dry_run: bool = True, clock: StillClock | None = None) -> list[str]:
    clock = clock or Later()
    assert isinstance(table.storage, MemoryIO)
    table.storage.now_ms = clock.now_ms()
    found = remove_orphan_files(_handle(table), dry_run=dry_run, clock=clock)
    assert found.deleted is not dry_run
    assert found.size_bytes == sum(f.size_bytes for f in found.files)
    return sorted(f.path.removeprefix(f"{table.path}/") for f in found.files)


def _put(table: CommitTable, *paths: str) -> None:
    for path in paths:
        table.storage.write_new(f"{table.path}/{path}", b"x")


LEFT = (
    "bucket-0/data-left.parquet",
    "bucket-7/data-left.parquet",
    "index/index-left",
    "manifest/manifest-left",
    f"schema/.schema-1.{UUID}.tmp",
    f"snapshot/.snapshot-9.{UUID}.tmp",
    "statistics/stat-left",
    f"tag/.tag-t.{UUID}.tmp",
)
FOREIGN = ("README", "notes/bucket-0/x", "dt=1/bucket-0/data-x", "bucket-0/deep/x", "logs/x", "schema/notes", "tag/x")


@pytest.mark.parametrize("seed", range(3))
def test_only_what_nothing_names_goes(seed: int) -> None:
    table = aged_table(seed, 8)
    _put(table, *LEFT, *FOREIGN)
    before = dict(_files(table))
    assert _orphans(table) == sorted(LEFT)
    assert dict(_files(table)) == before
    assert _orphans(table, dry_run=False) == sorted(LEFT)
    assert set(before) - set(_files(table)) == {f"{table.path}/{p}" for p in LEFT}
    assert stored_files(table) >= assert_whole(table)
    assert _orphans(table) == []


def test_young_files_stay() -> None:
    table = aged_table(1, 3)
    _put(table, *LEFT)
    for dry_run in (True, False):
        assert _orphans(table, dry_run=dry_run, clock=StillClock(REMOVABLE_MS + 1)) == []
    assert remove_orphan_files(_handle(table), older_than_ms=0, clock=StillClock(2)).files != ()
    with pytest.raises(OptionError):
        remove_orphan_files(_handle(table), older_than_ms=-1)


def test_files_younger_than_a_day_are_removed_only_when_nobody_writes() -> None:
    table = aged_table(1, 3)
    _put(table, *LEFT)
    assert isinstance(table.storage, MemoryIO)
    table.storage.now_ms += REMOVABLE_MS - 1
    before = dict(_files(table))
    with pytest.raises(FilesTooYoungError) as refused:
        remove_orphan_files(_handle(table), dry_run=False, older_than_ms=REMOVABLE_MS - 1)
    assert (refused.value.code, refused.value.fields["value"]) == ("FILES_TOO_YOUNG", REMOVABLE_MS - 1)
    assert remove_orphan_files(_handle(table), dry_run=False).files == ()
    assert dict(_files(table)) == before
    found = remove_orphan_files(_handle(table), dry_run=False, older_than_ms=REMOVABLE_MS - 2, no_writers=True)
    assert len(found.files) == len(LEFT)


def test_ages_are_those_of_the_storage_whatever_the_machine_says() -> None:
    table = aged_table(1, 3)
    _put(table, *LEFT)
    assert isinstance(table.storage, MemoryIO)
    table.storage.now_ms += REMOVABLE_MS
    far_ahead = StillClock(100 * REMOVABLE_MS)
    assert remove_orphan_files(_handle(table), dry_run=False, clock=far_ahead).files == ()
    table.storage.now_ms += 1
    behind = StillClock(1)
    assert len(remove_orphan_files(_handle(table), dry_run=False, clock=behind).files) == len(LEFT)


def test_files_whose_age_the_storage_does_not_tell_stay() -> None:
    table = aged_table(1, 3)
    _put(table, *LEFT)
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    storage.now_ms = REMOVABLE_MS + 2
    storage.written_ms[f"{table.path}/{LEFT[0]}"] = -1
    assert len(remove_orphan_files(_handle(table), dry_run=False).files) == len(LEFT) - 1
    storage.now_ms = -1
    with pytest.raises(UnsupportedTableError, match="does not tell when"):
        remove_orphan_files(_handle(table), dry_run=False, older_than_ms=0, no_writers=True)
    assert storage.exists(f"{table.path}/{LEFT[0]}") and not any("clock" in path for path in storage.files)


def test_what_is_committed_while_files_are_removed_stays() -> None:
    """A commit that has proven that its old files are there, published after the names were collected."""
    table = aged_table(1, 3)
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-late.parquet"),))
    table.put_files([message])
    _put(table, *LEFT)
    assert isinstance(table.storage, MemoryIO)
    table.storage.now_ms = REMOVABLE_MS + 2

    def commit(name: str, path: str) -> None:
        if name == "list_names" and path.endswith("/changelog"):  # the last thing that is collected
            io.before_call = None
            assert isinstance(table.committer().commit([message], user="late", identifier=1), Committed)

    io = FaultyIO(table.storage, before_call=commit)
    handle = TableHandle(io, table.path, table.schema)
    found = remove_orphan_files(handle, dry_run=False)
    assert io.before_call is None and len(found.files) == len(LEFT)
    assert_whole(table)


def test_tags_and_branches_count() -> None:
    table = aged_table(2, 9)
    io = table.storage
    old = table.snapshots.get(3)
    assert old is not None
    Branches(io, table.path).create("b", Tag("fork", old))
    middle = table.snapshots.get(5)
    assert middle is not None
    Tags(io, table.path).create(Tag("t", middle))
    rollback_to(io, table.path, 6)
    _orphans(table, dry_run=False)
    needed = assert_whole(table)
    assert stored_files(table) == needed
    for snapshot_id in (1, 2, 3, 4, 5):
        io.delete(table.snapshots.path(snapshot_id))
    _orphans(table, dry_run=False)
    # Files that the manifests of a kept state add and delete again count as named.
    kept = stored_files(table)
    assert assert_whole(table) <= kept < needed
    Branches(io, table.path).delete("b")
    Tags(io, table.path).delete("t")
    _orphans(table, dry_run=False)
    assert assert_whole(table) <= stored_files(table) < kept


def test_without_snapshots_and_anything_that_names_one_all_are_orphans() -> None:
    table = aged_table(2, 9)
    for snapshot_id in table.snapshots.ids():
        table.snapshots.delete(snapshot_id)
    for hint in ("LATEST", "EARLIEST"):
        with pytest.raises(MissingSnapshotError):
            _orphans(table, dry_run=False)
        table.storage.delete(f"{table.path}/snapshot/{hint}")
    _orphans(table, dry_run=False)
    assert stored_files(table) == set()


def test_the_files_of_a_changelog_that_outlived_its_snapshot_stay() -> None:
    table = aged_table(2, 6)
    io = table.storage
    old = next(s for s in table.all_snapshots() if s.changelog_manifest_list is not None)
    data = io.read(table.snapshots.path(old.id))
    kept = {e.file.file_name for e in table.manifests.changelog_entries(old)}
    io.write_new(f"{table.path}/changelog/changelog-{old.id}", data)
    for snapshot_id in table.snapshots.ids()[:-1]:
        io.delete(table.snapshots.path(snapshot_id))
    io.delete(table.manifests.path(old.base_manifest_list))
    _orphans(table, dry_run=False)
    assert kept and kept <= {p.rpartition("/")[2] for p in stored_files(table)}


@pytest.mark.parametrize("what", ["list", "manifest", "branch without schema"])
def test_what_cannot_be_read_stops_the_removal(what: str) -> None:
    table = aged_table(2, 6)
    _put(table, *LEFT)
    newest = table.latest()
    if what == "list":
        table.storage.delete(table.manifests.path(newest.base_manifest_list))
    elif what == "manifest":
        table.storage.delete(table.manifests.path(table.manifests.delta(newest)[0].file_name))
    else:
        _put(table, f"{BRANCH_DIR}/branch-x/snapshot/LATEST")
    before = dict(_files(table))
    with pytest.raises(CorruptFileError):
        _orphans(table, dry_run=False)
    assert dict(_files(table)) == before


def _files(table: CommitTable) -> dict[str, bytes]:
    assert isinstance(table.storage, MemoryIO)
    return table.storage.files
