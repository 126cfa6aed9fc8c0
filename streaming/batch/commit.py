"""On the driver, after the tasks: commits the batch, moves the writer's tag, and expires old snapshots.

The steps after the commit may fail without harm: the next batch, or the next start, does them again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bucketline.conf.errors import BucketlineError
from bucketline.state.bucket.key_entries import NOTE_PROPERTY
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, AppendCheck, Compact, Replace
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.commit.replay import DIGEST, compactor_user
from bucketline.state.format.entries import Operation, Snapshot
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.engine.make_visible import Rounds, is_lasting
from bucketline.state.store.maintenance.upkeep import Upkept, logged
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.table_at import TableAt
from bucketline.streaming.batch.batch_counts import BatchCounts
from bucketline.streaming.batch.history import mark, mark_newest
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.inputs.topic_ids import CLUSTER, TOPIC_IDS, ids_text
from bucketline.streaming.batch.recover import (
    END_OFFSETS,
    KEY_SHARES,
    PIN,
    SHARED_BUCKETS,
    SOURCE,
    SOURCE_TABLES,
    START_OFFSETS,
    TABLE_MARK,
    check_same_input,
)
from bucketline.streaming.batch.target import Target

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of a batch's commit."""

    committed: Committed
    rejected_rows: int
    upkept: Upkept

    @property
    def expired_snapshots(self) -> int:
        return self.upkept.expired_snapshots

    def with_rounds(self, rounds: Rounds | None, later: Sequence["CommitReport"]) -> "CommitReport":
        """Returns this report, with the results of the commits in `later` added. These commits repeated a compaction
        that had conflicted with another commit. `rounds` is the result of the repeated compactions; None if no
        compaction was repeated.
        """
        report = self
        for following in later:
            report = report.followed_by(following)
        if rounds is None:
            return report
        dropped = self.committed.dropped if rounds.lost is not None else None
        return replace(report, committed=replace(report.committed, dropped=dropped))

    def followed_by(self, later: "CommitReport | None") -> "CommitReport":
        """Returns this report, with the results of a second commit of the same batch added. Returns this report
        unchanged if `later` is None.
        """
        if later is None:
            return self
        snapshots = (*self.committed.snapshots, *later.committed.snapshots)
        dropped = self.committed.dropped or later.committed.dropped
        return CommitReport(Committed(snapshots, dropped), self.rejected_rows, self.upkept.followed_by(later.upkept))


def commit_batch(
    target: Target,
    identity: BatchIdentity,
    outcome: Outcome,
    key_shares: int | None = None,
    check: AppendCheck | None = None,
    *,
    empties: bool = False,
    rejected_rows: int = 0,
) -> tuple[Target, CommitReport]:
    """Commits what the tasks have written, under the batch's identity. Returns the target after the commit, and a
    report.

    `key_shares` is the number of tasks among which the table's keys are divided; the snapshot records this number.
    `check` says which conflicts the commit checks.
    `rejected_rows` is the number of bad records that were stored.
    `empties` is true if the rows of the batch replace all rows of the table.

    Raises CommitConflictError if another writer changed what this commit depends on, and CommitOutcomeUnknownError if
    the storage does not say whether the commit happened.
    """
    at, count = target.at, rejected_rows
    counts = BatchCounts(outcome.accepted_rows, count, target.state.rejected_in_all or 0, identity.behind)
    properties = (
        batch_properties(identity, outcome.notes, key_shares, target.state.shares_buckets)
        | counts.properties()
        | ({SOURCE_TABLES: TABLE_MARK.join(target.state.source_tables)} if target.state.source_tables else {})
    )
    # A batch without rows gets a snapshot too, whatever the table's options say about empty commits: the next batch
    # looks for the snapshot of this batch.
    change: Append | Replace = appended(at, outcome.messages, check=check, ignore_empty=False)
    author = Author(target.user, identity.batch_id, properties)
    if empties:
        change, author = Replace(outcome.messages, _any_partition), replace(author, operation=Operation.OVERWRITE)
    committed = commit_change(at, change, author)
    target = target.after(committed)
    if committed.replayed:
        check_same_input(identity, committed.snapshots[0])
    if isinstance(committed.dropped, BucketlineError) and is_lasting(committed.dropped):
        raise committed.dropped
    if committed.dropped is not None:
        _LOG.info("a compaction conflicted with another commit and is done again: %s", committed.dropped.message)
    report = CommitReport(committed, count, _mark_and_keep(target, outcome.messages, committed.snapshots))
    return target.with_state(replace(target.state, rejected_in_all=counts.rejected_in_all)), report


