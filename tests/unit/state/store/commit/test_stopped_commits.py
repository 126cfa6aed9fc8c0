"""A commit whose process is stopped at any of its calls, while others remove, expire and commit: no snapshot that stays
names a file that is gone; and what it costs to know."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import pytest

from bucketline.state.commit.change import AppendCheck
from bucketline.state.commit.conflict import FILES_GONE, HISTORY_GONE, Conflict
from bucketline.state.commit.expire import Retention
from bucketline.state.commit.file_age import CLOCK_SKEW_MS, PROOF_MS, QUICK_MS, REMOVABLE_MS
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import CommitResult, Committed, Unknown
from bucketline.state.determinism import World
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import CommitKind, FileKind, IndexManifestEntry
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.maintenance.expiry import expire_snapshots
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.storage.memory_io import MemoryIO
from tests.support.storage.stopped import HOUR_MS
from tests.support.tables.aged_table import assert_whole
from tests.support.tables.commit_table import Commits, CommitTable, CountedPause, Follower, StillClock
from tests.support.tables.commits import data_file


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
    committer = Commits(TableHandle(io, table.path, table.schema, world=World(clock=table.pause.clock, pause=pausing)))
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
    view = Follower(table.snapshots, table.manifests)

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


@pytest.mark.parametrize("moment", ["after the publication", "before the removal"])
def test_a_commit_on_a_snapshot_that_was_replaced_is_told_if_another_builds_on_it(moment: str) -> None:
    """The process is stopped before its publication, while its base is taken back and written anew. It is stopped again
    after its publication, or right before it removes its snapshot, while another process commits. The rows of the new
    base would be lost without a word, or a snapshot would be missing."""
    table = CommitTable().create()
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    _append(table, 1)
    _append(table, 2)
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-new.parquet"),))
    table.put_files([message])

    def stop(name: str, path: str) -> None:
        if (name, path) == ("publish", table.snapshots.path(3)):
            based_on = table.snapshots.get(2)
            assert based_on is not None and table.snapshots.withdraw(based_on)
            _append(table, 3)
        elif moment == "after the publication":
            if storage.exists(table.snapshots.path(3)):
                io.before_call = None
                _append(table, 4)
        elif (name, path) == ("delete", table.snapshots.path(3)):
            io.before_call = None
            _append(table, 4)

    io = FaultyIO(storage, before_call=stop)
    with pytest.raises(CorruptFileError, match=r"taken back or rolled back.* roll the table back to snapshot 2 and"):
        table.committer(io).commit([message], user="me", identifier=1)
    assert table.snapshots.ids() == [1, 2, 3, 4]


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
            expire_snapshots(storage, table.path, table.schema, World(clock), retention=retention)
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
                expire_snapshots(table.storage, table.path, table.schema, table.world, retention=retention)

        io = FaultyIO(storage)
        view = Follower(Snapshots(io, table.path), Manifests(io, table.path)) if with_view else None
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


def _with_files(table: CommitTable) -> tuple[MemoryIO, CommitMessage]:
    """Returns the storage of a table with one snapshot, whose clock is that of the table, and a message whose file is
    there and waits for its commit."""
    storage = table.storage
    assert isinstance(storage, MemoryIO)
    storage.now_ms = table.pause.clock.now
    _append(table, 0)
    ours = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-ours.parquet"),))
    table.put_files([ours])
    return storage, ours


@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.parametrize("stop_ms", [0, 30 * HOUR_MS])
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("merges", [False, True])
def test_a_writer_that_is_stopped_from_its_publication_on_until_snapshots_have_expired_harms_nothing(
    is_compacted: bool, merges: bool, stop_ms: int, kept: int
) -> None:
    """At each call: others go on, compact the bucket, and let snapshots expire."""
    for at in count(1):
        table = CommitTable(options={"manifest.merge-min-count": "2" if merges else "30"}).create()
        storage, ours = _with_files(table)
        calls: list[str] = []

        def go_on(
            name: str,
            path: str,
            table: CommitTable = table,
            storage: MemoryIO = storage,
            at: int = at,
            calls: list[str] = calls,
        ) -> None:
            if name != "publish" and not calls:
                return
            calls.append(name)
            if len(calls) != at:
                return
            if is_compacted:
                _compact(table)
            for n in (11, 12, 13):
                _append(table, n)
            table.pause.clock.now += stop_ms
            storage.now_ms += stop_ms
            retention = Retention(min_count=kept, max_count=kept, time_ms=0, limit=50)
            expire_snapshots(storage, table.path, table.schema, table.world, retention=retention)

        outcome = table.committer(FaultyIO(storage, before_call=go_on)).commit([ours], user="me", identifier=1)
        assert_whole(table)
        ids = table.snapshots.ids()
        assert ids == list(range(ids[0], ids[-1] + 1)) and table.snapshots.latest() == table.latest()
        is_there = "data-ours.parquet" in table.live_names()
        if isinstance(outcome, Unknown):
            assert is_compacted
        elif isinstance(outcome, Conflict):
            assert not is_there and outcome.rule == HISTORY_GONE
        elif not is_compacted or len(calls) < at:
            assert is_there
        if len(calls) < at:
            break
    assert at > 3


@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.LATE])
def test_a_commit_without_an_answer_that_is_stopped_until_its_snapshot_has_expired_keeps_its_files(
    fault: Fault,
) -> None:
    """Seed 50058 of the simulation: the snapshot was published, and others built on it. Then the process published it
    once more, found no trace of it, called the commit lost, and removed data files of the table."""
    table = CommitTable().create()
    storage, ours = _with_files(table)
    publications = count(1)

    def stop(name: str, path: str) -> None:
        number = next(publications) if name == "publish" else 0
        if number == 1:
            io.faults[len(io.calls) + 1] = fault
        elif number == 2:
            for n in (11, 12, 13):
                _append(table, n)
            table.pause.clock.now += 30 * HOUR_MS
            storage.now_ms += 30 * HOUR_MS
            retention = Retention(min_count=1, max_count=1, time_ms=0, limit=50)
            expire_snapshots(storage, table.path, table.schema, table.world, retention=retention)

    io = FaultyIO(storage, before_call=stop)
    outcome = table.committer(io).commit([ours], user="me", identifier=1)
    assert isinstance(outcome, Unknown)
    assert table.snapshots.ids() == [5]
    assert "data-ours.parquet" in table.live_names()
    assert storage.exists(table.data_path("data-ours.parquet"))
    assert_whole(table)


def test_a_writer_that_is_stopped_before_it_writes_the_hint_names_no_snapshot_that_was_rolled_back() -> None:
    """Seed 95527 of the simulation: LATEST named the snapshot for ever, so the table was neither read nor written."""
    table = CommitTable().create()
    _append(table, 0)
    ours = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file("data-ours.parquet"),))
    table.put_files([ours])

    def stop(name: str, path: str) -> None:
        if name == "overwrite" and path.endswith("/LATEST"):
            table.pause.clock.now += 5_000
            rollback_to(table.storage, table.path, 1, world=table.world)

    outcome = table.committer(FaultyIO(table.storage, before_call=stop)).commit([ours], user="me", identifier=1)
    assert isinstance(outcome, Committed)
    assert table.snapshots.ids() == [1]
    latest = table.snapshots.latest()
    assert latest is not None and latest.id == 1


def _append(table: CommitTable, n: int) -> None:
    message = CommitMessage(EMPTY_ROW, n % 2, 2, new_files=(data_file(f"data-{n}.parquet"),))
    outcome = table.committer().commit(table.put_files([message]), user="rival", identifier=n)
    assert isinstance(outcome, Committed)


def _compact(table: CommitTable) -> None:
    """Replaces all files of bucket 0 by one."""
    merged = data_file("data-merged.parquet", level=5)
    files = tuple(e.file for e in table.live() if e.bucket == 0)
    message = CommitMessage(EMPTY_ROW, 0, 2, compact_before=files, compact_after=(merged,))
    outcome = table.committer().commit(table.put_files([message]), user="rival", identifier=10, kind=CommitKind.COMPACT)
    assert isinstance(outcome, Committed) and outcome.snapshots


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
