"""`sql`: statements from arguments, files or the standard input, or a shell with history."""

import os
import readline
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pyarrow as pa

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.secrets import secret_values
from bucketline.state.sql.parse import parse_script, parse_statement
from bucketline.state.sql.statement import CreateCatalog, Query, Statement
from bucketline.state.sql.words import ends_statement, split_script
from bucketline.state.store.sql.queries import LOCAL_QUERIES, Queries
from bucketline.state.store.sql.run import run_statement
from bucketline.state.store.sql.session import SqlSession
from bucketline.streaming.cli.arguments import format_option, given_catalog, storage_arguments
from bucketline.streaming.cli.program import program, report_error
from bucketline.streaming.cli.rows import Format, print_rows, print_table
from bucketline.streaming.cli.spark_side import spark_module
from bucketline.streaming.job.start.silence import broken_silence

HISTORY_LINES = 2000
_PROMPT, _CONTINUED = "bucketline> ", "         -> "
_ENDS = ("quit", "exit")


@program.command(short_help="Runs SQL statements, or opens a shell.")
@storage_arguments
@click.option("-e", "--execute", "texts", metavar="TEXT", multiple=True, help="Statements; repeatable.")
@click.option("-f", "--file", "files", metavar="FILE", multiple=True, help="File with statements; repeatable.")
@click.option("--spark", is_flag=True, help="Let Spark run the queries, with joins, windows and all of its functions.")
@format_option
def sql(texts: tuple[str, ...], files: tuple[str, ...], spark: bool, form: Format) -> None:
    """Runs SQL statements in the syntax of Flink or Spark: definitions, changes of rows, CALL, system tables, SELECT.

    A semicolon ends a statement. Files are run before --execute. Without --file and --execute, statements are read from
    the standard input; if the standard input is a terminal, a shell starts, which Ctrl-D or quit; ends. The first
    statement that fails ends the command, but not the shell.
    """
    queries: Queries = LOCAL_QUERIES
    if spark:
        sessions = spark_module("job.session")
        is_own = not sessions.is_running()
        with broken_silence("starting Spark", _say):
            session = sessions.start_session("bucketline sql")
        if is_own:
            click.get_current_context().call_on_close(lambda: sessions.end_session(session))
        queries = spark_module("sql.spark_queries").SparkQueries(session)
    state = SqlSession.at(given_catalog())

    def run(statement: Statement) -> None:
        _run(state, statement, queries, form)

    scripts = [*(_file_text(name) for name in files), *texts]
    if not scripts and sys.stdin.isatty():
        _shell(run)
        return
    for text in scripts or [sys.stdin.read()]:
        for _, statement in parse_script(text):
            run(statement)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _file_text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise OptionError(f"{name} cannot be read: {e}", key="file", path=name) from e


def _run(state: SqlSession, statement: Statement, queries: Queries, form: Format) -> None:
    """Runs a statement and prints its result. Rows of a query are printed as they arrive."""
    if isinstance(statement, CreateCatalog):
        program.keep_secret(statement.options)
    if isinstance(statement, Query):
        rows: pa.RecordBatchReader = queries.rows(state, statement)
        print_rows(rows, rows.schema, form)
    else:
        print_table(run_statement(state, statement, queries), form)


def _shell(run: Callable[[Statement], None]) -> None:
    """Reads statements from the terminal until it ends. An error is printed, and the shell goes on."""
    history = _history_file()
    if history.exists():
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_LINES)
    readline.set_auto_history(False)
    try:
        for text in _typed():
            _run_typed(text, run)
    finally:
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(history)


def _run_typed(text: str, run: Callable[[Statement], None]) -> None:
    try:
        statement = parse_statement(text)
        if not (isinstance(statement, CreateCatalog) and secret_values(statement.options)):
            readline.add_history(" ".join(text.split()) + ";")
        run(statement)
    except (BucketlineError, OSError) as e:
        report_error(e)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)


def _typed() -> Iterator[str]:
    """Yields the statements that the user types, without semicolons. Ctrl-C drops a statement that is not complete."""
    begun = ""
    while True:
        try:
            begun += input(_CONTINUED if begun.strip() else _PROMPT) + "\n"
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
            begun = ""
            continue
        if begun.strip().rstrip(";").strip().lower() in _ENDS:
            return
        if not begun.strip():
            begun = ""
        elif ends_statement(begun):
            try:
                parts = list(split_script(begun))
            except BucketlineError as e:
                report_error(e)
                parts = []
            begun = ""
            yield from parts


def _history_file() -> Path:
    """Returns the path of the shell's history: a file below `$XDG_STATE_HOME`, by default below `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "bucketline" / "sql-history"
