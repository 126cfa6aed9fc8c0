"""Messages in JSON become rows, by the CPU of one core, against Spark's `from_json` of the same texts.

All formats, embedded schemas of one table and of a hundred, and shapes that a reader may stumble over. Both read the
texts out of a Parquet file. Ours is the whole decode step, to rows of the table with their kinds; `from_json` ends with
structs, whose fields are the same.

Then no shape may cost many times what a plain one costs: many schemas against one, maps and objects in texts against
texts, and drawn shapes against Python's parser.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, Shards
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression, evaluate
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decode_step import DecodeStep
from tests.bench.result import Result, Size, paired_ratio
from tests.bench.watch import cpu_seconds
from tests.support.models import drawn_messages

_RECORDS = 50_000
_TURNS = 5
_TABLES = 100
_DRAWN = 150
"""How many shapes of messages are drawn."""
_DAYS = 40
"""How often one column is computed in a turn: the clock of CPU counts hundredths of a second."""
_MANY = f"debezium-json with schemas of {_TABLES} tables"
Json = dict[str, Any]

_COLUMNS = {
    "id": ("BIGINT NOT NULL", "BIGINT", "int64"),
    "customer": ("BIGINT", "BIGINT", "int64"),
    "price": ("DOUBLE", "DOUBLE", "double"),
    "paid": ("BOOLEAN", "BOOLEAN", "boolean"),
    "status": ("STRING", "STRING", "string"),
    "note": ("STRING", "STRING", "string"),
}
_ROW = ", ".join(f"{name}: {spark}" for name, (_, spark, _) in _COLUMNS.items())
_TEXTS = ", ".join(f"{name}: STRING" for name in _COLUMNS)
_SOURCE = "source: STRUCT<db: STRING, schema: STRING, table: STRING>"
_EVENT = f"STRUCT<before: STRUCT<{_ROW}>, after: STRUCT<{_ROW}>, op: STRING, {_SOURCE}>"
_MAP: Any = {"type": "MAP", "key": "STRING", "value": "STRING"}


@dataclass(frozen=True, slots=True)
class Case:
    """Messages of a kind, and the type that `from_json` reads them as; `note` is the type of that column."""

    what: str
    decode: RecordFormat
    message: Callable[[int], Json]
    spark: str
    note: Any = "STRING"

    @property
    def fields(self) -> tuple[DataField, ...]:
        types = {name: column for name, (column, _, _) in _COLUMNS.items()} | {"note": self.note}
        return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


def row_of(at: int, note: object = None) -> Json:
    said = f"a note of some words about order {at}" if note is None else note
    return {"id": at, "customer": at * 7919, "price": at / 8, "paid": at % 2 == 0, "status": "open", "note": said}


def _event(at: int, table: str = "orders", note: object = None) -> Json:
    source = {"version": "3.5.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_700_000_000_000 + at}
    source |= {"snapshot": "false", "db": "shop", "schema": "public", "table": table, "lsn": 24_023_128 + at}
    after = row_of(at, note)
    before = {**after, "status": "new"} if at % 3 == 0 else None
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": "u" if before else "c",
        "ts_ms": 1_700_000_000_100,
    }


def _with_schema(at: int, tables: int) -> Json:
    table = f"orders_{at % tables:03}"
    fields = [{"type": kind, "optional": True, "field": name} for name, (_, _, kind) in _COLUMNS.items()]
    images = [
        {"type": "struct", "fields": fields, "optional": True, "name": f"s.{table}.Value", "field": image}
        for image in ("before", "after")
    ]
    schema = {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}], "name": f"s.{table}.Envelope"}
    return {"schema": schema, "payload": _event(at, table)}


def _canal(at: int) -> Json:
    texts = {name: json.dumps(value) if not isinstance(value, str) else value for name, value in row_of(at).items()}
    types = {"id": "bigint", "customer": "bigint", "price": "double", "paid": "tinyint(1)", "status": "varchar(20)"}
    named = {"database": "shop", "table": "orders", "isDdl": False, "type": "INSERT", "es": 1_700_000_000_000}
    return {**named, "data": [texts | {"paid": "1"}], "mysqlType": {**types, "note": "text"}, "pkNames": ["id"]}


def _maxwell(at: int) -> Json:
    return {"database": "shop", "table": "orders", "type": "insert", "ts": 1_700_000_000, "data": row_of(at)}


_CASES: Sequence[Case] = (
    Case("json", RecordFormat.JSON, row_of, f"STRUCT<{_ROW}>"),
    Case("debezium-json", RecordFormat.DEBEZIUM_JSON, _event, _EVENT),
    Case(
        "debezium-json with its schema",
        RecordFormat.DEBEZIUM_JSON,
        lambda at: _with_schema(at, 1),
        f"STRUCT<payload: {_EVENT}>",
    ),
    Case(
        _MANY,
        RecordFormat.DEBEZIUM_JSON,
        lambda at: _with_schema(at, _TABLES),
        f"STRUCT<payload: {_EVENT}>",
    ),
    Case(
        "debezium-flat-json",
        RecordFormat.DEBEZIUM_FLAT_JSON,
        lambda at: {**row_of(at), "__op": "c", "__deleted": "false"},
        f"STRUCT<{_ROW}, __op: STRING, __deleted: STRING>",
    ),
    Case(
        "canal-json",
        RecordFormat.CANAL_JSON,
        _canal,
        f"STRUCT<data: ARRAY<STRUCT<{_TEXTS}>>, type: STRING, database: STRING, table: STRING, isDdl: BOOLEAN>",
    ),
    Case(
        "maxwell-json",
        RecordFormat.MAXWELL_JSON,
        _maxwell,
        f"STRUCT<data: STRUCT<{_ROW}>, type: STRING, database: STRING, table: STRING>",
    ),
    Case(
        "debezium-json, a map",
        RecordFormat.DEBEZIUM_JSON,
        lambda at: _event(at, note={"colour": f"c{at % 9}", "size": "x"}),
        _EVENT.replace("note: STRING", "note: MAP<STRING, STRING>"),
        _MAP,
    ),
    Case(
        "debezium-json, an object in a text",
        RecordFormat.DEBEZIUM_JSON,
        lambda at: _event(at, note={"colour": at % 9, "sizes": [1, 2]}),
        _EVENT,
    ),
)


def against_from_json(size: Size, root: Path, spark: SparkSession) -> Iterator[Result]:
    """A result for each kind of message."""
    for number, case in enumerate(_CASES):
        yield _measured(case, size.rows(_RECORDS), root / f"json-{number}.parquet", spark)


def computed_day(size: Size) -> Result:
    """A partition column out of a timestamp, in a zone with daylight saving time: microseconds of CPU a record."""
    count = size.rows(_RECORDS)
    times = pa.array(range(1_700_000_000_000, 1_700_000_000_000 + count * 12_345, 12_345), pa.int64())
    columns, day = {"created": times.cast(pa.timestamp("ms"))}, SqlExpression("date_format(created, 'yyyy-MM-dd')")
    context, cpu = Context("Europe/Berlin", has_instants=True), list[float]()
    for turn in range(_TURNS + 1):
        began = cpu_seconds()
        for _ in range(_DAYS):
            evaluate(day, columns, count, context)
        if turn:
            cpu.append((cpu_seconds() - began) / _DAYS)
    micros = median(cpu) * 1e6 / count
    return Result(
        "decode",
        "a column computed from a time, µs of CPU a record",
        count,
        median(cpu),
        0.0,
        0,
        0,
        micros,
        at_most=0.3,
    )


def without_cliffs(size: Size) -> Iterator[Result]:
    """Odd shapes against plain ones, as ratios of CPU."""
    cases = {case.what: case for case in _CASES}
    plain, one = cases["debezium-json"], cases["debezium-json with its schema"]
    packed = Case("", plain.decode, lambda at: _event(at, note=json.dumps({"colour": f"c{at % 9}"})), "", _MAP)
    pairs = (
        (f"embedded schemas of {_TABLES} tables, against one", cases[_MANY], one, 1.5),
        ("a map, against a text", cases["debezium-json, a map"], plain, 3.0),
        ("a map inside of a text, against a text", packed, plain, 3.0),
        ("an object in a text, against a text", cases["debezium-json, an object in a text"], plain, 3.0),
    )
    count = size.rows(_RECORDS)
    for what, odd, usual, at_most in pairs:
        yield _paired(what, count, _decoding(odd, count), _decoding(usual, count), at_most)
    yield _worst_drawn(max(1, int(_DRAWN * size.scale)))


def _decoding(case: Case, count: int) -> Callable[[], object]:
    texts = [json.dumps(case.message(at), separators=(",", ":")) for at in range(count)]
    records, step = pa.table({"value": pa.array(texts).cast(pa.binary())}), _step_of(case)
    return lambda: step(records)


def _paired(what: str, count: int, odd: Callable[[], object], usual: Callable[[], object], at_most: float) -> Result:
    cpu: tuple[list[float], list[float]] = ([], [])
    for turn in range(_TURNS + 1):
        for times, work in zip(cpu, (odd, usual), strict=True):
            began = time.process_time()
            work()
            if turn:
                times.append(time.process_time() - began)
    ratio = paired_ratio(*cpu)
    return Result("decode", what, count, median(cpu[0]), median(cpu[1]), 0, 0, ratio, at_most=at_most)


def _worst_drawn(count: int) -> Result:
    """The drawn shape that costs most, against Python's parser on the same texts."""
    worst = None
    for seed in range(count):
        fields, values, is_event, watch, told = drawn_messages.drawn(seed)
        read = drawn_messages.reader_of(fields, values, is_event, watch)
        found = _paired(
            "the worst of drawn shapes, against Python's parser",
            drawn_messages.COUNT,
            read,
            partial(_parsed, values.to_pylist()),
            20.0,
        )
        if worst is None or found.ratio > worst.ratio:
            worst = replace(found, detail={"shape": told})
    assert worst is not None, "some shapes are drawn"
    return worst


