"""`delete`: deletes the rows that meet a condition, without Spark."""

import click

from bucketline.state.store.table.table import handle_of
from bucketline.streaming.cli.arguments import opened, table_arguments
from bucketline.streaming.cli.program import program


@program.command(short_help="Deletes the rows that meet a condition.")
@table_arguments
@click.option(
    "--where", required=True, metavar="SQL", help="Condition, as \"id > 5 AND name LIKE 'a%'\"; 'true' for all rows."
)
def delete(path: str, option: tuple[str, ...], where: str) -> None:
    """Deletes the rows that meet a condition, in one commit.

    If another writer changes the same keys meanwhile, the delete is planned again.
    """
    table = opened(path, option)
    before = handle_of(table).snapshot_store.latest_id()
    snapshot_id = table.delete(where)
    click.echo("nothing to delete" if snapshot_id == (before or 0) else f"snapshot {snapshot_id}")
