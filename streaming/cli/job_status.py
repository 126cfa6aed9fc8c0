"""The state of a job's tables, read from the job's checkpoint, from the tables and from Kafka, without Spark.

The job need not run, and nothing is changed.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

import click
import pyarrow as pa

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.job import CHECKPOINT, JobConfig
from bucketline.conf.resolve import read_settings_file, resolve_jobs
from bucketline.conf.routes.routed_job import Resolved, RoutedJob
from bucketline.conf.sources.source_options import KAFKA, source_options
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import handle_of
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format, print_table
from bucketline.streaming.cli.stream_lines import batches_of
from bucketline.streaming.job.job_table import has_table, open_existing
from bucketline.streaming.job.kafka.table_offsets import WriterOffsets, newest_offsets
from bucketline.streaming.job.many.kept_records import day_and_minute, removed_from_ms
from bucketline.streaming.job.many.lag import KafkaLag, KafkaNow, ask_kafka
from bucketline.streaming.many.birth import birth_of
from bucketline.streaming.many.entries import route_of
from bucketline.streaming.many.ledger import Entry, FeedOffsets, Ledger, offsets_in
from bucketline.streaming.many.ledger_files import ledger_files

_EVERY_S = 2.0
_AT_ONCE = 16
"""The number of tables that are read at the same time."""
_LOOKED_AT = 20
"""The newest commit of the job is searched among this number of the table's newest commits by any query."""

AskKafka = Callable[[Mapping[str, str], FeedOffsets], KafkaNow]

SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("state", pa.string()),
        ("rows", pa.int64()),
        ("behind_records", pa.int64()),
        ("behind_seconds", pa.int64()),
        ("runs", pa.int64()),
        ("bad_records", pa.int64()),
        ("batch", pa.int64()),
        ("committed", pa.timestamp("ms", "UTC")),
        ("why", pa.string()),
    ]
)
"""The columns of a table's status.

`rows` counts the rows of its files, so a key may count more than once. `behind_records` counts the records of the
table's topic partitions that the job has not read for the table; `behind_seconds` is the age of the first of them.
`runs` is the largest number of sorted runs of a bucket. `bad_records` counts all records that the job has rejected for
the table. `batch` and `committed` belong to the job's newest commit.
"""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that the job writes. `reached` has for each topic partition the offset before which the table has all
    records; `entry` is the table's entry in the job's ledger.
    """

    config: JobConfig
    reached: FeedOffsets
    entry: Entry | None = None


def show_job(conf_file: str, form: Format, *, watch: bool, pause: Callable[[float], object] = time.sleep) -> None:
    """Prints the tables of a job. With `watch` it prints them again and again, until the user interrupts the process.
    `pause` waits for the given number of seconds.
    """
    settings = read_settings_file(conf_file)
    program.keep_secret({key: setting.text for key, setting in settings.items()})
    job = resolve_jobs(settings)
    with closing(KafkaLag()) as ask:
        _show(job, form, ask, watch=watch)
        # An interrupt is the way to end a watch, so it is no error.
        with suppress(KeyboardInterrupt):
            while watch:
                pause(_EVERY_S)
                _show(job, form, ask, watch=True)


def _show(job: JobConfig | RoutedJob, form: Format, ask: AskKafka, *, watch: bool) -> None:
    rows, unknown = job_status(job, ask=ask)
    if watch and form is Format.TABLE:
        click.clear()
    print_table(rows, form)
    for line in unknown:
        click.echo(f"note: {line}", err=True)


def job_status(
    job: JobConfig | RoutedJob, world: World = SYSTEM_WORLD, ask: AskKafka = ask_kafka
) -> tuple[pa.Table, list[str]]:
    """Returns a row (SCHEMA) for each table of a job, and messages about what could not be read from Kafka. `ask` is
    the function that asks Kafka.

    Raises OptionError if bucketline cannot reach the storage of the checkpoint.
    """
    common = job if isinstance(job, JobConfig) else job.common
    query = _query(common)
    tables = list(_of_one(job, query) if isinstance(job, JobConfig) else _of_ledger(job))
    kafka = KafkaNow({})
    if common.source.format == KAFKA:
        first: dict[tuple[str, int], int] = {}
        for table in tables:
            for feed, offset in table.reached.items():
                first[feed] = min(offset, first.get(feed, offset))
        kafka = ask(source_options(common.source).options, first)
    now_ms = world.clock.now_ms()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(pool.map(partial(_row, query=query, kafka=kafka, now_ms=now_ms), tables))
    return pa.Table.from_pylist(rows, schema=SCHEMA), [kafka.why] if kafka.why else []


def _query(common: JobConfig) -> str | None:
    """Returns the id of the query in the job's checkpoint; None if no query has begun with this checkpoint."""
    try:
        io, root = file_io_for(common.checkpoint, common.storage)
    except BucketlineError as e:
        raise OptionError(f"the checkpoint cannot be read: {e.message}", key=CHECKPOINT.key) from e
    data = io.read_optional(f"{root}/metadata")
    try:
        return None if data is None else str(json.loads(data)["id"])
    except (ValueError, KeyError):
        return None