def _any_partition(partition: bytes) -> bool:
    del partition
    return True


def compactor(target: Target, batch_id: int) -> Author:
    """Returns the author of a compaction that is committed after its batch. Its commit user is derived from the
    writer's name.

    The writer may have committed a later batch by then. So the snapshot of the compaction does not belong to the batch,
    and the writer's tag does not move.
    """
    return Author(compactor_user(target.user), batch_id)


def commit_owed_compaction(target: Target, batch_id: int, messages: tuple[CommitMessage, ...]) -> CommitReport:
    """Commits a compaction that became due with the batch `batch_id`; the rows of this batch were committed before.
    `messages` are the results of the compaction. Returns a report. If the compaction conflicted with another commit,
    the report says that the compaction is still due.
    """
    committed = commit_change(target.at, Compact(messages), compactor(target, batch_id))
    return owed_compaction_committed(target, target.at.after(committed), messages, committed)


def owed_compaction_committed(
    target: Target, at: TableAt, messages: Sequence[CommitMessage], committed: Committed
) -> CommitReport:
    """Called after a compaction has got a commit of its own. Expires snapshots and makes tags as the table's options
    ask, and returns the report about the commit. `at` is the table after the commit.
    """
    if committed.dropped is not None:
        _LOG.info("a compaction conflicted with another commit and is done again: %s", committed.dropped.message)
    return CommitReport(committed, 0, target.upkeep.after_commit(at, messages, committed.snapshots))


def settle_skipped(target: Target) -> None:
    """Moves the writer's tag to the writer's newest snapshot, if the batch is in the table already: the process may
    have died right after the commit of the batch.
    """
    with logged("moving the tag that marks the writer's newest snapshot"):
        mark_newest(target)


def batch_properties(
    identity: BatchIdentity,
    notes: Sequence[str] = (),
    key_shares: int | None = None,
    shares_buckets: bool = False,
) -> dict[str, str]:
    """Returns the properties of a batch's snapshot.

    The properties are the identity of the batch, and the names of the key-index notes (files with changes of keys)
    that belong to this snapshot. They also say among how many tasks the keys are divided, and whether one bucket may
    hold the keys of several tasks.
    """
    named = {
        DIGEST: identity.digest,
        START_OFFSETS: identity.start_offsets,
        END_OFFSETS: identity.end_offsets,
        SOURCE: identity.source,
        CLUSTER: identity.cluster,
        TOPIC_IDS: ids_text(identity.topic_ids),
        NOTE_PROPERTY: ",".join(notes) or None,
        KEY_SHARES: None if key_shares is None else str(key_shares),
        SHARED_BUCKETS: "true" if shares_buckets else None,
        PIN: identity.pin,
    }
    return {key: text for key, text in named.items() if text is not None}


def _mark_and_keep(target: Target, messages: Sequence[CommitMessage], snapshots: tuple[Snapshot, ...]) -> Upkept:
    """Moves the marker tag, which keeps the writer's newest snapshot, and does the table's upkeep (expiry, tags).
    Returns the result of the upkeep. Failures are logged and never raised, because the rows are committed.
    """
    if snapshots:
        with logged("moving the tag that marks the writer's newest snapshot"):
            mark(target, _to_mark(snapshots))
    return target.upkeep.after_commit(target.at, messages, snapshots)


def _to_mark(snapshots: tuple[Snapshot, ...]) -> Snapshot:
    """Takes the snapshots of a batch, and returns the snapshot to which the writer's marker tag moves. Normally this is
    the last snapshot. If the ids have a gap, another batch of the writer may lie in the gap; then the tag moves to the
    last snapshot before the gap.
    """
    newest = snapshots[0]
    for snapshot in snapshots[1:]:
        if snapshot.id == newest.id + 1:
            newest = snapshot
    return newest
