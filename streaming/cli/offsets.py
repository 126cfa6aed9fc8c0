"""`offsets`: where in Kafka a table has got to, as its own snapshots tell it.

A sink stores the end offsets of a batch with the batch's rows, so what the newest snapshot says is exactly what the
table holds, whatever became of the checkpoint. A writer's tag still tells it when the snapshot has expired.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.table import Table
from bucketline.state.store.tags import Tags
from bucketline.streaming.cli.arguments import opened, table_arguments
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.texts import printable
from bucketline.streaming.recover import END_OFFSETS

Topics = dict[str, dict[str, int]]
"""From topic and partition to the next offset, which Spark reads as where to start."""


@dataclass(frozen=True, slots=True)
class WriterOffsets:
    """Where one commit user has got to; `snapshot` is the newest that says so."""

    snapshot: Snapshot
    topics: Topics


@program.command()
@table_arguments
@click.option("--user", metavar="USER", help="The commit user to ask for; that of the newest batch by default.")
def offsets(path: str, option: tuple[str, ...], user: str | None) -> None:
    """Prints Kafka offsets held in the newest snapshots, as JSON for Spark's startingOffsets.

    A job that starts with them and a new checkpoint reads exactly what the table does not hold yet.
    """
    table = opened(path, option)
    writers = list(newest_offsets(table, user))
    if not writers:
        whose = "" if user is None else f" of commit user {user}"
        raise UnsupportedTableError(
            f"no snapshot or tag of {table.path} holds Kafka offsets{whose}: either no sink of bucketline wrote it "
            "from Kafka, or those snapshots have expired",
            path=table.path,
        )
    found = writers[0]
    click.echo(json.dumps(found.topics, separators=(",", ":")))
    click.echo(
        f"batch {found.snapshot.commit_identifier} of {printable(found.snapshot.commit_user)}, "
        f"snapshot {found.snapshot.id}",
        err=True,
    )
    for other in writers[1:]:
        click.echo(
            f"{printable(other.snapshot.commit_user)} wrote {printable(', '.join(other.topics))} as well: "
            "--user prints its offsets",
            err=True,
        )


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
