"""After the commit of a batch write: its rows are made visible, or the error says that they are not.

Source: Paimon 2.0 has a callback that waits for others to compact (`visibility-callback.enabled`); here the writer that
lost compacts again itself.
"""

import logging
from collections.abc import Callable, Sequence

from bucketline.conf.errors import BucketlineError
from bucketline.conf.sink_options import VISIBILITY_TIMEOUT
from bucketline.conf.wording import counted
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.errors import CommittedNotVisibleError
from bucketline.state.store.engine.compaction import compact_buckets
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.maintenance.upkeep import Upkeep
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.bucket_writer import CompactTrigger, Work
from bucketline.state.store.write.commit_change import commit_change
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import (
    Budget,
    FileNames,
    Rounds,
    Waits,
    compact_until_visible,
    is_lasting,
    left_on_level0,
    what_waits,
)

_LOG = logging.getLogger(__name__)


def settle_write(
    at: TableAt,
    messages: Sequence[CommitMessage],
    committed: Committed,
    *,
    engine: Engine,
    trigger: CompactTrigger,
    user: str,
) -> WriteResult:
    """What the write returns; compacts on until its rows are visible, where this writer compacts and its own was lost.
    Then the table's rules for expiry and tags are followed.

    Raises CommittedNotVisibleError when they are not within `visibility-timeout`: the rows are in the table.
    """

    at = at.after(committed)

    def compact(now: TableAt, used: CompactTrigger, work: Work) -> Sequence[CommitMessage]:
        return compact_buckets(engine, now.plan.bucket_write(used), work)

    def commit(now: TableAt, made: Sequence[CommitMessage]) -> Committed:
        return commit_change(now, Compact(tuple(made)), Author(user))

    def compact_again(left: FileNames) -> Rounds:
        budget = Budget(at.plan.sink.visibility_timeout_ms, at.table.world)
        return compact_until_visible(at, left, trigger=trigger, compact=compact, commit=commit, budget=budget)

    at, written = _settle(at, messages, committed, compact_again)
    Upkeep().after_batch(at, messages, committed.snapshots)
    return written


def _settle(
    at: TableAt,
    messages: Sequence[CommitMessage],
    committed: Committed,
    compact_again: Callable[[FileNames], Rounds],
) -> tuple[TableAt, WriteResult]:
    """The table in the end, and what the write returns; `compact_again` is called with those of its files that are left
    on level 0."""
    if not committed.snapshots:
        at = at.followed()
        return at, WriteResult(at.snapshot_id)
    newest_id = committed.snapshots[-1].id
    dropped = None if committed.dropped is None else committed.dropped.message
    left, waits = left_on_level0(messages, committed), what_waits(at.plan.schema)
    rounds = Rounds(at, left)
    if left and dropped is not None and waits is not Waits.NOTHING and _is_waited_for(at):
        try:
            rounds = Rounds(at, left, lost=dropped) if is_lasting(committed.dropped) else compact_again(left)
        except BucketlineError as e:
            if waits is Waits.ROWS:
                raise _not_visible(at, newest_id, messages, left, e.message) from e
            rounds = Rounds(at, left, lost=e.message)
        except BaseException as e:
            e.add_note(f"snapshot {newest_id} of {at.table.path} holds the rows: do not write again")
            raise
        if rounds.lost is not None and waits is Waits.ROWS:
            raise _not_visible(at, newest_id, messages, rounds.left, rounds.lost)
        dropped = rounds.lost
        newest_id = max(newest_id, rounds.at.snapshot_id)
    if dropped is not None:
        level = logging.INFO if waits is Waits.NOTHING else logging.WARNING
        _LOG.log(level, "%s: the compaction of a write was lost, a later one does it: %s", at.table.path, dropped)
    hidden = (waits is Waits.ROWS and bool(rounds.left)) or _is_postponed(at, messages)
    return rounds.at, WriteResult(newest_id, dropped=dropped, visible=not hidden)


def _is_waited_for(at: TableAt) -> bool:
    """Whether a write waits for the compaction that makes its rows visible, and fails without it."""
    return at.plan.schema.settings.compaction.waits_for_lookup


def _is_postponed(at: TableAt, messages: Sequence[CommitMessage]) -> bool:
    if at.plan.schema.settings.reading.sees_postponed:
        return False
    return any(m.bucket < 0 and m.new_files for m in messages)


def _not_visible(
    at: TableAt, snapshot_id: int, messages: Sequence[CommitMessage], left: FileNames, lost: str
) -> CommittedNotVisibleError:
    # The messages know the rows also where storage did not let the newest snapshot be read.
    files = [f for m in messages for f in m.new_files if f.file_name in left.get((m.partition, m.bucket), ())]
    rows = sum(f.row_count for f in files)
    budget_ms = at.plan.sink.visibility_timeout_ms
    return CommittedNotVisibleError(
        f"snapshot {snapshot_id} of {at.table.path} holds the rows: do not write again. {rows:,} of them cannot "
        f"be read yet: they wait on level 0 of {counted(len(left), 'bucket')} for a compaction, and none was committed "
        f"within {VISIBILITY_TIMEOUT.text_of(budget_ms)} ('{VISIBILITY_TIMEOUT.key}'): {lost}. The next compaction of "
        "these buckets makes them visible, whoever runs it",
        snapshot_id=snapshot_id,
        path=at.table.path,
        rows=rows,
        buckets=len(left),
        timeout_ms=budget_ms,
    )
