"""Each call to storage goes wrong once, in every way it can: no row is lost, doubled, or left without its file."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

import pytest

from bucketline.state.commit.outcome import CommitResult, Committed, Unknown
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.storage.file_io import FileIO
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.tables.commit_table import CommitTable, Follower, message
from tests.support.tables.commits import data_file

ME, BATCH = "me", 2
A = data_file("a")


@dataclass
class Rival:
    """Another writer that acts before the publications with these numbers, once each."""

    table: CommitTable
    acts: dict[int, Callable[[CommitTable], None]]
    seen: int = field(default=0)

    def __call__(self, name: str, path: str) -> None:
        if name == "publish":
            self.seen += 1
            act = self.acts.pop(self.seen, None)
            if act is not None:
                act(self.table)


def rival_appends(table: CommitTable) -> None:
    outcome = table.committer().commit(table.put_files([message(data_file("rival"))]), user="rival")
    assert isinstance(outcome, Committed)


def rival_compacts(table: CommitTable) -> None:
    messages = table.put_files([message(before=[A], after=[data_file("rival-top", level=5)])])
    assert isinstance(table.committer().commit(messages, user="rival", kind=CommitKind.COMPACT), Committed)


SCENES: dict[str, dict[int, Callable[[CommitTable], None]]] = {
    "alone": {},
    "another writer appends twice": {1: rival_appends, 3: rival_compacts},
    "another writer compacts the bucket": {2: rival_compacts},
}


def write_batch(table: CommitTable, new: str, io: FileIO, *, with_view: bool) -> CommitResult:
    """Commits one new file and its compaction with what was there, as a batch of a stream does."""
    b = data_file(new)
    messages = table.put_files([message(b, before=[A, b], after=[data_file(f"top-{new}", level=5, rows=20)])])
    based_on = table.latest().id
    view = Follower(Snapshots(io, table.path), Manifests(io, table.path)) if with_view else None
    return table.committer(io).commit(messages, user=ME, identifier=BATCH, based_on=based_on, view=view)


def rows_of_batch(table: CommitTable) -> int:
    others = {"a": 10, "rival": 10, "rival-top": 10}
    return sum(e.file.row_count - others.get(e.file.file_name, 0) for e in table.live())


def run_with_fault(scene: str, *, strike: int, fault: Fault, with_view: bool) -> bool:
    """One table, one struck call, the next start, and what must hold; False when the batch made fewer calls."""
    table = CommitTable().create()
    table.committer().commit(table.put_files([message(A)]), user=ME, identifier=1)
    rival = Rival(table, dict(SCENES[scene]))
    io = FaultyIO(table.storage, {strike: fault}, before_call=rival)
    outcome: CommitResult | StorageError
    try:
        outcome = write_batch(table, "b", io, with_view=with_view)
    except StorageError as e:
        outcome = e
    calls = len(io.calls)
    io.reconnect()
    table.check()
    if fault in (Fault.BEFORE, Fault.AFTER, Fault.TORN) and not _is_delete(io, strike):
        assert table.manifest_files() == table.named_manifest_files()
    ours = _snapshots_of(table, BATCH)
    if isinstance(outcome, Committed):
        assert ours and not outcome.replayed
        # What was told is there, and what is there was told, if only as a compaction that may have arrived.
        assert ours[: len(outcome.snapshots)] == list(outcome.snapshots)
        unclear = outcome.dropped.uuid if isinstance(outcome.dropped, Unknown) else None
        assert all(s.uuid == unclear for s in ours[len(outcome.snapshots) :])
        if isinstance(outcome.dropped, Unknown | StorageError):
            assert table.storage.exists(table.data_path("top-b"))
    elif not isinstance(outcome, Unknown):
        assert not ours, outcome
    if not ours:
        again = write_batch(table, "b-again", table.storage, with_view=with_view)
        assert isinstance(again, Committed)
    table.check()
    names = set(table.live_names())
    compacted_by_us = names & {"top-b", "top-b-again"}
    rows = sum(e.file.row_count for e in table.live())
    assert rows == 20 + (10 if "rival" in names else 0)
    assert len(compacted_by_us | (names & {"b", "b-again"})) == 1
    return calls >= strike


def _snapshots_of(table: CommitTable, batch: int) -> list[Snapshot]:
    return [s for s in table.all_snapshots() if (s.commit_user, s.commit_identifier) == (ME, batch)]


def _is_delete(io: FaultyIO, number: int) -> bool:
    return number <= len(io.calls) and io.calls[number - 1][0] == "delete"


@pytest.mark.parametrize("with_view", [False, True])
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("fault", Fault)
def test_no_fault_loses_or_doubles_a_row(fault: Fault, scene: str, with_view: bool) -> None:
    struck = 0
    for strike in count(1):
        if not run_with_fault(scene, strike=strike, fault=fault, with_view=with_view):
            break
        struck = strike
    assert struck > 15


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_survives_any_faults_and_rivals(seed: int) -> None:
    """Batches come in order, each is committed until the table shows it, as a driver that is restarted does."""
    chance = Random(seed)
    table = CommitTable(options={"manifest.merge-min-count": "4", "commit.max-retries": "3"}).create()
    io = FaultyIO(table.storage)
    rivals = count()

    def between(name: str, path: str) -> None:
        if name == "publish" and chance.random() < 0.2:
            rival = f"rival-{next(rivals)}"
            table.committer().commit(table.put_files([message(data_file(rival))]), user="rival")
        if chance.random() < 0.08:
            io.faults[len(io.calls) + 1] = chance.choice(list(Fault))

    io.before_call = between
    tries = count()
    for batch in range(8):
        while not _snapshots_of(table, batch):
            new = data_file(f"{batch}-{next(tries)}")
            zeroes = [e.file for e in table.live() if e.file.level == 0]
            top = data_file(f"top-{new.file_name}", level=5, rows=10 * len(zeroes) + 10)
            [promised] = table.put_files([message(new, before=[*zeroes, new], after=[top])])
            if any(e.file.level for e in table.live()):
                promised = replace(promised, compact_before=(), compact_after=())
            based_on = table.snapshots.latest_id() or 0
            with suppress(StorageError):
                table.committer(io).commit([promised], user=ME, identifier=batch, based_on=based_on)
            io.reconnect()
            table.check()
    table.check()
    snapshots = table.all_snapshots()
    appended = [s for s in snapshots if s.commit_user == ME and s.commit_kind is CommitKind.APPEND]
    assert [s.commit_identifier for s in appended] == list(range(8))
    assert table.latest().total_record_count == 10 * (8 + sum(s.commit_user == "rival" for s in snapshots))
