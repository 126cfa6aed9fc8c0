"""Drawn expressions: Spark is the judge of their values, nulls, types and errors."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression, evaluate
from tests.support.peers.drawn_expressions import drawn_expression, drawn_rows

pytestmark = pytest.mark.spark
ZONE = "America/New_York"
COUNT = int(os.environ.get("DRAWN_EXPRESSIONS", "120"))
SEED = int(os.environ.get("DRAWN_SEED", "7"))
MOST_REFUSED = 0.05
SETTINGS = {
    "spark.sql.session.timeZone": ZONE,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.SimplifyCasts",
}
"""Compiling each expression would take longer than computing it. SimplifyCasts makes CAST(i AS FLOAT) = i true for each
number, as it leaves out the cast to FLOAT that loses digits.
"""


def test_drawn_expressions_give_what_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    draw = Random(SEED)
    texts = list(dict.fromkeys(drawn_expression(draw) for _ in range(COUNT)))
    rows = drawn_rows()
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    try:
        pq.write_table(rows, tmp_path / "rows.parquet")
        frame = spark.read.parquet(str(tmp_path / "rows.parquet")).cache()
        judged = judge(frame, texts)
    finally:
        for key, known in before.items():
            if known is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, known)
    wrong, refused, known = [], [], 0
    columns = {name: rows[name].combine_chunks() for name in rows.schema.names}
    for text, expected in zip(texts, judged, strict=True):
        if expected is None:
            continue  # Spark does not take it
        known += 1
        try:
            found: Any = evaluate(SqlExpression(text), columns, rows.num_rows, Context(ZONE, True))
        except OptionError as e:
            refused.append((text, e.message))
            continue
        except BucketlineError as e:
            found = e.message
        if not isinstance(expected, str) and isinstance(found, str):
            # A row with an error is a bad record that says why: that is no other value.
            refused.append((text, found))
            continue
        if not same(found, expected):
            wrong.append((text, shown(found), shown(expected)))
    for line in wrong[:60]:
        print(*line, sep="\n      ")
    print(f"{known} judged, {len(wrong)} wrong, {len(refused)} refused")
    for line in refused[:40]:
        print("refused", *line)
    assert not wrong
    assert known > 0.5 * len(texts)
    assert len(refused) <= MOST_REFUSED * known


def judge(frame: Any, texts: Sequence[str]) -> list[pa.Array | str | None]:
    """What Spark gives for each: values, "error" where it fails for a row, None for what it does not take."""
    try:
        named = frame.selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(texts)))
        named.schema  # noqa: B018 - it is analysed now
    except PySparkException:
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return judge(frame, texts[:half]) + judge(frame, texts[half:])
    if len(texts) > 8:
        return [found for n in range(0, len(texts), 8) for found in judge(frame, texts[n : n + 8])]
    try:
        table = named.toArrow()
    except (PySparkException, Py4JJavaError):  # where the program that serves the rows fails, it is not PySpark's
        if len(texts) == 1:
            return ["error"]
        half = len(texts) // 2
        return judge(frame, texts[:half]) + judge(frame, texts[half:])
    return [table[n].combine_chunks() for n in range(len(texts))]


def same(found: pa.Array | str, expected: pa.Array | str) -> bool:
    if isinstance(found, str) or isinstance(expected, str):
        return isinstance(found, str) and isinstance(expected, str)
    if pa.types.is_timestamp(expected.type) and expected.type.tz is not None:
        expected = expected.cast(pa.timestamp("us", "UTC"))
    if pa.types.is_null(found.type) and expected.null_count == len(expected):
        return True
    if found.type != expected.type:
        return False
    return all(same_value(a, b) for a, b in zip(numbers(found), numbers(expected), strict=True))


def numbers(values: pa.Array) -> list[Any]:
    """The values; of moments the numbers behind them, as Python has no year 10000."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist()


def same_value(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b
    return bool(a == b)


def shown(values: pa.Array | str) -> str:
    return values if isinstance(values, str) else f"{values.type} {[str(v) for v in numbers(values)]}"
