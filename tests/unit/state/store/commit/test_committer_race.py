"""Writers in processes of their own commit to one local table at once."""

from pathlib import Path

from bucketline.state.store.storage.local_io import LocalIO
from tests.support.processes.commit_worker import write_batches
from tests.support.processes.forked import forking
from tests.support.tables.commit_table import CommitTable

BATCHES = 25


def test_two_racing_processes_land_every_commit_exactly_once(tmp_path: Path) -> None:
    table = CommitTable(str(tmp_path), storage=LocalIO()).create()
    context = forking()
    start = context.Barrier(2)
    users = ["one", "two-view"]
    writers = [context.Process(target=write_batches, args=(table.path, user, BATCHES, start)) for user in users]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [w.exitcode for w in writers] == [0, 0]
    snapshots = table.all_snapshots()
    for user in users:
        assert [s.commit_identifier for s in snapshots if s.commit_user == user] == list(range(BATCHES))
    assert len(snapshots) == 2 * BATCHES
    assert table.live_names() == sorted(f"{user}-{batch}" for user in users for batch in range(BATCHES))
    assert table.manifest_files() == table.named_manifest_files()
    assert LocalIO().list_names(f"{table.path}/snapshot") == sorted(
        ["EARLIEST", "LATEST", *(f"snapshot-{s.id}" for s in snapshots)]
    )
    table.check()
