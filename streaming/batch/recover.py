"""Decides before any work whether a batch has been written already, and whether it may be written at all.

The decisions are pure. They use facts that the driver has read: the batch's identity, what the table knows of this
commit user, and which snapshots still exist. A batch that may not be written is refused before anything is written,
with an error that lists the remedies. Source: Paimon 2.0 filterCommitted, which compares only the identifier; here the
input of the batch is compared as well.
"""

from dataclasses import dataclass

from bucketline.conf.errors import BucketlineError, given
from bucketline.state.commit.replay import DIGEST, writer_of
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.streaming.batch.identity import BatchIdentity, kafka_offsets, new_partitions
from bucketline.streaming.batch.inputs.topic_ids import CLUSTER, created_again, ids_in

START_OFFSETS = "bucketline.offsets.start"
END_OFFSETS = "bucketline.offsets.end"
SOURCE = "bucketline.source"
KEY_SHARES = "bucketline.key-shares"
"""Snapshot property: into how many shares the keys are divided, if each share has its own key index or writer."""
SHARED_BUCKETS = "bucketline.shared-buckets"
"""Snapshot property: "true" once buckets of the stream may hold keys of several shares."""

PIN = "bucketline.pin"
"""Snapshot property: the hash of the settings with which a job of many tables wrote the batch."""

SOURCE_TABLES = "bucketline.source-tables"
"""Snapshot property: the source's tables whose records the stream has written, if their keys may be the same."""
TABLE_MARK = "\n"
"""The separator between two names in the property SOURCE_TABLES."""


class CheckpointMismatchError(BucketlineError):
    """Checkpoint and table disagree about what has been written. A person must decide which of the two is right.

    `checkpoint_batch` is the batch of the checkpoint. `history_complete` is true if no snapshot that might hold batches
    of the query has expired.
    """

    code = "CHECKPOINT_MISMATCH"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        checkpoint_batch: int | None = None,
        history_complete: bool = False,
        **fields: object,
    ) -> None:
        told = given(checkpoint_batch=checkpoint_batch, history_complete=history_complete)
        super().__init__(message, path=path, **told, **fields)
        self.checkpoint_batch, self.history_complete = checkpoint_batch, history_complete


class TopicCreatedAgainError(CheckpointMismatchError):
    """A topic was deleted and created again, so the offsets of checkpoint and table belong to the old topic."""

    code = "KAFKA_TOPIC_CREATED_AGAIN"


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """The decision that the batch must be written, because the table lacks it."""


@dataclass(frozen=True, slots=True)
class SkipBatch:
    """The decision that the batch is skipped, because it is in the table already. Only its compaction may still
    be due.
    """

    snapshot_id: int
    compacted: bool


@dataclass(frozen=True, slots=True)
class UserHistory:
    """What the table knows of one commit user.

    - `commits` are the user's snapshots that the table still has, newest first.
    - `marker` is the snapshot that the user's marker tag keeps; None if there is no such tag.
    - `complete` is true if no snapshot after the marker has expired; without a marker, if no snapshot at all has
      expired.
    - `others` has the newest snapshot of each other bucketline query. It is empty if the batch cannot read the records
      of these queries again.
    - `since` are the batches of other queries that were committed after `commits`.
    - `since_is_whole` is false if some of the batches in `since` have expired. Then `since` has only the newest batch
      of each query.
    - `is_running` is true if this process has looked at the table before.
    """

    commits: tuple[Snapshot, ...]
    marker: Snapshot | None
    complete: bool
    others: tuple[Snapshot, ...] = ()
    since: tuple[Snapshot, ...] = ()
    since_is_whole: bool = True
    is_running: bool = False

    @property
    def known(self) -> tuple[Snapshot, ...]:
        """The snapshots of the commit user that the table still has, including the snapshot that the user's tag
        keeps.
        """
        return self.commits if self.marker is None else (*self.commits, self.marker)

    @property
    def newest_batch(self) -> int | None:
        """The number of the newest batch of the commit user; None if the table knows no batch of this user."""
        return max((s.commit_identifier for s in self.known), default=None)


def decide(
    batch: BatchIdentity, history: UserHistory, *, allow_reprocess: bool, at_least: int | None = None
) -> WriteBatch | SkipBatch:
    """Decides whether a batch must be written or skipped.

    The table has to show batch `at_least`, or a later batch. If `at_least` is None, the table has to show the batch
    before this batch. If `at_least` is below 0, the table need not show any batch. Raises CheckpointMismatchError if
    the table is ahead of the checkpoint, holds the batch with other input, or does not show the batch that it has to
    show; with `allow_reprocess` the batch is written in all these cases.
    """
    known = sorted(history.known, key=lambda s: s.id, reverse=True)
    same = [s for s in known if s.commit_identifier == batch.batch_id]
    if same:
        return _recognise(batch, same, allow_reprocess=allow_reprocess)
    if allow_reprocess:
        return WriteBatch()
    newest = history.newest_batch
    if newest is not None and newest > batch.batch_id:
        raise CheckpointMismatchError(
            f"the table holds batch {newest} of this query, but its checkpoint is at batch {batch.batch_id}: the "
            f"checkpoint was rewound, copied or restored from a backup. {_REMEDIES}",
            table_batch=newest,
            checkpoint_batch=batch.batch_id,
        )
    needed = batch.batch_id - 1 if at_least is None else at_least
    if needed >= 0 and not (newest is not None and newest >= needed and history.complete):
        why = "the table was rolled back or replaced" if history.complete else "snapshots have expired"
        raise ahead_of_table(batch.batch_id, newest, why, history_complete=history.complete)
    if history.others:
        _refuse_read_again(batch, history.others, is_new=newest is None)
    if known and history.since:
        _refuse_read_by_others(batch, known[0], history)
    return WriteBatch()


