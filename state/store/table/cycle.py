"""The steps of every write of a table: run → publish → make visible → maintain.

Each operation (`Table.write`, changes of rows, overwrites, rescales, compactions) gives the function that is run. A
batch of a stream does not use `carry_out`, since it can stop between the steps, but it calls the same functions to
publish and to make visible.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bucketline.state.bucket.key_entries import NOTE_PROPERTY
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Change, Compact
from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed, Unknown
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.store.commit.commit_check import history_gone
from bucketline.state.store.engine.engine import Engine, Outcome
from bucketline.state.store.engine.make_visible import Again
from bucketline.state.store.maintenance.upkeep import Upkeep
from bucketline.state.store.table.settled_write import settle_write
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.commit_change import commit_change
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import Budget


@dataclass(frozen=True, slots=True)
class Commit:
    """What to commit, and by whom. The partitions of the messages in `brought` count as changed at this time;
    partitions are marked as done when they have not changed for long enough.
    """

    change: Change
    author: Author
    brought: Sequence[CommitMessage] = ()


def noted(outcome: Outcome) -> dict[str, str]:
    """Returns the snapshot properties with the tokens of the notes that the run has written: a note is valid only if a
    snapshot carries its token.
    """
    return {NOTE_PROPERTY: ",".join(outcome.notes)} if outcome.notes else {}


Work = Callable[[list[CommitMessage]], Commit | None]
"""A function that runs what was planned, and adds the resulting messages to the list. It returns what to commit; None
if nothing is to be committed.
"""


@dataclass(frozen=True, slots=True)
class Cycled:
    """The result of a write. `committed` has no snapshot if nothing had to be committed."""

    committed: Committed
    result: WriteResult

    @property
    def snapshot_id(self) -> int | None:
        """Returns the id of the newest snapshot of the write."""
        return self.committed.snapshots[-1].id if self.committed.snapshots else None


def carry_out(at: TableAt, engine: Engine, work: Work, trigger: CompactTrigger = CompactTrigger.NONE) -> Cycled:
    """Runs the work that was planned on a table, commits it, and returns the table afterwards with the results. If its
    compaction is lost to another commit, files are compacted again, as `trigger` says. Then expiry and tags are done by
    the table's options.

    Raises the errors of the work, after its files are removed, and the errors of `commit_change`; CommitConflictError
    for a compaction that was lost, and if the snapshot that the work reads has expired meanwhile;
    CommittedNotVisibleError when the rows are in the table and readers do not see them within `visibility-timeout`.
    """
    made: list[CommitMessage] = []
    try:
        commit = work(made)
    except (CorruptFileError, StorageError) as e:
        at.discard(made)
        newest = at.table.snapshot_store.latest_id() or 0
        if (isinstance(e, CorruptFileError) or e.missing) and newest != at.snapshot_id:
            # The table is not damaged if the file is missing because its snapshot has expired meanwhile. Then the
            # newest snapshot is another one.
            raise history_gone(at.snapshot_id, newest).error() from e
        raise
    except BaseException:
        at.discard(made)
        raise
    if commit is None:
        at.discard(made)
        return Cycled(Committed(), WriteResult(at.snapshot_id))
    change, author = commit.change, commit.author
    committed = commit_change(at, change, author)
    if isinstance(change, Compact):
        _raise_lost(committed)
    again = Again(engine, Author(author.user), trigger, Budget(at.plan.sink.visibility_timeout_ms, at.table.world))
    at, result = settle_write(at.after(committed), change.messages, committed, again)
    Upkeep().after_batch(at, commit.brought, committed.snapshots, forced=isinstance(change, Compact))
    return Cycled(committed, result)


def _raise_lost(committed: Committed) -> None:
    """Raises if a compaction was lost: CommitConflictError if another compaction was faster, CommitOutcomeUnknownError
    if the outcome is unknown, StorageError.
    """
    lost = committed.dropped
    if isinstance(lost, Conflict):
        raise lost.error(f"the compaction was not committed: {lost.message}; no row is lost, run it again")
    if lost is not None:
        raise lost.error() if isinstance(lost, Unknown) else lost
