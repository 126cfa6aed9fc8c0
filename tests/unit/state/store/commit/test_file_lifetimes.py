"""A file that a snapshot names existed, whole, when the snapshot was published, and stays until the last snapshot, tag,
branch or reader that names it is gone: whoever is stopped, whatever is removed, whatever the clocks say."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.expire import Retention
from bucketline.state.commit.file_age import CLOCK_SKEW_MS, PROOF_MS, QUICK_MS, REMOVABLE_MS
from bucketline.state.commit.message import CommitMessage
from bucketline.state.errors import CorruptFileError, FilesGoneError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import CommitKind, FileKind, IndexManifestEntry
from bucketline.state.format.tag_json import Tag
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.live_files import TableView
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.commit.commit_proof import FILES_GONE
from bucketline.state.store.commit.committer import AppendCheck, CommitResult, Committed, Committer, Conflict, Unknown
from bucketline.state.store.maintenance.expiry import delete_tag, expire_snapshots
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.overwrite import overwrite_table
from bucketline.state.store.table.rescale import rescale_table
from bucketline.state.store.table.table import Table, create_table
from bucketline.state.store.table.write import write_table
from tests.support.aged_table import assert_whole, stored_files
from tests.support.commit_table import CommitTable, CountedPause, StillClock
from tests.support.commits import data_file
from tests.support.faulty_io import Fault, FaultyIO
from tests.support.memory_io import MemoryIO
from tests.support.stopped import HOUR_MS, HookedIds, StoppingClock, age_and_clean, let_storage_age


@dataclass
class _Writer:
    """Work that was planned and whose files are made, and which is not committed yet."""

    name: str
    message: CommitMessage
    planned_ms: int
    based_on: int


@dataclass
class _World:
    """A table, writers, and a storage whose clock is up to an hour off; nothing happens but by `step`."""

    chance: random.Random
    floor_ms: int = REMOVABLE_MS
    proves: bool = True
    table: CommitTable = field(default_factory=lambda: CommitTable(options={"manifest.merge-min-count": "3"}).create())
    waiting: list[_Writer] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    gone: int = 0
    removed: int = 0
    numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.skew_ms = self.chance.randint(-CLOCK_SKEW_MS, CLOCK_SKEW_MS)
        self._set_storage_clock()

    @property
    def storage(self) -> MemoryIO:
        assert isinstance(self.table.storage, MemoryIO)
        return self.table.storage

    def step(self) -> None:
        likely = [self._begin] * 4 + [self._commit] * 4 + [self._remove_orphans] * 3 + [self._wait] * 3
        self.chance.choice([*likely, self._die, self._expire, self._tag, self._untag, self._branch])()
        assert_whole(self.table)

    def _set_storage_clock(self) -> None:
        self.storage.now_ms = self.table.pause.clock.now + self.skew_ms

    def _wait(self) -> None:
        self.table.pause.clock.now += self.chance.choice((1_000, 20 * 60_000, 7 * HOUR_MS, 13 * HOUR_MS, 30 * HOUR_MS))
        self._set_storage_clock()

    def _begin(self) -> None:
        name = f"w{next(self.numbers)}"
        newest = self.table.snapshots.latest()
        message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file(f"data-{name}.parquet"),))
        live = [e.file for e in self.table.live()]
        low, top = [f for f in live if f.level == 0], [f for f in live if f.level == 5]
        if self.chance.random() < 0.4 and len(low) > 1:
            merged = data_file(f"data-{name}-c.parquet", level=5)
            message = replace(message, compact_before=(*low, *top), compact_after=(merged,))
        elif self.chance.random() < 0.3 and low and not top:
            message = replace(message, compact_before=(low[0],), compact_after=(low[0].upgraded(5),))
        if self.chance.random() < 0.3:
            message = replace(message, changelog_files=(data_file(f"changelog-{name}.parquet"),))
        if self.chance.random() < 0.2:
            entry = IndexManifestEntry(FileKind.ADD, EMPTY_ROW, 1, "HASH", f"index-{name}", 5, 1)
            message = replace(message, new_index_files=(entry,))
        writer = _Writer(name, message, self.table.pause.clock.now, 0 if newest is None else newest.id)
        self.table.put_files([message])
        self.waiting.append(writer)

    def _commit(self) -> None:
        if not self.waiting:
            return
        writer = self.waiting.pop(self.chance.randrange(len(self.waiting)))
        outcome = self.table.committer().commit(
            [writer.message],
            user=writer.name,
            identifier=1,
            planned_ms=writer.planned_ms if self.proves else None,
        )
        if isinstance(outcome, Committed):
            self.committed.append(writer.name)
        elif isinstance(outcome, Conflict) and outcome.rule == FILES_GONE:
            self.gone += 1
            self._begin()
        else:
            assert isinstance(outcome, Conflict), outcome

    def _die(self) -> None:
        if self.waiting:
            self.waiting.pop()

    def _remove_orphans(self) -> None:
        handle = TableHandle(self.storage, self.table.path, self.table.schema)
        young = self.floor_ms < REMOVABLE_MS
        found = remove_orphan_files(handle, dry_run=False, older_than_ms=self.floor_ms, no_writers=young)
        self.removed += len(found.files)

    def _expire(self) -> None:
        retention = Retention(min_count=1, max_count=self.chance.choice((2, 5)), time_ms=HOUR_MS, limit=50)
        expire_snapshots(self.storage, self.table.path, self.table.schema, self.table.pause.clock, retention=retention)

    def _tag(self) -> None:
        ids = self.table.snapshots.ids()
        found = self.table.snapshots.get(self.chance.choice(ids)) if ids else None
        if found is not None:
            Tags(self.storage, self.table.path).create(Tag(f"t{next(self.numbers)}", found))

    def _untag(self) -> None:
        names = Tags(self.storage, self.table.path).names()
        if names:
            delete_tag(self.storage, self.table.path, self.table.schema, self.chance.choice(names))

    def _branch(self) -> None:
        branches = Branches(self.storage, self.table.path)
        tags = Tags(self.storage, self.table.path).list()
        if branches.names() and self.chance.random() < 0.5:
            branches.delete(self.chance.choice(branches.names()))
        elif tags:
            branches.create(f"b{next(self.numbers)}", self.chance.choice(tags))


def _play(seed: int, steps: int = 90, **world: object) -> _World:
    found = _World(random.Random(seed), **world)  # type: ignore[arg-type]
    for _ in range(steps):
        found.step()
    return found


def test_what_a_snapshot_names_exists_when_it_is_published_and_as_long_as_it_is_named() -> None:
    worlds = [_play(seed) for seed in range(8)]
    assert sum(len(w.committed) for w in worlds) > 60
    assert sum(w.gone for w in worlds) > 5 and sum(w.removed for w in worlds) > 40
    for world in worlds:
        # Nobody is about to commit any more, so that all that nothing names goes in the end.
        world.waiting.clear()
        world.storage.now_ms += 2 * REMOVABLE_MS
        world._remove_orphans()
        assert_whole(world.table)
        assert {p for p in stored_files(world.table) if "data-w" in p} == {
            world.table.data_path(name)
            for name in _named_data(world.table)
            if world.storage.exists(world.table.data_path(name))
        }


@pytest.mark.parametrize("rule", [{"floor_ms": 1}, {"proves": False}])
def test_the_play_breaks_a_table_without_either_of_the_rules(rule: dict[str, object]) -> None:
    """Neither is there for nothing: without the limit of a day, or without the proof, snapshots name what is gone."""
    with pytest.raises((AssertionError, CorruptFileError)):
        for seed in range(20):
            _play(seed, **rule)


def _named_data(table: CommitTable) -> set[str]:
    """Data files that some manifest of a kept state adds or deletes."""
    states = [*table.all_snapshots(), *(t.snapshot for t in Tags(table.storage, table.path).list())]
    states += [s for _, s in Branches(table.storage, table.path).states()]
    names: set[str] = set()
    for state in states:
        lists = [state.base_manifest_list, state.delta_manifest_list]
        for name in lists:
            for meta in table.manifests.read_list(name):
                names |= {e.file.file_name for e in table.manifests.read(meta)}
    return names


# ---- a commit that is stopped at any of its calls ----


def _stopped_commit(at: int, stop_ms: int, fault: Fault | None = None) -> tuple[CommitTable, FaultyIO, CommitResult]:
    """A commit whose process is stopped before its n-th storage call, while orphans are removed."""
    table = CommitTable(options={"commit.max-retries": "3"}).create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    storage.now_ms = table.pause.clock.now
    first = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-old.parquet"),))
    table.committer().commit(table.put_files([first]), user="other", identifier=1)

    def stop(name: str, path: str) -> None:
        if fault is not None and name == "publish" and not io.faults:
            io.faults[len(io.calls) + 1] = fault
        if len(io.calls) + 1 == at:
            table.pause.clock.now += stop_ms
            storage.now_ms += stop_ms
            remove_orphan_files(TableHandle(storage, table.path, table.schema), dry_run=False)

    io = FaultyIO(storage, before_call=stop)
    planned_ms = table.pause.clock.now
    message = CommitMessage(
        EMPTY_ROW,
        0,
        2,
        new_files=(data_file("data-new.parquet"),),
        new_index_files=(IndexManifestEntry(FileKind.ADD, EMPTY_ROW, 0, "HASH", "index-new", 5, 1),),
    )
    table.put_files([message])
    outcome = table.committer(io).commit([message], user="me", identifier=1, based_on=1, planned_ms=planned_ms)
    return table, io, outcome


@pytest.mark.parametrize("fault", [None, Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("stop_ms", [HOUR_MS, 13 * HOUR_MS, 25 * HOUR_MS, 60 * HOUR_MS])
def test_a_commit_that_is_stopped_at_any_call_publishes_no_file_that_is_gone(stop_ms: int, fault: Fault | None) -> None:
    refused = 0
    for at in count(1):
        table, io, outcome = _stopped_commit(at, stop_ms, fault)
        assert_whole(table)
        if isinstance(outcome, Conflict):
            assert outcome.rule == FILES_GONE and stop_ms > REMOVABLE_MS
            assert table.snapshots.ids() == [1]
            refused += 1
        elif isinstance(outcome, Unknown):
            assert fault is not None
            refused += stop_ms > REMOVABLE_MS
        else:
            assert isinstance(outcome, Committed) and "data-new.parquet" in table.live_names()
        if len(io.calls) < at:
            break
    published = next(n for n, (name, _) in enumerate(io.calls, 1) if name == "publish")
    # All calls before the publication, and the publication itself.
    assert (refused >= published > 10) if stop_ms > REMOVABLE_MS else refused == 0


@pytest.mark.parametrize("moment", [("size", "data-new.parquet"), ("delete", "snapshot-1")])
def test_a_snapshot_that_another_one_builds_on_is_not_taken_back(moment: tuple[str, str]) -> None:
    """The process is stopped between its last look at its files and the publication, and others go on at once."""
    table = CommitTable().create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-new.parquet"),))
    rival = CommitMessage(EMPTY_ROW, 1, 2, new_files=(data_file("data-rival.parquet"),))
    table.put_files([message, rival])

    def stop(name: str, path: str) -> None:
        if name == "publish":
            table.pause.clock.now += 30 * HOUR_MS
            storage.delete(table.data_path("data-new.parquet"))
        if (name, path.rpartition("/")[2]) == moment:
            io.before_call = None
            assert isinstance(table.committer().commit([rival], user="rival", identifier=1), Committed)

    io = FaultyIO(storage, before_call=stop)
    with pytest.raises(CorruptFileError, match=r"data-new\.parquet, which was removed.*roll the table back"):
        table.committer(io).commit([message], user="me", identifier=1)
    assert table.snapshots.ids() == [1, 2]


def test_a_snapshot_is_taken_back_though_another_was_built_on_it_and_taken_back_too() -> None:
    """Both writers look for the other's snapshot in the moment in which it is not there."""
    table = CommitTable().create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-new.parquet"),))
    rival = CommitMessage(EMPTY_ROW, 1, 2, new_files=(data_file("data-rival.parquet"),))
    table.put_files([message, rival])

    def stop(name: str, path: str) -> None:
        if name == "publish" and path.endswith("snapshot-1"):
            table.pause.clock.now += 30 * HOUR_MS
            storage.delete(table.data_path("data-new.parquet"))
        if (name, path) == ("delete", table.snapshots.path(1)):
            io.before_call = None
            assert isinstance(table.committer().commit([rival], user="rival", identifier=1), Committed)
            pausing.meanwhile = lambda: storage.delete(table.snapshots.path(2))

    pausing = _Pausing(table.pause)
    io = FaultyIO(storage, before_call=stop)
    committer = Committer(io, table.path, table.schema, clock=table.pause.clock, pause=pausing)
    outcome = committer.commit([message], user="me", identifier=1)
    assert isinstance(outcome, Conflict) and outcome.rule == FILES_GONE
    assert table.snapshots.ids() == []