def ahead_of_table(batch_id: int, newest: int | None, why: str, *, history_complete: bool) -> CheckpointMismatchError:
    """Returns the error for a checkpoint that is at a batch while the table does not show the batch before it.

    `newest` is the newest batch of the query that the table shows, and `why` says why later batches are missing.
    """
    return CheckpointMismatchError(
        f"the checkpoint is at batch {batch_id}, but the newest batch of this query that the table still shows is "
        f"{'none' if newest is None else newest}: {why}. {_REMEDIES}",
        table_batch=newest,
        checkpoint_batch=batch_id,
        history_complete=history_complete,
    )


def topic_created_again(topic: str, was: str, now: str) -> TopicCreatedAgainError:
    """Returns the error for a topic whose id (`now`) differs from the id of the topic that the known offsets belong to
    (`was`).
    """
    return TopicCreatedAgainError(
        f"topic {topic!r} was deleted and created again (its id was {was}, and is {now}): offsets of the old topic "
        "are invalid for the new one, so no batch is written. Run the job once with --reset-identity: it reads this "
        "topic from its first record, and other topics from the offsets that the table holds. Only if the topic "
        "holds the same records at the same offsets, as after a restore, pass --allow-reprocess once instead "
        "(docs/kafka.md)",
        topic=topic,
        known_id=was,
        topic_id=now,
    )


def _refuse_read_again(batch: BatchIdentity, others: tuple[Snapshot, ...], *, is_new: bool) -> None:
    """Raises CheckpointMismatchError if a query begins to read records that another query has already put into the
    table.

    A new query (`is_new`) begins to read all of its topic partitions. A later batch begins to read only the partitions
    that are new to the query. Each of these partitions is checked against the newest snapshot of another query that has
    read the partition. Snapshots of other sinks of this query do not count, because these sinks write the same batch.

    The other query may have read an earlier topic of the same name, with other records; then its records do not count.
    A topic was an earlier one in two cases: the other query knows the topic by another id, or this query already reads
    a partition of the topic and the other query has read further in it.

    Raises TopicCreatedAgainError if the topic has another id than before, and this query nevertheless begins exactly at
    the offset at which the other query has ended. That offset belongs to the earlier topic.
    """
    starts, ends = kafka_offsets(batch.start_offsets), kafka_offsets(batch.end_offsets)
    unchecked = set(ends if is_new else new_partitions(batch))
    for other in sorted(others, key=lambda s: s.id, reverse=True):
        if of_other_cluster(batch, other) or _is_of_query(batch.query_id, other):
            continue
        reached, ids = kafka_offsets(other.properties.get(END_OFFSETS)), ids_in(other, batch.cluster)
        anew = created_again(ids, batch.topic_ids)
        for place in sorted(unchecked & reached.keys()):
            if place[0] in anew and 0 < reached[place] == starts.get(place):
                raise topic_created_again(place[0], ids[place[0]], batch.topic_ids[place[0]])
        gone = set() if is_new else {p[0] for p, offset in reached.items() if starts.get(p, offset) < offset}
        gone.update(anew)
        written = {p: offset for p, offset in reached.items() if p in unchecked and p[0] not in gone}
        unchecked -= written.keys()
        again = sorted(p for p, offset in written.items() if starts.get(p, 0) < offset)
        if again:
            raise CheckpointMismatchError(
                _said_of(again[0][0], other, is_new=is_new), user=other.commit_user, topic=again[0][0]
            )


def _is_of_query(query_id: str, snapshot: Snapshot) -> bool:
    writer = writer_of(snapshot.commit_user)
    return writer == query_id or writer.startswith(f"{query_id}-")


def _said_of(topic: str, other: Snapshot, *, is_new: bool) -> str:
    if is_new:
        return (
            f"this is a new query, but query {other.commit_user} has already written topic {topic!r} into the table: "
            f"the checkpoint was lost, or a second job reads the same topic. {_REMEDIES}"
        )
    return (
        f"this query begins to read topic {topic!r}, but query {other.commit_user} has already written records of it "
        f"into the table: an earlier run of the job left the topic out, or a second job reads the topic. {_REMEDIES}"
    )


