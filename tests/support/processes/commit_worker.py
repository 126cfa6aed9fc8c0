"""A writer in a process of its own, for tests in which writers race; importable, so that `forking` can start it."""

from bucketline.state.commit.outcome import Committed
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.storage.local_io import LocalIO
from tests.support.tables.commit_table import Commits, CommitTable, Follower, message
from tests.support.tables.commits import data_file


def write_batches(path: str, user: str, count: int, start: object) -> None:
    """Commits `count` batches of one file each as `user`, each exactly once; `start` is a barrier for all writers."""
    io = LocalIO()
    table = CommitTable(path, storage=io, options={"commit.max-retries": "200", "manifest.merge-min-count": "5"})
    start.wait()  # type: ignore[attr-defined]  # multiprocessing's barriers have no public type
    view = Follower(table.snapshots, table.manifests) if user.endswith("-view") else None
    committer = Commits(TableHandle(io, path, table.schema))
    for batch in range(count):
        messages = table.put_files([message(data_file(f"{user}-{batch}"))])
        based_on = table.snapshots.latest_id() or 0
        outcome = committer.commit(messages, user=user, identifier=batch, based_on=based_on, view=view)
        assert isinstance(outcome, Committed) and not outcome.replayed, outcome
