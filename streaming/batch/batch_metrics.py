"""Metrics of a stream's batches: adds the report of each batch to the metrics of the process."""

from collections.abc import Callable, Iterable, Mapping

from bucketline.conf.metrics_options import MetricsOptions
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.streaming.batch.progress import BatchReport, as_json
from bucketline.streaming.metrics.outlets import write_outlets
from bucketline.streaming.metrics.registry import REGISTRY, Metric, MetricKind, Registry

_Read = Callable[[BatchReport], float | None]


def _of(name: str) -> _Read:
    return lambda report: getattr(report, name)


COUNTERS: tuple[tuple[Metric, _Read], ...] = (
    (Metric("batches", MetricKind.COUNTER, "batches written"), lambda r: 0 if r.skipped else 1),
    (Metric("input_rows", MetricKind.COUNTER, "rows of the input"), _of("input_rows")),
    (Metric("stored_rows", MetricKind.COUNTER, "rows stored after rows of one key were merged"), _of("stored_rows")),
    (Metric("stored_bytes", MetricKind.COUNTER, "bytes stored after rows of one key were merged"), _of("stored_bytes")),
    (Metric("rejected_rows", MetricKind.COUNTER, "bad records"), _of("rejected_rows")),
    (
        Metric("compacted_files", MetricKind.COUNTER, "files that compactions of batches replaced"),
        _of("compacted_files"),
    ),
    (
        Metric(
            "compactions_lost",
            MetricKind.COUNTER,
            "compactions of batches that conflicted with another commit and are repeated",
        ),
        lambda r: float(r.compaction_dropped),
    ),
    (Metric("expired_snapshots", MetricKind.COUNTER, "snapshots removed after batches"), _of("expired_snapshots")),
    (Metric("spilled_bytes", MetricKind.COUNTER, "bytes that tasks wrote to local disk"), _of("spilled_bytes")),
    (
        Metric("storage_requests", MetricKind.COUNTER, "requests of this process to the object store of the table"),
        _of("storage_requests"),
    ),
    (
        Metric(
            "back_pressure_seconds", MetricKind.COUNTER, "seconds that batches waited for, or spent on, compactions"
        ),
        _of("back_pressure_seconds"),
    ),
)

GAUGES: tuple[tuple[Metric, _Read], ...] = (
    (Metric("batch_id", MetricKind.GAUGE, "Spark's number of the last batch"), _of("batch_id")),
    (Metric("batch_seconds", MetricKind.GAUGE, "seconds of the last batch"), _of("total_seconds")),
    (Metric("behind_records", MetricKind.GAUGE, "records at the source that are not read yet"), _of("behind_records")),
    (Metric("postponed_rows", MetricKind.GAUGE, "rows in the postpone bucket"), _of("postponed_rows")),
    (Metric("postponed_bytes", MetricKind.GAUGE, "bytes of the files in the postpone bucket"), _of("postponed_bytes")),
    (Metric("postponed_age_seconds", MetricKind.GAUGE, "age of the oldest postponed rows"), _of("postponed_seconds")),
    (Metric("hidden_rows", MetricKind.GAUGE, "committed rows that batch readers do not see yet"), _of("hidden_rows")),
    (
        Metric("hidden_age_seconds", MetricKind.GAUGE, "age of the oldest rows that batch readers do not see yet"),
        _of("hidden_seconds"),
    ),
    (Metric("most_runs", MetricKind.GAUGE, "most sorted runs of a bucket as the last batch began"), _of("most_runs")),
    (
        Metric("crowded_buckets", MetricKind.GAUGE, "buckets with more sorted runs than num-sorted-run.stop-trigger"),
        _of("crowded_buckets"),
    ),
    (Metric("level0_bytes", MetricKind.GAUGE, "bytes on level 0"), _of("level0_bytes")),
    (Metric("level0_age_seconds", MetricKind.GAUGE, "age of the oldest file on level 0"), _of("level0_seconds")),
    (Metric("open_items", MetricKind.GAUGE, "open items of compaction plans"), _of("open_items")),
    (
        Metric("open_items_age_seconds", MetricKind.GAUGE, "age of the oldest plan with an open item"),
        _of("open_items_seconds"),
    ),
)

