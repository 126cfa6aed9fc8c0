"""One job for many tables: what a table costs that gets rows, and one that gets none; against jobs of one table."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.resolve import read_settings, resolve_jobs
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.state.store.table.table import create_table, handle_of
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.batch.write_batch import Job
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.many.run import many_job
from bucketline.streaming.job.many.sink import ManySink
from bucketline.streaming.job.many.table_opener import JobTableOpener
from bucketline.streaming.many.job import ManyState
from bucketline.streaming.many.ledger_files import ledger_files
from bucketline.streaming.many.tables import Tables
from tests.bench import tables_in_process
from tests.bench.engine import BatchClock, session
from tests.bench.result import Result, Size, folder_bytes
from tests.bench.watch import WorkerWatch
from tests.support.spark.streams import FileStream

TABLES, ROWS = 200, 100
KNOWN, TOUCHED = 1000, 5
JOBS, JOB_ROWS = 12, 500
BATCHES, WARMING = 6, 3
COLUMNS = "id BIGINT NOT NULL, name STRING, amount DOUBLE"

Batch = list[tuple[int, int]]
"""Tables, and how many rows each gets."""


def run(size: Size, root: Path) -> Sequence[Result]:
    tables, known = max(12, int(TABLES * size.scale)), max(TOUCHED + 1, int(KNOWN * size.scale))
    with session(root) as spark, WorkerWatch() as watch:
        each = [(n, ROWS) for n in range(tables)]
        # What is compared with runs before it and after it, because a JVM gets faster while it runs.
        one = [_alone(spark, root / "one", [ROWS * tables] * BATCHES)]
        many = _many(spark, root / "many", [each] * BATCHES)
        one.append(_alone(spark, root / "one-more", [ROWS * tables] * BATCHES))
        few = [(n, ROWS) for n in range(TOUCHED)]
        first = [(n, 1) for n in range(TOUCHED)]
        small = [_many(spark, root / "small", [first, *[few] * BATCHES])]
        idle = _many(spark, root / "idle", [[(n, 1) for n in range(known)], *[few] * BATCHES])
        small.append(_many(spark, root / "small-more", [first, *[few] * BATCHES]))
        together = _many(spark, root / "together", [[(n, JOB_ROWS) for n in range(JOBS)]] * BATCHES)
        apart = [_alone(spark, root / f"apart-{n}", [JOB_ROWS] * BATCHES) for n in range(JOBS)]
    cpu_each = (_warm(many.cpu) - _warm_of(one, "cpu")) / tables
    result = partial(_result, root, watch.peak_bytes)
    return [
        result(
            "tables cpu",
            f"ms of CPU for each of {tables} tables that get {ROWS} rows, above one table with all of them",
            tables * ROWS,
            (_warm(many.seconds), _warm_of(one, "seconds")),
            1000 * cpu_each,
            35.0,
        ),
        result(
            "tables idle",
            f"CPU of a batch for {TOUCHED} tables where {known:,} are known, against {TOUCHED} known",
            TOUCHED * ROWS,
            (_warm(idle.seconds), _warm_of(small, "seconds")),
            _warm(idle.cpu) / _warm_of(small, "cpu"),
            1.25,
        ),
        result(
            "tables jobs",
            f"CPU of {JOBS} tables in one job, against {JOBS} jobs",
            JOBS * JOB_ROWS,
            (_warm(together.seconds), sum(_warm(job.seconds) for job in apart)),
            _warm(together.cpu) / sum(_warm(job.cpu) for job in apart),
            0.5,
        ),
        *tables_in_process.run(size, root),
    ]


def _result(
    root: Path,
    peak_bytes: int,
    name: str,
    what: str,
    rows: int,
    seconds: tuple[float, float],
    ratio: float,
    at_most: float,
) -> Result:
    return Result(name, what, rows, *seconds, folder_bytes(root / "many"), peak_bytes, ratio, at_most)


def _warm_of(runs: Sequence[BatchClock], what: str) -> float:
    return sum(_warm(getattr(run, what)) for run in runs) / len(runs)


def _warm(values: Sequence[float]) -> float:
    return median(values[-(BATCHES - WARMING) :])


def _events(batch: Batch, number: int) -> pa.Table:
    def texts() -> Iterable[str]:
        for table, rows in batch:
            for row in range(rows):
                after = {"id": row, "name": f"row {row} of batch {number}", "amount": row / 4}
                yield json.dumps(
                    {"op": "c", "before": None, "after": after, "source": {"db": "s", "table": f"t{table}"}}
                )

    return pa.table({"value": pa.array(list(texts()), pa.string())})


def _stream(spark: Any, root: Path, batches: Sequence[Batch], sink: Callable[[Any, int], None]) -> BatchClock:
    stream = FileStream(root / "source", "value STRING")
    for number, batch in enumerate(batches):
        stream.add(_events(batch, number))
    stream.checkpoint = root / "checkpoint"
    clock = BatchClock(sink)
    stream.run(spark, clock)
    return clock


def _many(spark: Any, root: Path, batches: Sequence[Batch]) -> BatchClock:
    text = f"""
source: {{format: text, options: {{path: "{root}"}}, decode: debezium-json}}
checkpoint: "{root}/checkpoint"
create: {{schema: "{COLUMNS}", primary-key: [id], options: {{bucket: "1"}}}}
options: {{write-only: "true"}}
tables: [{{source-table: "regex:s\\\\..*", table: "{root}/w/{{table}}"}}]
"""
    routed = resolve_jobs(read_settings(text, name="bench.yaml"))
    assert isinstance(routed, RoutedJob)

    def made(user: str) -> ManyState:
        return ManyState(ledger_files(f"{root}/checkpoint", {}), Tables(JobTableOpener(routed, "UTC"), user))

    def pinned(text: str, user: str) -> Any:
        raise AssertionError((text, user))

    sink = ManySink(many_job(routed, Job(checkpoint=f"{root}/checkpoint")), made, pinned)
    try:
        return _stream(spark, root, batches, sink)
    finally:
        sink.stop()


def _alone(spark: Any, root: Path, rows: Sequence[int]) -> BatchClock:
    table = create_table(f"{root}/w/t0", COLUMNS, ("id",), options={"bucket": "1"})
    step = decode_step(RecordFormat.DEBEZIUM_JSON, handle_of(table).table_schema, BadRecords(None, 0))
    sink = TableSink(table.path, {"write-only": "true"}, decode=step)
    return _stream(spark, root, [[(0, count)] for count in rows], sink)