def _refuse_read_by_others(batch: BatchIdentity, last: Snapshot, history: UserHistory) -> None:
    """Raises CheckpointMismatchError if another query has written the records of this batch to the table, after this
    query wrote its newest batch (`last`).

    If this process has written the newest batch itself, the records of that batch are checked as well, because the
    other query may have written these records at the same time. The check is made only if it is certain that both
    queries read the same cluster and all records of their topics. This is certain only for jobs.
    """
    starts, ends = kafka_offsets(batch.start_offsets), kafka_offsets(batch.end_offsets)
    if history.is_running:
        starts |= kafka_offsets(last.properties.get(START_OFFSETS))
    for other in history.since:
        began, reached = (kafka_offsets(other.properties.get(key)) for key in (START_OFFSETS, END_OFFSETS))
        if batch.cluster is None or other.properties.get(CLUSTER) != batch.cluster or not began:
            continue
        if not history.since_is_whole:
            began = {}  # It is not known what the other query wrote before this batch.
        anew = created_again(ids_in(other, batch.cluster), batch.topic_ids)
        for place in sorted(p for p in ends if p[0] not in anew):
            first, behind = max(starts.get(place, 0), began.get(place, 0)), reached.get(place, 0)
            if first < behind:
                raise CheckpointMismatchError(
                    f"query {other.commit_user} has written the same records meanwhile (snapshot {other.id}: topic "
                    f"{place[0]} partition {place[1]}, offsets {first} up to {behind}): a second job reads the topic, "
                    f"or the table was replaced by its branch, which a second job writes. Stop the second job. "
                    f"{_REMEDIES}{_said_of_gap(batch, other, history)}",
                    user=other.commit_user,
                    topic=place[0],
                )


def _said_of_gap(batch: BatchIdentity, other: Snapshot, history: UserHistory) -> str:
    """Returns a sentence for an error message, about records that perhaps neither this query nor the other query (the
    query that wrote the snapshot `other`) has written. Returns an empty string if there are no such records.

    The records begin at the first offset of this batch, and end before the first offset that the other query is known
    to have read. This offset is known only from snapshots of the other query that are newer than this query's newest
    snapshot. So the other query may have written the records after all, in an older snapshot.
    """
    own = [s for s in history.since if s.commit_user == other.commit_user and history.since_is_whole]
    began = [kafka_offsets(s.properties.get(START_OFFSETS)) for s in own]
    for place, start in sorted(kafka_offsets(batch.start_offsets).items()):
        first = min((offsets[place] for offsets in began if place in offsets), default=start)
        if first > start:
            return (
                f" But the records that the other query has written since begin at offset {first} of topic {place[0]} "
                f"partition {place[1]}. If its earlier batches do not have the records from offset {start} to offset "
                f"{first}, then --reset-identity leaves these records out; --allow-reprocess reads them, and reads "
                "later records twice."
            )
    return ""


def of_other_cluster(batch: BatchIdentity, other: Snapshot) -> bool:
    """Returns True if a batch and a snapshot are certainly from different Kafka clusters. Then topics with the same
    name are different topics.

    Clusters are compared by their ids. If an id is not known, the servers in the settings of the jobs are compared
    instead.
    """
    itself = other.properties.get(CLUSTER)
    if batch.cluster is not None and itself is not None:
        return batch.cluster != itself
    known = other.properties.get(SOURCE)
    return batch.source is not None and known is not None and batch.source != known


def _recognise(batch: BatchIdentity, same: list[Snapshot], *, allow_reprocess: bool) -> WriteBatch | SkipBatch:
    stored = next((s.properties[DIGEST] for s in same if DIGEST in s.properties), None)
    if stored is not None and stored == batch.digest:
        return SkipBatch(
            snapshot_id=max(s.id for s in same),
            compacted=any(s.commit_kind is CommitKind.COMPACT for s in same),
        )
    if allow_reprocess:
        return WriteBatch()
    difference = "without its offsets" if stored is None else "with other offsets"
    raise CheckpointMismatchError(
        f"the table holds batch {batch.batch_id} of this query {difference}: the checkpoint was rewound or copied, "
        f"and this batch would take the number of another batch. {_REMEDIES}",
        table_batch=batch.batch_id,
        checkpoint_batch=batch.batch_id,
    )


def check_same_input(batch: BatchIdentity, replayed: Snapshot) -> None:
    """Checks that a snapshot with this batch's number, which another run of the query has written, holds the same
    input. If it does, the batch is done.

    Raises CheckpointMismatchError if the input differs: two runs of one query have read different records.
    """
    if replayed.properties.get(DIGEST) != batch.digest:
        raise CheckpointMismatchError(
            f"another run of this query has committed batch {batch.batch_id} with other input at the same time: the "
            f"checkpoint was copied. Stop one of the two runs. {_REMEDIES}",
            snapshot=replayed.id,
        )


_REMEDIES = (
    "Restore the checkpoint that wrote the table. Or start a new checkpoint from the offsets in the table "
    "(`bucketline offsets PATH` prints them) with --reset-identity. Or, if rows may be written twice, pass "
    "--allow-reprocess."
)
