"""Jobs with drawn `select`, `where` and `expect` over drawn messages, and what Spark computes of the rows in them."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bucketline.conf.column_options import ColumnOptions, Expectation, Otherwise
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, parse_source_type
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.state.sql.compute.selection import names_in
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from tests.support.models.column_reference import ERROR, Event, Expected, Image, Judging, Rules
from tests.support.peers.drawn_expressions import drawn_expression, drawn_rows

ZONE = "America/New_York"
TYPES = {
    "id": "BIGINT",
    "b": "BOOLEAN",
    "i": "INT",
    "l": "BIGINT",
    "n": "TINYINT",
    "d": "DOUBLE",
    "f": "FLOAT",
    "m": "DECIMAL(10, 2)",
    "s": "STRING",
    "w": "STRING",
    "y": "DATE",
    "p": "TIMESTAMP_NTZ",
    "z": "TIMESTAMP",
    "j": "STRING",
    "dt": "STRING",
    "a": "ARRAY<INT>",
    "k": "MAP<STRING, INT>",
    "r": "STRUCT<u: BIGINT, v: STRUCT<w: STRING>>",
}
"""The columns of the table, in Spark's types."""
KINDS = {"num": "ilndfm", "text": "swj", "bool": "b", "date": "y", "time": "pz"}
LOOSE_FIELDS = {"q": "STRING", "e": "TIMESTAMP_NTZ", "x": "DECIMAL(12, 2)"}
"""Fields of messages that the table does not have."""
RECORD_FIELDS = {"_kafka_topic": "STRING", "_kafka_partition": "INT", "_kafka_offset": "BIGINT"}
RECORD_FIELDS |= {"_kafka_timestamp": "TIMESTAMP", "_kafka_key": "STRING"}
EVENT_FIELDS = {"_op": "STRING", "_ts_ms": "BIGINT"}
MORE = {"text": ["q", "_kafka_topic", "_kafka_key"], "num": ["x", "id", "_kafka_partition", "_kafka_offset"]}
MORE |= {"time": ["e", "_kafka_timestamp"]}
OF_EVENTS = {**MORE, "text": [*MORE["text"], "_op"], "num": [*MORE["num"], "_ts_ms"]}
OF_ROWS = {"text": ["q"], "num": ["x", "id"], "time": ["e"]}
"""Columns of messages that are of the row, not of the record that tells it."""
DAYS = (
    "date_format(p, 'yyyy-MM-dd')",
    "coalesce(date_format(e, 'yyyyMM'), 'none')",
    "coalesce(q, 'none')",
    "concat('x', coalesce(i, 0) % 3)",
    "CAST(i AS STRING)",
)
MESSAGE_TYPES = MessageOptions(
    types=tuple(
        (name, parse_source_type(text))
        for name, text in (("p", "epoch-micros"), ("y", "epoch-days"), ("e", "epoch-millis"), ("x", "DECIMAL(12, 2)"))
    )
)
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "input": {"changelog-producer": "input"},
    "aggregation": {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"},
}


@dataclass(frozen=True)
class Judged:
    """A job, and the expressions that Spark computes for it: the values of columns, `where`, and checks by name."""

    options: ColumnOptions
    decode: RecordFormat
    engine: str
    schema: TableSchema
    values: Mapping[str, str]
    checks: Mapping[str, str]
    day_inputs: Sequence[str]

    def step(self) -> DecodeStep:
        """The step that decodes. Raises OptionError where the job is refused."""
        plain = decode_step(self.decode, self.schema, BadRecords("/bad", 1_000_000), MESSAGE_TYPES)
        assert plain is not None
        return step_for(replace(plain, columns=self.options, zone=ZONE), self.schema)

    def rules(self) -> Rules:
        is_own = self.engine == "aggregation"
        judging = Judging.INSERTS if self.decode is RecordFormat.JSON else Judging.OWN if is_own else Judging.NEW
        keys = tuple(dict.fromkeys((*self.schema.primary_keys, *self.schema.partition_keys)))
        return Rules(
            judging,
            keys,
            (*keys, *self.schema.settings.merge.sequence_fields),
            tuple(f.name for f in self.schema.fields if not f.type.nullable),
            self.options.where is not None,
            {e.name: e.otherwise for e in self.options.expect},
            gives_old=self.engine != "deduplicate",
        )


