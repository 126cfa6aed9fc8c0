"""Where in Kafka a table has got to, as its own snapshots tell it.

A sink stores the end offsets of a batch with the batch's rows, so what the newest snapshot says is exactly what the
table holds, whatever became of the checkpoint. A writer's tag still tells it when the snapshot has expired.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bucketline.state.format.entries import Snapshot
from bucketline.state.store.table import Table
from bucketline.state.store.tags import Tags
from bucketline.streaming.recover import END_OFFSETS

Topics = dict[str, dict[str, int]]
"""From topic and partition to the next offset, which Spark reads as where to start."""


@dataclass(frozen=True, slots=True)
class WriterOffsets:
    """Where one commit user has got to; `snapshot` is the newest that says so."""

    snapshot: Snapshot
    topics: Topics


def newest_offsets(table: Table, user: str | None = None) -> Iterator[WriterOffsets]:
    """The newest offsets of each commit user that can be found quickly, newest first; only of `user` if given.

    Snapshots are walked from the newest back to the first with offsets; other users are known by their tags.
    """
    found = [t.snapshot for t in Tags(table.io, table.metadata_path).list()]
    store = table.snapshot_store
    latest = store.latest_id()
    for snapshot in store.newest_first(latest) if latest is not None else ():
        if user in (None, snapshot.commit_user) and kafka_topics(snapshot):
            found.append(snapshot)
            break
    seen = set()
    for snapshot in sorted(found, key=lambda s: s.id, reverse=True):
        topics = kafka_topics(snapshot)
        if topics and user in (None, snapshot.commit_user) and snapshot.commit_user not in seen:
            seen.add(snapshot.commit_user)
            yield WriterOffsets(snapshot, topics)


def kafka_topics(snapshot: Snapshot) -> Topics:
    """The Kafka offsets among a snapshot's end offsets, those of all its sources together; empty if there are none."""
    text = snapshot.properties.get(END_OFFSETS)
    try:
        sources = json.loads(text) if text is not None else []
    except ValueError:
        return {}
    found: Topics = {}
    for source in sources if isinstance(sources, list) else []:
        if _is_kafka(source):
            found |= source
    return found


def _is_kafka(source: Any) -> bool:
    return isinstance(source, dict) and all(
        isinstance(partitions, dict)
        and all(p.isdigit() and isinstance(offset, int) for p, offset in partitions.items())
        for partitions in source.values()
    )
