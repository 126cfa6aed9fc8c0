"""The steps of every write of a table: run → publish → make visible → maintain.

Each operation (`Table.write`, a change of rows, an overwrite, a rescale, a compaction) calls `carry_out` with a
function that does the first step, and `carry_out` does the other steps. A batch of a stream can stop between the steps,
so it calls the functions of the single steps itself.
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
from bucketline.state.store.engine.engine import Engine, Outcome
from bucketline.state.store.engine.make_visible import Again
from bucketline.state.store.maintenance.upkeep import Upkeep
from bucketline.state.store.table.settled_write import settle_write
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.commit_change import commit_change
from bucketline.state.store.write.expired_base import planned_too_early
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import Budget


@dataclass(frozen=True, slots=True)
class Commit:
    """What to commit (`change`), and by whom (`author`). `brought` holds the commit messages with new rows. The time
    since a partition last got new rows decides when the partition is marked as done, so the partitions of these
    messages begin to wait anew.
    """

    change: Change
    author: Author
    brought: Sequence[CommitMessage] = ()


def noted(outcome: Outcome) -> dict[str, str]:
    """Returns the property that the snapshot of a write must get, with the tokens of the notes that the write has
    left. Returns an empty dict if the write has left no notes.

    A note is a file beside the key index, and holds changes of keys. A note is valid only if a snapshot carries its
    token.
    """
    return {NOTE_PROPERTY: ",".join(outcome.notes)} if outcome.notes else {}


Work = Callable[[list[CommitMessage]], Commit | None]
"""A function that does the work of an operation, and adds the resulting messages to the given list. It returns what to
commit; None if there is nothing to commit.
"""


@dataclass(frozen=True, slots=True)
class Cycled:
    """The result of a write. `committed` has no snapshots if there was nothing to commit."""

    committed: Committed
    result: WriteResult

    @property
    def snapshot_id(self) -> int | None:
        """Returns the id of the newest snapshot that the write has made; None if the write has made no snapshot."""
        return self.committed.snapshots[-1].id if self.committed.snapshots else None


def carry_out(at: TableAt, engine: Engine, work: Work, trigger: CompactTrigger = CompactTrigger.NONE) -> Cycled:
    """Calls `work`, which does an operation on a table, commits the messages that `work` returns, and returns the
    results of the commit. If the compaction in the commit conflicts with another commit, `trigger` says which files are
    compacted again. Then snapshots and partitions expire and tags are created, as the table's options say.

    If the work raises an error, the files of the work are removed. Raises the errors of `commit_change`. Raises
    CommitConflictError for a compaction that was lost to another commit, and if the snapshot that the work reads has
    expired during the work. Raises CommittedNotVisibleError if the rows are in the table but readers do not see them
    within `visibility-timeout`.
    """
    made: list[CommitMessage] = []
    try:
        commit = work(made)
    except (CorruptFileError, StorageError) as e:
        at.discard(made)
        conflict = planned_too_early(at, e)
        if conflict is not None:
            raise conflict from e
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
    """Raises an error if the commit has lost its compaction: CommitConflictError if another compaction was faster,
    CommitOutcomeUnknownError if it is unknown whether the compaction was committed, StorageError if the storage failed.
    """
    lost = committed.dropped
    if isinstance(lost, Conflict):
        raise lost.error(f"the compaction was not committed: {lost.message}; no row is lost, run the compaction again")
    if lost is not None:
        raise lost.error() if isinstance(lost, Unknown) else lost
