"""Expiry of a table's snapshots: nothing needed goes, nothing unneeded stays, whatever fails in between."""

import copy
from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.expire import Retention
from bucketline.state.commit.replay import MARKER_RETAINED_MS
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.expiry import (
    ExpireResult,
    delete_tag,
    expire_snapshots,
    maybe_expire,
    move_tag,
)
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.table.maintenance import expire_table
from bucketline.state.store.table.table import handle_of, open_table
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.storage.memory_io import MemoryIO
from tests.support.tables.aged_table import Named, aged_table, assert_whole, needed_files, stored_files
from tests.support.tables.branched import branched_table, rows
from tests.support.tables.commit_table import CommitTable

_Interruption = tuple[FaultyIO, CommitTable, int, Retention]

ALL_BUT_THREE = Retention(min_count=3, max_count=1000, time_ms=0, limit=1000)


def _expire(table: CommitTable, retention: Retention = ALL_BUT_THREE, io: FileIO | None = None) -> ExpireResult:
    clock = table.pause.clock
    clock.now += 1
    return expire_snapshots(io or table.storage, table.path, table.schema, World(clock), retention=retention)


def _snapshot(table: CommitTable, snapshot_id: int) -> Tag:
    found = table.snapshots.get(snapshot_id)
    assert found is not None
    return Tag(f"t{snapshot_id}", found)


def _copy(table: CommitTable) -> CommitTable:
    return copy.deepcopy(table)


def test_a_branch_keeps_its_files_if_the_table_has_another_snapshot_with_the_id_of_its_first(tmp_path: Path) -> None:
    table = branched_table(str(tmp_path / "t"))
    branch = open_table(table.path, options={"branch": "b"})
    before = branch.to_arrow()
    table.rollback_to(1)
    table.overwrite(rows(7))  # snapshot 2 deletes the file of snapshot 1, which snapshot 2 of the branch has
    result = expire_table(handle_of(table), retain_min=1, retain_max=1, older_than=None, limit=None)
    assert (result.begin, result.end) == (1, 2)
    assert branch.to_arrow().equals(before)
    assert branch.doctor() == []


@pytest.mark.parametrize("seed", range(6))
def test_exactly_the_files_of_kept_snapshots_stay(seed: int) -> None:
    table = aged_table(seed, 14)
    latest = table.latest().id
    before = assert_whole(table)
    assert stored_files(table) == before
    result = _expire(table)
    assert (result.begin, result.end) == (1, latest - 2)
    assert table.snapshots.ids() == [latest - 2, latest - 1, latest]
    assert stored_files(table) == assert_whole(table)
    assert table.snapshots.earliest_id() == latest - 2
    assert table.storage.read(f"{table.path}/snapshot/EARLIEST") == str(latest - 2).encode()
    removed = len(before) - len(stored_files(table))
    assert result.data_files + result.changelog_files + result.metadata_files == removed > 0
    assert _expire(table) == ExpireResult(latest - 2, latest - 2)


@pytest.mark.parametrize("seed", range(4))
def test_many_small_runs_do_what_one_does(seed: int) -> None:
    at_once, bit_by_bit = aged_table(seed, 12), aged_table(seed, 12)
    # Fresh names differ between the two, so their numbers are compared.
    _expire(at_once)
    while _expire(bit_by_bit, Retention(3, 1000, 0, limit=2)).snapshots:
        assert stored_files(bit_by_bit) == assert_whole(bit_by_bit)
    assert bit_by_bit.snapshots.ids() == at_once.snapshots.ids()
    assert len(stored_files(bit_by_bit)) == len(stored_files(at_once))


@pytest.mark.parametrize("seed", range(6))
def test_tags_and_branches_keep_their_files(seed: int) -> None:
    table = aged_table(seed, 14)
    for snapshot_id in (1, 4, 5, 9):
        assert Tags(table.storage, table.path).create(_snapshot(table, snapshot_id))
    Branches(table.storage, table.path).create("b", _snapshot(table, 7))
    _expire(table)
    assert_whole(table)
    # With branch and tags gone, all that is left of them goes with the next run or with the tag.
    for snapshot_id in (4, 1, 9, 5):
        assert delete_tag(table.storage, table.path, table.schema, f"t{snapshot_id}", SYSTEM_WORLD)
        assert_whole(table)
    left = stored_files(table) - assert_whole(table)
    assert left == set()


