"""Compacts again after another commit has won over a compaction. The files of that compaction on level 0 are
compacted until readers see their rows, or until the time is over.

Source: Paimon 2.0 has a callback that waits for others to compact (`visibility-callback.enabled`). Here the writer
whose compaction was refused compacts again itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bucketline.conf.errors import BucketlineError
from bucketline.conf.table.choices import LookupCompact
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.engine.compaction import compact_buckets
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.commit_change import commit_change
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import Budget, FileNames, still_on_level0


@dataclass(frozen=True, slots=True)
class Rounds:
    """The result of `compact_until_visible`, which compacts again and again until no file waits on level 0, no attempt
    can help, or the time is over.

    - `at` is the table at the end.
    - `left` are the names of the files that are still on level 0.
    - `snapshots` are the snapshots that the compactions have made.
    - `lost` says why a compaction that is due was not done; None if no compaction is due any more. If `lost` is None
      and `left` is not empty, the table's options allow the files to wait (`lookup-compact` = gentle).
    """

    at: TableAt
    left: FileNames
    snapshots: tuple[Snapshot, ...] = ()
    lost: str | None = None


def _nobody(at: TableAt, messages: Sequence[CommitMessage], committed: Committed) -> None:
    del at, messages, committed


@dataclass(frozen=True, slots=True)
class Again:
    """How a compaction is repeated that a commit has lost because of a conflict.

    - `author` commits the new compactions.
    - `trigger` is the trigger of the lost compaction.
    - `budget` limits the time.
    - `told` is called after each commit, with the table after the commit, the commit messages, and the result.
    """

    engine: Engine
    author: Author
    trigger: CompactTrigger
    budget: Budget
    told: Callable[[TableAt, Sequence[CommitMessage], Committed], None] = _nobody


def compact_until_visible(at: TableAt, files: FileNames | None, again: Again) -> Rounds:
    """Compacts the buckets of these files, on the newest snapshot each time, until none of the files is on level 0 any
    more. Returns what was done.

    If `files` is None, compacts every bucket in which the trigger finds something to compact. Each round first checks
    whether some process has compacted the files already. After a lost round, the next round waits first, and takes half
    as many buckets, because a smaller compaction takes less time. Raises the errors of `TableAt.refreshed`, the engine
    and the commit, except StorageError, which counts as a lost round.
    """
    left, snapshots, budget = files or {}, list[Snapshot](), again.budget
    lost, most = "no time was allowed to compact again", 1 << 31
    while True:
        try:
            at = at.refreshed()
            left = still_on_level0(at.view, left)
            used = again.trigger if files is None else _trigger(at, again.trigger)
            due = at.due(used, among=None if files is None else left.keys()) if at.plan.compacts else []
            if not due:
                return Rounds(at, left, tuple(snapshots))
            if budget.left_ms == 0:
                return Rounds(at, left, tuple(snapshots), lost)
            most = min(most, len(due))
            states = at.bucket_states(used)
            write = at.plan.bucket_write(used)
            messages = compact_buckets(again.engine, write, [(b, states[b]) for b in due[:most]])
            committed = Committed()
            if not all(m.is_empty for m in messages):
                committed = commit_change(at, Compact(messages), again.author)
                again.told(at.after(committed), messages, committed)
            at = at.after(committed)
            snapshots += committed.snapshots
            if committed.snapshots:
                continue
            lost = "nothing was compacted" if committed.dropped is None else committed.dropped.message
            if is_lasting(committed.dropped):
                return Rounds(at, left, tuple(snapshots), lost)
        except StorageError as e:
            lost = e.message
            if budget.left_ms == 0:
                return Rounds(at, left, tuple(snapshots), lost)
        most = max(1, most // 2)
        budget.wait()


def is_lasting(failure: object) -> bool:
    """Returns True if another try would fail in the same way. An error of the storage may not last: the storage may
    recover, and a missing file may have been compacted by another process.
    """
    return isinstance(failure, BucketlineError) and not isinstance(failure, StorageError)


def _trigger(at: TableAt, lost: CompactTrigger) -> CompactTrigger:
    """Returns which compaction the next try does, after another commit has won over the compaction `lost`. If the
    options allow rows to wait on level 0, the next try does the same compaction again. Otherwise the next try does a
    minor compaction, which conflicts less often.
    """
    gentle = at.plan.compact_options.lookup_compact is LookupCompact.GENTLE
    return lost if gentle else CompactTrigger.MINOR
