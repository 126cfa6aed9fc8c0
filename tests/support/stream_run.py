"""A run of a query, step by step: it keeps the target that one step leaves for the next."""

from collections.abc import Mapping

from bucketline.state.format.entries import Snapshot
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.write.write_session import WriteSession
from bucketline.streaming.batch import history
from bucketline.streaming.batch.commit import CommitReport, commit_batch
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.recover import CheckpointMismatchError, UserHistory
from bucketline.streaming.batch.target import Target


class StreamRun:
    """What a process of the query holds; a new one is a restart."""

    def __init__(self, path: str, options: Mapping[str, str], user: str) -> None:
        self.target = Target(WriteSession(path, options), user)

    @property
    def session(self) -> WriteSession:
        return self.target.session

    @property
    def user(self) -> str:
        return self.target.user

    def history(self) -> UserHistory:
        self.target, found = history.read_history(self.target)
        return found

    def commit_batch(self, identity: BatchIdentity, outcome: Outcome) -> CommitReport:
        self.target, report = commit_batch(self.target, identity, outcome)
        return report

    def empty_batch(self, identity: BatchIdentity) -> CommitReport:
        """A batch that brings no rows, from its start to its commit."""
        self.session.refresh()
        self.history()
        return self.commit_batch(identity, Outcome((), (), ()))

    def check_rolled_back(self, mismatch: CheckpointMismatchError) -> None:
        history.check_rolled_back(self.session, mismatch)

    def mark(self, snapshot: Snapshot) -> None:
        history.mark(self.target, snapshot)
