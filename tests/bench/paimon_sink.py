"""Paimon's own sink for Spark on Parquet input: fixed buckets, compacted or not, and keys across partitions.

Both sinks read the same stream in turns of one session, the same options on both tables: what each does with a batch is
all that differs. A job over the same files is compared as well, whose tasks read them themselves.
`$BUCKETLINE_PAIMON_SPARK` names the jar of Paimon's connector for this version of Spark, for instance
paimon-spark-4.0_2.13-1.4.2.jar (`.ci/paimon_spark.sh` compiles one); without it there is nothing to compare with, and
the measurement says so.
`$BUCKETLINE_BENCH_CASES` names some of the cases, with commas.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.job.run import run_job
from bucketline.streaming.tasks.first_tasks import LOADED
from bucketline.streaming.tasks.start_workers import start_workers
from tests.bench.engine import input_stream, session
from tests.bench.result import Result, Size, asked, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import WorkerWatch, cpu_seconds
from tests.support.spark.streams import FileStream

VARIABLE = "BUCKETLINE_PAIMON_SPARK"

Write = Callable[[FileStream], None]
"""Writes what a stream has and has not written yet."""


@dataclass(frozen=True, slots=True)
class Case:
    """A table, a stream of `batches` batches of `rows` rows over `keys` keys, and what is asked of the ratios.

    `at_least` is asked of a `TableSink`, and `job_at_least` of a job, which takes part if it is given. With `loaded`
    the table has so many rows before, by a batch that is not measured.
    """

    name: str
    what: str
    at_least: float
    batches: int
    rows: int
    keys: int
    partition: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    loaded: int = 0
    job_at_least: float | None = None


UPSERTS = 5, 300_000, 1_200_000
MOVES = 5, 200_000, 800_000
CASES = (
    Case(
        "fixed",
        "four fixed buckets, default compaction in both",
        2.0,
        *UPSERTS,
        options={"bucket": "4"},
        job_at_least=2.5,
    ),
    Case(
        "write-only",
        "four fixed buckets, nothing compacted",
        2.0,
        *UPSERTS,
        options={"bucket": "4", "write-only": "true"},
        job_at_least=2.5,
    ),
    Case(
        "deletion-vectors",
        "four fixed buckets with deletion vectors, both compact",
        2.5,
        *UPSERTS,
        options={"bucket": "4", "deletion-vectors.enabled": "true"},
    ),
    Case("dynamic", "dynamic buckets, both compact", 3.0, *UPSERTS, options={"bucket": "-1"}),
    Case(
        "cross-partition",
        "dynamic buckets, keys that move between five partitions, both compact",
        4.0,
        *MOVES,
        partition=("status",),
        options={"bucket": "-1"},
        job_at_least=5.0,
    ),
    Case(
        "small",
        "dynamic buckets, keys that move between five partitions, a million rows in the table before",
        4.0,
        4,
        20_000,
        1_000_000,
        partition=("status",),
        options={"bucket": "-1"},
        loaded=1_000_000,
        job_at_least=5.0,
    ),
)


def connector() -> tuple[Path, ...]:
    """The jar of Paimon's connector, if one is named; says so if none is."""
    named = os.environ.get(VARIABLE)
    if named is None:
        print(f"without Paimon's own sink: ${VARIABLE} names no jar of its connector for Spark", flush=True)
        return ()
    return (Path(named),)


def write_with_paimon(frame: Any, table: str, checkpoint: Path) -> None:
    """Writes a stream with Paimon's sink until all of it is written."""
    writer = frame.writeStream.format("paimon").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(table).awaitTermination()


def run(size: Size, root: Path) -> Sequence[Result]:
    more = connector()
    if not more:
        return []
    names = asked("BUCKETLINE_BENCH_CASES", (case.name for case in CASES))
    cases = [case for case in CASES if case.name in names]
    with session(root, paimon=True, more_jars=more) as spark:
        return [result for case in cases for result in _compare(case, size, root / case.name, spark)]