@dataclass
class _Pausing:
    """Something else happens while a commit waits for its next try."""

    inner: CountedPause
    meanwhile: Callable[[], object] = lambda: None

    def wait_ms(self, duration_ms: int) -> None:
        self.inner.wait_ms(duration_ms)
        self.meanwhile()


def test_other_writers_go_on_after_a_snapshot_that_they_have_seen_is_taken_back() -> None:
    """The hint LATEST was lost, or names a snapshot that has expired."""
    table = CommitTable().create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    first = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-first.parquet"),))
    table.committer().commit(table.put_files([first]), user="first", identifier=1)
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-new.parquet"),))
    table.put_files([message])
    storage.delete(f"{table.path}/snapshot/LATEST")
    view = TableView(table.snapshots, table.manifests)

    def stop(name: str, path: str) -> None:
        if name == "publish":
            table.pause.clock.now += 30 * HOUR_MS
            storage.delete(table.data_path("data-new.parquet"))
        if (name, path) == ("delete", table.snapshots.path(2)):
            seen = view.refresh().snapshot
            assert seen is not None and seen.id == 2

    outcome = table.committer(FaultyIO(storage, before_call=stop)).commit([message], user="me", identifier=1)
    assert isinstance(outcome, Conflict) and outcome.rule == FILES_GONE
    found = view.refresh().snapshot
    assert found is not None and found.id == 1


