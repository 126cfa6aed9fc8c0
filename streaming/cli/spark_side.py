"""The commands that need Spark: `ingest`, `quickstart`. This module is imported only when one of them runs."""

import logging
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

import click

from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.job_file.references import has_reference
from bucketline.conf.resolve import (
    look_up,
    read_assignments,
    read_settings_file,
    resolve_jobs,
)
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.conf.secrets import MaskingFilter
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.table.table import handle_of
from bucketline.streaming.batch.failure import SparkLog
from bucketline.streaming.cli.arguments import (
    format_option,
    given_catalog,
    given_place_arguments,
    given_storage,
    storage_arguments,
)
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.read_commands import shown_snapshots
from bucketline.streaming.cli.rows import Format, print_table
from bucketline.streaming.cli.settings import settings_table
from bucketline.streaming.cli.status import draw_status
from bucketline.streaming.job.ending import process_ending, signals_to
from bucketline.streaming.job.many.ask import ask_job
from bucketline.streaming.log import log_to_standard_error
from bucketline.streaming.many.ledger_files import Wish

_SHOWN_ROWS = 10
_NOT_READ = (
    "note: the table was not read. If it exists, its own options come before defaults, and create.* has no effect; "
    "`bucketline sql` shows them: SELECT * FROM <table>$options"
)


@program.command(short_help="Runs the streaming job of a job file.")
@click.option("--conf-file", metavar="F", required=True, help="The job: .yaml, .json or .properties.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Overrides the file; repeatable.")
@click.option("--reset-identity", is_flag=True, help="Start a new checkpoint at the Kafka offsets in the table.")
@click.option("--allow-reprocess", is_flag=True, help="Write a batch even if checkpoint and table disagree.")
@click.option(
    "--print-config",
    is_flag=True,
    help="Print each setting and where it comes from, and stop. Only the job file is read; table, storage, catalog "
    "and Kafka are not.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Read the first records of each partition; print to which table they go, whether the table exists, its "
    "columns and the number of bad records; and stop. Nothing is written.",
)
@click.option(
    "--unpark",
    metavar="TABLE",
    help=(
        "Ask a job of several tables to write a parked table again, with the records that it missed; nothing else is "
        "done."
    ),
)
@click.option(
    "--forget",
    metavar="TABLE",
    help="Ask a job of several tables to forget a table that was dropped or replaced; nothing else is done.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors, also Spark's own.")
@format_option
def ingest(
    conf_file: str,
    settings: tuple[str, ...],
    reset_identity: bool,
    allow_reprocess: bool,
    print_config: bool,
    dry_run: bool,
    unpark: str | None,
    forget: str | None,
    debug: bool,
    form: Format,
) -> None:
    """Runs the streaming job of a job file. The job ends when its trigger is done, or after Ctrl-C or SIGTERM.

    The same job with spark-submit: spark-submit --py-files "$(bucketline py-files)" ... "$(bucketline job-file)"
    --conf-file F.yaml
    """
    program.debug = program.debug or debug
    _refuse_together(
        {"--print-config": print_config, "--dry-run": dry_run, "--unpark": unpark, "--forget": forget},
        {"--reset-identity": reset_identity, "--allow-reprocess": allow_reprocess},
    )
    layers = read_settings_file(conf_file), read_assignments(settings)
    for layer in layers:
        program.keep_secret({key: s.text for key, s in layer.items() if not has_reference(s.text)})
    if print_config:
        config = resolve_jobs(*layers)
        print_table(settings_table(config), form)
        click.echo(_NOT_READ, err=True)
        return
    config = resolve_jobs(look_up(*layers))
    program.keep_secret({key: setting.text for key, setting in config.settings.items()})
    if unpark is not None or forget is not None:
        _ask(config, unpark, forget)
        return
    log_to_standard_error()
    for logger in (logging.getLogger(), logging.getLogger("bucketline")):
        for handler in logger.handlers:
            handler.addFilter(MaskingFilter(program.secrets))
    ending, log = process_ending(), SparkLog.EVERYTHING if program.debug else SparkLog.OURS_ONCE
    if dry_run:
        with signals_to(ending):
            print_table(spark_module("job.many.dry_run").dry_run(config, None, ending, log), form)
        return
    with signals_to(ending):
        spark_module("job.many.run").run_any(
            config,
            reset_identity=reset_identity,
            allow_reprocess=allow_reprocess,
            ending=ending,
            log=log,
        )


