"""A key index damaged on purpose: the batch gets a right one, or stops with the remedy; wrong places never."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.bucket.cross_partition import KeyEffect, KeyPlaces
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CorruptFileError, IndexStateError, MissingSnapshotError, StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.store.key_index import ready as key_index_ready
from bucketline.state.store.key_index import rocks
from bucketline.state.store.key_index.backup import BackupFolder, back_up
from bucketline.state.store.key_index.build import KeyIndexBuild
from bucketline.state.store.key_index.catch_up import IndexSource
from bucketline.state.store.key_index.index_scope import label_of
from bucketline.state.store.key_index.key_index import KeyIndex
from bucketline.state.store.key_index.note import write_note
from bucketline.state.store.key_index.ready import IndexOrigin, IndexPlan, IndexReport, ready_index
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import handle_of
from bucketline.state.types.binary_row import encode_row
from tests.support.storage.faulty_io import FaultyIO
from tests.support.tables.moving_keys import MovingKeys

SETTINGS = rocks.RocksSettings(8 << 20)
INSERT, DELETE = 0, 3
NO_EFFECT = KeyEffect(
    np.empty(0, np.int64), np.empty(0, np.int64), KeyPlaces(np.array([0], np.int32), np.array([0], np.int32)), {}
)


class NoWait:
    """Waiting takes no time."""

    def wait_ms(self, duration_ms: int) -> None:
        assert duration_ms > 0


def plan_of(table: MovingKeys, root: Path, backup: Path | None = None) -> IndexPlan:
    folder = None if backup is None else BackupFolder(LocalIO(), str(backup))
    return IndexPlan(str(table.path), table.keys(), str(root), SETTINGS, folder, World(pause=NoWait()))


def ready(plan: IndexPlan, table: MovingKeys) -> IndexReport:
    """How the index becomes ready; it is checked against the table's rows and closed."""
    index, report = ready_index(plan, table.source, table.latest())
    with index:
        assert index.label == label_of(table.latest())
        check(index, table)
    return report


def check(index: KeyIndex, table: MovingKeys) -> None:
    """Each key of the table is in the index, in its partition, and no other."""
    rows = dict(sorted(table.rows().items()))
    found = index.lookup(pa.array(list(rows), pa.int64()))
    names = index.partitions(found.partitions.tolist())
    string = handle_of(table.table).table_schema.field("pt").type
    assert [names[c] for c in found.partitions.tolist()] == [encode_row([pt], [string]) for pt, _ in rows.values()]
    assert len(index.items(b"\x01", 1000)) == len(rows)


def write(plan: IndexPlan, table: MovingKeys, *rows: tuple[int, str, int, int]) -> None:
    index, _ = ready_index(plan, table.source, table.latest())
    with index:
        table.write(rows, index)


@pytest.fixture
def table(tmp_path: Path) -> MovingKeys:
    found = MovingKeys(tmp_path / "t")
    write(plan_of(found, tmp_path / "local"), found, *((i, "ab"[i % 2], i, INSERT) for i in range(8)))
    return found


def test_a_restart_reads_only_what_was_committed_since(table: MovingKeys, tmp_path: Path) -> None:
    """The second batch opens no data file but those of the first."""
    plan = plan_of(table, tmp_path / "local")
    ready(plan, table)
    before = {e.file.file_name for e in table.entries()}
    write(plan, table, (1, "a", 50, INSERT), (2, "a", 60, DELETE))
    new = {e.file.file_name for e in table.entries()} - before
    io = FaultyIO(LocalIO())
    source = table.source
    watched = replace(source, access=replace(source.access, io=io))
    index, report = ready_index(plan, watched, table.latest())
    with index:
        check(index, table)
    assert report == IndexReport(IndexOrigin.LOCAL, None, 1, 3)
    assert {Path(path).name for name, path in io.calls if name == "open_input"} == new
    io.calls.clear()
    index, report = ready_index(plan, watched, table.latest())
    index.close()
    assert report.caught_up == 0 and not io.calls


def test_compactions_cost_no_reading(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    ready(plan, table)
    table.compact()
    assert ready(plan, table) == IndexReport(IndexOrigin.LOCAL, None, 1, 0)


def test_a_batch_that_was_committed_is_taken_from_its_note(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    index, _ = ready_index(plan, table.source, table.latest())
    with index:
        table.write([(1, "a", 50, INSERT), (2, "a", 60, DELETE), (50, "c", 1, INSERT)], index, note=True)
    table.compact()
    io = FaultyIO(LocalIO())
    watched = replace(table.source, access=replace(table.source.access, io=io))
    index, report = ready_index(plan, watched, table.latest())
    with index:
        check(index, table)
    assert report == IndexReport(IndexOrigin.LOCAL, None, 2, 0) and not io.calls


@pytest.mark.parametrize("case", ["never committed", "another attempt", "another commit before", "cut short"])
def test_a_note_that_does_not_fit_is_of_no_account(table: MovingKeys, tmp_path: Path, case: str) -> None:
    plan, other = plan_of(table, tmp_path / "local"), plan_of(table, tmp_path / "elsewhere")
    rows = [(1, "a", 50, INSERT), (2, "a", 60, DELETE), (50, "c", 1, INSERT)]
    index, _ = ready_index(plan, table.source, table.latest())
    elsewhere, _ = ready_index(other, table.source, table.latest())
    note = Path(plan.path) / "note.arrow"
    with index, elsewhere:
        if case == "never committed":
            table.write(rows, elsewhere, note=True)
            shutil.copy(Path(other.path) / "note.arrow", note)
            (table.path / "snapshot" / "snapshot-2").unlink()
            (table.path / "snapshot" / "LATEST").unlink()
            table.write([(3, "c", 1, INSERT)], index)
        elif case == "another attempt":
            table.write(rows, elsewhere, note=True)
            write_note(index, pa.array([7]), NO_EFFECT, seconds=0, token="of another attempt")
        elif case == "another commit before":
            table.write([(3, "c", 1, INSERT)], elsewhere)
            table.write(rows, index, note=True)
        else:
            table.write(rows, index, note=True)
            note.write_bytes(note.read_bytes()[:-20])
    assert note.is_file() and ready(plan, table).rows_read > 0


@pytest.mark.parametrize("harm", ["gone", "no current", "half current", "no label", "cut sst", "no manifest", "marked"])
def test_a_damaged_directory_is_built_anew(table: MovingKeys, tmp_path: Path, harm: str) -> None:
    plan = plan_of(table, tmp_path / "local")
    ready(plan, table)
    database = Path(plan.path) / "db"
    if harm == "gone":
        shutil.rmtree(plan.path)
    elif harm == "no current":
        (database / "CURRENT").unlink()
    elif harm == "half current":
        (database / "CURRENT").write_text("MANI")
    elif harm == "no label":
        index = KeyIndex.open(plan.path, plan.keys.scope(plan.table), SETTINGS)
        index.database.delete(b"\x00label")
        index.close()
    elif harm == "cut sst":
        for path in database.glob("*.sst"):
            path.write_bytes(path.read_bytes()[:-100])
    elif harm == "no manifest":
        for path in database.glob("MANIFEST-*"):
            path.unlink()
    else:
        (Path(plan.path) / "damaged").touch()
    report = ready(plan, table)
    assert report.origin is IndexOrigin.BUILT
    assert (report.reason is None) == (harm == "gone")
    assert ready(plan, table).origin is IndexOrigin.LOCAL


def test_damage_that_only_reading_shows_is_not_met_twice(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    ready(plan, table)
    index = KeyIndex.open(plan.path, plan.keys.scope(plan.table), SETTINGS)
    index.database.put(b"\x01" + (0x80 << 56).to_bytes(8, "big"), b"no place")
    with pytest.raises(IndexStateError, match="another form"):
        check(index, table)
    index.close()
    assert ready(plan, table).origin is IndexOrigin.BUILT


def test_an_index_of_another_table_is_built_anew(table: MovingKeys, tmp_path: Path) -> None:
    other = MovingKeys(tmp_path / "other")
    plan, others = plan_of(table, tmp_path / "local"), plan_of(other, tmp_path / "local")
    write(others, other, (100, "a", 1, INSERT))
    ready(others, other)
    shutil.rmtree(plan.path, ignore_errors=True)
    shutil.copytree(others.path, plan.path)
    report = ready(plan, table)
    assert report.origin is IndexOrigin.BUILT and "key index of" in (report.reason or "")


def test_a_table_made_again_at_the_same_place_is_noticed(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    ready(plan, table)
    shutil.rmtree(table.path)
    again = MovingKeys(tmp_path / "t")
    write(plan_of(again, tmp_path / "elsewhere"), again, (1, "c", 1, INSERT))
    report = ready(plan, again)
    assert report.origin is IndexOrigin.BUILT and "is not the one" in (report.reason or "")


def test_an_index_newer_than_a_rolled_back_table_is_built_anew(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    write(plan, table, (1, "a", 50, INSERT))
    ready(plan, table)
    table.table.rollback_to(1)
    report = ready(plan, table)
    assert report.origin is IndexOrigin.BUILT and "rolled back" in (report.reason or "")


@pytest.mark.parametrize("gone", [[2], [1, 2]])
def test_an_index_proves_that_a_snapshot_was_committed_whose_file_is_gone(
    table: MovingKeys, tmp_path: Path, gone: list[int]
) -> None:
    plan = plan_of(table, tmp_path / "local")
    write(plan, table, (1, "a", 50, INSERT))
    ready(plan, table)
    for name in (*(f"snapshot-{i}" for i in gone), "LATEST"):
        (table.path / "snapshot" / name).unlink()
    (table.path / "snapshot" / "EARLIEST").unlink(missing_ok=True)
    with pytest.raises(MissingSnapshotError, match="key index") as caught:
        ready(plan, table)
    assert (caught.value.fields["snapshot"], caught.value.fields["newest"]) == (2, 1 if gone == [2] else None)
    if gone == [2]:
        table.table.rollback_to(1)
        assert ready(plan, table).origin is IndexOrigin.BUILT


def test_an_index_of_a_table_that_was_made_anew_and_is_empty_is_built_anew(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    ready(plan, table)
    shutil.rmtree(table.path)
    assert ready(plan, MovingKeys(tmp_path / "t")).origin is IndexOrigin.BUILT


def test_an_index_older_than_expiry_is_built_anew(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    ready(plan, table)
    elsewhere = plan_of(table, tmp_path / "elsewhere")
    for number in range(3):
        write(elsewhere, table, (number, "c", 1, INSERT))
    (table.path / "snapshot" / "snapshot-1").unlink()
    assert "expired" in (ready(plan, table).reason or "")
    write(plan, table, (0, "a", 1, INSERT))
    ready(elsewhere, table)


@pytest.mark.parametrize("between", [False, True])
def test_a_note_proves_an_expired_history_unless_others_may_have_written(
    table: MovingKeys, tmp_path: Path, between: bool
) -> None:
    plan, other = plan_of(table, tmp_path / "local"), plan_of(table, tmp_path / "elsewhere")
    index, _ = ready_index(plan, table.source, table.latest())
    with index:
        table.write([(1, "a", 50, INSERT), (2, "a", 60, DELETE), (50, "c", 1, INSERT)], index, note=True)
    made = table.latest()
    assert made is not None
    if between:
        write(other, table, (3, "c", 1, INSERT))
    table.compact(made.properties)
    newest = table.latest()
    assert newest is not None and newest.id == (4 if between else 3)
    for snapshot_id in range(1, newest.id):
        (table.path / "snapshot" / f"snapshot-{snapshot_id}").unlink()
    assert ready(plan, table).origin is (IndexOrigin.BUILT if between else IndexOrigin.LOCAL)


def test_a_batch_older_than_the_index_must_not_go_on(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    old = table.latest()
    write(plan, table, (1, "a", 50, INSERT))
    ready(plan, table)
    with pytest.raises(IndexStateError, match="a later batch has begun"):
        ready_index(plan, table.source, old)
    assert ready(plan, table).origin is IndexOrigin.LOCAL


def test_an_index_that_is_held_is_waited_for_and_then_named(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    index, _ = ready_index(plan, table.source, table.latest())

    class LetsGo:
        waits = 0

        def wait_ms(self, duration_ms: int) -> None:
            self.waits += 1
            if self.waits == 3:
                index.close()

    with pytest.raises(IndexStateError, match="'local-directory'"):
        ready_index(plan, table.source, table.latest())
    assert ready(replace(plan, world=World(pause=LetsGo())), table).origin is IndexOrigin.LOCAL


def test_a_full_disk_while_building_leaves_nothing_and_says_so(
    table: MovingKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(table, tmp_path / "local")
    shutil.rmtree(plan.path, ignore_errors=True)
    with monkeypatch.context() as patched:
        full = "IO error: No space left on device: While appending to file"
        patched.setattr(KeyIndex, "load", lambda *_: _raise(plan.path, full))
        with pytest.raises(StorageError, match="'local-directory'"):
            ready_index(plan, table.source, table.latest())
    assert not list(Path(plan.path).parent.iterdir())
    assert ready(plan, table).origin is IndexOrigin.BUILT


def _raise(directory: str, text: str) -> None:
    with rocks.rocks_errors(directory):
        raise Exception(text)


def test_builds_whose_process_died_are_removed(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local")
    dead, living = Path(f"{plan.path}.1.building"), Path(f"{plan.path}.2.building")
    build = KeyIndexBuild(plan.path, plan.keys.scope(plan.table), SETTINGS, world=SYSTEM_WORLD)
    shutil.copytree(next(Path(plan.path).parent.glob("*.building")), living)
    build.__exit__(None, None, None)
    shutil.copytree(living, dead)
    (dead / "builder").write_text("999999999 " + (living / "builder").read_text().split()[1])
    shutil.rmtree(plan.path, ignore_errors=True)
    ready(plan, table)
    assert not dead.exists() and living.exists()


def backed_up(index: KeyIndex, plan: IndexPlan) -> set[str]:
    """The files of the backup that has just been made."""
    assert plan.backup is not None
    back_up(index, plan.backup, SYSTEM_WORLD)
    (current,) = Path(plan.backup.path).rglob("current.json")
    return {copy["stored"] for copy in json.loads(current.read_text())["files"]}


def test_another_machine_starts_from_the_backup_and_reads_no_old_files(table: MovingKeys, tmp_path: Path) -> None:
    plan = plan_of(table, tmp_path / "local", tmp_path / "checkpoint")
    assert plan.backup is not None
    index, _ = ready_index(plan, table.source, table.latest())
    with index:
        first = backed_up(index, plan)
    write(plan, table, (1, "a", 50, INSERT), (100, "c", 1, INSERT))
    index, _ = ready_index(plan, table.source, table.latest())
    with index:
        second = backed_up(index, plan)
    assert first & second
    other = plan_of(table, tmp_path / "other machine", tmp_path / "checkpoint")
    assert ready(other, table) == IndexReport(IndexOrigin.BACKUP)
    index, _ = ready_index(other, table.source, table.latest())
    with index:
        third = backed_up(index, plan)
    assert len(second & third) >= 3
    write(plan, table, (101, "c", 1, INSERT))
    late = plan_of(table, tmp_path / "late machine", tmp_path / "checkpoint")
    assert ready(late, table) == IndexReport(IndexOrigin.BACKUP, None, 1, 1)
    stored = {p.name for p in (tmp_path / "checkpoint").rglob("*") if p.is_file()}
    current = json.loads(next((tmp_path / "checkpoint").rglob("current.json")).read_text())
    assert stored == {"current.json", *(c["stored"] for c in current["files"])}


@pytest.mark.parametrize("harm", ["missing", "flipped", "not json", "foreign"])
def test_a_backup_that_is_not_whole_is_not_used(table: MovingKeys, tmp_path: Path, harm: str) -> None:
    plan = plan_of(table, tmp_path / "local", tmp_path / "checkpoint")
    assert plan.backup is not None
    index, _ = ready_index(plan, table.source, table.latest())
    with index:
        back_up(index, plan.backup, SYSTEM_WORLD)
    current = next((tmp_path / "checkpoint").rglob("current.json"))
    copies = sorted((p for p in current.parent.iterdir() if p != current), key=lambda p: p.stat().st_size)
    if harm == "missing":
        copies[-1].unlink()
    elif harm == "flipped":
        data = bytearray(copies[-1].read_bytes())
        data[len(data) // 2] ^= 1
        copies[-1].write_bytes(bytes(data))
    elif harm == "not json":
        current.write_text("{")
    else:
        current.write_text(current.read_text().replace(str(table.path), "/other"))
    other = plan_of(table, tmp_path / "other machine", tmp_path / "checkpoint")
    assert ready(other, table).origin is IndexOrigin.BUILT


def test_keys_older_than_the_ttl_are_not_in_the_index(tmp_path: Path) -> None:
    """How many keys are loaded shows it."""

    class Later:
        def now_ms(self) -> int:
            return 0

        def local_ms(self) -> int:
            return min(e.file.creation_time_ms or 0 for e in table.entries()) + 3_600_000

    table = MovingKeys(tmp_path / "t")
    write(plan_of(table, tmp_path / "local"), table, *((i, "a", i, INSERT) for i in range(5)))
    for hours, expected in ((2, 5), (1, 5)):
        limited = handle_of(table.table).table_schema.options | {"cross-partition-upsert.index-ttl": f"{hours} h"}
        schema = replace(handle_of(table.table).table_schema, options=limited)
        plan = plan_of(table, tmp_path / f"{hours}")
        plan = replace(plan, keys=replace(plan.keys, schema=schema), world=World(clock=Later()))
        index, report = ready_index(plan, table.source, table.latest())
        index.close()
        assert report.rows_read == expected
    old = replace(plan, directory=str(tmp_path / "old"), world=World(clock=_much_later(Later())))
    index, report = ready_index(old, table.source, table.latest())
    index.close()
    assert report.rows_read == 0


def _much_later(clock: object) -> object:
    class MuchLater:
        def now_ms(self) -> int:
            return 0

        def local_ms(self) -> int:
            return clock.local_ms() + 86_400_000

    return MuchLater()


@pytest.mark.parametrize(("parallelism", "memory_mb", "most"), [("1", 256, 1), ("3", 256, 3), ("9", 128, 2)])
def test_so_many_files_are_read_at_once_as_the_option_and_the_memory_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallelism: str, memory_mb: int, most: int
) -> None:
    monkeypatch.setattr(key_index_ready, "core_count", lambda: 8)
    table = MovingKeys(tmp_path / "t", {"cross-partition-upsert.bootstrap-parallelism": parallelism}, 1000)
    plan = replace(plan_of(table, tmp_path / "local"), settings=rocks.RocksSettings(memory_mb << 20))
    for number in range(6):
        write(plan, table, *((i, "abc"[number % 3], i, INSERT) for i in range(10 * number, 10 * number + 10)))
    shutil.rmtree(plan.path)
    open_now, at_once = set(), []
    together = threading.Barrier(most, timeout=20)
    original = FileAccess.rows

    def watched(self: FileAccess, bucket: BucketFiles, file: DataFileMeta, *rest: object, **more: object) -> object:
        open_now.add(file.file_name)
        at_once.append(len(open_now))
        together.wait()
        yield from original(self, bucket, file, *rest, **more)
        open_now.remove(file.file_name)

    with monkeypatch.context() as patched:
        patched.setattr(FileAccess, "rows", watched)
        index, report = ready_index(plan, table.source, table.latest())
        index.close()
    assert report.rows_read == 60 and max(at_once) == most
    assert ready(plan, table).origin is IndexOrigin.LOCAL


def test_a_key_in_two_places_stops_the_job(table: MovingKeys, tmp_path: Path) -> None:
    lost = plan_of(table, tmp_path / "lost")
    empty: IndexSource = replace(table.source)
    index, _ = ready_index(lost, empty, None)
    with index:
        table.write([(0, "c", 1, INSERT)], index)
    with pytest.raises(CorruptFileError, match="in two buckets"):
        ready_index(plan_of(table, tmp_path / "new"), table.source, table.latest())