@pytest.mark.parametrize("expiry_is_ours", [True, False])
def test_snapshots_do_not_expire_for_one_that_is_taken_back(expiry_is_ours: bool) -> None:
    """The one before it, and the files that it has deleted, are all that is left then.

    Another tool's expiry may not know that: the last snapshot stays, whatever it misses.
    """
    table = CommitTable().create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    for name in ("a", "b"):
        message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file(f"data-{name}.parquet"),))
        table.committer().commit(table.put_files([message]), user=name, identifier=1)
    live = [e.file for e in table.live()]
    merged = (data_file("data-c.parquet", level=5),)
    message = CommitMessage(EMPTY_ROW, 0, 2, compact_before=tuple(live), compact_after=merged)
    table.put_files([message])

    def stop(name: str, path: str) -> None:
        if name == "publish":
            table.pause.clock.now += 30 * HOUR_MS
            storage.delete(table.data_path("data-c.parquet"))
            io.before_call = expire

    def expire(name: str, path: str) -> None:
        if name == "size" and expiry_is_ours:
            retention = Retention(min_count=1, max_count=1, time_ms=0, limit=50)
            # The snapshot says when it was planned, so the clock of the expiry is as good as set back.
            clock = StillClock(table.latest().time_ms)
            expire_snapshots(storage, table.path, table.schema, clock, retention=retention)
        elif name == "size":
            for snapshot_id in (1, 2):
                table.snapshots.delete(snapshot_id)

    io = FaultyIO(storage, before_call=stop)
    committer = table.committer(io)
    if expiry_is_ours:
        outcome = committer.commit([message], user="me", identifier=1, kind=CommitKind.COMPACT)
        assert isinstance(outcome, Conflict) and outcome.rule == FILES_GONE
        assert table.snapshots.ids() == [2] and table.live_names() == ["data-a.parquet", "data-b.parquet"]
        assert_whole(table)
    else:
        with pytest.raises(CorruptFileError, match="before it have expired"):
            committer.commit([message], user="me", identifier=1, kind=CommitKind.COMPACT)
        assert table.snapshots.ids() == [3]


