"""Checks before a job starts that the checkpoint fits the topics and the Kafka cluster of the job file.

Offsets are valid only for the topic and cluster they came from. Spark reports some mistakes as lost data, and does not
notice others: if another cluster has a topic with enough records, Spark reads this topic from the middle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bucketline.conf.sources.source_options import begins_at_latest, kafka_source
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.table.table import Table, handle_of
from bucketline.streaming.batch.identity import newest_done_batch, newest_offsets_of, query_of
from bucketline.streaming.batch.inputs.topic_ids import CLUSTER, TopicIds, created_again, ids_in
from bucketline.streaming.batch.recover import CheckpointMismatchError, ahead_of_table
from bucketline.streaming.job.kafka.table_offsets import Topics, WriterOffsets, newest_offsets

_EARLIEST = -2


class OtherTopicError(CheckpointMismatchError):
    """The checkpoint belongs to topics that the job does not read."""

    code = "KAFKA_OTHER_TOPIC"


class OtherClusterError(CheckpointMismatchError):
    """The checkpoint belongs to another Kafka cluster."""

    code = "KAFKA_OTHER_CLUSTER"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says, and what the table says about the same query.

    The checkpoint has the topics of its newest offsets, and the newest batch that Spark has recorded as done
    (`done_batch`). The table has the newest batch that was written (`written_batch`), the Kafka cluster of this batch,
    and the snapshot with the offsets of this batch.
    """

    path: str
    topics: tuple[str, ...]
    cluster: str | None
    done_batch: int | None = None
    written_batch: int | None = None
    snapshot: Snapshot | None = None

    def topic_ids(self, cluster: str | None) -> TopicIds:
        """Returns the ids of the checkpoint's topics. The result is empty if the topics may belong to a cluster other
        than `cluster`.
        """
        return {} if self.snapshot is None or not self.topics else ids_in(self.snapshot, cluster)


def read_offsets(spark: Any, path: str) -> Topics:
    """Returns the newest offsets of a checkpoint folder by topic and partition; empty if the folder has no
    offsets yet.
    """
    found = newest_offsets_of(spark, path)
    return {
        topic: {str(p): int(offset) for p, offset in of.items()}
        for source in found.values()
        if isinstance(source, dict)
        for topic, of in source.items()
        if isinstance(of, dict)
    }


def read_checkpoint(spark: Any, path: str, table: Table) -> Checkpoint:
    """Reads a checkpoint folder. Returns an empty Checkpoint if the folder has no offsets yet."""
    query = query_of(spark, path)
    offsets = newest_offsets_of(spark, path)
    topics = {t for of in offsets.values() if isinstance(of, dict) for t, p in of.items() if isinstance(p, dict)}
    known = None if query is None else next(newest_offsets(table, query), None)
    snapshot = None if known is None else known.snapshot
    return Checkpoint(
        path,
        tuple(sorted(topics)),
        cluster=None if snapshot is None else snapshot.properties.get(CLUSTER),
        done_batch=None if query is None else newest_done_batch(spark, path),
        written_batch=None if snapshot is None else snapshot.commit_identifier,
        snapshot=snapshot,
    )


def check_source(checkpoint: Checkpoint, options: Mapping[str, str], cluster: str | None) -> None:
    """Checks that a job with these options, whose brokers belong to `cluster`, may continue a checkpoint.

    Raises OtherTopicError or OtherClusterError if it may not.
    """
    others = [topic for topic in checkpoint.topics if not reads_topic(options, topic)]
    if others:
        raise OtherTopicError(
            f"the checkpoint {checkpoint.path} belongs to topic {others[0]}, which the job does not read: the offsets "
            "of a topic are invalid for another topic. To move the job to another topic, give the job a new checkpoint "
            "folder and keep the old checkpoint unchanged; to leave topics out, run the job once with --reset-identity "
            "(docs/kafka.md)",
            topic=others[0],
            checkpoint=checkpoint.path,
        )
    if checkpoint.topics and cluster is not None and checkpoint.cluster is not None and cluster != checkpoint.cluster:
        raise OtherClusterError(
            f"the checkpoint {checkpoint.path} belongs to Kafka cluster {checkpoint.cluster}, but the brokers "
            f"belong to {cluster}: offsets of one cluster are invalid in another cluster. To move the job, give the "
            "job a new checkpoint folder (docs/kafka.md); if the new cluster is a copy with the same offsets, pass "
            "--allow-reprocess once",
            checkpoint=checkpoint.path,
            cluster=cluster,
        )


