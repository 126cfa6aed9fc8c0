"""Changelogs kept longer than snapshots: readers of changes find what they need, and nothing else stays."""

import shutil
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.expire import Retention
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.catalog.changelogs import changelog_ids
from bucketline.state.store.catalog.kept_files import data_paths
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.changelog_expiry import expire_changelogs
from bucketline.state.store.maintenance.expiry import ExpireResult, expire_snapshots
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.maintenance import expire_table
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.storage.interleaved import stopped_at
from tests.support.tables.aged_table import aged_table, assert_whole, stored_files
from tests.support.tables.commit_table import CommitTable, StillClock
from tests.support.tables.worlds import handle_in

THREE = Retention(min_count=3, max_count=1000, time_ms=0, limit=1000)
KV = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PRODUCERS = ["none", "input", "lookup"]


def _options(producer: str, **options: str) -> dict[str, str]:
    return {
        "changelog-producer": producer,
        "changelog.time-retained": "2 h",
        "changelog.num-retained.min": "1",
        **options,
    }


def _expire(table: CommitTable, io: FaultyIO | None = None) -> ExpireResult:
    table.pause.clock.now += 1
    return expire_snapshots(io or table.storage, table.path, table.schema, table.world, retention=THREE)


def _changelogs(table: CommitTable) -> list[Snapshot]:
    folder = f"{table.path}/changelog"
    names = [n for n in table.storage.list_names(folder) if n.startswith("changelog-")]
    return sorted((decode_snapshot(table.storage.read(f"{folder}/{n}")) for n in names), key=lambda s: s.id)


def _needed(table: CommitTable, changelog: Snapshot, *, is_data: bool) -> set[str]:
    """The files that a reader of these changes opens."""
    manifests = table.manifests
    lists, entries = [changelog.changelog_manifest_list], manifests.changelog_entries(changelog)
    if is_data:
        lists += [changelog.base_manifest_list, changelog.delta_manifest_list]
        entries = [*entries, *(e for e in manifests.delta_entries(changelog) if e.file.level == 0)]
    names = [name for name in lists if name is not None]
    names += [m.file_name for name in names for m in manifests.read_list(name)]
    files = {f"{table.path}/{MANIFEST_DIR}/{name}" for name in names}
    return files | {p for e in entries for p in data_paths(table.path, table.schema, e)}


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("seed", range(2))
def test_an_expired_snapshot_leaves_its_changelog_until_that_expires(seed: int, producer: str) -> None:
    table = aged_table(seed, 14, _options(producer))
    before = table.all_snapshots()
    assert Tags(table.storage, table.path).create(_tag(before[4]))
    _expire(table)
    assert [s.id for s in _changelogs(table)] == [s.id for s in before[:-3]]
    assert _changelogs(table) == before[:-3]
    assert table.storage.read(f"{table.path}/changelog/LATEST") == str(before[-4].id).encode()
    assert_whole(table)
    needed = set().union(*(_needed(table, s, is_data=producer == "none") for s in before[:-3]))
    assert [f for f in needed if not table.storage.exists(f)] == []
    table.pause.clock.now += 7_200_000
    done = _expire(table)
    assert done.changelogs == len(before) - 4 and done.snapshots == 0
    # The newest changelog always stays; it needs no more than the snapshots and the tag do, and its own files.
    assert _changelogs(table) == [before[-4]]
    kept = assert_whole(table) | _needed(table, before[-4], is_data=producer == "none")
    assert stored_files(table) == kept
    assert table.storage.read(f"{table.path}/changelog/EARLIEST") == str(before[-4].id).encode()


@pytest.mark.parametrize("producer", ["none", "input"])
def test_a_crash_at_any_call_loses_no_change_that_is_kept(producer: str) -> None:
    counted = FaultyIO(aged_table(2, 6, _options(producer)).storage)
    _expire(aged_table(2, 6, _options(producer)), counted)
    for call in range(1, len(counted.calls) + 1, 3):
        table = aged_table(2, 6, _options(producer))
        before = table.all_snapshots()
        io = FaultyIO(table.storage, {call: Fault.BEFORE})
        try:
            _expire(table, io)
        except Exception:  # noqa: BLE001
            _expire(table)
        assert_whole(table)
        needed = set().union(*(_needed(table, s, is_data=producer == "none") for s in before[:-3]))
        assert [f for f in needed if not table.storage.exists(f)] == [], f"call {call}"


def test_changelogs_go_by_number_and_consumers_hold_them() -> None:
    table = aged_table(1, 12, {"changelog-producer": "input", "changelog.num-retained.max": "100"})
    table.options["snapshot.num-retained.max"] = "99"
    latest = table.latest().id
    _expire(table)
    assert len(_changelogs(table)) == latest - 3
    del table.options["changelog.num-retained.max"]
    table.options.update({"snapshot.num-retained.max": "5", "snapshot.num-retained.min": "3"})
    table.options["changelog.num-retained.max"] = "6"
    table.storage.overwrite(f"{table.path}/consumer/consumer-c", b'{"nextSnapshot" : 3}')
    _expire(table)
    assert _changelogs(table)[0].id == 3
    table.storage.delete(f"{table.path}/consumer/consumer-c")
    _expire(table)
    assert [s.id for s in _changelogs(table)] == list(range(latest - 5, latest - 2))


