"""`compact`, `rescale`, `expire`, `orphans`, `doctor`: maintenance of a table without Spark."""

import click
import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.engine.local_engine import LocalEngine
from bucketline.state.store.maintenance.orphans import OrphanResult
from bucketline.state.store.table.compact import STRATEGIES, compact_table
from bucketline.state.store.table.sort_compact import ORDER_STRATEGIES
from bucketline.state.store.table.table import handle_of
from bucketline.streaming.cli.arguments import (
    assignments,
    duration,
    format_option,
    given_place,
    opened,
    partition_option,
    table_arguments,
)
from bucketline.streaming.cli.program import DONE, FAILED, program
from bucketline.streaming.cli.progress_bar import progress_bar
from bucketline.streaming.cli.rows import Format, print_table

_FINDINGS_SCHEMA = pa.schema([(name, pa.string()) for name in ("severity", "rule", "subject", "message")])
_ORPHANS_SCHEMA = pa.schema(
    [("path", pa.string()), ("size_bytes", pa.int64()), ("modified", pa.timestamp("ms", "UTC"))]
)


@program.command()
@table_arguments
@click.option(
    "--strategy",
    type=click.Choice(sorted(STRATEGIES)),
    default="full",
    show_default=True,
    help="full: move all rows to the last level; minor: compact only the buckets that are due.",
)
@click.option(
    "--order-by", metavar="A,B", help="Columns by which rows are sorted; only for append tables without buckets."
)
@click.option(
    "--order-strategy",
    type=click.Choice(ORDER_STRATEGIES),
    help="How rows are sorted: by one column after the other, or along a curve through all of them.",
)
@partition_option
def compact(
    path: str,
    option: tuple[str, ...],
    strategy: str,
    order_by: str | None,
    order_strategy: str | None,
    partitions: list[dict[str, object]] | None,
) -> None:
    """Merges the sorted runs of each bucket and commits the result. The rows of the table stay the same, and readers
    are not disturbed.
    """
    table = opened(path, option)
    names = None if order_by is None else [name.strip() for name in order_by.split(",")]
    with progress_bar("buckets") as bar:
        snapshot_id = compact_table(
            handle_of(table),
            strategy,
            partitions,
            order_by=names,
            order_strategy=order_strategy,
            engine=LocalEngine(bar.show),
        )
    click.echo("nothing to compact" if snapshot_id is None else f"snapshot {snapshot_id}")


@program.command(short_help="Changes the number of buckets.")
@table_arguments
@click.option("--bucket-num", type=click.IntRange(min=1), required=True, metavar="N", help="How many buckets.")
@partition_option
def rescale(path: str, option: tuple[str, ...], bucket_num: int, partitions: list[dict[str, object]] | None) -> None:
    """Changes the number of buckets of partitions of a fixed or postpone table. The rows of the table stay the same.

    Partitions that --partition names are always rewritten. Without --partition, all partitions with another number of
    buckets are rewritten, and the table's 'bucket' option is set.
    """
    snapshot_id = opened(path, option).rescale(bucket_num, partitions)
    click.echo("nothing to rescale" if snapshot_id is None else f"snapshot {snapshot_id}")