@pytest.mark.parametrize("limit", [1000, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_branch_that_the_table_was_forwarded_to_keeps_all_its_snapshots(seed: int, limit: int) -> None:
    table = aged_table(seed, 14)
    branch_path = Branches(table.storage, table.path).path("b")
    Schemas(table.storage, branch_path).create(table.schema)
    branch = Snapshots(table.storage, branch_path)
    # Paimon forwards a table by copying the branch's snapshots over its own.
    states = [_snapshot(table, i).snapshot for i in range(3, 11)]
    assert all(branch.publish(s) for s in states)
    while _expire(table, Retention(3, 1000, 0, limit)).snapshots:
        for state in states:
            files = needed_files(table, table.storage, state, changelog=False)
            assert all(table.storage.exists(f) for f in files), f"snapshot {state.id}"


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("seed", [0, 4])
def test_a_crash_at_any_call_leaves_kept_snapshots_whole_and_the_next_run_finishes(seed: int, fault: Fault) -> None:
    original = aged_table(seed, 6)
    Tags(original.storage, original.path).create(_snapshot(original, 2))
    Branches(original.storage, original.path).create("b", _snapshot(original, 3))
    counted = FaultyIO(_copy(original).storage)
    end = _expire(_copy(original), io=counted).end
    wanted, named = None, Named()
    for call in range(1, len(counted.calls) + 1):
        table = _copy(original)
        with pytest.raises(StorageError):
            _expire(table, io=FaultyIO(table.storage, {call: fault}))
        assert_whole(table, end, named)
        # At most the oldest snapshot is half gone.
        oldest = min(table.snapshots.ids())
        assert_whole(table, oldest + 1, named)
        _expire(table)
        assert table.snapshots.ids() == list(range(end, original.latest().id + 1))
        assert stored_files(table) == assert_whole(table, known=named), f"call {call}"
        wanted = wanted or stored_files(table)
        assert stored_files(table) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_two_runs_at_once_remove_what_one_would(seed: int) -> None:
    """At each storage call of one run, another with other limits runs from start to end."""
    original = aged_table(seed, 6)
    Tags(original.storage, original.path).create(_snapshot(original, 2))
    counted = FaultyIO(_copy(original).storage)
    _expire(_copy(original), io=counted)
    for call in range(1, len(counted.calls) + 1, 2):
        for other in (Retention(2, 1000, 0, 1000), Retention(5, 1000, 0, 1000)):
            table = _copy(original)
            io = FaultyIO(table.storage)

            arguments = (io, table, call, other)

            def interrupt(name: str, path: str, given: _Interruption = arguments) -> None:
                own, shared, at, settings = given
                if len(own.calls) + 1 == at:
                    _expire(shared, settings)

            io.before_call = interrupt
            _expire(table, io=io)
            assert_whole(table)


def test_a_tag_made_while_a_run_plans_is_heeded() -> None:
    table = aged_table(3, 10)
    io = FaultyIO(table.storage)

    def tag_late(name: str, path: str) -> None:
        if name == "list_names" and path.endswith("/branch") and not Tags(table.storage, table.path).names():
            Tags(table.storage, table.path).create(_snapshot(table, 4))

    io.before_call = tag_late
    _expire(table, io=io)
    assert_whole(table)
    assert Tags(table.storage, table.path).names() == ["t4"]


def test_a_tag_that_cannot_be_read_stops_everything() -> None:
    table = aged_table(1, 10)
    tag = _snapshot(table, 4)
    Tags(table.storage, table.path).create(tag)
    table.storage.delete(table.manifests.path(tag.snapshot.base_manifest_list))
    before = stored_files(table)
    with pytest.raises(CorruptFileError, match="tag t4 cannot be read"):
        _expire(table)
    assert stored_files(table) == before


def test_time_and_number_come_from_the_tables_options() -> None:
    table = aged_table(2, 10, {"snapshot.num-retained.min": "2", "snapshot.time-retained": "4 s"})
    clock = table.pause.clock
    clock.now += 500
    expired = maybe_expire(table.storage, table.path, table.schema, World(clock))
    limit = clock.now - 4000
    kept = table.all_snapshots()
    assert expired > 0 and kept[0].time_ms < limit <= kept[1].time_ms
    assert_whole(table)


@pytest.mark.parametrize("option", [{"write-only": "true"}, {"bucket": "-2"}])
def test_after_a_commit_nothing_expires_in_tables_that_others_care_for(option: dict[str, str]) -> None:
    table = aged_table(2, 10, {"snapshot.num-retained.min": "2", "snapshot.time-retained": "0 s"})
    table.options.update(option)
    table.pause.clock.now += 1
    assert maybe_expire(table.storage, table.path, table.schema, table.world) == 0


def test_when_nothing_is_due_no_manifest_is_read() -> None:
    table = aged_table(2, 6)
    io = FaultyIO(table.storage)
    assert maybe_expire(io, table.path, table.schema, table.world) == 0
    assert not any("manifest" in path for _, path in io.calls)
    assert len(io.calls) < 10


def test_the_cost_is_that_of_what_expires() -> None:
    """However many manifests a table has, only those of deltas are read."""
    table = aged_table(5, 12, {"manifest.merge-min-count": "1000"})
    io = FaultyIO(table.storage)
    _expire(table, Retention(3, 1000, 0, limit=2), io=io)
    read = {p for name, p in io.calls if name == "read" and "/manifest-" in p and "list" not in p}
    assert 1 <= len(read) <= 3


def test_consumers_hold_snapshots_until_they_are_idle() -> None:
    table = aged_table(2, 10)
    table.storage.overwrite(f"{table.path}/consumer/consumer-c", b'{"nextSnapshot" : 4}')
    assert _expire(table).end == 4
    table.storage.overwrite(f"{table.path}/consumer/consumer-c", b"{}")
    with pytest.raises(CorruptFileError, match="consumer-c"):
        _expire(table)
    table.options["consumer.expiration-time"] = "1 d"
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    # This machine's clock is decades ahead of the storage's, by which the consumer has moved an hour ago.
    storage.now_ms += 3_600_000
    with pytest.raises(CorruptFileError, match="consumer-c"):
        _expire(table)
    storage.now_ms += 86_400_000
    assert _expire(table).end == table.latest().id - 2
    assert table.storage.list_names(f"{table.path}/consumer") == []


def test_tags_end_with_their_time_and_their_files_go() -> None:
    table = aged_table(4, 12)
    tag = _snapshot(table, 3)
    clock = table.pause.clock
    Tags(table.storage, table.path).replace(
        Tag("timed", tag.snapshot, created_local_ms=clock.local_ms(), retained_ms=60_000)
    )
    _expire(table)
    assert_whole(table)
    assert table.snapshots.ids()[0] > 3
    clock.now += 61_000
    assert _expire(table).tags == ("timed",)
    assert stored_files(table) == assert_whole(table)


def test_a_writers_marker_keeps_no_more_than_its_newest_snapshot() -> None:
    table = aged_table(4, 12)
    io, clock = table.storage, table.pause.clock
    move_tag(io, table.path, table.schema, "m", _snapshot(table, 3).snapshot, World(clock))
    _expire(table)
    assert_whole(table)
    assert stored_files(table) - assert_whole(table) == set()
    move_tag(io, table.path, table.schema, "m", table.latest(), World(clock))
    assert stored_files(table) == assert_whole(table)
    tag = Tags(io, table.path).get("m")
    assert tag is not None and tag.snapshot == table.latest() and tag.retained_ms == MARKER_RETAINED_MS


def test_a_table_without_snapshots_has_nothing_to_expire() -> None:
    assert _expire(CommitTable(storage=MemoryIO()).create()) == ExpireResult()


@pytest.mark.parametrize("name", ["", "  ", "a/b"])
def test_a_tag_must_have_a_name_that_a_file_can_have(name: str) -> None:
    table = aged_table(1, 1)
    with pytest.raises(OptionError):
        Tags(table.storage, table.path).create(Tag(name, table.latest()))


def test_a_tag_that_is_made_while_snapshots_are_removed_keeps_its_files() -> None:
    table = aged_table(2, 10)
    wanted, latest = _snapshot(table, 3), table.latest().id

    def tag(name: str, path: str) -> None:
        if (name, path) == ("delete", table.snapshots.path(1)):
            Tags(table.storage, table.path).create(wanted)

    first = _expire(table, io=FaultyIO(table.storage, before_call=tag))
    assert (first.begin, first.end) == (1, 2)
    assert_whole(table)
    assert _expire(table).end == latest - 2
    assert_whole(table)
