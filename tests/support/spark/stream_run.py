"""A run of a query, step by step: it keeps the target that one step leaves for the next."""

from collections.abc import Mapping

from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.streaming.bad_records.stored import place_of
from bucketline.streaming.batch import history
from bucketline.streaming.batch.commit import CommitReport, commit_batch
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.recover import CheckpointMismatchError, UserHistory
from bucketline.streaming.batch.target import Target
from bucketline.streaming.batch.write_batch import set_aside


class StreamRun:
    """What a process of the query holds; a new one is a restart."""

    def __init__(self, path: str, options: Mapping[str, str], user: str) -> None:
        self.target = Target(table_at(open_handle(path), options), user)

    @property
    def at(self) -> TableAt:
        return self.target.at

    @property
    def user(self) -> str:
        return self.target.user

    def refresh(self) -> None:
        """Goes to the newest schema and snapshot of the table."""
        self.target = self.target.refreshed()

    def history(self) -> UserHistory:
        self.target, found = history.read_history(self.target)
        return found

    def commit_batch(self, identity: BatchIdentity, outcome: Outcome) -> CommitReport:
        place = place_of(self.at.plan.sink, self.at.table.storage)
        rejected = set_aside(self.target, identity, outcome, place)
        self.target, report = commit_batch(self.target, identity, outcome, rejected_rows=rejected)
        return report

    def empty_batch(self, identity: BatchIdentity) -> CommitReport:
        """A batch that brings no rows, from its start to its commit."""
        self.refresh()
        self.history()
        return self.commit_batch(identity, Outcome((), (), ()))

    def check_rolled_back(self, mismatch: CheckpointMismatchError) -> None:
        history.check_rolled_back(self.at, mismatch)

    def mark(self, snapshot: Snapshot) -> None:
        history.mark(self.target, snapshot)