@program.command(short_help="Streams generated orders into a new table and shows it.")
@click.option("--directory", metavar="D", help="An empty or new folder for all files; by default a folder in /tmp.")
@click.option("--batches", type=click.IntRange(1, 100), default=8, show_default=True, help="Micro-batches to stream.")
@click.option("--events", type=click.IntRange(1, 1_000_000), default=2000, show_default=True, help="Events in each.")
@storage_arguments
def quickstart(directory: str | None, batches: int, events: int) -> None:
    """Streams generated orders with updates and deletes into a table, and shows the result.

    Spark runs on this machine and writes several micro-batches, which compact the table on the way. After a full
    compaction at the end, the command shows the table, its snapshots and its levels, and compares the rows of the table
    with the generated rows.

    With --warehouse or --catalog the table is shop.orders in that warehouse or catalog, and the folder (--directory)
    has the input and the checkpoint.
    """
    ending, catalog = process_ending(), given_catalog()
    if catalog is None and given_storage():
        raise click.UsageError("--storage has no effect without a warehouse on that storage: add --warehouse")
    with signals_to(ending):
        job = spark_module("job.quickstart")
        streamed = job.run_quickstart(
            directory,
            catalog=catalog,
            batches=batches,
            events=events,
            tell=lambda line: click.echo(line, err=True),
            ending=ending,
            log=SparkLog.EVERYTHING if program.debug else SparkLog.OURS_ONCE,
        )
    table = streamed.table.refreshed()
    place = table.path if catalog is None else f"{job.TABLE}{given_place_arguments()}"
    if streamed.ended_by is not None:
        click.echo(
            f"{streamed.ended_by}: quickstart ended after the running batch; the rows written so far are in {place}"
        )
        return
    _headline(f"bucketline status {place}")
    draw_status(handle_of(table))
    _headline(f"bucketline compact {place}")
    click.echo(f"snapshot {table.compact()}")
    _headline(f"bucketline status {place}")
    draw_status(handle_of(table))
    _headline(f"bucketline snapshots {place}")
    print_table(shown_snapshots(table), Format.TABLE)
    _headline(f"bucketline scan {place} --limit {_SHOWN_ROWS}")
    rows = table.to_arrow()
    print_table(rows.slice(0, _SHOWN_ROWS), Format.TABLE)
    if not streamed.explains(rows):
        raise CorruptFileError(f"{streamed}, but the table {place} holds different rows", path=table.path)
    click.echo(f"\n{streamed}, and the table holds exactly these.")


def _refuse_together(alone: Mapping[str, object], of_a_run: Mapping[str, object]) -> None:
    """Raises UsageError if options exclude each other. Each option in `alone` does something instead of running the
    job, so it excludes the other options in `alone` and the options in `of_a_run`, which only a run of the job uses.
    """
    given = [name for name, value in alone.items() if value]
    others = [*given[1:], *(name for name, value in of_a_run.items() if value)]
    if given and others:
        raise click.UsageError(f"{given[0]} cannot be combined with {others[0]}: remove one of the two options")


def _ask(config: JobConfig | RoutedJob, unpark: str | None, forget: str | None) -> None:
    """Writes a request to unpark or to forget a table into the job's checkpoint."""
    if isinstance(config, JobConfig):
        raise click.UsageError("--unpark and --forget need a job with 'tables', and this job has one table")
    for wish, table in ((Wish.UNPARK, unpark), (Wish.FORGET, forget)):
        if table is not None:
            ask_job(config, wish, table)
            click.echo(f"the job is asked to {wish.value} {table}: it does so with its next batch")


def _headline(command: str) -> None:
    click.secho(f"\n$ {command}", bold=True)


def spark_module(name: str) -> ModuleType:
    """Imports a module of `bucketline.streaming` that needs Spark. Raises OptionError if Spark is not installed."""
    try:
        return import_module(f"bucketline.streaming.{name}")
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise OptionError(
            "this command needs Spark: pip install pyspark pandas (the extra 'spark'), or use spark-submit", key="spark"
        ) from e