def check_written(checkpoint: Checkpoint, table: Table) -> None:
    """Checks that the table has the newest batch that Spark has recorded as done.

    A job that finds no new records would not notice a missing batch. If the table lacks the batch, the function raises
    CheckpointMismatchError, or MissingSnapshotError if a snapshot is missing although the table was not rolled back.
    """
    done, written = checkpoint.done_batch, checkpoint.written_batch
    if not checkpoint.topics or done is None or (written is not None and written >= done):
        return
    handle = handle_of(table)
    store = handle.snapshot_store
    if written is None and store.earliest_id() not in (None, 1):
        return  # The snapshot of the batch may have expired. The next batch finds out whether this is so.
    newest = store.latest()
    if newest is not None or handle.io.list_names(f"{handle.path}/{MANIFEST_DIR}"):  # otherwise the table was created
        # again
        store.check_rolled_back(None, f"the checkpoint, at batch {done + 1},", newest)
    why = "the table was rolled back or replaced"
    raise ahead_of_table(done + 1, written, why, history_complete=True)


def check_start(checkpoint: Checkpoint, options: Mapping[str, str], table: Table, cluster: str | None) -> None:
    """Checks that a new query would not begin at the newest records of a topic whose earlier records are in the table.

    Raises CheckpointMismatchError if it would: no batch would read the records between the last record in the table and
    the newest records.
    """
    if checkpoint.topics or not begins_at_latest(options):
        return
    for written in newest_offsets(table):
        topics = _chosen(written.topics, options) if is_of_cluster(written.snapshot, cluster) else {}
        if topics:
            user, topic = written.snapshot.commit_user, min(topics)
            raise CheckpointMismatchError(
                "this is a new query, which would begin at the newest records (source.options.startingOffsets is "
                f"latest), but query {user} has already written topic {topic!r} into the table: later records that "
                "it has not written would be lost. Restore the checkpoint that wrote the table; or begin at the "
                "offsets in the table with --reset-identity; or set startingOffsets; or, if these records are not "
                "wanted, pass --allow-reprocess",
                user=user,
                topic=topic,
            )


def is_of_cluster(snapshot: Snapshot, cluster: str | None) -> bool:
    """Returns True if a snapshot's offsets may belong to a cluster. It returns False only if both clusters are known
    and differ.
    """
    known = snapshot.properties.get(CLUSTER)
    return cluster is None or known is None or known == cluster


def topics_as_now(
    written: WriterOffsets, cluster: str | None, now: TopicIds, partitions: Mapping[str, Sequence[str]]
) -> Topics:
    """Returns the offsets that a writer has stored, corrected for topics that were deleted and created again. Such a
    topic begins at its first record in each of its partitions; `partitions` has the partitions that the topics have
    now. A topic that is missing in `partitions` keeps the partitions that the writer knew. `now` has the current ids of
    the topics.
    """
    topics = written.topics
    anew = topics.keys() & created_again(ids_in(written.snapshot, cluster), now)
    return topics | {topic: dict.fromkeys(partitions.get(topic, topics[topic]), _EARLIEST) for topic in anew}


def restart_offsets(
    written: Iterable[Topics], options: Mapping[str, str], partitions: Mapping[str, Sequence[str]]
) -> Topics:
    """Returns the offsets at which a source with these options begins in order to read what the table lacks. The result
    is empty if the table has no offsets of the source's topics.

    `written` are the offsets of the table's writers, newest writer first. For each partition the newest writer that has
    an offset counts. But if an older writer has a higher offset than the newest writer, the offsets of the older writer
    are ignored, because they belong to an earlier topic of the same name.

    `partitions` are the partitions that the source reads now, empty if not known. The result has an offset for each of
    these partitions, because Spark demands it; a partition that no writer has read begins at its first record. The
    result has no offsets of topics that no longer exist. It has offsets of partitions that no longer exist only if the
    topic's newest writer has read them: Spark then reports that these partitions are missing.
    """
    offsets: Topics = {}
    for topics in written:
        for topic, known in _chosen(topics, options).items():
            first = offsets.setdefault(topic, known)
            if all(offset <= first.get(p, offset) for p, offset in known.items()):
                offsets[topic] = {p: o for p, o in known.items() if p in partitions.get(topic, ())} | first
        if partitions and all(offsets.get(topic, {}).keys() >= {*numbers} for topic, numbers in partitions.items()):
            break
    if not offsets or not partitions:
        return offsets
    return {topic: {p: _EARLIEST for p in numbers} | offsets.get(topic, {}) for topic, numbers in partitions.items()}


def _chosen(topics: Topics, options: Mapping[str, str]) -> Topics:
    """Returns the topics and partitions in `topics` that a source with these options reads."""
    source = kafka_source(options)
    chosen = {
        topic: {p: offset for p, offset in partitions.items() if source.reads_partition(topic, int(p))}
        for topic, partitions in topics.items()
    }
    return {topic: partitions for topic, partitions in chosen.items() if partitions}


def reads_topic(options: Mapping[str, str], topic: str) -> bool:
    """Returns True if a Kafka source with these options reads the topic."""
    return kafka_source(options).reads(topic)
