"""Driver, after the tasks: rejects settled, one commit, the writer's marker moved, old snapshots expired.

Whatever follows the commit may fail without harm: the next batch, or the next start, does it again.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bucketline.conf.errors import BucketlineError
from bucketline.conf.sink_options import SinkOptions
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.replay import compactor_user
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.store.commit.committer import Committed
from bucketline.state.store.key_index.note import NOTE_PROPERTY
from bucketline.state.store.maintenance.expiry import maybe_expire
from bucketline.state.store.write.visibility import Rounds, is_lasting
from bucketline.streaming.batch.batch_counts import BatchCounts
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import LiveTable
from bucketline.streaming.batch.recover import (
    CLUSTER,
    DIGEST,
    END_OFFSETS,
    KEY_SHARES,
    SOURCE,
    START_OFFSETS,
    check_twin,
)
from bucketline.streaming.decode.rejects import RejectedRecordsError, RejectPolicy, settle_rejects
from bucketline.streaming.tasks.outcome import BatchOutcome

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What a batch's commit came to."""

    committed: Committed
    rejected_rows: int
    expired_snapshots: int

    def with_rounds(self, rounds: Rounds | None, later: Sequence["CommitReport"]) -> "CommitReport":
        """This report, with the commits by which its lost compaction was made up for; None: nothing was lost."""
        report = self
        for one in later:
            report = report.followed_by(one)
        if rounds is None:
            return report
        dropped = self.committed.dropped if rounds.lost is not None else None
        return replace(report, committed=replace(report.committed, dropped=dropped))

    def followed_by(self, later: "CommitReport | None") -> "CommitReport":
        """This report, with what a second commit of the same batch added."""
        if later is None:
            return self
        snapshots = (*self.committed.snapshots, *later.committed.snapshots)
        dropped = self.committed.dropped or later.committed.dropped
        return CommitReport(
            Committed(snapshots, dropped), self.rejected_rows, self.expired_snapshots + later.expired_snapshots
        )


def commit_batch(
    table: LiveTable, identity: BatchIdentity, outcome: BatchOutcome, key_shares: int | None = None
) -> CommitReport:
    """Commits what the tasks have written, under the batch's identity. `key_shares` as in `BatchPlan`.

    Raises RejectedRecordsError before the commit; CommitConflictError, CommitOutcomeUnknownError from it.
    """
    try:
        rejected = settle_rejects(
            reject_policy(table.session.plan.sink),
            outcome.rejects,
            user=table.user,
            batch_id=identity.batch_id,
            storage=table.session.table.storage,
        )
    except RejectedRecordsError:
        table.session.discard(outcome.messages)
        raise
    if rejected is not None:
        _LOG.warning("batch %d: %s", identity.batch_id, rejected.line())
    count = 0 if rejected is None else rejected.count
    counts = BatchCounts(outcome.accepted_rows, count, table.rejected_before(), identity.behind)
    committed = table.session.commit(
        outcome.messages,
        user=table.user,
        identifier=identity.batch_id,
        properties=batch_properties(identity, outcome.notes, key_shares) | counts.properties(),
        ignore_empty=False,  # the next batch looks for this one's snapshot, whatever the table says of empty ones
    )
    if committed.replayed:
        check_twin(identity, committed.snapshots[0])
    table.rejected_in_all = counts.rejected_in_all
    if isinstance(committed.dropped, BucketlineError) and is_lasting(committed.dropped):
        raise committed.dropped
    if committed.dropped is not None:
        _LOG.info("a compaction was lost and is done again: %s", committed.dropped.message)
    return CommitReport(committed, count, _settle(table, committed.snapshots))


def commit_owed_compaction(table: LiveTable, batch_id: int, messages: tuple[CommitMessage, ...]) -> CommitReport:
    """Commits a compaction that is done after its batch was committed, under the writer's name as a compactor.

    The batch may have a successor by then, so the snapshot tells nothing of the batch, and the writer's marker stays.
    That it was lost is in the report, and owed.
    """
    user = compactor_user(table.user)
    committed = table.session.commit(messages, user=user, identifier=batch_id, kind=CommitKind.COMPACT)
    if committed.dropped is not None:
        _LOG.info("a compaction was lost and is done again: %s", committed.dropped.message)
    return CommitReport(committed, 0, _expire(table))


def settle_skipped(table: LiveTable) -> None:
    """What a batch that is in the table still owes when it was interrupted right after its commit: the marker."""
    with _told("moving the writer's marker tag"):
        table.mark_newest()


def batch_properties(
    identity: BatchIdentity, notes: Sequence[str] = (), key_shares: int | None = None
) -> dict[str, str]:
    """What a snapshot says of the batch it came from, of the key-index notes that it makes true, and of the shares of
    keys that the next batch keeps.
    """
    told = {
        DIGEST: identity.digest,
        START_OFFSETS: identity.start_offsets,
        END_OFFSETS: identity.end_offsets,
        SOURCE: identity.source,
        CLUSTER: identity.cluster,
        NOTE_PROPERTY: ",".join(notes) or None,
        KEY_SHARES: None if key_shares is None else str(key_shares),
    }
    return {key: text for key, text in told.items() if text is not None}


def reject_policy(sink: SinkOptions) -> RejectPolicy:
    return RejectPolicy(sink.bad_records_path, sink.bad_records_max)


def _settle(table: LiveTable, made: tuple[Snapshot, ...]) -> int:
    """Marker and expiry; failures are told, never raised: the rows are in the table."""
    if made:
        with _told("moving the writer's marker tag"):
            table.mark(_to_mark(made))
    return _expire(table)


def _to_mark(made: tuple[Snapshot, ...]) -> Snapshot:
    """The newest of a batch's snapshots that no other batch of the writer can have come before."""
    newest = made[0]
    for snapshot in made[1:]:
        if snapshot.id == newest.id + 1:
            newest = snapshot
    return newest


def _expire(table: LiveTable) -> int:
    session, expired = table.session, 0
    with _told("expiring snapshots"):
        expired = maybe_expire(session.table.io, session.table.path, session.plan.schema)
    return expired


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """Logs a BucketlineError and goes on."""
    try:
        yield
    except BucketlineError as e:
        _LOG.warning("%s failed, the batch is committed all the same: %s", doing, e)
