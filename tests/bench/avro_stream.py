"""Whole streams of Avro against streams of JSON: the same rows out of two topics into two tables, by the same job.

Tasks read Kafka themselves, in four batches of a query of its own, in turns, after a run of each that warms it up.
"""

import json
import shutil
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
import pyspark

from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.streaming.job.run import run_job
from tests.bench.decode import ENVELOPE, ROW, TYPES, avro_body, drawn_rows, event_of
from tests.bench.engine import session
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.watch import WorkerWatch, cpu_seconds
from tests.support.peers.jars import spark_kafka_jars
from tests.support.servers.broker import KafkaBroker, KafkaRecord
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry

_RECORDS = 500_000
_PARTITIONS = 4
_COLUMNS = ", ".join(f"{name} {column}" for name, (_, column) in TYPES.items())
_KINDS: Mapping[str, tuple[Mapping[str, object], str, str]] = {
    "nine fields": (ROW, "avro", "json"),
    "an envelope": (ENVELOPE, "debezium-avro", "debezium-json"),
}


def run(size: Size, root: Path) -> Sequence[Result]:
    found = []
    jars = spark_kafka_jars(pyspark.__version__)
    with KafkaBroker() as broker, schema_registry() as registry, session(root, more_jars=jars) as spark:
        for name in _KINDS:
            count = size.rows(_RECORDS)
            _fill(broker, registry, name, count)
            found.append(_compare(spark, broker, registry, name, count, size.repeats, root))
    return found


def _fill(broker: KafkaBroker, registry: SchemaRegistry, name: str, count: int) -> None:
    schema, avro, text = _KINDS[name]
    parsed, frame = fastavro.parse_schema(dict(schema)), struct.pack(">bI", 0, registry.add(avro, schema))
    for topic in (avro, text):
        broker.create_topic(topic, partitions=_PARTITIONS)

    def records(topic: str) -> Iterator[KafkaRecord]:
        for at, row in enumerate(drawn_rows(count)):
            value = event_of(row, at) if "debezium" in avro else row
            made = frame + avro_body(parsed, value) if topic == avro else json.dumps(value).encode()
            yield KafkaRecord(made, str(at).encode(), at % _PARTITIONS)

    for topic in (avro, text):
        broker.produce(topic, records(topic))


def _compare(
    spark: Any, broker: KafkaBroker, registry: SchemaRegistry, name: str, count: int, repeats: int, root: Path
) -> Result:
    contenders = _KINDS[name][1:]
    seconds: dict[str, list[float]] = {decode: [] for decode in contenders}
    cpu: dict[str, list[float]] = {decode: [] for decode in contenders}
    folder = root / "runs"
    with WorkerWatch() as watch:
        for turn in range(-1, repeats):
            for decode in contenders:
                shutil.rmtree(folder, ignore_errors=True)
                before, started = cpu_seconds(), time.monotonic()
                _stream(spark, broker, registry, decode, count // 4 + _PARTITIONS, folder)
                if turn >= 0:
                    seconds[decode].append(time.monotonic() - started)
                    cpu[decode].append(cpu_seconds() - before)
    avro, text = contenders
    return Result(
        name=f"a stream of Avro, {name}",
        what="CPU of a job that reads the same rows as JSON, for that of one that reads Avro",
        rows=count,
        seconds=median(seconds[avro]),
        other_seconds=median(seconds[text]),
        written_bytes=folder_bytes(folder),
        worker_peak_bytes=watch.peak_bytes,
        ratio=paired_ratio(cpu[text], cpu[avro]),
        at_least=1.0,
        memory_limit_bytes=1 << 30,
        detail={"seconds": seconds, "cpu": cpu, "clock ratio": paired_ratio(seconds[text], seconds[avro])},
    )


def _stream(spark: Any, broker: KafkaBroker, registry: SchemaRegistry, decode: str, batch: int, folder: Path) -> None:
    asked = [f"source.registry.url={registry.url}"] if "avro" in decode else []
    settings = read_assignments(
        (
            f"table={folder / 'k.db' / 't'}",
            "source.format=kafka",
            "source.reader=native",
            f"source.options.kafka.bootstrap.servers={broker.bootstrap_servers}",
            f"source.options.subscribe={decode}",
            "source.options.startingOffsets=earliest",
            f"source.options.maxOffsetsPerTrigger={batch}",
            f"source.decode={decode}",
            *asked,
            f"checkpoint={folder / 'checkpoint'}",
            "trigger=availableNow",
            f"create.schema={_COLUMNS}",
            "create.primary-key=id",
            "create.options.bucket=4",
            "options.compaction=none",
        )
    )
    run_job(resolve_job({}, settings), spark)
