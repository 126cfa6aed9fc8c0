"""A commit that was planned just now takes the table to be as it was then, and looks again only if it loses."""

from bucketline.state.commit.file_age import FRESH_MS
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from tests.support.storage.faulty_io import FaultyIO
from tests.support.tables.aged_table import assert_whole
from tests.support.tables.commit_table import CommitTable, Follower
from tests.support.tables.commits import data_file


def _commit(table: CommitTable, io: FaultyIO, view: Follower, name: str, age_ms: int) -> Committed:
    planned_ms = table.pause.clock.now
    view.refresh()
    io.calls.clear()
    table.pause.clock.now += age_ms
    message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file(f"data-{name}.parquet"),))
    outcome = table.committer(io).commit(table.put_files([message]), user="me", view=view, planned_ms=planned_ms)
    assert isinstance(outcome, Committed)
    return outcome


def test_a_fresh_commit_reads_no_hint_and_lists_no_schemas_and_an_older_one_does() -> None:
    table = CommitTable().create()
    io = FaultyIO(table.storage)
    view = Follower(Snapshots(io, table.path), Manifests(io, table.path))
    _commit(table, io, view, "a", 0)
    looks = {}
    for name, age_ms in (("b", FRESH_MS - 1), ("c", FRESH_MS)):
        _commit(table, io, view, name, age_ms)
        looks[name] = [path.rpartition("/")[2] for call, path in io.calls if call in ("read_optional", "list_names")]
    assert looks["b"] == ["snapshot-1"]
    assert looks["c"] == ["LATEST", "snapshot-2", "schema", "snapshot-2"]
    assert_whole(table)


def test_a_fresh_commit_that_loses_is_planned_again_on_the_newest_snapshot() -> None:
    table = CommitTable().create()
    io = FaultyIO(table.storage)
    view = Follower(Snapshots(io, table.path), Manifests(io, table.path))
    _commit(table, io, view, "a", 0)

    def rival(name: str, path: str) -> None:
        if name == "publish":
            io.before_call = None
            message = CommitMessage(EMPTY_ROW, 1, 2, new_files=(data_file("data-rival.parquet"),))
            table.committer().commit(table.put_files([message]), user="rival")

    io.before_call = rival
    assert _commit(table, io, view, "b", 0).snapshot_ids == (3,)
    assert table.live_names() == ["data-a.parquet", "data-b.parquet", "data-rival.parquet"]
    assert view.live.snapshot == table.latest() and view.refresh().snapshot == table.latest()
    assert sorted(e.file.file_name for e in view.live.live_entries()) == table.live_names()
    assert_whole(table)
