"""`offsets`: prints the Kafka offsets that a table holds."""

import json

import click

from bucketline.state.errors import UnsupportedTableError, UserNotFoundError
from bucketline.streaming.cli.arguments import opened, table_arguments
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.texts import printable
from bucketline.streaming.job.kafka.table_offsets import newest_offsets


@program.command(short_help="Prints the Kafka offsets of the newest snapshots, as JSON.")
@table_arguments
@click.option(
    "--user", metavar="USER", help="Commit user whose offsets are printed; by default the user of the newest batch."
)
def offsets(path: str, option: tuple[str, ...], user: str | None) -> None:
    """Prints the Kafka offsets in the newest snapshots, as JSON for Spark's startingOffsets.

    A job that starts with these offsets and a new checkpoint reads exactly the records that the table
    does not have yet.
    """
    table = opened(path, option)
    writers = list(newest_offsets(table, user))
    if not writers:
        if user is not None:
            others = ", ".join(w.snapshot.commit_user for w in newest_offsets(table)) or "none"
            raise UserNotFoundError(
                f"no snapshot or tag of {table.path} holds Kafka offsets of commit user {user!r}; users with offsets: "
                f"{others}",
                path=table.path,
                user=user,
            )
        if not table.snapshots().num_rows:
            raise UnsupportedTableError(
                f"{table.path} has no snapshot yet: no batch has been written, so no Kafka offsets are known",
                path=table.path,
            )
        raise UnsupportedTableError(
            f"no snapshot or tag of {table.path} holds Kafka offsets: either no job of bucketline wrote the table from "
            "Kafka, or those snapshots have expired",
            path=table.path,
        )
    newest = writers[0]
    click.echo(json.dumps(newest.topics, separators=(",", ":")))
    click.echo(
        f"batch {newest.snapshot.commit_identifier} of {printable(newest.snapshot.commit_user)}, "
        f"snapshot {newest.snapshot.id}",
        err=True,
    )
    for other in writers[1:]:
        click.echo(
            f"{printable(other.snapshot.commit_user)} also wrote {printable(', '.join(other.topics))}; --user prints "
            "its offsets",
            err=True,
        )
