"""From Kafka into level 0: tasks that read themselves against Spark's Kafka source, Parquet files, Delta, Paimon, and a
program without Spark.

Each contender reads the same topic from its first record to its last, in four batches of a query of its own, in one
session after a run that warms it up. Nothing is compacted. Parquet files are appended, which neither finds keys nor
folds rows. The workers' peak is the highest of all contenders. `$BUCKETLINE_BENCH_KINDS` names some of the kinds of
records, with commas, `$BUCKETLINE_BENCH_AGAINST` some of those that the tasks are compared with; Paimon's own sink
takes part where `paimon_sink` finds its connector, but for Debezium's events.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import functions as F

from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import create_table, handle_of
from bucketline.state.types.arrow import arrow_schema
from bucketline.streaming.job.run import run_job
from bucketline.streaming.tasks.first_tasks import LOADED
from bucketline.streaming.tasks.start_workers import start_workers
from tests.bench.engine import session
from tests.bench.paimon_sink import connector, write_with_paimon
from tests.bench.plain_program import fetch_and_write
from tests.bench.result import Result, Size, asked, folder_bytes, paired_ratio
from tests.bench.rows import DDL, batches
from tests.bench.upserts import DeltaMerge
from tests.bench.watch import WorkerWatch, cpu_seconds
from tests.support.peers.jars import spark_kafka_jars
from tests.support.servers.broker import KafkaBroker, KafkaRecord

PARTITIONS = 4
KEYS = 2_000_000
NINE = (
    "id BIGINT NOT NULL, customer BIGINT, quantity INT, price DECIMAL(12,2), weight DOUBLE, at TIMESTAMP(6), "
    "status STRING, city STRING, note STRING"
)
WIDE_COLUMNS = 199


@dataclass(frozen=True, slots=True)
class Messages:
    """A kind of records: `make` gives the id and the text of each. `ddl` are Spark's columns of the JSON."""

    name: str
    what: str
    full: int
    make: Callable[[int], Iterator[tuple[int, bytes]]]
    schema: str
    ddl: str
    decode: str = "json"
    against: tuple[str, ...] = ("spark", "parquet")


def run(size: Size, root: Path) -> Sequence[Result]:
    found: list[Result] = []
    jar = connector()
    paimon = ("paimon",) if jar else ()
    more_jars = (*spark_kafka_jars(pyspark.__version__), *jar)
    names = asked("BUCKETLINE_BENCH_KINDS", (kind.name for kind in KINDS))
    wanted = asked("BUCKETLINE_BENCH_AGAINST", _TARGETS)
    kinds = [kind for kind in KINDS if kind.name in names]
    with KafkaBroker() as broker, session(root, delta=True, paimon=bool(paimon), more_jars=more_jars) as spark:
        for kind in kinds:
            records = _fill(broker, kind, size.rows(kind.full))
            # Paimon's sink has no decoder for events of Debezium.
            others = kind.against + (paimon if kind.decode == "json" else ())
            against = [name for name in others if name in wanted]
            found += _compare(spark, broker, replace(kind, against=tuple(against)), records, size.repeats, root)
            broker.delete_topic(kind.name)
    return found


def _fill(broker: KafkaBroker, kind: Messages, count: int) -> int:
    broker.create_topic(kind.name, partitions=PARTITIONS)
    made = (KafkaRecord(text, str(i).encode(), i % PARTITIONS) for i, text in kind.make(count))
    return broker.produce(kind.name, made)


def _compare(
    spark: Any, broker: KafkaBroker, kind: Messages, records: int, repeats: int, root: Path
) -> Iterator[Result]:
    contenders = ("native", *kind.against)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    written = {}
    with WorkerWatch() as watch:
        for turn in range(-1, repeats):
            for name in contenders:
                folder = root / "runs"
                shutil.rmtree(folder, ignore_errors=True)
                # Spark ends workers that were idle for a minute, and some contenders need none.
                start_workers(spark, LOADED)
                before, started = cpu_seconds(), time.monotonic()
                _RUNS[name](spark, broker, kind, records // 4 + PARTITIONS, folder)
                if turn >= 0:
                    seconds[name].append(time.monotonic() - started)
                    cpu[name].append(cpu_seconds() - before)
                written[name] = folder_bytes(folder)
    for name in kind.against:
        cpu_ratio = paired_ratio(cpu[name], cpu["native"])
        yield Result(
            name=f"kafka {kind.name}",
            what=f"{kind.what}: tasks that read themselves against {_WHAT[name]}",
            rows=records,
            seconds=median(seconds["native"]),
            other_seconds=median(seconds[name]),
            written_bytes=written["native"],
            worker_peak_bytes=watch.peak_bytes,
            # The program has one thread, whose clock says nothing.
            ratio=cpu_ratio if name == "program" else paired_ratio(seconds[name], seconds["native"]),
            at_least=_TARGETS[name],
            memory_limit_bytes=1 << 30,
            detail={"seconds": seconds, "cpu": cpu, "cpu ratio": cpu_ratio},
        )


def _job(reader: str) -> Callable[[Any, KafkaBroker, Messages, int, Path], None]:
    def run_with(spark: Any, broker: KafkaBroker, kind: Messages, batch: int, folder: Path) -> None:
        settings = read_assignments(
            (
                f"table={folder / 'k.db' / 't'}",
                "source.format=kafka",
                f"source.reader={reader}",
                f"source.options.kafka.bootstrap.servers={broker.bootstrap_servers}",
                f"source.options.subscribe={kind.name}",
                "source.options.startingOffsets=earliest",
                f"source.options.maxOffsetsPerTrigger={batch}",
                f"source.decode={kind.decode}",
                f"checkpoint={folder / 'checkpoint'}",
                "trigger=availableNow",
                f"create.schema={kind.schema}",
                "create.primary-key=id",
                "create.options.bucket=4",
                "options.compaction=none",
            )
        )
        run_job(resolve_job({}, settings), spark)

    return run_with


def _stream(spark: Any, broker: KafkaBroker, kind: Messages, batch: int) -> Any:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", kind.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch)
        .load()
        .select(F.from_json(F.col("value").cast("string"), kind.ddl).alias("r"))
        .select("r.*")
    )


