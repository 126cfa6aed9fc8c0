"""Commits that wait for their next try: how long, and what they find when the table has expired or was rolled back."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.outcome import Committed
from bucketline.state.determinism import World
from bucketline.state.format.entries import CommitKind
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.commit.commit_retry import Retries, RetrySettings
from tests.support.storage.faulty_io import FaultyIO
from tests.support.tables.commit_table import CommitTable, CountedPause, StillClock, message
from tests.support.tables.commits import data_file
from tests.support.tables.committing import ME, append, interrupted


@pytest.fixture
def table() -> CommitTable:
    return CommitTable().create()


@dataclass
class FixedChance:
    value: float

    def fraction(self) -> float:
        return self.value


def test_waits_double_up_to_their_limit_and_stop_at_the_last_retry() -> None:
    pause = CountedPause()
    retries = Retries(RetrySettings(4, 2**63 - 1, 10, 50), World(pause.clock, random=FixedChance(0.5), pause=pause))
    assert [retries.wait() for _ in range(5)] == [True, True, True, True, False]
    assert pause.waits == [11, 22, 44, 55]


def test_waits_stop_at_the_timeout() -> None:
    pause = CountedPause(StillClock())
    retries = Retries(RetrySettings(100, 35, 10, 1000), World(pause.clock, random=FixedChance(0.0), pause=pause))
    assert [retries.wait() for _ in range(4)] == [True, True, True, False]
    assert pause.waits == [10, 20, 40]


def sleep_until_expired(table: CommitTable) -> Callable[[], object]:
    """What happens while a writer sleeps: five commits of another, then all but the newest two snapshots expire."""

    def act() -> None:
        for n in range(5):
            append(table, f"other{n}", user="other", identifier=n)
        for snapshot in table.all_snapshots()[:-2]:
            table.snapshots.delete(snapshot.id)

    return act


def test_a_writer_that_slept_until_its_id_had_expired_does_not_turn_the_table_back(table: CommitTable) -> None:
    append(table, "a")
    sleepy = interrupted(table, sleep_until_expired(table))
    outcome = sleepy.committer().commit(table.put_files([message(data_file("ours"))]), user=ME)
    assert isinstance(outcome, Committed)
    assert outcome.snapshot_ids == (7,)
    assert table.snapshots.ids() == [5, 6, 7]
    assert table.snapshots.latest_id() == 7
    assert table.live_names() == ["a", "other0", "other1", "other2", "other3", "other4", "ours"]


def test_a_stream_that_slept_until_its_id_had_expired_cannot_tell_whether_it_was_replaced(table: CommitTable) -> None:
    append(table, "a")
    sleepy = interrupted(table, sleep_until_expired(table))
    outcome = sleepy.committer().commit(table.put_files([message(data_file("ours"))]), user=ME, identifier=2)
    assert isinstance(outcome, Conflict) and outcome.rule == "history-gone"
    assert table.snapshots.ids() == [5, 6]
    assert table.snapshots.latest_id() == 6


def test_a_snapshot_whose_predecessor_expires_at_once_is_won(table: CommitTable) -> None:
    append(table, "a")

    def publish_then_expire(name: str, path: str) -> None:
        if (name, path) == ("read_optional", table.snapshots.path(1)) and table.snapshots.exists(2):
            append(table, "next", user="other")
            table.snapshots.delete(1)

    io = FaultyIO(table.storage, before_call=publish_then_expire)
    outcome = table.committer(io).commit(table.put_files([message(data_file("ours"))]), user=ME, identifier=2)
    assert isinstance(outcome, Committed)
    assert outcome.snapshot_ids == (2,)
    assert table.snapshots.ids() == [2, 3]
    assert table.live_names() == ["a", "next", "ours"]


def test_a_commit_does_not_undo_a_rollback_that_was_made_while_it_ran(table: CommitTable) -> None:
    """Its snapshot would follow the one that took the place of its base, and build on what was taken back."""
    append(table, "a")
    append(table, "taken-back")

    def roll_back(name: str, path: str) -> None:
        if name == "publish":
            io.before_call = None
            rollback_to(table.storage, table.path, 1)
            append(table, "instead", user="other")

    io = FaultyIO(table.storage, before_call=roll_back)
    outcome = table.committer(io).commit(table.put_files([message(data_file("ours"))]), user=ME, identifier=2)
    assert isinstance(outcome, Committed)
    assert table.live_names() == ["a", "instead", "ours"]
    table.check()


def test_a_commit_that_built_on_a_snapshot_that_was_taken_back_plans_again(table: CommitTable) -> None:
    append(table, "a")
    append(table, "taken-back")

    def take_back(name: str, path: str) -> None:
        if name == "publish":
            io.before_call = None
            table.snapshots.delete(2)

    io = FaultyIO(table.storage, before_call=take_back)
    table.snapshots.write_latest_hint(1)
    outcome = table.committer(io).commit(table.put_files([message(data_file("ours"))]), user=ME, identifier=2)
    assert isinstance(outcome, Committed)
    assert table.live_names() == ["a", "ours"]
    table.check()


def test_a_run_of_the_same_job_is_recognised_behind_a_rollback_that_was_made_while_the_commit_ran(
    table: CommitTable,
) -> None:
    """The snapshot with our commit has an id that was looked at before, when it was another snapshot's."""
    append(table, "a")
    append(table, "taken-back")

    def roll_back(name: str, path: str) -> None:
        if name == "publish":
            io.before_call = None
            rollback_to(table.storage, table.path, 1)
            append(table, "ours", user=ME, identifier=2)

    io = FaultyIO(table.storage, before_call=roll_back)
    late = table.put_files([message(data_file("ours-late"))])
    outcome = table.committer(io).commit(late, user=ME, identifier=2, based_on=1)
    assert isinstance(outcome, Committed) and outcome.replayed
    assert table.live_names() == ["a", "ours"]
    table.check()


def test_work_planned_before_a_rollback_is_refused(table: CommitTable) -> None:
    for n in range(3):
        append(table, f"f{n}", identifier=n)
    rollback_to(table.storage, table.path, 2)
    outcome = table.committer().commit([], user=ME, kind=CommitKind.OVERWRITE, overwrite=lambda p: True, based_on=3)
    assert isinstance(outcome, Conflict) and outcome.rule == "history-gone"
    outcome = table.committer().commit([message(data_file("new"))], user=ME, identifier=4, based_on=3)
    assert isinstance(outcome, Conflict) and outcome.rule == "history-gone"
