"""`scan`, `snapshots`, `files`, `schema`: print what is in a table."""

import os
from collections.abc import Iterable
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.conf.secrets import mask
from bucketline.conf.wording import counted
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_places import place_fields, places_among
from bucketline.state.format.row_ranges import kept_schema
from bucketline.state.sql.compute.condition import Condition
from bucketline.state.sql.compute.plan_condition import plan_condition
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Version, Versions
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.types.columns_text import type_text
from bucketline.streaming.cli.arguments import format_option, names, opened, table_arguments, version
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.progress_bar import progress_bar
from bucketline.streaming.cli.rows import Format, print_rows, print_table

# The columns that a person looks at first; a table of all columns is wider than any terminal.
_SNAPSHOT_COLUMNS = [
    "snapshot_id",
    "commit_time",
    "commit_kind",
    "commit_user",
    "commit_identifier",
    "total_record_count",
    "delta_record_count",
    "schema_id",
]
_FILE_COLUMNS = [
    "partition",
    "bucket",
    "level",
    "record_count",
    "file_size_in_bytes",
    "min_key",
    "max_key",
    "min_sequence_number",
    "max_sequence_number",
    "deleteRowCount",
    "creation_time",
    "file_source",
]
_COLUMNS_SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("column", pa.string()),
        ("type", pa.string()),
        ("nullable", pa.bool_()),
        ("key", pa.string()),
        ("comment", pa.string()),
    ]
)
_OPTIONS_SCHEMA = pa.schema([("option", pa.string()), ("value", pa.string())])


@program.command(short_help="Prints rows of a table.")
@table_arguments
@click.option("--columns", metavar="A,B", multiple=True, help="Columns to print, in this order; all by default.")
@click.option("--where", metavar="SQL", help="Condition, for example \"id > 5 AND name LIKE 'a%'\".")
@click.option("--snapshot", metavar="N", help="Read this snapshot or tag instead of the newest snapshot.")
@click.option("--changes-since", metavar="N", help="Rows committed after this snapshot or tag, with their row kinds.")
@click.option("--read-optimized", is_flag=True, help="Read only the last level, without merging.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after this number of rows.")
@click.option("--output", metavar="FILE.parquet", help="Write the rows to a new Parquet file instead.")
@format_option
def scan(
    path: str,
    option: tuple[str, ...],
    columns: tuple[str, ...],
    where: str | None,
    snapshot: str | None,
    changes_since: str | None,
    read_optimized: bool,
    limit: int | None,
    output: str | None,
    form: Format,
) -> None:
    """Reads rows of the newest snapshot, one row for each primary key.

    Conditions are Spark's SQL. Files that cannot match are skipped, if the condition compares columns with literals by
    =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL or LIKE, joined by AND, OR and NOT. Strings are in 'single
    quotes', bytes are X'0aff', instants have a zone ('2024-12-31 12:00:00Z').
    """
    if output is not None:
        check_output(output)
    table = opened(path, option)
    at, since = (None if text is None else version(text) for text in (snapshot, changes_since))
    schema = _schema_at(handle_of(table), at)
    wanted = _known_columns(schema, names(columns)) if columns else None
    condition = _condition(schema, where)
    rows = table.to_batches(wanted, condition, at, read_optimized, changes_since=since, limit=limit)
    if output is None:
        print_rows(rows, rows.schema, form)
    else:
        count = write_parquet(rows, rows.schema, output)
        click.echo(f"{counted(count, 'row')} written to {output}", err=True)


@program.command()
@table_arguments
@format_option
def snapshots(path: str, option: tuple[str, ...], form: Format) -> None:
    """Lists the snapshots, oldest first.

    The columns are those of Paimon's $snapshots. `--format table` shows only the most important columns; `json` and
    `csv` show all.
    """
    table = opened(path, option)
    print_table(shown_snapshots(table) if form is Format.TABLE else table.snapshots(), form)


def shown_snapshots(table: Table) -> pa.Table:
    """Returns the snapshots, with the most important columns only."""
    return table.snapshots().select(_SNAPSHOT_COLUMNS)


