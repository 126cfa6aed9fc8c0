"""`status`: the levels and sorted runs of each bucket, and the streams that write the table."""

import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.text import Text

from bucketline.conf.wording import age_text, counted
from bucketline.state.bucket.mode import BucketMode, bucket_mode
from bucketline.state.commit.postpone_backlog import find_waiting
from bucketline.state.determinism import SYSTEM_CLOCK
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.plans.backlog import plan_backlog
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.store.read.views import partition_text
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.table.table import handle_of
from bucketline.streaming.cli.arguments import format_option, opened, partition_option, table_or_job_arguments
from bucketline.streaming.cli.job_status import show_job
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format, console, print_table
from bucketline.streaming.cli.stream_lines import SHOWN_BATCHES, batches_of, batches_table, stream_lines
from bucketline.streaming.cli.survey import (
    Backlog,
    BucketSurvey,
    LevelSurvey,
    PartitionSurvey,
    advise_table,
    survey_bucket,
    survey_partitions,
    survey_table,
)
from bucketline.streaming.cli.texts import printable

_NOT_DUE = "no compaction is due"
_BAR_CELLS = 30
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_RUNS_DRAWN = 12
_LEVEL_STYLES = ("yellow", "cyan", "cyan", "cyan", "cyan", "green")
_BACKLOG_STYLES = {Backlog.NONE: "", Backlog.DUE: "yellow", Backlog.WRITERS_WAIT: "bold red"}
_BACKLOG_WORDS = {
    Backlog.NONE: "",
    Backlog.DUE: "compaction due",
    Backlog.WRITERS_WAIT: "far behind: writers wait until it is compacted",
}


@program.command(short_help="Shows levels, sorted runs and batches of a table, or the tables of a job.")
@table_or_job_arguments
@partition_option
@click.option(
    "--buckets",
    "most",
    default="64",
    show_default=True,
    metavar="N|all",
    callback=lambda context, parameter, text: _most(text),
    help="How many buckets are shown; the buckets with the most runs come first.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the last N batches of streams, one in each row, instead of buckets.",
)
@click.option(
    "--conf-file", metavar="F", help="A job file, instead of PATH: shows the tables of the job, one in each row."
)
@click.option("--watch", is_flag=True, help="With --conf-file: show the tables again every two seconds, until Ctrl-C.")
@format_option
def status(
    path: str | None,
    option: tuple[str, ...],
    partitions: list[dict[str, object]] | None,
    most: int | None,
    batches: int | None,
    conf_file: str | None,
    watch: bool,
    form: Format,
) -> None:
    """Shows the levels and sorted runs of each bucket, with sizes, rows and skew, and which compactions are due.

    Readers merge the sorted runs of a bucket: each file of level 0 is a sorted run, and so are all files of a higher
    level together. Rows are counted in files, so a key may count more than once until it is compacted. json and csv
    print one row for each bucket. For the streams that write the table the command shows the last batches, rejected
    records and lag.

    With --conf-file the command shows the tables of a job: rows, records that wait in Kafka and how old they are,
    sorted runs, bad records, the newest commit, and whether the table is parked. The job need not run, and Spark is not
    needed.
    """
    if (path is None) == (conf_file is None):
        raise click.UsageError("give either the PATH of a table, or a job file with --conf-file")
    if conf_file is not None:
        # The tables of a job need Spark's package; the status of one table does not.
        show_job(conf_file, form, watch=watch)
        return
    if watch:
        raise click.UsageError("--watch needs --conf-file")
    assert path is not None
    table = handle_of(opened(path, option))
    if batches is not None:
        print_table(batches_table(batches_of(table, batches)), form)
    elif form is Format.TABLE:
        draw_status(table, partitions, most)
    else:
        snapshot = table.snapshot_store.latest()
        print_table(survey_table([] if snapshot is None else _survey(table, snapshot, partitions)), form)


def _most(text: str) -> int | None:
    """Parses the number of buckets that `status` shows; returns None for 'all'."""
    if text.strip().lower() == "all":
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is neither a number of buckets, 1 or more, nor 'all'")
    return int(text)


def draw_status(table: TableHandle, partitions: list[dict[str, object]] | None = None, most: int | None = 64) -> None:
    """Prints what `status` shows of the newest snapshot, with at most `most` buckets; None means all buckets."""
    snapshot = table.snapshot_store.latest()
    _draw(console(), table, snapshot, [] if snapshot is None else _survey(table, snapshot, partitions), most)


