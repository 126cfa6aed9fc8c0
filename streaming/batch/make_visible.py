"""After the commit, on the driver: compacts rows that readers do not see yet, as long as the time budget lasts.

Compactions that are not done in this time are due in the next batch, at the end of a bounded job, or at the next start.
A failed compaction never fails the batch, because its rows are in the table. A batch never waits for longer than the
budget.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.author import Author
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.commit.replay import compactor_user
from bucketline.state.format.entries import FileKind
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.make_visible import Again, Rounds, compact_until_visible
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import (
    FileNames,
    Hidden,
    Waits,
    find_hidden,
    joined,
    left_on_level0,
    what_waits,
)
from bucketline.streaming.batch.target import Target

_LOG = logging.getLogger(__name__)


def settle_visibility(
    target: Target,
    again: Again,
    messages: Sequence[CommitMessage] = (),
    committed: Committed | None = None,
) -> tuple[Target, Rounds | None]:
    """Compacts until readers see the rows that this batch and earlier batches have committed, or the time budget is
    over. Returns the target, and the compactions that were done; None if there was nothing to compact.

    `messages` and `committed` are the batch's files and snapshots, and `again` says how to compact. If the compactions
    fail, the target's state keeps the names of the files that still wait, and a warning is logged. Storage is read only
    if files wait for a compaction.
    """
    at, owed = target.at, target.state.hidden or {}
    if what_waits(at.plan.schema) is Waits.NOTHING or not at.plan.compacts:
        return _owing(target, {}), None
    own = {} if committed is None else _own_files(at, messages, committed)
    files = joined(owed, own)
    if not files:
        return target, None
    rounds = _rounds(target, files, again)
    target = _owing(target.with_table(rounds.at), rounds.left if rounds.lost is not None else {})
    if rounds.lost is not None:
        _warn(target, rounds.lost)
    return target, rounds


def finish_visibility(target: Target, engine: Engine) -> Target:
    """Called when a query has ended: does the compactions that its last batch has left undone. The commit user is the
    query's commit user for compactions. First the rows are made visible, then a full compaction is done if one is still
    due. Each of these two steps gets the time budget of a batch. Returns the target afterwards.
    """
    author = Author(compactor_user(target.user))
    target, _ = settle_visibility(target, Again(engine, author, CompactTrigger.MINOR, target.budget()))
    if not (target.state.owes_full and target.at.plan.compacts):
        return target
    rounds = _rounds(target, None, Again(engine, author, CompactTrigger.FULL, target.budget()))
    if rounds.lost is not None:
        _LOG.warning(
            "%s: the full compaction that was due conflicted with another commit and is still due: %s",
            target.at.table.path,
            rounds.lost,
        )
    target = target.with_table(rounds.at)
    return target.with_state(replace(target.state, owes_full=rounds.lost is not None))


def hidden_rows(target: Target) -> Hidden:
    """Counts the rows of the table that readers see only after a compaction, and returns the counts. The counts are
    zero if readers see all rows and only the changelog waits for a compaction.
    """
    if what_waits(target.at.plan.schema) is not Waits.ROWS:
        return Hidden()
    return find_hidden(target.at.view, target.state.hidden or {})


def _owing(target: Target, hidden: FileNames) -> Target:
    return target.with_state(replace(target.state, hidden=hidden))


def _own_files(at: TableAt, messages: Sequence[CommitMessage], committed: Committed) -> FileNames:
    if not committed.replayed:
        return left_on_level0(messages, committed)
    # Another run with the same commit user has committed this batch, so its files are files of the batch.
    names: dict[tuple[bytes, int], frozenset[str]] = {}
    for snapshot in committed.snapshots:
        for e in at.table.manifests.delta_entries(snapshot):
            if e.kind is FileKind.ADD and e.file.level == 0 and e.bucket >= 0:
                place = (e.partition, e.bucket)
                names[place] = names.get(place, frozenset()) | {e.file.file_name}
    return names


def _rounds(target: Target, files: FileNames | None, again: Again) -> Rounds:
    """Compacts until the rows are visible, and returns what was done; see `compact_until_visible` for `files` and
    `again`. An error ends the compactions but is not raised, because the rows are in the table; the result has the text
    of the error in `lost`.
    """
    try:
        return compact_until_visible(target.at, files, again)
    except (BucketlineError, PySparkException, Py4JError) as e:
        return Rounds(target.at, files or {}, lost=" ".join(str(e).split())[:500])


def _warn(target: Target, lost: str) -> None:
    at = target.at
    path, hidden = at.table.path, find_hidden(at.view, target.state.hidden or {})
    if what_waits(at.plan.schema) is Waits.ROWS:
        warning = "%s: %d rows are committed but cannot be read yet: they wait on level 0 of %d buckets"
    else:
        warning = "%s: the changes of %d rows are not logged yet: they wait on level 0 of %d buckets"
    then = "the next batch, the next start or `bucketline compact` repeats it"
    _LOG.warning(
        f"{warning} for a compaction, and the last compaction was not committed (%s); {then}",
        path,
        hidden.rows,
        hidden.buckets,
        lost,
    )
