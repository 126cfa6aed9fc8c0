"""Driver, after the commit: what readers do not see yet is compacted again, for as long as the budget lasts.

What is left then is owed: by the next batch, by the end of a bounded job, by the next start. A batch never fails for
it, since its rows are in the table, and never waits for longer than the budget.
"""

import logging
from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.commit.replay import compactor_user
from bucketline.state.format.entries import CommitKind, FileKind
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.visibility import (
    FileNames,
    Hidden,
    Rounds,
    Waits,
    Work,
    compact_until_visible,
    find_hidden,
    joined,
    left_on_level0,
    what_waits,
)
from bucketline.streaming.batch.live_table import LiveTable
from bucketline.streaming.tasks.compact_task import compact_over_spark

_LOG = logging.getLogger(__name__)

Commit = Callable[[Sequence[CommitMessage]], Committed]
Compact = Callable[[CompactTrigger, Work], Sequence[CommitMessage]]


def settle_visibility(
    table: LiveTable,
    compact: Compact,
    commit: Commit,
    *,
    trigger: CompactTrigger,
    messages: Sequence[CommitMessage] = (),
    committed: Committed | None = None,
) -> Rounds | None:
    """Makes visible what a batch has committed and what was owed before it; None when there was nothing to do.

    What is left is in `table.hidden`, and warned about. Storage is not asked unless something is left.
    """
    session, owed = table.session, table.hidden or {}
    if what_waits(session.plan.schema) is Waits.NOTHING or not session.plan.compacts:
        table.hidden = {}
        return None
    own = {} if committed is None else _own_files(table, messages, committed)
    files = joined(owed, own)
    if not files:
        return None
    table.hidden = files
    rounds = _rounds(table, files, compact, commit, trigger)
    table.hidden = rounds.left if rounds.lost is not None else {}
    if rounds.lost is not None:
        _warn(table, rounds.lost)
    return rounds


def finish_visibility(table: LiveTable, spark: object) -> None:
    """What a query that has ended still owes, compacted within one more budget, under a name of its own."""
    user = compactor_user(table.user)

    def commit(made: Sequence[CommitMessage]) -> Committed:
        return table.session.commit(made, user=user, kind=CommitKind.COMPACT)

    settle_visibility(table, compact_in_tasks(table, spark), commit, trigger=CompactTrigger.MINOR)
    if table.owes_full and table.session.plan.compacts:
        rounds = _rounds(table, None, compact_in_tasks(table, spark), commit, CompactTrigger.FULL)
        table.owes_full = rounds.lost is not None
        if rounds.lost is not None:
            _LOG.warning("%s: the full compaction that was due was lost: %s", table.session.table.path, rounds.lost)


def compact_in_tasks(table: LiveTable, spark: object) -> Compact:
    """Compacts buckets in Spark tasks, on the plan of the session as it is then."""

    def compact(trigger: CompactTrigger, work: Work) -> Sequence[CommitMessage]:
        return compact_over_spark(spark, table.session.plan.bucket_write(trigger), work)

    return compact


def hidden_rows(table: LiveTable) -> Hidden:
    """What is owed and cannot be read, from the view as it is; nothing where only the changelog waits."""
    if what_waits(table.session.plan.schema) is not Waits.ROWS:
        return Hidden()
    return find_hidden(table.session.view, table.hidden or {})


def _own_files(table: LiveTable, messages: Sequence[CommitMessage], committed: Committed) -> FileNames:
    if not committed.replayed:
        return left_on_level0(messages, committed)
    # Another run under our name has committed this batch: its files are the batch's.
    found: dict[tuple[bytes, int], frozenset[str]] = {}
    for snapshot in committed.snapshots:
        for e in table.session.table.manifests.delta_entries(snapshot):
            if e.kind is FileKind.ADD and e.file.level == 0 and e.bucket >= 0:
                place = (e.partition, e.bucket)
                found[place] = found.get(place, frozenset()) | {e.file.file_name}
    return found


def _rounds(
    table: LiveTable, files: FileNames | None, compact: Compact, commit: Commit, trigger: CompactTrigger
) -> Rounds:
    """The rounds; an error ends them, and is a reason like any other: the rows are in the table."""
    try:
        return compact_until_visible(
            table.session, files, trigger=trigger, compact=compact, commit=commit, budget=table.budget()
        )
    except (BucketlineError, PySparkException, Py4JError) as e:
        return Rounds(files or {}, lost=" ".join(str(e).split())[:500])


def _warn(table: LiveTable, lost: str) -> None:
    path, hidden = table.session.table.path, find_hidden(table.session.view, table.hidden or {})
    if what_waits(table.session.plan.schema) is Waits.ROWS:
        what = "%s: %d rows are committed and cannot be read yet: they wait on level 0 of %d buckets"
    else:
        what = "%s: the changes of %d rows are not logged yet: they wait on level 0 of %d buckets"
    then = "the next batch compacts them again, or the next start, or `bucketline compact`"
    _LOG.warning(
        f"{what} for a compaction, and the last one was lost (%s); {then}", path, hidden.rows, hidden.buckets, lost
    )