@program.command()
@table_arguments
@format_option
def files(path: str, option: tuple[str, ...], form: Format) -> None:
    """Lists the live data files of the newest snapshot.

    The columns are those of Paimon's $files. `--format table` shows only the most important columns; `json` and `csv`
    show all.
    """
    rows = opened(path, option).files()
    print_table(rows.select(_FILE_COLUMNS) if form is Format.TABLE else rows, form)


@program.command(short_help="Shows the columns, or the options of the table.")
@table_arguments
@click.option("--options", "show_options", is_flag=True, help="The table's options instead of its columns.")
@format_option
def schema(path: str, option: tuple[str, ...], show_options: bool, form: Format) -> None:
    """Shows the columns of the newest schema, or the table's options; secrets are masked."""
    newest = handle_of(opened(path, option)).table_schema
    print_table(_options_table(newest) if show_options else _columns_table(newest), form)


def _columns_table(schema: TableSchema) -> pa.Table:
    rows = [
        {
            "id": f.id,
            "column": f.name,
            "type": type_text(f.type.as_nullable()),
            "nullable": f.type.nullable,
            "key": _key_text(schema, f.name),
            "comment": f.description,
        }
        for f in schema.fields
    ]
    return pa.Table.from_pylist(rows, schema=_COLUMNS_SCHEMA)


def _key_text(schema: TableSchema, column: str) -> str | None:
    keys = (("primary", schema.primary_keys), ("partition", schema.partition_keys))
    return ", ".join(word for word, columns in keys if column in columns) or None


def _options_table(schema: TableSchema) -> pa.Table:
    rows = [{"option": key, "value": mask(key, value)} for key, value in sorted(schema.options.items())]
    return pa.Table.from_pylist(rows, schema=_OPTIONS_SCHEMA)


def _schema_at(table: TableHandle, version: Version | None) -> TableSchema:
    """Returns the schema with which a version of the table (a snapshot or tag) is read. If the table has row tracking,
    the schema includes the columns of row tracking.
    """
    snapshot = (
        None
        if version is None
        else Versions(table.io, table.metadata_path).find(version, table.table_schema.settings.reading)
    )
    schema = table.table_schema if snapshot is None else table.schema_store.get(snapshot.schema_id)
    return kept_schema(schema)


def _known_columns(schema: TableSchema, wanted: tuple[str, ...]) -> tuple[str, ...]:
    known = [f.name for f in schema.fields]
    for position, name in enumerate(wanted):
        if name not in known and not places_among(schema, (name,)):
            near = did_you_mean(name, known) or f"; the table has {', '.join(known)}"
            raise click.BadParameter(f"unknown column '{name}'{near}", param_hint="--columns")
        if name in wanted[:position]:
            raise click.BadParameter(f"column '{name}' is asked for twice", param_hint="--columns")
    return wanted


def _condition(schema: TableSchema, where: str | None) -> Condition | None:
    if where is None:
        return None
    try:
        return plan_condition(where, schema.fields, place_fields(schema))
    except OptionError as e:
        raise click.BadParameter(e.message, param_hint="--where") from e


def check_output(path: str) -> None:
    """Checks that the file can be created. Raises a usage error if the name does not end in .parquet, the file exists,
    or its folder is missing.
    """
    target = Path(path)
    if target.suffix != ".parquet":
        raise click.BadParameter(
            f"{path} does not end in .parquet, the only format that can be written", param_hint="--output"
        )
    if target.exists():
        raise click.BadParameter(f"{path} already exists: remove the file, or give another name", param_hint="--output")
    if not target.parent.is_dir():
        raise click.BadParameter(f"there is no folder {target.parent}: create it first", param_hint="--output")


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: str) -> int:
    """Writes the rows and returns how many there are. If writing fails, no file is left behind."""
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    rows = 0
    try:
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer, progress_bar("rows") as bar:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
                bar.advance(batch.num_rows)
        os.link(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows
