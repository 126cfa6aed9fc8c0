"""Paimon's own sink for Spark on Parquet input: fixed buckets, with compaction and without, and keys across partitions.

Both sinks read the same stream in turns of one session, the same options on both tables: what each does with a batch is
all that differs. `$BUCKETLINE_PAIMON_SPARK` names the jar of Paimon's connector for this version of Spark, for instance
paimon-spark-4.0_2.13-1.4.2.jar; without it there is nothing to compare with, and the measurement says so.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import input_stream, session, timed_run
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import WorkerWatch, cpu_seconds
from tests.support.streams import FileStream

VARIABLE = "BUCKETLINE_PAIMON_SPARK"


@dataclass(frozen=True, slots=True)
class Case:
    """A table, a stream of `batches` batches of `rows` rows over `keys` keys, and what is asked of the ratio."""

    name: str
    what: str
    at_least: float
    batches: int
    rows: int
    keys: int
    partition: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


CASES = (
    Case(
        "fixed", "four fixed buckets, default compaction in both", 2.5, 5, 300_000, 1_200_000, options={"bucket": "4"}
    ),
    Case(
        "write-only",
        "four fixed buckets, nothing compacted",
        2.5,
        5,
        300_000,
        1_200_000,
        options={"bucket": "4", "write-only": "true"},
    ),
    Case(
        "cross-partition",
        "dynamic buckets, keys that move between five partitions, both compact",
        5.0,
        5,
        200_000,
        800_000,
        ("status",),
        {"bucket": "-1"},
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
    with session(root, paimon=True, more_jars=more) as spark:
        return [_compare(case, size, root / case.name, spark) for case in CASES]


def _compare(case: Case, size: Size, root: Path, spark: Any) -> Result:
    rows, keys = size.rows(case.rows), size.rows(case.keys)
    stream = input_stream(root / "source", upserts(case.batches, rows, key_range=keys, seed=5))
    sinks: Mapping[str, Callable[[str, Path], float]] = {
        "ours": lambda table, folder: _ours(stream, spark, table, folder),
        "paimon": lambda table, folder: _theirs(stream, spark, table, folder),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sinks}
    cpu: dict[str, list[float]] = {name: [] for name in sinks}
    written: dict[str, int] = {}
    with WorkerWatch() as watch:
        for turn in range(-1, size.repeats):
            counts = {}
            for name, write in sinks.items():
                folder = root / name
                shutil.rmtree(folder, ignore_errors=True)
                table = create_table(
                    str(folder / "p.db" / "t"), COLUMNS, ("id",), case.partition, options=dict(case.options)
                ).path
                before = cpu_seconds()
                took = write(table, folder)
                # The first turn warms up.
                if turn >= 0:
                    seconds[name].append(took)
                    cpu[name].append(cpu_seconds() - before)
                written[name] = folder_bytes(table)
                counts[name] = open_table(table).to_arrow(["id"]).num_rows
            assert counts["ours"] == counts["paimon"], counts
    return Result(
        name=f"paimon {case.name}",
        what=f"{case.batches} batches of upserts from Parquet, {case.what}, against Paimon's own sink for Spark",
        rows=case.batches * rows,
        seconds=median(seconds["ours"]),
        other_seconds=median(seconds["paimon"]),
        written_bytes=written["ours"],
        worker_peak_bytes=watch.peak_bytes,
        ratio=paired_ratio(seconds["paimon"], seconds["ours"]),
        at_least=case.at_least,
        memory_limit_bytes=1 << 30,
        detail={
            "seconds": seconds,
            "cpu": cpu,
            "cpu ratio": paired_ratio(cpu["paimon"], cpu["ours"]),
            "paimon_bytes": written["paimon"],
        },
    )


def _ours(stream: FileStream, spark: Any, table: str, folder: Path) -> float:
    sink = TableSink(table, {"local-directory": str(folder / "local")})
    return timed_run(stream, spark, sink, folder / "checkpoint")


def _theirs(stream: FileStream, spark: Any, table: str, folder: Path) -> float:
    started = time.monotonic()
    write_with_paimon(stream.frame(spark), table, folder / "checkpoint")
    return time.monotonic() - started
