"""Whether a checkpoint fits the topics and the Kafka cluster of the job file, checked before the job starts.

Offsets are valid only for the topic and cluster they came from. Spark reports some mistakes as lost data, and others
not at all: another cluster whose topic is long enough is read from the middle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bucketline.conf.source_options import begins_at_latest, kafka_source
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.table.table import Table, handle_of
from bucketline.streaming.batch.identity import newest_done_batch, newest_offsets_of, query_of
from bucketline.streaming.batch.recover import CheckpointMismatchError, ahead_of_table
from bucketline.streaming.batch.topic_ids import CLUSTER, TopicIds, created_again, ids_in
from bucketline.streaming.job.table_offsets import Topics, WriterOffsets, newest_offsets

_EARLIEST = -2


class OtherTopicError(CheckpointMismatchError):
    """The checkpoint is about topics that the job does not read."""

    code = "KAFKA_OTHER_TOPIC"


class OtherClusterError(CheckpointMismatchError):
    """The checkpoint is about another Kafka cluster."""

    code = "KAFKA_OTHER_CLUSTER"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The contents of a checkpoint: the topics of its newest offsets and the newest batch that Spark has noted as done;
    and the newest batch of its query in the table, with its cluster and the snapshot that says so."""

    path: str
    topics: tuple[str, ...]
    cluster: str | None
    done_batch: int | None = None
    written_batch: int | None = None
    snapshot: Snapshot | None = None

    def topic_ids(self, cluster: str | None) -> TopicIds:
        """The ids of its topics, if they are of this cluster."""
        return {} if self.snapshot is None or not self.topics else ids_in(self.snapshot, cluster)


def read_offsets(spark: Any, path: str) -> Topics:
    """The newest offsets of a checkpoint folder by topic and partition; empty if there is none yet."""
    found = newest_offsets_of(spark, path)
    return {
        topic: {str(p): int(offset) for p, offset in of.items()}
        for source in found.values()
        if isinstance(source, dict)
        for topic, of in source.items()
        if isinstance(of, dict)
    }


def read_checkpoint(spark: Any, path: str, table: Table) -> Checkpoint:
    """The contents of a checkpoint folder; empty if there is none yet."""
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
    """Returns if a job with these options, whose brokers belong to `cluster`, may continue a checkpoint.

    Raises OtherTopicError and OtherClusterError.
    """
    others = [topic for topic in checkpoint.topics if not reads_topic(options, topic)]
    if others:
        raise OtherTopicError(
            f"the checkpoint {checkpoint.path} is about topic {others[0]}, which the job does not read: its offsets "
            f"mean nothing for another topic. To move the job to another topic, give it a new checkpoint folder and "
            f"leave this one as it is; to leave topics out, run it once with --reset-identity (docs/kafka.md)",
            topic=others[0],
            checkpoint=checkpoint.path,
        )
    if checkpoint.topics and cluster is not None and checkpoint.cluster is not None and cluster != checkpoint.cluster:
        raise OtherClusterError(
            f"the checkpoint {checkpoint.path} is about Kafka cluster {checkpoint.cluster}, and the brokers belong to "
            f"{cluster}: offsets of one mean nothing in the other. To move the job, give it a new checkpoint folder "
            "(docs/kafka.md); if the new cluster is a copy with the same offsets, pass --allow-reprocess once",
            checkpoint=checkpoint.path,
            cluster=cluster,
        )


def check_written(checkpoint: Checkpoint, table: Table) -> None:
    """Returns unless the table lacks a batch that Spark has noted as done: a job that finds no new records would not
    notice.

    Raises CheckpointMismatchError, and MissingSnapshotError where no rollback explains it.
    """
    done, written = checkpoint.done_batch, checkpoint.written_batch
    if not checkpoint.topics or done is None or (written is not None and written >= done):
        return
    handle = handle_of(table)
    store = handle.snapshot_store
    if written is None and store.earliest_id() not in (None, 1):
        return  # What has expired may have held the batch: that is for the next batch to find out.
    newest = store.latest()
    if newest is not None or handle.io.list_names(f"{handle.path}/{MANIFEST_DIR}"):  # else it was made anew
        store.check_rolled_back(None, f"the checkpoint, at batch {done + 1},", newest)
    why = "the table was rolled back or replaced"
    raise ahead_of_table(done + 1, written, why, history_complete=True)


def check_start(checkpoint: Checkpoint, options: Mapping[str, str], table: Table, cluster: str | None) -> None:
    """Returns unless a new query would begin after the newest records of a topic that the table has records of.

    Raises CheckpointMismatchError: the records that came since would be in no batch.
    """
    if checkpoint.topics or not begins_at_latest(options):
        return
    for written in newest_offsets(table):
        topics = _chosen(written.topics, options) if is_of_cluster(written.snapshot, cluster) else {}
        if topics:
            user, topic = written.snapshot.commit_user, min(topics)
            raise CheckpointMismatchError(
                f"this is a new query, which would begin at the newest records (source.options.startingOffsets is "
                f"latest), but query {user} has already written topic {topic!r} into the table: what came since would "
                "be lost. Either restore the checkpoint that wrote the table; or begin where the table ends with "
                "--reset-identity; or name startingOffsets; or, if the records in between are not wanted, pass "
                "--allow-reprocess",
                user=user,
                topic=topic,
            )


def is_of_cluster(snapshot: Snapshot, cluster: str | None) -> bool:
    """Whether a snapshot's offsets may be those of a cluster: False only if both clusters are known and differ."""
    known = snapshot.properties.get(CLUSTER)
    return cluster is None or known is None or known == cluster


def topics_as_now(
    written: WriterOffsets, cluster: str | None, now: TopicIds, partitions: Mapping[str, Sequence[str]]
) -> Topics:
    """The offsets of a writer. A topic that was created again since begins at its first record: it has the partitions
    of today, where they are known."""
    topics = written.topics
    anew = topics.keys() & created_again(ids_in(written.snapshot, cluster), now)
    return topics | {topic: dict.fromkeys(partitions.get(topic, topics[topic]), _EARLIEST) for topic in anew}


def restart_offsets(
    written: Iterable[Topics], options: Mapping[str, str], partitions: Mapping[str, Sequence[str]]
) -> Topics:
    """Where a source with these options begins to read what the table does not have; empty if the table knows none of
    its topics. `written` are the offsets of the table's writers, newest first: of each partition the first counts.

    `partitions` are those that the source reads now, empty where they are not known. Spark demands each of them: one
    that no writer knows begins at its first record. Topics that are gone are left out; of partitions that are gone only
    those of a topic's newest writer are kept: Spark then says that they are. An older writer that was further on has
    read a topic of that name that is no more.
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
    """The topics that the source reads, among the given ones."""
    source = kafka_source(options)
    chosen = {
        topic: {p: offset for p, offset in partitions.items() if source.reads_partition(topic, int(p))}
        for topic, partitions in topics.items()
    }
    return {topic: partitions for topic, partitions in chosen.items() if partitions}


def reads_topic(options: Mapping[str, str], topic: str) -> bool:
    """Whether a Kafka source with these options reads a topic."""
    return kafka_source(options).reads(topic)