@pytest.mark.parametrize("with_view", [False, True])
@pytest.mark.parametrize("known", [0, 1])
def test_a_writer_that_is_stopped_until_its_base_has_expired_plans_again(with_view: bool, known: int) -> None:
    """At each read: snapshots go on, and the one that is being read expires with its files."""
    for at in count(1):
        table = CommitTable().create()
        storage = table.storage
        names = ["data-0.parquet"]

        def append(n: int, table: CommitTable = table) -> None:
            message = CommitMessage(EMPTY_ROW, n % 2, 2, new_files=(data_file(f"data-{n}.parquet"),))
            table.committer().commit(table.put_files([message]), user="rival", identifier=n)

        append(0)
        reads = count(1)

        def go_on(name: str, path: str, table: CommitTable = table, reads: "count[int]" = reads, at: int = at) -> None:
            if name == "read" and next(reads) == at:
                for n in (11, 12, 13):
                    append(n)
                retention = Retention(min_count=1, max_count=1, time_ms=0, limit=50)
                expire_snapshots(table.storage, table.path, table.schema, table.pause.clock, retention=retention)

        io = FaultyIO(storage)
        view = TableView(Snapshots(io, table.path), Manifests(io, table.path)) if with_view else None
        if view is not None and known:
            view.refresh()
            append(3)
            names.append("data-3.parquet")
        io.before_call = go_on
        ours = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-ours.parquet"),))
        outcome = table.committer(io).commit(
            table.put_files([ours]), user="me", view=view, append_check=AppendCheck.ALL_RULES
        )
        assert isinstance(outcome, Committed), at
        assert set(table.live_names()) >= {*names, "data-ours.parquet"}
        assert_whole(table)
        if next(reads) <= at:
            break
    assert at > 2