def _parquet(spark: Any, broker: KafkaBroker, kind: Messages, batch: int, folder: Path) -> None:
    rows = _stream(spark, broker, kind, batch)
    if kind.decode != "json":
        rows = rows.select(F.coalesce("after", "before").alias("r")).select("r.*")
    writer = rows.writeStream.format("parquet").option("path", str(folder / "p"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def _delta(spark: Any, broker: KafkaBroker, kind: Messages, batch: int, folder: Path) -> None:
    merge = DeltaMerge(spark, str(folder / "d"))

    def newest(frame: Any, batch_id: int) -> None:
        merge(frame.dropDuplicates(["id"]), batch_id)

    writer = _stream(spark, broker, kind, batch).writeStream.foreachBatch(newest)
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()


def _paimon(spark: Any, broker: KafkaBroker, kind: Messages, batch: int, folder: Path) -> None:
    """Paimon's sink into a table like that of our job: nothing is compacted by its writer either."""
    options = {"bucket": "4", "write-only": "true"}
    table = create_table(str(folder / "p.db" / "t"), kind.schema, ("id",), options=options)
    write_with_paimon(_stream(spark, broker, kind, batch), table.path, folder / "checkpoint")


def _program(spark: Any, broker: KafkaBroker, kind: Messages, batch: int, folder: Path) -> None:
    del spark
    table = create_table(str(folder / "schema"), kind.schema, ("id",))
    schema = pa.schema((f.name, f.type) for f in arrow_schema(handle_of(table).table_schema.fields))
    fetch_and_write(broker.bootstrap_servers, kind.name, schema, batch, folder / "files")


_RUNS = {
    "native": _job("native"),
    "spark": _job("spark"),
    "parquet": _parquet,
    "delta": _delta,
    "paimon": _paimon,
    "program": _program,
}
_WHAT = {
    "spark": "Spark's Kafka source in the same job",
    "parquet": "from_json into Parquet files",
    "delta": "from_json and MERGE",
    "paimon": "from_json and Paimon's own sink",
    "program": "a program that fetches, parses and writes Parquet",
}
_TARGETS = {"spark": 2.0, "parquet": 1.5, "delta": 3.0, "paimon": 3.0, "program": 1 / 1.15}


def _rows(count: int) -> Iterator[dict[str, Any]]:
    for table in batches(count, seed=1, key_range=KEYS):
        for row in table.to_pylist():
            yield row | {"price": str(row["price"]), "at": row["at"].isoformat(sep=" ")}


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _upserts(count: int) -> Iterator[tuple[int, bytes]]:
    return ((row["id"], _text(row)) for row in _rows(count))


def _large(count: int) -> Iterator[tuple[int, bytes]]:
    return ((row["id"], _text(row | {"note": row["note"] * 11})) for row in _rows(count))


def _debezium(count: int) -> Iterator[tuple[int, bytes]]:
    """Updates with both images; every tenth event is a delete."""
    source = {"version": "3.0.0", "connector": "postgresql", "name": "shop", "db": "shop", "table": "orders"}
    for number, row in enumerate(_rows(count)):
        op, after = ("d", None) if number % 10 == 9 else ("u", row)
        before = row | {"status": "open"}
        yield row["id"], _text({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1})


def _wide(count: int) -> Iterator[tuple[int, bytes]]:
    random = np.random.default_rng(1)
    for start in range(0, count, 1000):
        values = random.integers(0, 1 << 31, (1000, WIDE_COLUMNS)).tolist()
        for i, row in enumerate(values[: count - start], start):
            yield i, _text({"id": i} | {f"c{n}": v for n, v in enumerate(row)})


_WIDE = ", ".join(f"c{n} BIGINT" for n in range(WIDE_COLUMNS))
KINDS = (
    Messages("upserts", "JSON of nine fields", 1_000_000, _upserts, NINE, DDL, against=("spark", "parquet", "delta")),
    Messages(
        "debezium",
        "Debezium events with both images",
        500_000,
        _debezium,
        NINE,
        f"before struct<{DDL}>, after struct<{DDL}>, op string",
        decode="debezium-json",
    ),
    Messages("large", "JSON of 1 KiB", 500_000, _large, NINE, DDL, against=("spark", "parquet", "program")),
    Messages(
        "wide",
        "JSON of 200 columns",
        50_000,
        _wide,
        f"id BIGINT NOT NULL, {_WIDE}",
        f"id BIGINT, {_WIDE}",
        against=("spark", "parquet", "program"),
    ),
)
