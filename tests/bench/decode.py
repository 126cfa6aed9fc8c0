"""Records in Avro become rows, on one core, by CPU: against fastavro, and against the same rows as JSON. Then messages
in JSON (`decode_json`).

Against fastavro only the reading of bodies is measured, as fastavro ends with objects of Python. Against JSON it is the
whole decode step, and all schemas are known already. Against Spark's `from_avro` it is the time to read bodies out of a
Parquet file and decode them.
"""

import io
import json
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import MessageOptions
from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.avro.avro_bodies import read_bodies
from bucketline.streaming.decode.avro.avro_schema import AvroSchema, parse_avro_schema
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.decode_step import DecodeStep
from tests.bench.decode_json import against_from_json, computed_day, without_cliffs
from tests.bench.result import Result, Size, paired_ratio
from tests.support.peers.jars import jars

_RECORDS = 100_000
_TURNS = 7
_FRAME = struct.pack(">bI", 0, 1)
TYPES = {
    "id": ("long", "BIGINT NOT NULL"),
    "customer": ("long", "BIGINT"),
    "quantity": ("int", "INT"),
    "price": ("double", "DOUBLE"),
    "weight": ("double", "DOUBLE"),
    "paid": ("boolean", "BOOLEAN"),
    "status": ("string", "STRING"),
    "city": ("string", "STRING"),
    "note": ("string", "STRING"),
}
_FIELDS = tuple(DataField(i, name, parse_type(column)) for i, (name, (_, column)) in enumerate(TYPES.items()))
ROW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": kind if name == "id" else ["null", kind]} for name, (kind, _) in TYPES.items()],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Order"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    *({"name": name, "type": "string"} for name in ("version", "connector", "name")),
                    {"name": "ts_ms", "type": "long"},
                    *({"name": name, "type": "string"} for name in ("snapshot", "db", "schema", "table")),
                    {"name": "lsn", "type": ["null", "long"]},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}


@dataclass(frozen=True, slots=True)
class KnownRegistry(RegistrySchemas):
    """A registry that needs no requests."""

    known: AvroSchema | None = None

    def schema(self, name: object) -> AvroSchema:
        assert self.known is not None
        return self.known


def run(size: Size, root: Path) -> Sequence[Result]:
    rows = drawn_rows(size.rows(_RECORDS))
    events = [event_of(row, at) for at, row in enumerate(rows)]
    cases: tuple[tuple[str, object, list[dict[str, Any]], RecordFormat, RecordFormat], ...] = (
        ("nine fields", ROW, rows, RecordFormat.AVRO, RecordFormat.JSON),
        ("an envelope", ENVELOPE, events, RecordFormat.DEBEZIUM_AVRO, RecordFormat.DEBEZIUM_JSON),
    )
    spark = _session()
    results = [result for case in cases for result in (*_measured(*case), _against_spark(*case[:3], root, spark))]
    results += against_from_json(size, root, spark)
    results += without_cliffs(size)
    results.append(computed_day(size))
    spark.stop()
    return results


def drawn_rows(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(7)
    numbers = random.integers(0, 2**40, count).tolist()
    reals = random.random(count).round(6).tolist()
    return [
        {
            "id": at,
            "customer": number,
            "quantity": number % 100,
            "price": real,
            "weight": None if at % 10 == 0 else real * 7,
            "paid": number % 2 == 0,
            "status": "shipped" if number % 3 else "open",
            "city": f"city {number % 977}",
            "note": f"a note of some words about order {number}",
        }
        for at, (number, real) in enumerate(zip(numbers, reals, strict=True))
    ]


def event_of(row: dict[str, Any], at: int) -> dict[str, Any]:
    source = {"version": "3.5.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_700_000_000_000 + at}
    source |= {"snapshot": "false", "db": "shop", "schema": "public", "table": "orders", "lsn": 24_023_128 + at}
    before = {**row, "status": "open"} if at % 3 == 0 else None
    op = "u" if before else "c"
    return {"before": before, "after": row, "source": source, "op": op, "ts_ms": 1_700_000_000_100 + at}


def _measured(
    name: str, schema: object, values: list[dict[str, Any]], avro: RecordFormat, text: RecordFormat
) -> list[Result]:
    parsed = fastavro.parse_schema(schema)
    bodies = [avro_body(parsed, value) for value in values]
    known, records = parse_avro_schema(schema), pa.array(bodies, pa.binary())
    step = DecodeStep(avro, _FIELDS, reject_limit=1, messages=MessageOptions(), primary_key=("id",))
    ours = replace(step, registry=KnownRegistry(RegistryOptions("http://none"), "bench", known))
    as_json = replace(step, decode=text)
    framed = _kafka([_FRAME + body for body in bodies])
    texts = _kafka([json.dumps(value).encode() for value in values])
    contenders: tuple[tuple[str, Callable[[], object], Callable[[], object]], ...] = (
        ("fastavro", lambda: read_bodies(records, known), lambda: _by_fastavro(bodies, parsed)),
        ("JSON", lambda: ours(framed), lambda: as_json(texts)),
    )
    return [_turns(name, other, len(values), mine, theirs) for other, mine, theirs in contenders]


def avro_body(schema: Any, value: object) -> bytes:
    into = io.BytesIO()
    fastavro.schemaless_writer(into, schema, value)
    return into.getvalue()


def _by_fastavro(bodies: list[bytes], schema: Any) -> list[object]:
    return [fastavro.schemaless_reader(io.BytesIO(body), schema, None) for body in bodies]


def _kafka(values: list[bytes]) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def _against_spark(name: str, schema: object, values: list[dict[str, Any]], root: Path, spark: SparkSession) -> Result:
    """On one core, by the clock: Spark's CPU is not this process's."""
    parsed, known, path = fastavro.parse_schema(schema), parse_avro_schema(schema), str(root / f"{name}.parquet")
    pq.write_table(pa.table({"body": pa.array([avro_body(parsed, value) for value in values], pa.binary())}), path)
    decoded = spark.read.parquet(path).select(from_avro("body", json.dumps(schema)).alias("value"))
    return _turns(
        name,
        "Spark's from_avro (seconds)",
        len(values),
        lambda: read_bodies(pq.read_table(path)["body"].combine_chunks(), known),
        lambda: decoded.write.format("noop").mode("overwrite").save(),
        time.perf_counter,
    )


def _session() -> SparkSession:
    jar_files = ",".join(str(jar) for jar in jars("spark-avro-4.0"))
    settings = {"spark.ui.enabled": "false", "spark.jars": jar_files, "spark.driver.extraClassPath": jar_files}
    builder = SparkSession.builder.master("local[1]").config(map=settings)
    return builder.getOrCreate()


def _turns(
    name: str,
    other: str,
    count: int,
    mine: Callable[[], object],
    theirs: Callable[[], object],
    clock: Callable[[], float] = time.process_time,
) -> Result:
    """Both in turn, so that a slow spell of the machine hits both."""
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(_TURNS + 1):
        for times, work in zip(found, (mine, theirs), strict=True):
            began = clock()
            work()
            if turn:
                times.append(clock() - began)
    ours, others = found
    return Result(
        name="decode",
        what=f"{name} in Avro, against {other}",
        rows=count,
        seconds=median(ours),
        other_seconds=median(others),
        written_bytes=0,
        worker_peak_bytes=0,
        ratio=paired_ratio(ours, others),
        at_most=0.25 if other == "fastavro" else 1.0,
        detail={"us a record": median(ours) / count * 1e6, "other us": median(others) / count * 1e6},
    )