BUCKETS_BY_RUNS = Metric("buckets", MetricKind.GAUGE, "buckets by their number of sorted runs, label runs")
SKIPPED_RECORDS = Metric(
    "skipped_records", MetricKind.COUNTER, "records without a row that are not bad, such as tombstones, label kind"
)
UNEXPECTED_ROWS = Metric(
    "unexpected_rows", MetricKind.COUNTER, "rows that do not meet an expectation, label expectation"
)
PARKED = Metric("parked", MetricKind.GAUGE, "1 for each table that the job goes on without, until it is unparked")
PARKED_UNTIL = Metric(
    "parked_until_timestamp_seconds",
    MetricKind.GAUGE,
    "when Kafka may begin to remove records that a parked table has missed, seconds since the epoch",
)
LAST_BATCH = Metric(
    "last_batch_timestamp_seconds", MetricKind.GAUGE, "when the last batch ended, seconds since the epoch"
)


def measure(
    report: BatchReport,
    writer: str,
    settings: MetricsOptions,
    *,
    registry: Registry = REGISTRY,
    world: World = SYSTEM_WORLD,
) -> None:
    """Adds a batch to the metrics of the process, and writes the metrics to the file that `settings` names. `writer` is
    the stream's name in the metrics.
    """
    measure_tables([(report, settings)], writer, registry=registry, world=world)


def measure_tables(
    reports: Iterable[tuple[BatchReport, MetricsOptions]],
    writer: str,
    *,
    registry: Registry = REGISTRY,
    world: World = SYSTEM_WORLD,
) -> None:
    """Adds a batch of several tables to the metrics of the process. If several tables write their metrics to the same
    file, the file is written once.
    """
    now_ms = world.clock.now_ms()
    lines: dict[MetricsOptions, list[str]] = {}
    for report, settings in reports:
        _add(report, {"table": report.table, "writer": writer}, now_ms, registry)
        if settings.is_shown:
            lines.setdefault(settings, []).append(as_json(report, writer=writer, time_ms=now_ms))
    for settings, of_place in lines.items():
        write_outlets(settings, of_place, registry)


def _add(report: BatchReport, labels: Mapping[str, str], now_ms: int, registry: Registry) -> None:
    for metric, read in COUNTERS:
        registry.add(metric, read(report) or 0, labels)
    for metric, read in GAUGES:
        value = read(report)
        if value is not None:
            registry.set(metric, value, labels)
    registry.replace(BUCKETS_BY_RUNS, {(("runs", str(n)),): count for n, count in report.bucket_runs}, labels)
    for kind, count in report.skipped_records:
        registry.add(SKIPPED_RECORDS, count, {**labels, "kind": kind})
    for name, count in report.unexpected_rows:
        registry.add(UNEXPECTED_ROWS, count, {**labels, "expectation": name})
    registry.set(LAST_BATCH, now_ms / 1000, labels)


def measure_parked(tables: Mapping[str, int | None], writer: str, registry: Registry = REGISTRY) -> None:
    """Sets the metrics of parked tables, and removes the metrics of tables that are not in `tables` any more. The value
    in `tables` is the time from which Kafka may remove records that the table has missed: below 0 if Kafka never
    removes them, None if the time is not known.
    """
    labels = {"writer": writer}
    until = {table: at / 1000 for table, at in tables.items() if at is not None and at >= 0}
    registry.replace(PARKED, {(("table", table),): 1.0 for table in tables}, labels)
    registry.replace(PARKED_UNTIL, {(("table", table),): seconds for table, seconds in until.items()}, labels)
