"""Completes a write after its commit: waits until readers see the rows of the write, or raises an error if readers do
not see them in time.
"""

import logging
from collections.abc import Sequence

from bucketline.conf.errors import BucketlineError
from bucketline.conf.sink_options import VISIBILITY_TIMEOUT
from bucketline.conf.wording import counted
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.errors import CommittedNotVisibleError
from bucketline.state.store.engine.make_visible import Again, Rounds, compact_until_visible, is_lasting
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import FileNames, Waits, left_on_level0, what_waits

_LOG = logging.getLogger(__name__)


def settle_write(
    at: TableAt, messages: Sequence[CommitMessage], committed: Committed, again: Again
) -> tuple[TableAt, WriteResult]:
    """Completes a write after its commit. Returns the table after the write, and the result of the write.

    If this writer compacts, files of the write that are still on level 0 are compacted with the function `again`.
    Raises CommittedNotVisibleError if readers do not see the rows within `visibility-timeout`; the rows are in the
    table then.
    """
    if not committed.snapshots:
        at = at.followed()
        return at, WriteResult(at.snapshot_id)
    newest_id = committed.snapshots[-1].id
    dropped = None if committed.dropped is None else committed.dropped.message
    left, waits = left_on_level0(messages, committed), what_waits(at.plan.schema)
    rounds = Rounds(at, left)
    if left and dropped is not None and waits is not Waits.NOTHING and _is_waited_for(at):
        try:
            lasts = is_lasting(committed.dropped)
            rounds = Rounds(at, left, lost=dropped) if lasts else compact_until_visible(at, left, again)
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
        _LOG.log(
            level,
            "%s: the compaction of a write conflicted with another commit; a later compaction includes its rows: %s",
            at.table.path,
            dropped,
        )
    hidden = (waits is Waits.ROWS and bool(rounds.left)) or _is_postponed(at, messages)
    return rounds.at, WriteResult(newest_id, dropped=dropped, visible=not hidden)


def _is_waited_for(at: TableAt) -> bool:
    """Returns True if a write must wait for the compaction that makes its rows visible, and must raise an error if this
    compaction is not committed in time.
    """
    return at.plan.schema.settings.compaction.waits_for_lookup


def _is_postponed(at: TableAt, messages: Sequence[CommitMessage]) -> bool:
    if at.plan.schema.settings.reading.sees_postponed:
        return False
    return any(m.bucket < 0 and m.new_files for m in messages)


def _not_visible(
    at: TableAt, snapshot_id: int, messages: Sequence[CommitMessage], left: FileNames, lost: str
) -> CommittedNotVisibleError:
    # The row counts come from the messages, because the storage may have failed when the newest snapshot was read.
    files = [f for m in messages for f in m.new_files if f.file_name in left.get((m.partition, m.bucket), ())]
    rows = sum(f.row_count for f in files)
    budget_ms = at.plan.sink.visibility_timeout_ms
    return CommittedNotVisibleError(
        f"snapshot {snapshot_id} of {at.table.path} holds the rows: do not write again. {rows:,} of these rows "
        f"cannot be read yet: they wait on level 0 of {counted(len(left), 'bucket')} for a compaction, and no "
        f"compaction was committed within {VISIBILITY_TIMEOUT.text_of(budget_ms)} ('{VISIBILITY_TIMEOUT.key}'): "
        f"{lost}. The next compaction of these buckets makes the rows visible, whoever runs it",
        snapshot_id=snapshot_id,
        path=at.table.path,
        rows=rows,
        buckets=len(left),
        timeout_ms=budget_ms,
    )
