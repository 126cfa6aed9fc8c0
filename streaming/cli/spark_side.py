"""The commands that need Spark: `quickstart`. Spark is imported when one of them runs, for the others do without."""

from importlib import import_module
from types import ModuleType

import click

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.table import open_table
from bucketline.streaming.cli.look import shown_snapshots
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format, print_table
from bucketline.streaming.cli.status import draw_status

_SHOWN_ROWS = 10


@program.command()
@click.option("--directory", metavar="D", help="An empty or new folder for everything; one in /tmp by default.")
@click.option("--batches", type=click.IntRange(1, 100), default=8, show_default=True, help="Micro-batches to stream.")
@click.option("--events", type=click.IntRange(1, 1_000_000), default=2000, show_default=True, help="Events in each.")
def quickstart(directory: str | None, batches: int, events: int) -> None:
    """Streams a generated order book with updates and deletes into a table, and shows what came of it.

    A real run of Spark on this machine: several micro-batches, compaction along the way and a full one at the end, then
    the table, its snapshots and its levels. What was streamed is kept, and the table is compared with it.
    """
    run = spark_module("quickstart")
    done = run.run_quickstart(directory, batches=batches, events=events, tell=lambda line: click.echo(line, err=True))
    table = open_table(done.table_path)
    _headline(f"bucketline status {table.path}")
    draw_status(table)
    _headline(f"bucketline compact {table.path}")
    click.echo(f"snapshot {table.compact()}")
    _headline(f"bucketline status {table.path}")
    draw_status(table)
    _headline(f"bucketline snapshots {table.path}")
    print_table(shown_snapshots(table), Format.TABLE)
    _headline(f"bucketline scan {table.path} --limit {_SHOWN_ROWS}")
    rows = table.to_arrow()
    print_table(rows.slice(0, _SHOWN_ROWS), Format.TABLE)
    if not done.explains(rows):
        raise CorruptFileError(f"{done}, but the table holds other rows: {table.path}", path=table.path)
    click.echo(f"\n{done}, and the table holds exactly these.")


def _headline(command: str) -> None:
    click.secho(f"\n$ {command}", bold=True)


def spark_module(name: str) -> ModuleType:
    """A module of `bucketline.streaming` that needs Spark. Raises OptionError where there is none."""
    try:
        return import_module(f"bucketline.streaming.{name}")
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise OptionError(
            "this command needs Spark: pip install 'bucketline[spark]', or use spark-submit", key="spark"
        ) from e
