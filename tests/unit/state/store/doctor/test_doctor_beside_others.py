"""The doctor beside expiry and writers, in tables with thousands of snapshots, and where several things are broken."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.determinism import World
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.storage.remembered import ReadOnceIO, Remembered
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io
from tests.support.tables.examined import Waits
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def rows(start: int, value: str = "x") -> pa.Table:
    return pa.table({"id": range(start, start + 8), "v": [value] * 8}, schema=COLUMNS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Nine snapshots, manifests merged twice, files of the oldest ones replaced by compaction, a tag in between."""
    path = tmp_path_factory.mktemp("beside") / "t"
    options = {"bucket": "2", "manifest.merge-min-count": "4", "changelog-producer": "input"}
    table = create_table(str(path), COLUMNS, ["id"], options=options)
    for number in range(6):
        table.write(rows(number * 4))
        if number % 2:
            table.compact()
    table.create_tag("t", 8)
    return table


@pytest.fixture
def table(made: Table, tmp_path: Path) -> Table:
    shutil.copytree(made.path, tmp_path / "t")
    return open_table(str(tmp_path / "t"))


def expire(table: Table, kept: int) -> None:
    table.expire_snapshots(retain_max=kept, retain_min=kept)


class SnapshotsStay(FaultyIO):
    """Here an expiry removes data and manifests, but neither snapshots nor the hint of the earliest one: as if it were
    killed in between."""

    def delete(self, path: str) -> None:
        if "/snapshot/snapshot-" not in path:
            super().delete(path)

    def overwrite(self, path: str, data: bytes) -> None:
        if not path.endswith("/EARLIEST"):
            super().overwrite(path, data)


def without_orphans(found: list[Finding]) -> list[Finding]:
    return [f for f in found if f.rule != "orphans"]