def test_a_commit_that_is_tried_for_hours_proves_its_files_each_time() -> None:
    """Others win again and again; each try takes five hours."""
    table = CommitTable(options={"commit.max-retries": "9"}).create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    storage.now_ms = table.pause.clock.now
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-new.parquet"),))
    table.put_files([message])
    lost = count(1)

    def lose(name: str, path: str) -> None:
        if name != "publish":
            return
        number = next(lost)
        other = CommitMessage(EMPTY_ROW, 1, 2, new_files=(data_file(f"data-rival-{number}.parquet"),))
        table.committer().commit(table.put_files([other]), user="rival", identifier=number)
        table.pause.clock.now += 5 * HOUR_MS
        storage.now_ms += 5 * HOUR_MS
        remove_orphan_files(TableHandle(storage, table.path, table.schema), dry_run=False)

    io = FaultyIO(storage, before_call=lose)
    outcome = table.committer(io).commit([message], user="me", identifier=1)
    assert isinstance(outcome, Conflict) and outcome.rule == FILES_GONE
    assert next(lost) == 6
    assert_whole(table)
    assert table.manifest_files() == table.named_manifest_files()


# ---- what it costs, and from when on ----


def _calls_of_commit(age_ms: int, storage_age_ms: int) -> list[str]:
    """What a commit asks the storage about its two data files and its index file when they have that age."""
    table = CommitTable().create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    storage.now_ms = table.pause.clock.now
    planned_ms = table.pause.clock.now
    message = CommitMessage(
        EMPTY_ROW,
        0,
        2,
        new_files=(data_file("data-a.parquet"),),
        changelog_files=(data_file("changelog-a.parquet"),),
        new_index_files=(IndexManifestEntry(FileKind.ADD, EMPTY_ROW, 0, "HASH", "index-a", 5, 1),),
    )
    table.put_files([message])
    table.pause.clock.now += age_ms
    storage.now_ms += storage_age_ms
    io = FaultyIO(storage)
    outcome = table.committer(io).commit([message], user="me", identifier=1, planned_ms=planned_ms)
    assert isinstance(outcome, Committed)
    return [name for name, path in io.calls if path.endswith(("-a.parquet", "index-a"))]


def test_a_young_batch_costs_nothing_and_an_old_one_a_call_a_file() -> None:
    assert _calls_of_commit(QUICK_MS - 1, QUICK_MS - 1) == []
    assert _calls_of_commit(QUICK_MS, QUICK_MS) == ["modified_ms"]
    assert _calls_of_commit(PROOF_MS - CLOCK_SKEW_MS - 1, PROOF_MS - CLOCK_SKEW_MS - 1) == ["modified_ms"]
    proven = ["modified_ms", "size", "size", "size"]
    assert _calls_of_commit(PROOF_MS - CLOCK_SKEW_MS, 0) == [*proven, *proven]
    # The machine's clock was set back meanwhile, or hardly moved: what counts for removal is the storage's.
    assert _calls_of_commit(-1, PROOF_MS) == [*proven, *proven]
    assert _calls_of_commit(60_000, PROOF_MS) == [*proven, *proven]


