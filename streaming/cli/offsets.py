"""`offsets`: where in Kafka a table has got to, as its own snapshots tell it."""

import json

import click

from bucketline.state.errors import UnsupportedTableError
from bucketline.streaming.cli.arguments import opened, table_arguments
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.texts import printable
from bucketline.streaming.table_offsets import newest_offsets


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
