"""Snapshot files, hints, tags and changelogs deleted in every combination: the right rows, or an error with a remedy.

Never an older state for the newest, and never an id for other content while something names what had it.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.expire import Retention
from bucketline.state.errors import CorruptFileError, MissingSnapshotError
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.paths import parse_changelog_id
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.doctor.snapshots import snapshot_findings
from bucketline.state.store.maintenance.expiry import expire_snapshots
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.memory_io import MemoryIO
from tests.support.storage.watched_access import on_io
from tests.support.tables.commit_table import CommitTable, message
from tests.support.tables.commits import data_file
from tests.support.tables.examined import examine

OLDEST, NEWEST = 3, 8
SNAPSHOTS = ((), (8,), (7, 8), (5,), (3,), (5, 8), (4, 5, 6, 7, 8), (3, 4, 5, 6, 7, 8))
LATEST = (b"8", None, b"7", b"6", b"2", b"9", b"", b"x8")
EARLIEST = (b"3", None, b"9")
TAGS: tuple[tuple[int, ...], ...] = ((), (4,), (8,), (2, 8))
CHANGELOGS = ((), (1, 2), (1, 2, 8))


@cache
def whole() -> CommitTable:
    """Eight commits of one file each, a second apart; the first two have expired, their changelogs and a tag stay."""
    table = CommitTable(options={"manifest.merge-min-count": "3"}).create()
    kept = {}
    for number in range(1, NEWEST + 1):
        table.pause.clock.now += 1000
        table.committer().commit(table.put_files([message(data_file(f"f{number}"))]), user="u", identifier=number)
        kept[number] = table.storage.read(table.snapshots.path(number))
        found = table.snapshots.get(number)
        assert found is not None
        if number in {i for ids in TAGS for i in ids}:
            assert Tags(table.storage, table.path).create(Tag(f"t{number}", found))
    table.pause.clock.now += 1000
    retention = Retention(NEWEST - OLDEST + 1, 99, 0, 99)
    expire_snapshots(table.storage, table.path, table.schema, table.world, retention=retention)
    assert table.snapshots.ids() == list(range(OLDEST, NEWEST + 1))
    for number in (1, 2, 8):
        table.storage.overwrite(f"{table.path}/changelog/changelog-{number}", kept[number])
    return table


@dataclass(frozen=True)
class Damage:
    gone: tuple[int, ...]
    latest: bytes | None
    earliest: bytes | None
    tags: tuple[int, ...]
    changelogs: tuple[int, ...]

    def done(self) -> CommitTable:
        storage = MemoryIO(dict(_files(whole())))
        table = replace(whole(), storage=storage, pause=copy.deepcopy(whole().pause))
        for snapshot_id in self.gone:
            table.snapshots.delete(snapshot_id)
        for name, data in (("LATEST", self.latest), ("EARLIEST", self.earliest)):
            storage.delete(f"{table.path}/snapshot/{name}")
            if data is not None:
                storage.overwrite(f"{table.path}/snapshot/{name}", data)
        for tag in {2, 4, 8} - set(self.tags):
            storage.delete(f"{table.path}/tag/tag-t{tag}")
        for number in {1, 2, 8} - set(self.changelogs):
            storage.delete(f"{table.path}/changelog/changelog-{number}")
        return table

    @property
    def left(self) -> list[int]:
        return [i for i in range(OLDEST, NEWEST + 1) if i not in self.gone]

    @property
    def hinted(self) -> int | None:
        return int(self.latest) if self.latest and self.latest.isdigit() else None

    def names_later(self, snapshot_id: int) -> bool:
        """Whether anything that is left names a commit after that snapshot."""
        earliest = int(self.earliest) if self.earliest else 0
        return max(self.hinted or 0, earliest, *self.tags, *self.changelogs, 0) > snapshot_id


def _files(table: CommitTable) -> dict[str, bytes]:
    assert isinstance(table.storage, MemoryIO)
    return table.storage.files


def names_of(table: CommitTable, snapshot_id: int) -> set[str]:
    """The files of a snapshot, each of which a commit of its own has added."""
    return {f"f{number}" for number in range(1, snapshot_id + 1)}


def read(table: CommitTable) -> set[str] | MissingSnapshotError:
    try:
        newest = table.snapshots.latest()
    except MissingSnapshotError as e:
        return e
    return set() if newest is None else {e.file.file_name for e in table.manifests.live_entries(newest)}


def rules_of(table: CommitTable) -> set[str]:
    """The rules that the doctor finds broken."""
    return {f.rule for f in snapshot_findings(table.storage, table.path) if f.severity is Severity.ERROR}


def write(table: CommitTable) -> None:
    table.pause.clock.now += 1000
    table.committer().commit(table.put_files([message(data_file("new"))]), user="v", identifier=99)


def newest_allowed(damage: Damage) -> set[int]:
    """What a reader may see without an error; 0 stands for the empty table."""
    newest = max(damage.left, default=0)
    if damage.hinted in damage.left:
        # A lower hint is a writer's that was killed, or a rollback's: then what it was lowered to may be seen.
        return {newest, damage.hinted}
    allowed = set() if damage.names_later(newest) else {newest}
    if damage.hinted in damage.tags and damage.hinted < min(damage.left, default=NEWEST + 1):
        allowed.add(damage.hinted)
    if not damage.left and (damage.latest is not None or damage.earliest is not None):
        allowed.discard(0)
    return allowed


def damages(gone: tuple[int, ...]) -> Iterator[Damage]:
    for parts in product(LATEST, EARLIEST, TAGS, CHANGELOGS):
        yield Damage(gone, *parts)


@pytest.mark.parametrize("gone", SNAPSHOTS, ids=str)
def test_a_reader_sees_the_newest_state_or_an_error_that_names_its_proof(gone: tuple[int, ...]) -> None:
    seen: Counter[str] = Counter()
    for damage in damages(gone):
        table, allowed = damage.done(), newest_allowed(damage)
        found = read(table)
        if isinstance(found, MissingSnapshotError):
            seen["refused"] += 1
            newest = max(damage.left, default=0)
            assert newest not in allowed or (damage.hinted is not None and damage.hinted > newest), damage
            assert found.code == "MISSING_SNAPSHOT" and "from a copy" in found.message and found.fields["proof"]
            assert NEWEST not in damage.left or damage.names_later(NEWEST), damage
        else:
            seen["read"] += 1
            assert found in [names_of(table, i) for i in allowed], (damage, found)
            if NEWEST in damage.left and damage.hinted not in damage.left:
                assert found == names_of(table, NEWEST), damage
    assert seen["read"] and seen["refused"]


@pytest.mark.parametrize("gone", SNAPSHOTS, ids=str)
def test_a_writer_goes_on_from_what_a_reader_sees_or_writes_nothing(gone: tuple[int, ...]) -> None:
    for damage in damages(gone):
        table = damage.done()
        before, found = dict(_files(table)), read(table)
        is_good = damage.hinted is not None and damage.hinted == max(damage.left, default=0)
        if isinstance(found, MissingSnapshotError):
            with pytest.raises(MissingSnapshotError):
                write(table)
            assert {k: v for k, v in _files(table).items() if not k.endswith("/new")} == before, damage
            continue
        newest = table.snapshots.latest()
        base = 0 if newest is None else newest.id
        write(table)
        assert read(table) == found | {"new"}, damage
        ids = table.snapshots.ids()
        assert ids[-1] == base + 1, damage
        for tag in Tags(table.storage, table.path).list():
            own = table.snapshots.get(tag.snapshot.id)
            same = own is None or own.delta_manifest_list == tag.snapshot.delta_manifest_list
            assert (same and tag.snapshot.id <= base) or is_good, damage
        names = table.storage.list_names(f"{table.path}/changelog")
        assert is_good or all((parse_changelog_id(n) or 0) <= base for n in names), damage


@pytest.mark.parametrize("gone", SNAPSHOTS, ids=str)
def test_the_doctor_reports_what_is_refused_and_what_is_gone(gone: tuple[int, ...]) -> None:
    for damage in damages(gone):
        table = damage.done()
        found = list(snapshot_findings(table.storage, table.path))
        rules = {f.rule for f in found if f.severity is Severity.ERROR}
        assert isinstance(read(table), MissingSnapshotError) == ("missing-snapshot" in rules), damage
        newest = max(damage.left, default=0)
        if damage.left != list(range(min(damage.left, default=0), newest + 1)) and damage.left:
            assert "snapshot-gap" in rules, damage
        if damage.left and [*damage.tags, *damage.changelogs] and max([*damage.tags, *damage.changelogs]) > newest:
            assert rules & {"missing-snapshot", "rollback"}, damage
        if NEWEST in damage.left and damage.latest == b"8" and damage.earliest == b"3" and not gone:
            assert found == [], damage


@pytest.mark.parametrize("gone", SNAPSHOTS, ids=str)
def test_a_rollback_to_what_is_left_mends_what_is_refused(gone: tuple[int, ...]) -> None:
    for damage in damages(gone):
        table = damage.done()
        if not isinstance(read(table), MissingSnapshotError):
            continue
        tags = [t for t in damage.tags if t >= max(damage.left, default=0)]
        targets: list[int | str] = [*damage.left[-1:], *(f"t{t}" for t in tags)]
        for target in targets:
            mended = damage.done()
            wanted = rollback_to(mended.storage, mended.path, target)
            assert read(mended) == names_of(mended, wanted.id), damage
            assert "missing-snapshot" not in rules_of(mended), damage
            write(mended)
            assert read(mended) == names_of(mended, wanted.id) | {"new"}, damage


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three commits, a tag on the newest and one on the oldest, a branch at each tag."""
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int32())])
    made = create_table(str(tmp_path / "t"), schema, primary_key=["k"], options={"bucket": "1"})
    for number in range(3):
        made.write(pa.table({"k": [number], "v": [number]}, schema=schema))
    made.create_tag("first", 1)
    made.create_tag("last", 3)
    made.create_branch("b1", "first")
    return made