def test_a_file_that_is_no_longer_whole_is_as_good_as_gone() -> None:
    table = CommitTable().create()
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-a.parquet"),))
    table.put_files([message])
    planned_ms = table.pause.clock.now
    table.storage.overwrite(table.data_path("data-a.parquet"), b"torn")
    table.pause.clock.now += 20 * HOUR_MS
    outcome = table.committer().commit([message], user="me", identifier=1, planned_ms=planned_ms)
    assert isinstance(outcome, Conflict) and outcome.rule == FILES_GONE
    assert outcome.fields["path"] == table.data_path("data-a.parquet")


# ---- real files ----

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def _rows(v: int) -> pa.Table:
    return pa.table({"id": range(20), "v": [v] * 20}, schema=COLUMNS)


def _values(table: Table) -> set[int]:
    return set(table.to_arrow()["v"].to_pylist())


WORK: dict[str, Callable[[Table, StoppingClock], object]] = {
    "write": lambda table, clock: write_table(table, _rows(7), clock=clock),
    "overwrite": lambda table, clock: overwrite_table(table, _rows(7), clock=clock),
    "compact": lambda table, clock: compact_table(table, clock=clock),
    "rescale": lambda table, clock: rescale_table(table, 3, clock=clock),
}


@pytest.mark.parametrize("work", WORK)
def test_work_whose_files_are_removed_while_it_is_stopped_is_done_again(
    work: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repeated = 0
    for at in count(1):
        table = create_table(str(tmp_path / str(at) / "t"), COLUMNS, ("id",), options={"bucket": "2"})
        table.write(_rows(1))
        table.write(_rows(2))
        clock = StoppingClock(at, 25 * HOUR_MS, age_and_clean(table.path, 25 * HOUR_MS))
        caplog.clear()
        WORK[work](table, clock)
        repeated += any("is repeated" in r.getMessage() for r in caplog.records)
        assert _values(table) == ({7} if work.endswith("write") else {2}) and table.to_arrow().num_rows == 20
        assert table.doctor(rows=True) == []
        if clock.looks < at:
            break
    assert repeated >= 3


@pytest.mark.parametrize("work", ["write", "overwrite", "compact", "rescale"])
def test_on_a_file_system_the_storages_clock_alone_is_enough(work: str, tmp_path: Path) -> None:
    """The storage's clock jumps by two days and the machine's does not: files are old to a removal alone."""
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    table.write(_rows(1))
    table.write(_rows(2))
    ids = HookedIds(Path(table.path), age_and_clean(table.path, 48 * HOUR_MS))
    if work == "write":
        write_table(table, _rows(7), ids=ids)
    elif work == "overwrite":
        overwrite_table(table, _rows(7), ids=ids)
    elif work == "compact":
        compact_table(table, ids=ids)
    else:
        rescale_table(table, 3, ids=ids)
    assert ids.is_done
    assert _values(table) == ({7} if work.endswith("write") else {2}) and table.doctor(rows=True) == []


def test_rows_that_can_be_read_only_once_are_asked_for_again(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    table.write(_rows(1))
    is_told = False
    for at in count(1):
        clock = StoppingClock(at, 25 * HOUR_MS, age_and_clean(table.path, 25 * HOUR_MS))
        try:
            write_table(table, _rows(at).to_reader(), clock=clock)
        except FilesGoneError as e:
            assert e.code == "FILES_GONE" and "write the rows again" in e.message
            is_told = True
        else:
            assert _values(table) == {at}
        assert table.doctor(rows=True) == []
        if clock.looks < at:
            break
    assert is_told


def test_files_of_a_rollback_and_of_a_branch_go_only_when_they_are_old(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options={"bucket": "2", "write-only": "true"})
    for v in range(3):
        table.write(_rows(v))
    table.rollback_to(1)
    assert table.remove_orphan_files(dry_run=False).files == ()
    assert table.remove_orphan_files(older_than=timedelta(0)).files != ()
    let_storage_age(Path(table.path), 25 * HOUR_MS)
    assert table.remove_orphan_files(dry_run=False).files != ()
    assert _values(table) == {0} and table.doctor(rows=True) == []
