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
from bucketline.state.store.write.write_session import WriteSession

_LOG = logging.getLogger(__name__)


def settle_write(
    session: WriteSession,
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

    def compact(used: CompactTrigger, work: Work) -> Sequence[CommitMessage]:
        return compact_buckets(engine, session.plan.bucket_write(used), work)

    def commit(made: Sequence[CommitMessage]) -> Committed:
        return session.publish(Compact(tuple(made)), Author(user))

    def compact_again(left: FileNames) -> Rounds:
        budget = Budget(session.plan.sink.visibility_timeout_ms, session.table.world)
        return compact_until_visible(session, left, trigger=trigger, compact=compact, commit=commit, budget=budget)

    written = _settle(session, messages, committed, compact_again)
    Upkeep().after_batch(session, messages, committed.snapshots)
    return written


def _settle(
    session: WriteSession,
    messages: Sequence[CommitMessage],
    committed: Committed,
    compact_again: Callable[[FileNames], Rounds],
) -> WriteResult:
    """What the write returns; `compact_again` is called with the files of the write that are left on level 0."""
    if not committed.snapshots:
        newest = session.follow().snapshot
        return WriteResult(0 if newest is None else newest.id)
    newest_id = committed.snapshots[-1].id
    dropped = None if committed.dropped is None else committed.dropped.message
    left, waits = left_on_level0(messages, committed), what_waits(session.plan.schema)
    rounds = Rounds(left)
    if left and dropped is not None and waits is not Waits.NOTHING and _is_waited_for(session):
        try:
            rounds = Rounds(left, lost=dropped) if is_lasting(committed.dropped) else compact_again(left)
        except BucketlineError as e:
            if waits is Waits.ROWS:
                raise _not_visible(session, newest_id, messages, left, e.message) from e
            rounds = Rounds(left, lost=e.message)
        except BaseException as e:
            e.add_note(f"snapshot {newest_id} of {session.table.path} holds the rows: do not write again")
            raise
        if rounds.lost is not None and waits is Waits.ROWS:
            raise _not_visible(session, newest_id, messages, rounds.left, rounds.lost)
        dropped = rounds.lost
        newest_id = max(newest_id, 0 if session.view.snapshot is None else session.view.snapshot.id)
    if dropped is not None:
        level = logging.INFO if waits is Waits.NOTHING else logging.WARNING
        _LOG.log(level, "%s: the compaction of a write was lost, a later one does it: %s", session.table.path, dropped)
    hidden = (waits is Waits.ROWS and bool(rounds.left)) or _is_postponed(session, messages)
    return WriteResult(newest_id, dropped=dropped, visible=not hidden)


def _is_waited_for(session: WriteSession) -> bool:
    """Whether a write waits for the compaction that makes its rows visible, and fails without it."""
    return session.plan.schema.settings.compaction.waits_for_lookup


def _is_postponed(session: WriteSession, messages: Sequence[CommitMessage]) -> bool:
    if session.plan.schema.settings.reading.sees_postponed:
        return False
    return any(m.bucket < 0 and m.new_files for m in messages)


def _not_visible(
    session: WriteSession, snapshot_id: int, messages: Sequence[CommitMessage], left: FileNames, lost: str
) -> CommittedNotVisibleError:
    # The messages know the rows also where storage did not let the newest snapshot be read.
    files = [f for m in messages for f in m.new_files if f.file_name in left.get((m.partition, m.bucket), ())]
    rows = sum(f.row_count for f in files)
    budget_ms = session.plan.sink.visibility_timeout_ms
    return CommittedNotVisibleError(
        f"snapshot {snapshot_id} of {session.table.path} holds the rows: do not write again. {rows:,} of them cannot "
        f"be read yet: they wait on level 0 of {counted(len(left), 'bucket')} for a compaction, and none was committed "
        f"within {VISIBILITY_TIMEOUT.text_of(budget_ms)} ('{VISIBILITY_TIMEOUT.key}'): {lost}. The next compaction of "
        "these buckets makes them visible, whoever runs it",
        snapshot_id=snapshot_id,
        path=session.table.path,
        rows=rows,
        buckets=len(left),
        timeout_ms=budget_ms,
    )