def _survey(table: TableHandle, snapshot: Snapshot, partitions: list[dict[str, object]] | None) -> list[BucketSurvey]:
    schema = table.table_schema
    chosen = choose_partitions(schema, partitions)
    return [
        survey_bucket(
            b, partition_text(schema, b.partition), schema.settings.compaction, keyed=bool(schema.primary_keys)
        )
        for b in group_by_bucket(table.manifests.live_entries(snapshot))
        if chosen(b.partition)
    ]


def _draw(
    out: Console, table: TableHandle, snapshot: Snapshot | None, buckets: list[BucketSurvey], most: int | None
) -> None:
    mode = bucket_mode(table.table_schema)
    for line in _headlines(table, snapshot, buckets, mode):
        out.print(Text(line))
    shown = set(map(id, sorted(buckets, key=lambda b: (-b.run_count, -b.size_bytes))[:most]))
    largest = max((level.size_bytes for b in buckets for level in b.levels), default=0)
    partitions = survey_partitions(buckets, mode)
    for partition in partitions:
        members = [b for b in partition.buckets if id(b) in shown]
        if not members:
            continue
        out.print()
        out.print(_partition_line(partition, partitioned=bool(table.partition_by)))
        for bucket in members:
            for text in _bucket_lines(bucket, largest):
                out.print(text)
    if len(shown) < len(buckets):
        left = counted(len(buckets) - len(shown), "bucket")
        out.print(Text(f"\n… and {left} with fewer runs; --buckets all shows them"))
    streams = stream_lines(batches_of(table, SHOWN_BATCHES))
    if streams:
        out.print(Text("\n" + "\n".join(streams)))
    for line in _advice_lines(partitions, mode):
        out.print(Text(line, style="yellow"))


def _advice_lines(partitions: Sequence[PartitionSurvey], mode: BucketMode) -> list[str]:
    """Returns each piece of advice once. If a piece of advice does not concern all partitions, its line says how many
    partitions it concerns.
    """
    whole = advise_table(partitions, mode)
    if whole is not None:
        return [f"\n→ {whole}"]
    concerned: dict[str, list[str]] = {}
    for partition in partitions:
        if partition.advice is not None:
            concerned.setdefault(partition.advice, []).append(partition.partition)
    lines = []
    for advice, names in concerned.items():
        where = f"in {len(names):,} of {len(partitions):,} partitions (the first is {printable(names[0])}): "
        lines.append(f"\n→ {where if len(partitions) > 1 else ''}{advice}")
    return lines


