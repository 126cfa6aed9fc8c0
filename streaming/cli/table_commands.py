"""`create` creates a table; `delete` deletes the rows that meet a condition. Both run without Spark."""

from functools import partial

import click

from bucketline.state.store.table.table import create_table, handle_of
from bucketline.streaming.cli.arguments import (
    assignments,
    given_catalog,
    given_storage,
    names,
    opened,
    storage_arguments,
    table_arguments,
)
from bucketline.streaming.cli.program import program


@program.command()
@click.option(
    "--table",
    "path",
    metavar="PATH",
    required=True,
    help="Location of the table: <warehouse>/<db>.db/<table>, or a name in the catalog.",
)
@click.option(
    "--schema", "columns", metavar="TEXT", required=True, help="Columns, for example 'id BIGINT NOT NULL, v STRING'."
)
@click.option(
    "--primary-key", metavar="A,B", multiple=True, help="Primary-key columns; without them an append table is created."
)
@click.option("--partition-by", metavar="A,B", multiple=True, help="Partition columns.")
@click.option(
    "-o", "--option", metavar="KEY=VALUE", multiple=True, help="Table option, for example bucket=4; repeatable."
)
@click.option("--comment", help="Comment of the table.")
@storage_arguments
def create(
    path: str,
    columns: str,
    primary_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    option: tuple[str, ...],
    comment: str | None,
) -> None:
    """Creates a table. Types are Paimon's: TIMESTAMP has no time zone, TIMESTAMP_LTZ is an instant."""
    named_catalog = given_catalog()
    create_in = (
        partial(create_table, storage_options=given_storage()) if named_catalog is None else named_catalog.create_table
    )
    made = create_in(
        path,
        columns,
        primary_key=names(primary_key),
        partition_by=names(partition_by),
        options=assignments(option, "-o"),
        comment=comment,
    )
    click.echo(made.path)


@program.command(short_help="Deletes the rows that meet a condition.")
@table_arguments
@click.option(
    "--where",
    required=True,
    metavar="SQL",
    help="Condition, for example \"id > 5 AND name LIKE 'a%'\"; 'true' deletes all rows.",
)
def delete(path: str, option: tuple[str, ...], where: str) -> None:
    """Deletes the rows that meet a condition, in one commit.

    If another writer changes the same keys meanwhile, the delete starts again from the newest snapshot.
    """
    table = opened(path, option)
    before = handle_of(table).snapshot_store.latest_id()
    snapshot_id = table.delete(where)
    click.echo("nothing to delete" if snapshot_id == (before or 0) else f"snapshot {snapshot_id}")