def _parsed(texts: list[bytes]) -> list[object]:
    return [json.loads(text) for text in texts]


def _step_of(case: Case) -> DecodeStep:
    messages = MessageOptions(shards=Shards.DISTINCT_KEYS if case.decode.names_tables else None)
    return DecodeStep(case.decode, case.fields, ("id",), reject_limit=1, messages=messages)


def _measured(case: Case, count: int, path: Path, spark: SparkSession) -> Result:
    texts = [json.dumps(case.message(at), separators=(",", ":")) for at in range(count)]
    pq.write_table(pa.table({"value": pa.array(texts)}), path)
    step = _step_of(case)
    parsed = spark.read.parquet(str(path)).select(F.from_json("value", case.spark).alias("value"))

    def ours() -> None:
        assert step(pq.read_table(path)).rows.num_rows >= count

    def sparks() -> None:
        parsed.write.format("noop").mode("overwrite").save()

    cpu: tuple[list[float], list[float]] = ([], [])
    for turn in range(_TURNS + 1):
        for times, work in zip(cpu, (ours, sparks), strict=True):
            began = cpu_seconds()
            work()
            if turn:
                times.append(cpu_seconds() - began)
    mine, theirs = cpu
    return Result(
        name="decode",
        what=f"{case.what}, against Spark's from_json",
        rows=count,
        seconds=median(mine),
        other_seconds=median(theirs),
        written_bytes=0,
        worker_peak_bytes=0,
        ratio=paired_ratio(mine, theirs),
        at_most=1.0,
        detail={"us a record": median(mine) / count * 1e6, "other us": median(theirs) / count * 1e6},
    )