def _headlines(
    table: TableHandle, snapshot: Snapshot | None, buckets: Sequence[BucketSurvey], mode: BucketMode
) -> list[str]:
    schema = table.table_schema
    kind = f"primary key {', '.join(schema.primary_keys)}" if schema.primary_keys else "append table"
    engine = f", merge engine {schema.settings.merge.engine.value}" if schema.primary_keys else ""
    by = f", partitioned by {', '.join(schema.partition_keys)}" if schema.partition_keys else ""
    lines = [printable(table.path), f"{kind}{by}, {mode.value} buckets{engine}"]
    if snapshot is None:
        return [*lines, "no snapshot yet: nothing has been written"]
    earliest = table.snapshot_store.earliest_id()
    age = age_text((SYSTEM_CLOCK.now_ms() - snapshot.time_ms) // 1000)
    user = printable(snapshot.commit_user)
    lines.append(f"snapshot {snapshot.id} ({snapshot.commit_kind.value}) {age} ago by {user}; oldest kept: {earliest}")
    files, size = sum(b.file_count for b in buckets), sum(b.size_bytes for b in buckets)
    rows, deletes = sum(b.row_count for b in buckets), sum(b.delete_row_count for b in buckets)
    deleted = f" ({deletes:,} of them deletes)" if deletes else ""
    held = f"{counted(rows, 'row')}{deleted} in {counted(files, 'file')}, {_size_text(size)}"
    lines.append(held if files else "no rows: there are no live files")
    due = [b for b in buckets if b.backlog is not Backlog.NONE]
    waiting = sum(b.backlog is Backlog.WRITERS_WAIT for b in due)
    if schema.primary_keys:
        held_back = f", writers wait for {waiting:,}" if waiting else ""
        lines.append(
            f"compaction due in {len(due):,} of {counted(len(buckets), 'bucket')}{held_back}" if due else _NOT_DUE
        )
        lines += _level0_lines(buckets)
    if mode.postpones:
        lines.append(_waiting_line(buckets))
    return [*lines, *_plan_lines(table)]


def _level0_lines(buckets: Sequence[BucketSurvey]) -> list[str]:
    """Returns a line that says how many bytes wait on level 0, and since when; no line if level 0 is empty."""
    files = [f for b in buckets if b.bucket >= 0 for f in b.files if f.level == 0]
    if not files:
        return []
    age = age_text(max(0, SYSTEM_CLOCK.local_ms() - min(f.creation_time_ms or 0 for f in files)) // 1000)
    most = counted(max(b.run_count for b in buckets), "run")
    return [f"on level 0: {_size_text(sum(f.file_size for f in files))}, for up to {age}; at most {most} in a bucket"]


def _plan_lines(table: TableHandle) -> list[str]:
    """Returns a line about the open items of the table's compaction plans; no line if no item is open."""
    backlog = plan_backlog(PlanFolder(table.io, table.metadata_path))
    if not backlog.items:
        return []
    age = age_text(max(0, SYSTEM_CLOCK.now_ms() - (backlog.since_ms or 0)) // 1000)
    open_items = f"{counted(backlog.items, 'item')} open ({_size_text(backlog.size_bytes)}), {backlog.leased:,} in work"
    return [f"compaction plans: {open_items}; the oldest was planned {age} ago"]


def _waiting_line(buckets: Sequence[BucketSurvey]) -> str:
    """Returns a line that says how many rows are postponed, and since when."""
    waiting = find_waiting(((b.partition.encode(), b.bucket), b.files) for b in buckets)
    if not waiting.rows:
        return "no postponed rows"
    where = f" in {counted(waiting.partitions, 'partition')}" if waiting.partitions > 1 else ""
    age = age_text(waiting.age_seconds(SYSTEM_CLOCK.local_ms()))
    held = f"{counted(waiting.rows, 'row')}{where}, {_size_text(waiting.size_bytes)}"
    return f"postponed: {held}, for up to {age}; no reader sees them yet"


def _partition_line(partition: PartitionSurvey, *, partitioned: bool) -> Text:
    name = f"partition {printable(partition.partition)}: " if partitioned else ""
    size = f"{_size_text(partition.size_bytes)}, {counted(partition.row_count, 'row')}"
    count = len(partition.buckets)
    skew = f", largest bucket {partition.skew:.1f} × mean" if count > 1 else ""
    return Text(f"{name}{counted(count, 'bucket')} with files, {size}{skew}", style="bold")


def _bucket_lines(bucket: BucketSurvey, largest: int) -> list[Text]:
    of = f" of {bucket.total_buckets}" if bucket.total_buckets > 0 else ""
    name = "postpone bucket" if bucket.bucket < 0 else f"bucket {bucket.bucket}{of}"
    head = Text(f"  {name}: {_size_text(bucket.size_bytes)}, {counted(bucket.row_count, 'row')}, ")
    head.append(counted(bucket.run_count, "run"))
    if bucket.backlog is not Backlog.NONE:
        head.append(f"  {_BACKLOG_WORDS[bucket.backlog]}", style=_BACKLOG_STYLES[bucket.backlog])
    return [head, *(_level_line(level, largest) for level in bucket.levels)]


def _level_line(level: LevelSurvey, largest: int) -> Text:
    """Returns a line that shows the size of a level as a bar, in proportion to the `largest` size. On level 0 the bar
    has a piece for each run, newest first, separated by thin lines.
    """
    style = _LEVEL_STYLES[min(level.level, len(_LEVEL_STYLES) - 1)]
    sizes = [sum(f.file_size for f in run) for run in level.runs]
    bars = [_bar(size, largest) for size in sizes[:_RUNS_DRAWN]]
    drawn = "│".join(bars) + (" …" if len(sizes) > _RUNS_DRAWN else "")
    files = len(level.files)
    line = Text(f"    L{level.level}  ")
    line.append(drawn, style=style)
    line.append(f"  {counted(files, 'file')}, {_size_text(level.size_bytes)}", style="dim")
    return line


def _bar(size: int, largest: int) -> str:
    eighths = max(1, round(size / max(1, largest) * _BAR_CELLS * 8))
    if not _draws_blocks():
        return "#" * max(1, eighths // 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _draws_blocks() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16")


def _size_text(size: int) -> str:
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    value, unit = float(size), 0
    while value >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return counted(size, "byte") if unit == 0 else f"{value:,.1f} {units[unit]}"