def test_expiry_at_any_moment_of_an_examination_is_no_damage(table: Table, tmp_path: Path) -> None:
    calls = FaultyIO(handle_of(table).io)
    assert examine(handle_in(on_io(table, calls), pause=Waits()), rows=True) == []
    count = len(calls.calls)
    for at in range(0, count, max(1, count // 30)):
        shutil.copytree(table.path, tmp_path / f"t{at}")
        one = open_table(str(tmp_path / f"t{at}"))
        seen = Counter[str]()

        def expire_once(name: str, path: str, *, one: Table = one, at: int = at, seen: Counter[str] = seen) -> None:
            seen["calls"] += 1
            if seen["calls"] == at + 1:
                expire(one, 2)

        found = examine(
            handle_in(on_io(one, FaultyIO(handle_of(one).io, before_call=expire_once)), pause=Waits()), rows=True
        )
        assert found == [], at
        shutil.rmtree(one.path)


def test_a_snapshot_whose_files_expiry_has_removed_is_waited_for(table: Table) -> None:
    """Files go before their snapshot does."""
    snapshots = handle_of(table).snapshot_store
    expire(on_io(table, SnapshotsStay(handle_of(table).io)), len(snapshots.ids()) - 6)
    assert snapshots.ids()[0] == 1
    waits = Waits([lambda: None, *(lambda i=i: snapshots.delete(i) for i in range(1, 7))])
    assert without_orphans(examine(handle_in(table, pause=waits))) == []
    assert waits.events == []


def test_an_expiry_that_was_killed_is_reported_after_a_while(table: Table) -> None:
    expire(on_io(table, SnapshotsStay(handle_of(table).io)), len(handle_of(table).snapshot_store.ids()) - 1)
    waits = Waits()
    found = examine(handle_in(table, pause=waits))
    assert {f.rule for f in found} >= {"unreadable"}
    assert all("snapshot 1 " in f.message for f in found)
    assert 10 < waits.count < 100


def test_what_the_newest_snapshot_misses_is_reported_without_a_wait(table: Table) -> None:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    name = handle_of(table).manifests.live_entries(newest)[0].file.file_name
    next(Path(table.path).rglob(name)).unlink()
    waits = Waits()
    (found,) = examine(handle_in(table, pause=waits))
    assert (found.rule, waits.count) == ("missing-file", 0)
    assert f"snapshots {newest.id} to" not in found.message and f"{newest.id}" in found.message


def test_a_commit_between_listing_and_reading_is_no_damage(table: Table) -> None:
    calls = FaultyIO(handle_of(table).io)
    examine(handle_in(on_io(table, calls), pause=Waits()))
    for at in range(0, len(calls.calls), 12):
        seen = Counter[str]()

        def write_once(name: str, path: str, *, at: int = at, seen: Counter[str] = seen) -> None:
            seen["calls"] += 1
            if seen["calls"] == at + 1:
                table.write(rows(at))

        assert (
            examine(handle_in(on_io(table, FaultyIO(handle_of(table).io, before_call=write_once)), pause=Waits())) == []
        )


def lose(table: Table, name: str) -> str:
    path = next(Path(table.path).rglob(name))
    path.unlink()
    return str(path)


def spoil(table: Table, name: str) -> str:
    path = next(Path(table.path).rglob(name))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(bytes(data))
    return str(path)


def manifest_of(table: Table, snapshot_id: int) -> str:
    snapshot = handle_of(table).snapshot_store.get(snapshot_id)
    assert snapshot is not None
    return handle_of(table).manifests.delta(snapshot)[0].file_name


def list_of(table: Table, snapshot_id: int) -> str:
    snapshot = handle_of(table).snapshot_store.get(snapshot_id)
    assert snapshot is not None
    return snapshot.base_manifest_list


@pytest.mark.parametrize("harm", [lose, spoil])
@pytest.mark.parametrize("which", [manifest_of, list_of])
@pytest.mark.parametrize("snapshot_id", [2, 5, 8])
def test_a_broken_manifest_or_list_hides_no_other_damage(
    table: Table, harm: Callable[[Table, str], str], which: Callable[[Table, int], str], snapshot_id: int
) -> None:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    file_name = handle_of(table).manifests.live_entries(newest)[-1].file.file_name
    broken, gone = harm(table, which(table, snapshot_id)), lose(table, file_name)
    (Path(table.path) / "tag" / "tag-broken").write_text("{")
    (Path(table.path) / "consumer").mkdir()
    (Path(table.path) / "consumer" / "consumer-c").write_text("[]")
    found = examine(handle_in(table, pause=Waits()), rows=True)
    by_subject = {f.subject: f for f in found}
    assert by_subject[broken].rule == "unreadable" and f"snapshot {snapshot_id}" in by_subject[broken].message.replace(
        "snapshots", "snapshot"
    )
    assert by_subject[gone].rule == "missing-file"
    assert by_subject[f"{table.path}/tag/tag-broken"].rule == "tag"
    assert by_subject[f"{table.path}/consumer/consumer-c"].rule == "consumer"


def test_a_broken_tag_blocks_no_other_tag_and_no_branch(table: Table) -> None:
    table.create_tag("a", 3)
    table.create_branch("b", "a")
    table.create_tag("z", 4)
    snapshot = handle_of(table).snapshot_store.get(3)
    assert snapshot is not None
    name = handle_of(table).manifests.live_entries(snapshot)[0].file.file_name
    for path in (Path(table.path) / "tag" / "tag-a", Path(table.path) / "branch" / "branch-b" / "tag" / "tag-a"):
        path.write_text(path.read_text()[:-30])
    gone = lose(table, name)
    found = {f.subject: f for f in examine(handle_in(table, pause=Waits()))}
    assert found[f"{table.path}/tag/tag-a"].rule == "tag"
    assert found[f"{table.path}/branch/branch-b/tag/tag-a"].rule == "tag"
    assert "tag z" in found[gone].message or "snapshots 1 to" in found[gone].message


def test_a_corrupt_newest_schema_is_a_finding_and_not_the_end(table: Table) -> None:
    table.set_options({"snapshot.num-retained.max": "50"})
    path = Path(table.path) / "schema" / "schema-1"
    path.write_text(path.read_text()[:-3])
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    gone = lose(table, handle_of(table).manifests.live_entries(newest)[0].file.file_name)
    found = {f.subject: f.rule for f in examine(replace(open_to_examine(table.path), world=World(pause=Waits())))}
    assert found[str(path)] == "schema" and found[gone] == "missing-file"


def test_shares_of_the_buckets_find_what_a_whole_look_finds(table: Table) -> None:
    for snapshot_id in (2, 6, 8):
        snapshot = handle_of(table).snapshot_store.get(snapshot_id)
        assert snapshot is not None
        entries = handle_of(table).manifests.delta_entries(snapshot)
        changed = [replace(e, file=replace(e.file, row_count=e.file.row_count + 1)) for e in entries]
        name, size = handle_of(table).manifests.write_list(handle_of(table).manifests.write([*changed, changed[0]], 0))
        broken = replace(snapshot, delta_manifest_list=name, delta_manifest_list_size=size)
        handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(snapshot_id), encode_snapshot(broken))
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    lose(table, handle_of(table).manifests.live_entries(newest)[0].file.file_name)
    whole = examine(handle_in(table, pause=Waits()))
    shares = examine(handle_in(table, pause=Waits()), live_bytes=8000)
    assert len(whole) > 4 and sorted(map(str, shares)) == sorted(map(str, whole))


SNAPSHOTS = 3000


@pytest.fixture
def long(tmp_path: Path) -> Table:
    """Thousands of snapshots of which each adds an empty delta, with the manifests of the first ones in their bases."""
    table = create_table(str(tmp_path / "long"), COLUMNS, ["id"], options={"bucket": "1"})
    for number in range(4):
        table.write(rows(number))
    last = handle_of(table).snapshot_store.latest()
    assert last is not None
    manifests = handle_of(table).manifests
    base = manifests.base_and_delta(last)
    empty, shared = manifests.write_list([]), manifests.write_list(base)
    for snapshot_id in range(5, SNAPSHOTS + 1):
        shared = manifests.write_list(base) if snapshot_id % 100 == 0 else shared
        members = json.loads(encode_snapshot(last)) | {
            "id": snapshot_id,
            "baseManifestList": shared[0],
            "baseManifestListSize": shared[1],
            "deltaManifestList": empty[0],
            "deltaManifestListSize": empty[1],
            "deltaRecordCount": 0,
            "commitIdentifier": snapshot_id,
        }
        (Path(table.path) / "snapshot" / f"snapshot-{snapshot_id}").write_text(json.dumps(members))
    handle_of(table).snapshot_store.write_latest_hint(SNAPSHOTS)
    return table


def test_each_manifest_file_of_thousands_of_snapshots_is_read_once(long: Table) -> None:
    calls, told = FaultyIO(handle_of(long).io), []
    found = examine(
        handle_in(on_io(long, calls), pause=Waits()), progress=lambda done, total: told.append((done, total))
    )
    assert found == []
    reads = Counter(path for name, path in calls.calls if name == "read" and "/manifest/" in path)
    assert set(reads.values()) == {1} and len(reads) > SNAPSHOTS // 100
    sizes = Counter(path for name, path in calls.calls if name == "size")
    assert set(sizes.values()) == {1}
    # Once for what is broken, then once more for what nothing names.
    assert told[:SNAPSHOTS] == [(n, SNAPSHOTS) for n in range(1, SNAPSHOTS + 1)]
    assert told[SNAPSHOTS:] == [(n, 2 * SNAPSHOTS) for n in range(SNAPSHOTS + 1, 2 * SNAPSHOTS + 1)]


def test_what_is_remembered_of_manifests_stays_within_its_bytes(made: Table) -> None:
    folder = Path(made.path) / "manifest"
    files = sorted(folder.iterdir())
    limit = sum(f.stat().st_size for f in files) // 2
    calls = FaultyIO(handle_of(made).io)
    reader = ReadOnceIO(calls, Remembered(limit, limit))
    for _ in range(2):
        for f in files:
            assert reader.read(str(f)) == f.read_bytes()
    assert len(files) < len(calls.calls) <= 2 * len(files)
    reader.read(str(files[-1]))
    assert 0 < reader.remembered.used_bytes <= limit and len(calls.calls) <= 2 * len(files)


def test_values_outside_of_statistics_are_found(table: Table) -> None:
    snapshot = handle_of(table).snapshot_store.latest()
    assert snapshot is not None
    entries = handle_of(table).manifests.delta_entries(snapshot)
    stats = entries[-1].file.value_stats
    other = replace(stats, min_values=stats.max_values)
    for change, text in ((other, "values outside"), (replace(stats, null_counts=(0, 3)), "nulls")):
        changed = [*entries[:-1], replace(entries[-1], file=replace(entries[-1].file, value_stats=change))]
        name, size = handle_of(table).manifests.write_list(handle_of(table).manifests.write(changed, 0))
        broken = replace(snapshot, delta_manifest_list=name, delta_manifest_list_size=size)
        handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(snapshot.id), encode_snapshot(broken))
        found = [f for f in examine(handle_in(table, pause=Waits()), rows=True) if f.rule == "stats"]
        assert found and all(text in f.message and f.severity is Severity.ERROR for f in found)