def _compare(case: Case, size: Size, root: Path, spark: Any) -> list[Result]:
    rows, keys = size.rows(case.rows), size.rows(case.keys)
    before = list(upserts(1, size.rows(case.loaded), key_range=keys, seed=4)) if case.loaded else []
    batches = list(upserts(case.batches, rows, key_range=keys, seed=5))
    sinks = {name: sink for name, sink in _SINKS.items() if name != "job" or case.job_at_least is not None}
    seconds: dict[str, list[float]] = {name: [] for name in sinks}
    cpu: dict[str, list[float]] = {name: [] for name in sinks}
    written: dict[str, int] = {}
    with WorkerWatch() as watch:
        for turn in range(-1, size.repeats):
            counts = {}
            for name, sink in sinks.items():
                folder = root / name
                shutil.rmtree(folder, ignore_errors=True)
                table = create_table(
                    str(folder / "p.db" / "t"), COLUMNS, ("id",), case.partition, options=dict(case.options)
                ).path
                write = sink(spark, table)
                stream = input_stream(folder, before)
                if before:
                    write(stream)
                for batch in batches:
                    stream.add(batch)
                # Spark ends workers that were idle for a minute: less than a turn of Paimon's sink may take.
                start_workers(spark, LOADED)
                spent, started = cpu_seconds(), time.monotonic()
                write(stream)
                # The first turn warms up.
                if turn >= 0:
                    seconds[name].append(time.monotonic() - started)
                    cpu[name].append(cpu_seconds() - spent)
                    print(f"{case.name}, {name}: {seconds[name][-1]:.1f} s, CPU {cpu[name][-1]:.1f} s", flush=True)
                written[name] = folder_bytes(table)
                counts[name] = open_table(table).to_arrow(["id"]).num_rows
            assert len(set(counts.values())) == 1, counts
    return [
        Result(
            name=f"paimon {case.name}{' job' if name == 'job' else ''}",
            what=f"{case.batches} batches of upserts from Parquet{_BY[name]}, {case.what}, against Paimon's own sink "
            "for Spark",
            rows=case.batches * rows,
            seconds=median(seconds[name]),
            other_seconds=median(seconds["paimon"]),
            written_bytes=written[name],
            worker_peak_bytes=watch.peak_bytes,
            ratio=paired_ratio(seconds["paimon"], seconds[name]),
            at_least=case.job_at_least if name == "job" else case.at_least,
            memory_limit_bytes=1 << 30,
            detail={
                "seconds": seconds,
                "cpu": cpu,
                "cpu ratio": paired_ratio(cpu["paimon"], cpu[name]),
                "paimon_bytes": written["paimon"],
            },
        )
        for name in sinks
        if name != "paimon"
    ]


def _ours(spark: Any, table: str) -> Write:
    sink = TableSink(table, {"local-directory": f"{table}.local"})

    def write(stream: FileStream) -> None:
        stream.run(spark, sink)

    return write


def _job(spark: Any, table: str) -> Write:
    def write(stream: FileStream) -> None:
        settings = (
            f"table={table}",
            "source.format=parquet",
            "source.reader=native",
            f"source.options.path={stream.folder}",
            "source.options.maxFilesPerTrigger=1",
            f"source.options.schema={stream.ddl}",
            f"options.local-directory={table}.local",
            f"checkpoint={stream.checkpoint}",
            "trigger=availableNow",
        )
        run_job(resolve_job(read_assignments(settings)), spark)

    return write


def _theirs(spark: Any, table: str) -> Write:
    def write(stream: FileStream) -> None:
        write_with_paimon(stream.frame(spark), table, stream.checkpoint)

    return write


_SINKS: Mapping[str, Callable[[Any, str], Write]] = {"ours": _ours, "job": _job, "paimon": _theirs}
_BY = {"ours": "", "job": " that tasks of a job read themselves"}