@program.command(short_help="Removes old snapshots, and the files that only they need.")
@table_arguments
@click.option("--retain-min", type=click.IntRange(min=1), metavar="N", help="Least number of snapshots to keep.")
@click.option("--retain-max", type=click.IntRange(min=1), metavar="N", help="Largest number of snapshots to keep.")
@click.option("--retain-time", metavar="DURATION", help="Keep snapshots younger than this, for example '12 h'.")
def expire(
    path: str, option: tuple[str, ...], retain_min: int | None, retain_max: int | None, retain_time: str | None
) -> None:
    """Removes old snapshots, and the files that no remaining snapshot needs.

    The table's options are the defaults: at least snapshot.num-retained.min (10) snapshots stay, and all snapshots
    that are younger than snapshot.time-retained (1 h). Tags and consumers keep the snapshots that they need. If the
    table has partition.expiration-time, older partitions are dropped first.
    """
    older_than = None if retain_time is None else duration(retain_time, "--retain-time")
    table = opened(path, option)
    if handle_of(table).table_schema.settings.expiry.partitions_ms is not None:
        dropped = table.expire_partitions()
        if dropped:
            click.echo(f"{counted(len(dropped), 'partition')} dropped: {', '.join(dropped)}")
    expired = table.expire_snapshots(retain_max=retain_max, retain_min=retain_min, older_than=older_than)
    files = expired.data_files + expired.changelog_files + expired.metadata_files
    tags = f", {counted(len(expired.tags), 'tag')} that had expired" if expired.tags else ""
    logs = f", {counted(expired.changelogs, 'changelog')}" if expired.changelogs else ""
    removed = f"{counted(expired.snapshots, 'snapshot')}{logs} and {counted(files, 'file')} removed{tags}"
    click.echo(removed if expired.snapshots or files or tags else "nothing to expire")


@program.command(short_help="Lists or removes files that no snapshot, tag or branch needs.")
@table_arguments
@click.option("--delete", is_flag=True, help="Remove the files; otherwise they are only listed.")
@click.option(
    "--older-than",
    default="1 d",
    show_default=True,
    metavar="DURATION",
    help="Only files that have not changed for this long; with --delete at least a day.",
)
@click.option(
    "--no-writers",
    is_flag=True,
    help="States that nobody writes to the table, so that files younger than a day may be removed. DANGER: the files "
    "of a batch that is not committed yet look like orphans. If any writer runs or is paused, Paimon included, "
    "rows are lost.",
)
@format_option
def orphans(path: str, option: tuple[str, ...], delete: bool, older_than: str, no_writers: bool, form: Format) -> None:
    """Lists orphan files: files that no snapshot, tag or branch names. Crashed writers leave such files behind.

    Files younger than a day are not removed, because they may belong to a batch that is about to be committed.
    """
    table = opened(path, option)
    age = duration(older_than, "--older-than")
    result = table.remove_orphan_files(dry_run=not delete, older_than=age, no_writers=no_writers)
    print_table(_orphans_table(result), form)
    outcome = "removed" if result.deleted else "found; --delete removes them"
    size = f"{counted(len(result.files), 'file')}, {counted(result.size_bytes, 'byte')} {outcome}"
    click.echo(size if result.files else "no orphan files", err=True)


@program.command(short_help="Checks a table and lists what is broken; changes nothing.")
@table_arguments
@click.option("--rows", is_flag=True, help="Also read every live data file: rows, order, buckets, sequence numbers.")
@format_option
@click.pass_context
def doctor(context: click.Context, path: str, option: tuple[str, ...], rows: bool, form: Format) -> None:
    """Checks the rules that every writer must keep, and lists what is broken. Changes nothing; exits with 1 on
    errors.
    """
    place, options = given_place(path, assignments(option, "-o"))
    table = open_to_examine(place.uri, options, place.storage)
    with progress_bar("states and buckets") as bar:
        findings = examine(table, rows=rows, progress=bar.show)
    if findings or form is not Format.TABLE:
        print_table(_findings_table(findings), form)
    errors = sum(f.severity is Severity.ERROR for f in findings)
    warnings = counted(len(findings) - errors, "warning")
    problems = warnings if not errors else f"{counted(errors, 'error')}, {warnings}"
    click.echo(problems if findings else "no problems found", err=True)
    context.exit(FAILED if errors else DONE)


def _findings_table(findings: list[Finding]) -> pa.Table:
    rows = [
        {"severity": f.severity.value, "rule": f.rule, "subject": f.subject, "message": f.message} for f in findings
    ]
    return pa.Table.from_pylist(rows, schema=_FINDINGS_SCHEMA)


def _orphans_table(result: OrphanResult) -> pa.Table:
    rows = [{"path": f.path, "size_bytes": f.size_bytes, "modified": f.modified_ms} for f in result.files]
    return pa.Table.from_pylist(rows, schema=_ORPHANS_SCHEMA)