def rows(table: Table) -> pa.Table:
    return pa.table({"k": [9], "v": [9]}, schema=table.schema)


def remove(table: Table, *names: str) -> None:
    for name in names:
        Path(table.path, name).unlink()


OPERATIONS: dict[str, Callable[[Table], object]] = {
    "to_arrow": lambda t: t.to_arrow(),
    "write": lambda t: t.write(rows(t)),
    "overwrite": lambda t: t.overwrite(rows(t)),
    "compact": lambda t: t.compact(),
    "files": lambda t: t.files(),
    "create_tag": lambda t: t.create_tag("new"),
    "expire": lambda t: t.expire_snapshots(retain_max=1, retain_min=1),
    "orphans": lambda t: t.remove_orphan_files(dry_run=False),
    "alter": lambda t: t.set_options({"snapshot.time-retained": "2 h"}),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("gone", [("snapshot-3",), ("snapshot-1", "snapshot-2", "snapshot-3")])
def test_whatever_starts_from_the_newest_snapshot_refuses_and_removes_nothing(
    table: Table, operation: str, gone: tuple[str, ...]
) -> None:
    remove(table, *(f"snapshot/{name}" for name in gone))
    before = sorted(p for p in Path(table.path).rglob("*") if p.is_file())
    with pytest.raises(MissingSnapshotError, match="names snapshot 3") as caught:
        OPERATIONS[operation](open_table(table.path))
    assert isinstance(caught.value, CorruptFileError) and "rollback_to('last')" in caught.value.message
    assert sorted(p for p in Path(table.path).rglob("*") if p.is_file()) == before
    rules = [(f.severity, f.rule) for f in examine(handle_of(open_table(table.path)))]
    assert (Severity.ERROR, "missing-snapshot") in rules
    table.rollback_to("last")
    OPERATIONS[operation](open_table(table.path))


def test_files_that_a_branch_without_its_snapshots_may_need_stay(table: Table) -> None:
    remove(table, "branch/branch-b1/snapshot/snapshot-1")
    before = sorted(p for p in Path(table.path).rglob("*") if p.is_file())
    branch = {"branch": "b1"}
    for attempt in (
        lambda: open_table(table.path, options=branch).to_arrow(),
        lambda: table.expire_snapshots(retain_max=1, retain_min=1),
        lambda: table.remove_orphan_files(dry_run=False),
    ):
        with pytest.raises(MissingSnapshotError, match="branch-b1"):
            attempt()
    assert sorted(p for p in Path(table.path).rglob("*") if p.is_file()) == before
    found = [f for f in examine(handle_of(table)) if f.rule == "missing-snapshot"]
    assert len(found) == 1 and "branch-b1" in found[0].subject
    open_table(table.path, options=branch).rollback_to("first")
    assert open_table(table.path, options=branch).to_arrow().num_rows == 1
    assert [f.rule for f in table.doctor()] == []


def test_a_branch_without_hints_and_one_without_snapshots_are_read(table: Table) -> None:
    table.create_branch("empty")
    assert open_table(table.path, options={"branch": "b1"}).to_arrow().num_rows == 1
    assert open_table(table.path, options={"branch": "empty"}).to_arrow().num_rows == 0
    assert sorted(n for n, _ in Branches(handle_of(table).io, table.path).states()) == [
        "snapshot 1 of branch b1",
        "tag first of branch b1",
    ]


def test_a_hole_is_named_where_its_snapshot_is_asked_for(table: Table) -> None:
    time_ms = handle_of(table).snapshot_store.newest_first(2).__next__().time_ms
    remove(table, "snapshot/snapshot-2")
    assert table.to_arrow().num_rows == 3
    for attempt in (
        lambda: table.to_arrow(snapshot=2),
        lambda: table.to_arrow(changes_since=1),
        lambda: open_table(table.path, options={"scan.timestamp-millis": str(time_ms)}).to_arrow(),
    ):
        with pytest.raises(MissingSnapshotError, match="snapshot 2"):
            attempt()
    assert table.to_arrow(snapshot=1).num_rows == 1
    with pytest.raises(OptionError, match="no snapshot 9"):
        table.to_arrow(snapshot=9)
    gaps = [f for f in examine(handle_of(table)) if f.rule == "snapshot-gap"]
    assert len(gaps) == 1 and "restore the files" in gaps[0].message


def test_manifests_alone_are_a_first_commit_that_crashed(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    remove(table, *(f"snapshot/snapshot-{i}" for i in (1, 2, 3)), "snapshot/LATEST", "snapshot/EARLIEST")
    remove(table, "tag/tag-first", "tag/tag-last")
    assert table.to_arrow().num_rows == 0
    assert "nothing shows that a snapshot was committed" in caplog.text
    assert [f.rule for f in examine(handle_of(table)) if f.rule == "no-snapshot"] == ["no-snapshot"]
    assert table.write(rows(table)) == 1
    assert open_table(table.path).to_arrow().num_rows == 1


def test_snapshots_without_schemas_are_no_place_for_a_new_table(table: Table) -> None:
    remove(table, "schema/schema-0")
    with pytest.raises(CorruptFileError, match="snapshots but no schema"):
        create_table(table.path, table.schema, primary_key=["k"], options={"bucket": "1"})
    assert not list(Path(table.path, "schema").iterdir())


def test_a_consumer_ahead_of_the_table_is_reported(table: Table) -> None:
    Path(table.path, "consumer").mkdir()
    for name, following in (("waits", 4), ("ahead", 9)):
        Path(table.path, "consumer", f"consumer-{name}").write_text(f'{{"nextSnapshot": {following}}}')
    assert [f.subject.rpartition("/")[2] for f in examine(handle_of(table)) if f.rule == "consumer"] == [
        "consumer-ahead"
    ]


def test_a_broken_tag_is_no_proof_and_stops_no_reader(table: Table) -> None:
    remove(table, "snapshot/LATEST")
    Path(table.path, "tag", "tag-broken").write_text("{}")
    assert table.to_arrow().num_rows == 3


def test_a_hint_or_tag_of_a_commit_that_is_made_meanwhile_is_no_proof() -> None:
    """The listing is older than the hint and the tag: another writer has published in between."""
    table = Damage((7, 8), b"6", b"3", (), ()).done()
    late = whole()

    def publish(call: str, path: str) -> None:
        if call == "list_names" and path.endswith("/snapshot"):
            io.before_call = publish_after

    def publish_after(call: str, path: str) -> None:
        io.before_call = None
        for snapshot_id in (7, 8):
            table.storage.overwrite(table.snapshots.path(snapshot_id), _files(late)[table.snapshots.path(snapshot_id)])
        table.storage.overwrite(f"{table.path}/snapshot/LATEST", b"8")
        table.storage.overwrite(f"{table.path}/tag/tag-t8", _files(late)[f"{table.path}/tag/tag-t8"])

    table.storage.delete(f"{table.path}/snapshot/LATEST")
    io = FaultyIO(table.storage, before_call=publish)
    found = type(table.snapshots)(io, table.path).latest()
    assert found is not None and found.id == 8


@pytest.mark.parametrize("tag", [2, 4])
def test_paimons_rollback_to_a_tag_is_finished_wherever_it_was_killed(tag: int) -> None:
    """It lowers LATEST, removes snapshots from the newest on, then changelogs and tags, and publishes the tag last."""
    damage = Damage((), b"8", b"3", (2, 8) if tag == 2 else (4, 8), (1, 2))
    removed = list(range(NEWEST, max(tag, OLDEST - 1), -1))
    for count in range(len(removed) + 1):
        for tags_gone in (False, True) if count == len(removed) else (False,):
            table = damage.done()
            table.snapshots.write_latest_hint(tag)
            for snapshot_id in removed[:count]:
                table.snapshots.delete(snapshot_id)
            if tags_gone:
                Tags(table.storage, table.path).delete("t8")
            expected = tag if count else NEWEST
            assert read(table) == names_of(table, expected), (count, tags_gone)
            is_good = tag == 4 and count == len(removed)
            if count and not (is_good and tags_gone):
                assert "rollback" in rules_of(table)
            write(table)
            assert read(table) == names_of(table, expected) | {"new"}
            assert table.snapshots.ids()[-1] == expected + 1
            if count and not is_good:
                assert Tags(table.storage, table.path).names() == [f"t{tag}"]


def test_a_session_notices_that_the_snapshots_it_has_seen_are_gone(table: Table) -> None:
    watching = open_table(table.path)
    session = table_at(handle_of(watching), {}).refreshed()
    remove(table, "snapshot/snapshot-3", "snapshot/LATEST", "tag/tag-last")
    with pytest.raises(MissingSnapshotError, match="this writer"):
        session = session.refreshed()
    table.rollback_to(2)
    found = session.refreshed().view.snapshot
    assert found is not None and found.id == 2


def test_reads_and_commits_make_no_more_calls_than_a_good_hint_needs(table: Table) -> None:
    io = FaultyIO(handle_of(table).io)
    counted = on_io(table, io)
    found = handle_of(counted).snapshot_store.latest()
    assert found is not None and [name for name, _ in io.calls] == ["read_optional", "exists", "read_optional"]
    for act, calls in ((lambda: counted.to_arrow(), 3), (lambda: counted.write(rows(table)), 11)):
        io.calls.clear()
        act()
        folder = f"{table.path}/snapshot"
        about = [name for name, path in io.calls if path.startswith(folder)]
        assert len(about) <= calls and "list_names" not in about, about
        others = ("tag", "changelog", "consumer")
        assert not [c for c in io.calls if c[1].removeprefix(f"{table.path}/").split("/")[0] in others]