def drawn_job(draw: Random, is_taken: Callable[[str], bool], is_check_taken: Callable[[str], bool]) -> Judged:
    """A job of which Spark takes each expression."""
    decode = draw.choice([RecordFormat.JSON, RecordFormat.DEBEZIUM_JSON, RecordFormat.DEBEZIUM_JSON])
    engine = draw.choice([*ENGINES, "deduplicate"])
    key, partition = draw.choice([(("id",), ()), (("id", "dt"), ()), (("id", "dt"), ("dt",))])
    more = MORE if decode is RecordFormat.JSON else OF_EVENTS

    def taken(kind: str | None, target: str, columns: Mapping[str, Sequence[str]] = more) -> str:
        while True:
            text = drawn_expression(draw, kind, draw.choice([1, 2, 2]), columns)
            if is_taken(f"CAST({text} AS {target})"):
                return text

    computed: dict[str, str] = {}
    for _ in range(draw.randrange(1, 4)):
        kind = draw.choice(list(KINDS))
        name = draw.choice(KINDS[kind])
        computed[name] = taken(kind if TYPES[name] != "STRING" or draw.random() < 0.7 else None, TYPES[name])
    computed["dt"] = draw.choice(DAYS) if draw.random() < 0.7 else taken("text", "STRING", OF_ROWS)
    has_star, left_out = draw.random() < 0.7, ()
    plain = [name for name in TYPES if name not in computed]
    if has_star:
        left_out = tuple(draw.sample([n for n in plain if n != "id"], draw.choice([0, 0, 2])))
        star = f"* EXCEPT ({', '.join(left_out)})" if left_out else "*"
        parts = [star, *(f"{text} AS {name}" for name, text in computed.items())]
    else:
        parts = [*plain, *(f"{text} AS {name}" for name, text in computed.items())]
        draw.shuffle(parts)
    values = {n: "NULL" if n in left_out else computed.get(n, n) for n in TYPES}
    where = taken("bool", "BOOLEAN") if draw.random() < 0.6 else None
    fates = [Otherwise.WARN, Otherwise.FAIL]
    if engine != "aggregation" or decode is RecordFormat.JSON:
        fates += [Otherwise.DROP, Otherwise.REJECT]
    expect: list[Expectation] = []
    while len(expect) < draw.choice([0, 1, 2]):
        check = drawn_expression(draw, "bool", draw.choice([1, 2]), {"text": ["dt"], "num": ["id"]})
        if is_check_taken(check):
            expect.append(Expectation(f"e{len(expect)}", check, draw.choice(fates)))
    options = {"bucket": "1", **ENGINES[engine]}
    if draw.random() < 0.2:
        options["sequence.field"] = "l"
    schema = plan_schema(_sql(key), key, partition, options, None, storage_options={}, time_ms=0)
    return Judged(
        ColumnOptions(", ".join(parts), where, tuple(expect)),
        decode,
        engine,
        schema,
        values,
        {e.name: e.check for e in expect},
        _fields_in(computed["dt"]) if "dt" in key else (),
    )


def _sql(key: Sequence[str]) -> str:
    ours = {"TIMESTAMP_NTZ": "TIMESTAMP(6)", "TIMESTAMP": "TIMESTAMP(6) WITH LOCAL TIME ZONE"}
    ours["STRUCT<u: BIGINT, v: STRUCT<w: STRING>>"] = "ROW<u BIGINT, v ROW<w STRING>>"
    return ", ".join(f"{n} {ours.get(t, t)}{' NOT NULL' if n in key else ''}" for n, t in TYPES.items())


def _fields_in(text: str) -> tuple[str, ...]:
    return tuple(names_in(SqlExpression(text)))


@dataclass(frozen=True)
class Messages:
    """Events of one table, and the row of each image among `images`."""

    events: Sequence[Mapping[str, Any]]
    images: Sequence[Mapping[str, Any]]

    def records(self, decode: RecordFormat) -> pa.Table:
        """The records as Kafka's source has them."""
        told = [e for e in self.events if decode is not RecordFormat.JSON or e["after"] is not None]
        texts = [self._text(e, decode) for e in told]
        return pa.table(
            {
                "key": pa.array([e["key"].encode() for e in told], pa.binary()),
                "value": pa.array([t.encode() for t in texts], pa.binary()),
                "topic": ["shop"] * len(told),
                "partition": pa.array([e["at"] % 3 for e in told], pa.int32()),
                "offset": pa.array([e["at"] for e in told], pa.int64()),
                "timestamp": pa.array([_moment(e["at"]) for e in told], pa.timestamp("us", "UTC")),
            }
        )

    def _text(self, event: Mapping[str, Any], decode: RecordFormat) -> str:
        rows = [None if event[n] is None else _told(self.images[event[n]]) for n in ("before", "after")]
        if decode is RecordFormat.JSON:
            return json.dumps(rows[1])
        return json.dumps(
            {"op": event["op"], "before": rows[0], "after": rows[1], "source": {"ts_ms": event["at"] * 1000}}
        )