def _of_one(config: JobConfig, query: str | None) -> Iterator[_Table]:
    reached: FeedOffsets = {}
    if query is not None and has_table(config):
        newest: WriterOffsets | None = next(newest_offsets(open_existing(config), query), None)
        reached = {} if newest is None else offsets_in(newest.topics)
    yield _Table(config, reached)


def _of_ledger(job: RoutedJob) -> Iterator[_Table]:
    """Yields the tables in the newest ledger (the job's file with the state of its tables), then the tables that a
    route names and for which no record has come yet.
    """
    files = ledger_files(job.common.checkpoint, job.common.storage)
    numbers = files.numbers()
    ledger = files.read(numbers[-1]) if numbers else None
    known: Mapping[str, Entry] = {} if ledger is None else ledger.tables
    for name, entry in sorted(known.items()):
        yield _Table(_config(job, name, entry), _reached(ledger, name, entry), entry)
    for route in job.routes:
        if "{" not in route.target and route.target not in known:
            yield _Table(job.config_of(Resolved(route.number, route.target)), {})


def _config(job: RoutedJob, name: str, entry: Entry) -> JobConfig:
    """Returns the settings that the current routes give a table. If no route leads to the table any more, the settings
    of the first route are returned.
    """
    to = route_of(name, entry, lambda o: job.resolve(o.name, o.topic))
    return job.config_of(Resolved(job.routes[0].number, name) if to is None else to)


def _reached(ledger: Ledger | None, name: str, entry: Entry) -> FeedOffsets:
    cutoff: FeedOffsets = {} if ledger is None else ledger.cutoff(name)
    return {feed: offset for feed, offset in cutoff.items() if feed in entry.fed}


def _row(table: _Table, *, query: str | None, kafka: KafkaNow, now_ms: int) -> dict[str, object]:
    name, entry = table.config.table, table.entry
    since_ms = kafka.behind_since_ms(table.reached)
    row: dict[str, object] = {
        "table": name,
        "behind_records": kafka.behind(table.reached) if table.reached else None,
        "behind_seconds": None if since_ms is None else max(0, now_ms - since_ms) // 1000,
    }
    if entry is not None and entry.last_batch is not None:
        row["batch"] = entry.last_batch
    try:
        if not has_table(table.config):
            return row | {"state": "no records yet" if entry is None else "gone"}
        handle = handle_of(open_existing(table.config))
        row |= _of_table(handle, query)
    except BucketlineError as e:
        return row | {"state": "error", "why": e.message}
    if entry is not None and entry.catching_up:
        why = f"the job reads the records that the table missed while it was parked; {_kept_until(table, kafka)}"
        return row | {"state": "catching up", "why": why}
    if entry is not None and entry.parked is not None:
        why = f"{entry.parked.why} ({_kept_until(table, kafka)})"
        return row | {"state": f"parked at batch {entry.parked.batch}", "why": why}
    if entry is not None and entry.birth and birth_of(handle) != entry.birth:
        return row | {
            "state": "made anew",
            "why": "the table was dropped and created again; `bucketline ingest --forget` makes the job forget the "
            "old one",
        }
    return row | {"state": "ok"}


def _kept_until(table: _Table, kafka: KafkaNow) -> str:
    """Returns a phrase that says how long Kafka keeps the records that the table has missed."""
    if kafka.behind(table.reached) == 0:
        return "the table has missed no record yet"
    own_ms = None if table.entry is None else removed_from_ms(table.entry, kafka.retention_ms)
    removed_ms = kafka.removed_from_ms(table.reached) if own_ms is None else own_ms
    if removed_ms is None:
        return "it is not known how long Kafka keeps the records that the table has missed"
    if removed_ms < 0:
        return "Kafka keeps the records that the table has missed"
    return f"Kafka may remove the first record that the table has missed after {day_and_minute(removed_ms)}"


def _of_table(handle: TableHandle, query: str | None) -> dict[str, object]:
    """Returns the part of a table's row in `job_status` that comes from the table's newest snapshot, and from the
    newest batch that the query (`query`) has written to the table.
    """
    snapshot = handle.snapshot_store.latest()
    if snapshot is None:
        return {"rows": 0}
    runs = (
        len([f for f in b.files if f.level == 0]) + len({f.level for f in b.files if f.level})
        for b in group_by_bucket(handle.manifests.live_entries(snapshot))
        if b.bucket >= 0
    )
    found: dict[str, object] = {"rows": snapshot.total_record_count, "runs": max(runs, default=0)}
    own = next((b for b in batches_of(handle, _LOOKED_AT) if b.writer == query), None)
    if own is not None:
        found |= {"batch": own.batch_id, "committed": own.time_ms, "bad_records": own.counts.rejected_in_all}
    return found
