"""The Kafka offsets that a table holds, from its own snapshots.

A sink stores the end offsets of a batch with the batch's rows, so the newest snapshot has exactly the offsets of the
table's rows, whatever happened to the checkpoint. A tag of the writer keeps the offsets when the snapshot has expired.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bucketline.state.commit.replay import writer_of
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.store.catalog.rollback import ROLLBACK_TAG
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.table.table import Table, handle_of
from bucketline.streaming.batch.inputs.offsets_log import is_kafka
from bucketline.streaming.batch.recover import END_OFFSETS

Topics = dict[str, dict[str, int]]
"""The next offset of each topic and partition, in the form of Spark's `startingOffsets`."""


@dataclass(frozen=True, slots=True)
class WriterOffsets:
    """The offsets up to which a writer has written Kafka's records into a table, by topic and partition. `snapshot` is
    the newest snapshot that has these offsets.
    """

    snapshot: Snapshot
    topics: Topics


def newest_offsets(table: Table, user: str | None = None) -> Iterator[WriterOffsets]:
    """Yields the newest offsets of each writer, newest first. If `user` is given, yields only the offsets of this
    commit user. Commit users that differ only in their `commit.user-prefix` count as one writer.

    Snapshots are read from the newest back to the newest snapshot with offsets. The offsets of other writers come from
    their tags. Writers whose tags no longer exist, for example after a rollback, come last; to find these writers, all
    snapshots are read. All snapshots are also read after an interrupted rollback: the rollback may have moved tags back
    without removing the snapshots, and the tag of the rollback may be on a snapshot that no longer exists.
    """
    wanted = None if user is None else writer_of(user)
    handle = handle_of(table)
    store = handle.snapshot_store
    latest = store.latest_id()
    walk = store.newest_first(latest) if latest is not None else iter(())
    with_offsets = (s for s in walk if wanted in (None, writer_of(s.commit_user)) and kafka_topics(s))
    tags = Tags(handle.io, handle.metadata_path).list()
    is_cut_short = any(t.name == ROLLBACK_TAG for t in tags)
    walked = list(with_offsets if is_cut_short else _up_to_rows(with_offsets))
    kept = [t.snapshot for t in tags if t.name != ROLLBACK_TAG]
    known = list(_newest_of_each(walked, kept, wanted))
    yield from known
    if wanted is None:
        seen = {writer_of(w.snapshot.commit_user) for w in known}
        every = _newest_of_each([*walked, *with_offsets], (), None)
        yield from (w for w in every if writer_of(w.snapshot.commit_user) not in seen)


def _up_to_rows(newest_first: Iterator[Snapshot]) -> Iterator[Snapshot]:
    """Yields the snapshots up to and including the first one that is not a compaction."""
    for snapshot in newest_first:
        yield snapshot
        if snapshot.commit_kind is not CommitKind.COMPACT:
            return


def _newest_of_each(
    walked: Sequence[Snapshot], kept: Sequence[Snapshot], wanted: str | None
) -> Iterator[WriterOffsets]:
    """Yields the newest offsets of each writer, newest first. If `wanted` is given, yields only the offsets of this
    writer.

    `walked` are snapshots without a gap between them, `kept` are snapshots of tags.
    """
    # A compaction may be published after a later batch than its own, so only snapshots with rows count.
    rows = {writer_of(s.commit_user) for s in walked if s.commit_kind is not CommitKind.COMPACT}
    late = {s.id for s in walked if s.commit_kind is CommitKind.COMPACT and writer_of(s.commit_user) in rows}
    snapshots = {s.id: s for s in (*kept, *walked) if s.id not in late}
    # A tag that was renewed stores up to which offsets the writer has read since its snapshot.
    snapshots |= {s.id: s for s in kept if s.id in snapshots and s.is_same_as(snapshots[s.id])}
    seen = set()
    for _, snapshot in sorted(snapshots.items(), reverse=True):
        topics, writer = kafka_topics(snapshot), writer_of(snapshot.commit_user)
        if topics and wanted in (None, writer) and writer not in seen:
            seen.add(writer)
            yield WriterOffsets(snapshot, topics)


def kafka_topics(snapshot: Snapshot) -> Topics:
    """Returns the Kafka offsets of all sources in a snapshot's end offsets; empty if there are none."""
    text = snapshot.properties.get(END_OFFSETS)
    try:
        sources = json.loads(text) if text is not None else []
    except (ValueError, RecursionError):
        return {}
    topics: Topics = {}
    for source in sources if isinstance(sources, list) else []:
        if is_kafka(source):
            topics |= source
    return topics
