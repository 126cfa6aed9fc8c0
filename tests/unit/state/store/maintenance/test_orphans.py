"""Orphans: found when old, never a file that something names."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bucketline.conf.errors import FilesTooYoungError, OptionError
from bucketline.state.commit.conflict import FILES_GONE, Conflict
from bucketline.state.commit.file_age import REMOVABLE_MS
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.determinism import SYSTEM_CLOCK, Clock, World
from bucketline.state.errors import CorruptFileError, MissingSnapshotError, UnsupportedTableError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import FileKind, ManifestEntry
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.paths import BRANCH_DIR
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.local_io import LocalIO
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.memory_io import MemoryIO
from tests.support.storage.stopped import let_storage_age
from tests.support.tables.aged_table import aged_table, assert_whole, stored_files
from tests.support.tables.commit_table import CommitTable, StillClock
from tests.support.tables.commits import data_file

UUID = "0b1c2d3e-0000-4000-8000-00000000000a"


@dataclass
class Later(StillClock):
    """Files in memory are from 1970: now is a day and a bit after."""

    now: int = field(default=REMOVABLE_MS + 2)


def _handle(table: CommitTable, clock: Clock = SYSTEM_CLOCK) -> TableHandle:
    return TableHandle(table.storage, table.path, table.schema, world=World(clock))


def _orphans(table: CommitTable, *, dry_run: bool = True, clock: StillClock | None = None) -> list[str]:
    clock = clock or Later()
    assert isinstance(table.storage, MemoryIO)
    table.storage.now_ms = clock.now_ms()
    found = remove_orphan_files(_handle(table, clock), dry_run=dry_run)
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
    assert remove_orphan_files(_handle(table, StillClock(2)), older_than_ms=0).files != ()
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
    assert remove_orphan_files(_handle(table, far_ahead), dry_run=False).files == ()
    table.storage.now_ms += 1
    behind = StillClock(1)
    assert len(remove_orphan_files(_handle(table, behind), dry_run=False).files) == len(LEFT)


def test_files_whose_age_the_storage_does_not_tell_stay() -> None:
    table = aged_table(1, 3)
    _put(table, *LEFT)
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    storage.now_ms = REMOVABLE_MS + 2
    storage.written_ms[f"{table.path}/{LEFT[0]}"] = -1
    assert len(remove_orphan_files(_handle(table), dry_run=False).files) == len(LEFT) - 1
    storage.now_ms = -1
    with pytest.raises(UnsupportedTableError, match="does not record when"):
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


@dataclass(frozen=True, slots=True)
class HookedIO(LocalIO):
    """A file system on which something happens after a file is renamed, or before one is published."""

    meanwhile: Callable[[str], None] = field(default=lambda path: None)
    publishing: Callable[[], None] = field(default=lambda: None)

    def publish(self, path: str, data: bytes) -> bool:
        self.publishing()
        return LocalIO.publish(self, path, data)

    def move(self, path: str, target: str) -> bool:
        moved = LocalIO.move(self, path, target)
        self.meanwhile(path)
        return moved


def _on_disk(folder: Path, io: LocalIO) -> tuple[CommitTable, CommitMessage]:
    """A table, and a message whose file is two days old and not committed yet."""
    table = CommitTable(path=str(folder / "t"), storage=io).create()
    old = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-old.parquet"),))
    table.committer().commit(table.put_files([old]), user="first", identifier=1)
    late = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-late.parquet"),))
    table.put_files([late])
    let_storage_age(folder, 2 * REMOVABLE_MS)
    return table, late


def test_a_file_that_is_committed_while_it_is_put_aside_comes_back(tmp_path: Path) -> None:
    """The writer has looked for its files, is stopped, and publishes without a second look: the removal looks."""
    outcomes: list[object] = []

    def commit(path: str) -> None:
        if not outcomes and path.endswith("data-late.parquet"):
            outcomes.append(None)
            list_manifests = Manifests(io, table.path)
            entry = ManifestEntry(FileKind.ADD, EMPTY_ROW, 0, 2, late.new_files[0])
            written = list_manifests.write_list(list_manifests.write([entry], 0))
            before = table.latest()
            named = replace(before, id=2, delta_manifest_list=written[0], delta_manifest_list_size=written[1])
            assert table.snapshots.publish(named)

    io = HookedIO(meanwhile=commit)
    table, late = _on_disk(tmp_path, io)
    assert remove_orphan_files(_handle(table), dry_run=False).files == ()
    assert outcomes and io.exists(table.data_path("data-late.parquet"))
    assert io.list_names(f"{table.path}/bucket-0") == ["data-late.parquet", "data-old.parquet"]


def test_a_writer_brings_back_its_file_that_was_put_aside(tmp_path: Path) -> None:
    outcomes: list[object] = []

    def commit(path: str) -> None:
        if not outcomes and path.endswith("data-late.parquet"):
            outcomes.append(table.committer().commit([late], user="late", identifier=1))

    table, late = _on_disk(tmp_path, HookedIO(meanwhile=commit))
    assert remove_orphan_files(_handle(table), dry_run=False).files == ()
    (outcome,) = outcomes
    assert isinstance(outcome, Committed)
    assert table.live_names() == ["data-late.parquet", "data-old.parquet"]
    assert_whole(table)


@pytest.mark.parametrize("planned_ms", [0, None])
def test_a_writer_takes_its_snapshot_back_when_a_removal_was_faster(tmp_path: Path, planned_ms: int | None) -> None:
    """The removal runs, from beginning to end, between the writer's look at its files and its publication.

    The writer knows that its work is old; on a file system it need not.
    """
    table, late = _on_disk(tmp_path, LocalIO())
    removed: list[str] = []

    def remove() -> None:
        removed.extend(f.path for f in remove_orphan_files(_handle(table), dry_run=False).files)

    def call(name: str, path: str) -> None:
        if name == "publish":
            remove()

    io: FileIO = HookedIO(publishing=remove) if planned_ms is None else FaultyIO(table.storage, before_call=call)
    outcome = table.committer(io).commit([late], user="late", identifier=1, planned_ms=planned_ms)
    assert table.data_path("data-late.parquet") in removed
    assert isinstance(outcome, Conflict) and outcome.rule == FILES_GONE
    assert table.live_names() == ["data-old.parquet"]
    assert_whole(table)


def test_what_was_put_aside_comes_back_when_the_removal_fails(tmp_path: Path) -> None:
    def fail(path: str) -> None:
        if path.endswith("data-late.parquet"):
            raise KeyboardInterrupt

    table, _ = _on_disk(tmp_path, HookedIO(meanwhile=fail))
    with pytest.raises(KeyboardInterrupt):
        remove_orphan_files(_handle(table), dry_run=False)
    assert table.storage.list_names(f"{table.path}/bucket-0") == ["data-late.parquet", "data-old.parquet"]


def test_a_young_file_that_was_put_aside_comes_back_or_stays(tmp_path: Path) -> None:
    """A removal with `no_writers` was killed; the next one looks at old files only."""
    table, _ = _on_disk(tmp_path, LocalIO())
    for name in ("data-old.parquet", "data-late.parquet"):
        path = Path(table.data_path(name))
        os.utime(path)
        path.rename(path.with_name(f".{name}.{UUID}.orphan"))
    assert remove_orphan_files(_handle(table), dry_run=False).files == ()
    assert table.storage.list_names(f"{table.path}/bucket-0") == [
        f".data-late.parquet.{UUID}.orphan",
        "data-old.parquet",
    ]


def test_what_a_crashed_removal_has_put_aside_is_brought_back_or_removed(tmp_path: Path) -> None:
    table, _ = _on_disk(tmp_path, LocalIO())
    for name in ("data-old.parquet", "data-late.parquet"):
        path = Path(table.data_path(name))
        path.rename(path.with_name(f".{name}.{UUID}.orphan"))
    found = remove_orphan_files(_handle(table), dry_run=False)
    assert [f.path.rpartition("/")[2] for f in found.files] == [f".data-late.parquet.{UUID}.orphan"]
    assert os.listdir(Path(table.data_path("data-old.parquet")).parent) == ["data-old.parquet"]
    assert_whole(table)