@pytest.mark.parametrize("is_alone", [False, True])
def test_consumers_hold_changelogs_alone_where_the_table_says_so(is_alone: bool) -> None:
    table = aged_table(1, 12, {"changelog-producer": "input", "changelog.num-retained.max": "100"})
    table.options.update({"snapshot.num-retained.max": "99", "consumer.changelog-only": str(is_alone).lower()})
    latest = table.latest().id
    table.storage.overwrite(f"{table.path}/consumer/consumer-c", b'{"nextSnapshot" : 3}')
    _expire(table)
    assert [s.id for s in _changelogs(table)] == (list(range(1, latest - 2)) if is_alone else [1, 2])


def _tag(snapshot: Snapshot) -> Tag:
    return Tag(f"t{snapshot.id}", snapshot)


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_changes_are_read_from_changelogs_after_their_snapshots_have_expired(tmp_path: Path, producer: str) -> None:
    options = {"bucket": "1", "changelog-producer": producer, "changelog.time-retained": "2 h"}
    table = create_table(str(tmp_path / "t"), "k INT NOT NULL, v INT", primary_key=["k"], options=options)
    clock = StillClock()
    for number in range(4):
        rows = pa.table({"k": [1, 2 + number], "v": [number, number]}, schema=table.schema)
        write_table(handle_in(table, clock=clock), rows)
        compact_table(handle_in(table, clock=clock))
    changes = table.to_arrow(changes_since=0)
    clock.now += 3_600_001
    done = _expire_now(table, clock)
    assert done.snapshots > 3
    assert table.to_arrow(changes_since=0) == changes
    assert table.doctor(rows=True) == []
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
    live = {Path(f).name for f in table.files()["file_path"].to_pylist()}
    name = "data-*" if producer == "none" else "changelog-*"
    old = [f for f in Path(table.path).rglob(f"bucket-0/{name}") if f.name not in live]
    gone = min(old, key=lambda f: f.stat().st_mtime_ns)
    gone.unlink()
    (found,) = table.doctor()
    assert found.rule == "changelog" and gone.name in found.message


def _expire_now(table: Table, clock: StillClock) -> ExpireResult:
    return expire_table(
        handle_in(table, clock=clock), retain_min=1, retain_max=None, older_than=timedelta(hours=1), limit=None
    )


def _damage(table: Table) -> list[str]:
    """What `doctor` finds. Raises the error of a reader who cannot read the changes since each snapshot."""
    for snapshot_id in table.snapshots()["snapshot_id"].to_pylist():
        table.to_arrow(changes_since=snapshot_id)
    return [str(found) for found in table.doctor()]


_LONGER = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "changelog.num-retained.min": "1",
    "changelog.num-retained.max": "2",
}


@pytest.mark.parametrize(
    ("producer", "keeps", "expiring", "forwards"),
    [
        ("input", {}, "the branch", False),
        ("input", {}, "the table", True),
        ("input", _LONGER, "the table", True),
        ("none", _LONGER, "the table", True),
    ],
)
def test_the_changelogs_of_snapshots_that_another_branch_has_stay(
    tmp_path: Path, producer: str, keeps: dict[str, str], expiring: str, forwards: bool
) -> None:
    path = str(tmp_path / "t")
    options = {"changelog-producer": producer, "bucket": "1", "write-only": "true", **keeps}
    table = create_table(path, "id BIGINT NOT NULL", ["id"], options=options)
    for n in range(3):
        table.write(pa.table({"id": [n]}))
    table.create_tag("x", snapshot=2)
    table.create_branch("b", "x")
    branch = open_table(path, options={"branch": "b"})
    branch.write(pa.table({"id": [7]}))
    if forwards:
        table.fast_forward("b")
    for each in (open_table(path), branch):
        each.write(pa.table({"id": [8]}))
    one, other = (open_table(path), branch) if expiring == "the table" else (branch, open_table(path))
    for _ in range(2):
        one.expire_snapshots(retain_min=1, retain_max=1)
        one.write(pa.table({"id": [9]}))
    assert _damage(one) == [] and _damage(other) == []
    other.expire_snapshots(retain_min=1, retain_max=1)
    # A fast-forward leaves the files of the snapshots that it replaces.
    assert forwards or table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_a_branch_made_from_a_tag_whose_snapshot_has_expired_names_no_changelog(tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "t"), "id BIGINT NOT NULL", ["id"], options={"changelog-producer": "input", "bucket": "1"}
    )
    table.write(pa.table({"id": [1]}))
    table.create_tag("x")
    table.write(pa.table({"id": [2]}))
    table.expire_snapshots(retain_min=1, retain_max=1)
    table.create_branch("b", "x")
    assert open_table(table.path, options={"branch": "b"}).doctor() == []


def test_changelogs_expire_beside_another_expiry_that_removes_the_oldest_snapshot(tmp_path: Path) -> None:
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "5", "changelog.num-retained.max": "100"}
    base = create_table(str(tmp_path / "base"), KV, options=kept)
    for number in range(8):
        base.write(pa.table({"k": [number], "v": [number]}).cast(KV))
    assert changelog_ids(handle_of(base).io, base.path) == [1, 2, 3]
    base.set_options({"snapshot.num-retained.max": "2", "changelog.num-retained.max": "3"})

    def others(path: str) -> None:
        open_table(path).expire_snapshots()

    at = 0
    while True:
        at, path = at + 1, str(tmp_path / str(at))
        shutil.copytree(base.path, path)
        table = handle_of(open_table(path))
        with stopped_at(at, partial(others, path)) as stopped:
            expire_changelogs(table.io, path, table.table_schema, table.world, root=path)
        if not stopped.where:
            break
        found = open_table(path)
        assert found.snapshots()["snapshot_id"].to_pylist() == [7, 8] and found.to_arrow().num_rows == 8
        assert changelog_ids(table.io, path) == [6] and not found.doctor()
    assert at > 5