def _moment(at: int) -> datetime:
    return datetime(2024, 11, 3, 4, 30, tzinfo=UTC) + timedelta(minutes=37 * at)


def _told(image: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _json_value(name, image[name]) for name in (*TYPES, *LOOSE_FIELDS) if name in image}


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        if name == "z":
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if value.year > 999 else str(value)
        micros = (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        return micros // 1000 if name == "e" else micros
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if name == "x" and value is not None:
        return base64.b64encode(int(value.scaleb(2)).to_bytes(8, "big", signed=True)).decode()
    if isinstance(value, Decimal):
        return str(value)
    if name == "f" and value is not None:
        return float(str(np.float32(value)))
    if name == "k":
        return dict(value)
    return value


def drawn_messages(draw: Random, count: int) -> Messages:
    """Events of a table whose rows change; what an event says of a row is whole."""
    pool = {
        name: column.to_pylist() for name, column in zip(drawn_rows().column_names, drawn_rows().columns, strict=True)
    }
    pool["d"] = [None if v is not None and v != v else v for v in pool["d"]]  # JSON has no NaN
    pool |= {"q": pool["s"], "x": pool["m"], "e": [_cut(v) for v in pool["p"]]}
    images: list[dict[str, Any]] = []
    rows: dict[int, int] = {}
    events: list[dict[str, Any]] = []
    for at in range(count):
        key = draw.randrange(1, 6)
        before = rows.pop(key, None)
        event: dict[str, Any] = {"at": at, "key": json.dumps({"id": key}), "before": None, "after": None}
        event["op"] = draw.choice("cr") if before is None else draw.choice("uuud")
        if before is not None:
            event["before"] = len(images)
            images.append({**images[before], "at": at, "op": event["op"]})
        if event["op"] != "d":
            row = {"id": key} | {name: draw.choice(values) for name, values in pool.items()}
            if before is not None:
                kept = draw.sample(list(pool), draw.randrange(len(pool)))
                row |= {name: images[before][name] for name in kept}
            event["after"] = rows[key] = len(images)
            images.append({**row, "at": at, "op": event["op"]})
        events.append(event)
    return Messages(events, images)


def _cut(value: datetime | None) -> datetime | None:
    return None if value is None else value.replace(microsecond=value.microsecond // 1000 * 1000)


class SparkJudge:
    """Computes the expressions of jobs over the rows of messages. A value that fails is told apart from null."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm = spark._jvm  # type: ignore[attr-defined]
        self._expressions, self._try = (
            jvm.org.apache.spark.sql.classic.ExpressionUtils,
            jvm.org.apache.spark.sql.catalyst.expressions.TryEval,
        )

    def _tried(self, text: str) -> Column:
        """A struct with the value; null where the value cannot be computed."""
        told = self._expressions.expression(F.expr(f"struct({text} AS v)")._jc)
        return Column(self._expressions.column(self._try(told)))

    def frame(self, messages: Messages) -> DataFrame:
        """One row for each image."""
        rows = [
            {
                **image,
                "row": n,
                "_op": image["op"],
                "_ts_ms": image["at"] * 1000,
                "_kafka_topic": "shop",
                "_kafka_partition": image["at"] % 3,
                "_kafka_offset": image["at"],
                "_kafka_timestamp": _moment(image["at"]),
                "_kafka_key": json.dumps({"id": image["id"]}),
            }
            for n, image in enumerate(messages.images)
        ]
        types = {"row": "INT"} | {n: t for n, t in TYPES.items() if n != "dt"}
        types |= LOOSE_FIELDS | RECORD_FIELDS | EVENT_FIELDS
        schema = StructType.fromDDL(", ".join(f"{n} {t}" for n, t in types.items()))
        # Rows in an Arrow table become a part of the plan, which Spark computes without starting tasks.
        return self.spark.createDataFrame(pa.Table.from_pylist(rows, to_arrow_schema(schema)), schema)

    def takes(self, frame: DataFrame) -> Callable[[str], bool]:
        """Whether an expression can be analyzed."""

        def is_taken(text: str) -> bool:
            try:
                frame.selectExpr(text)
            except AnalysisException:
                return False
            return True

        return is_taken

    def table_frame(self) -> DataFrame:
        return self.spark.createDataFrame([], ", ".join(f"{n} {t}" for n, t in TYPES.items()))

    def fails_always(self, frame: DataFrame, job: Judged) -> bool:
        """Whether an expression of the job fails whatever the rows are, because of its constants."""
        texts = [f"CAST({text} AS {TYPES[n]}) AS {n}" for n, text in job.values.items() if text != "dt"]
        try:
            kept = self.spark.createDataFrame(frame.rdd, frame.schema)  # of rows in a plan, none would be computed
            kept.filter("row < 0").filter(job.options.where or "true").selectExpr(*texts).collect()
            self.table_frame().selectExpr("id", *job.checks.values()).collect()
        except (PySparkException, Py4JJavaError):
            return True
        return False

    def judge(self, frame: DataFrame, jobs: Sequence[Judged]) -> Iterator[dict[int, Image]]:
        """For each job what its expressions are for each row, by the number of the row. One query for all jobs."""
        most = max(len(job.checks) for job in jobs)
        parts = [self._one(frame, job, n, most) for n, job in enumerate(jobs)]
        found = reduce(lambda a, b: a.unionAll(b), parts).toArrow()
        values = {name: _values(found[name]) for name in (*TYPES, "job", "row", "failed", "_where")}
        values |= {f"_check{n}": _values(found[f"_check{n}"]) for n in range(most)}
        inputs = frame.toArrow()
        given = {name: _values(inputs[name]) for name in inputs.column_names}
        of_row = {row: at for at, row in enumerate(given["row"])}
        images: list[dict[int, Image]] = [{} for _ in jobs]
        for at, (number, row) in enumerate(zip(values["job"], values["row"], strict=True)):
            job = jobs[number]
            failed = set(values["failed"][at])
            images[number][row] = Image(
                {name: ERROR if name in failed else values[name][at] for name in TYPES},
                [given[name][of_row[row]] for name in job.day_inputs],
                _truth(values["_where"][at]),
                {name: _truth(values[f"_check{n}"][at]) for n, name in enumerate(job.checks)},
            )
        yield from images

    def _one(self, frame: DataFrame, job: Judged, number: int, most_checks: int) -> DataFrame:
        tried = {n for n, text in job.values.items() if text != n}
        columns = [
            self._tried(f"CAST({job.values[n]} AS {t})").alias(f"_{n}") if n in tried else F.col(n)
            for n, t in TYPES.items()
        ]
        where = self._tried(job.options.where or "true").alias("_where")
        computed = frame.select("row", where, *columns)
        failed = [F.when(F.col(f"_{n}").isNull(), F.lit(n)) for n in sorted(tried)]
        table = computed.select(
            F.lit(number).alias("job"),
            "row",
            "_where",
            F.array_compact(F.array(*failed)).alias("failed"),
            *(F.col(f"_{n}.v").alias(n) if n in tried else F.col(n) for n in TYPES),
        )
        checks = [self._tried(text) for text in job.checks.values()]
        checks += [self._tried("true")] * (most_checks - len(checks))
        return table.select("*", *(check.alias(f"_check{n}") for n, check in enumerate(checks)))


def _truth(found: Any) -> Any:
    return ERROR if found is None else found["v"]


def _values(column: pa.ChunkedArray) -> list[Any]:
    return comparable(column.combine_chunks())


def comparable(column: pa.Array) -> list[Any]:
    """The values; of moments the numbers behind them, as Python has no year 10000, and of NaN a text."""
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    return ["NaN" if isinstance(v, float) and v != v else v for v in column.to_pylist()]


def expected_of(job: Judged, messages: Messages, images: Mapping[int, Image]) -> Expected:
    """What the job makes of the messages."""
    expected = Expected(job.rules())
    for event in messages.events:
        before, after = (None if event[n] is None else images[event[n]] for n in ("before", "after"))
        if job.decode is not RecordFormat.JSON:
            expected.take(Event(event["at"], event["op"], before, after))
        elif after is not None:
            expected.take(Event(event["at"], "c", None, after))
    return expected
