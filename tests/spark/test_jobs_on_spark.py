"""Whole drawn jobs: `select`, `where` and `expect` over drawn messages. Spark is the judge of all values, nulls and
errors; a reference that takes one event at a time says what becomes of changes.

`DRAWN_JOBS` is how many jobs are drawn; `.ci/run columns-long` draws a thousand.
"""

import os
from random import Random
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from bucketline.conf.errors import OptionError
from bucketline.conf.job import RecordFormat
from bucketline.state.types.arrow import arrow_schema
from tests.support.models.column_reference import DELETE, Expected
from tests.support.spark.judged_jobs import (
    ZONE,
    Judged,
    Messages,
    SparkJudge,
    comparable,
    drawn_job,
    drawn_messages,
    expected_of,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="Spark 3.5 has no ANSI mode as a default"),
]
COUNT = int(os.environ.get("DRAWN_JOBS", "3"))
SEED = int(os.environ.get("DRAWN_SEED", "7"))
TOGETHER, EVENTS = 10, 14
MOST_REFUSED = 0.05
RULES = "org.apache.spark.sql.catalyst.optimizer."
EXCLUDED = "spark.sql.optimizer.excludedRules"
SETTINGS = {
    "spark.sql.session.timeZone": ZONE,
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.alwaysInlineCommonExpr": "true",
    EXCLUDED: f"{RULES}SimplifyCasts,{RULES}ConstantFolding",
}
"""Compiling takes longer than computing. SimplifyCasts makes CAST(i AS FLOAT) = i true for each number. ConstantFolding
ends the whole query where a constant is an error, which here is the error of each row; so would an expression that
is used twice (BETWEEN, or two columns) and is computed before both.
"""


def test_drawn_jobs_make_of_messages_what_spark_says(spark: SparkSession) -> None:
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    try:
        found = Found()
        for first in range(0, COUNT, TOGETHER):
            draw = Random(f"{SEED} {first}")
            messages = drawn_messages(draw, EVENTS)
            judge = SparkJudge(spark)
            frame = judge.frame(messages)
            takes, takes_check = judge.takes(frame), judge.takes(judge.table_frame())
            jobs = [drawn_job(draw, takes, takes_check) for _ in range(min(TOGETHER, COUNT - first))]
            for job, images in zip(jobs, judge.judge(frame, jobs), strict=True):
                found.compare(job, messages, expected_of(job, messages, images))
    finally:
        for key, known in before.items():
            if known is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, known)
    print(f"{COUNT} jobs, {len(found.wrong)} wrong, {len(found.refused)} refused; {found.rows} rows, {found.bad} bad")
    for line in found.refused[:40]:
        print("refused", *line, sep="\n      ")
    for line in found.wrong[:40]:
        print("wrong", *line, sep="\n      ")
    assert not found.wrong
    assert len(found.refused) <= MOST_REFUSED * COUNT
    assert found.rows > COUNT, "most records are not bad"


class Found:
    """What differs, and what is refused."""

    def __init__(self) -> None:
        self.wrong: list[tuple[object, ...]] = []
        self.refused: list[tuple[object, ...]] = []
        self.refused_at_start: list[tuple[Judged, str]] = []
        self.rows = self.bad = 0

    def compare(self, job: Judged, messages: Messages, expected: Expected) -> None:
        try:
            step = job.step()
        except OptionError as e:
            self.refused_at_start.append((job, e.message))
            return
        records = messages.records(job.decode)
        decoded = step(records)
        ats = records["offset"].to_pylist()
        bad = {ats[record]: why for record, why in decoded.bad.items()}
        self.bad += len(bad)
        self.rows += decoded.rows.num_rows
        more = {at: why for at, why in bad.items() if at not in expected.bad}
        fewer = set(expected.bad) - set(bad)
        if more and not fewer:
            # A record that is bad and says why is no other value.
            self.refused.append((job.options, job.engine, job.decode, more))
            return
        rows = rows_of(decoded.rows, job)
        wanted = [(kind, shown(row, kind, job)) for kind, row in expected.rows]
        counts = dict(decoded.seen.unexpected)
        if fewer or rows != wanted or counts != expected.counts:
            difference = next(
                (pair for pair in zip(rows, wanted, strict=False) if pair[0] != pair[1]), (len(rows), len(wanted))
            )
            self.wrong.append((job.options, job.engine, job.decode, fewer, counts, expected.counts, *difference))


def rows_of(rows: pa.Table, job: Judged) -> list[tuple[int, dict[str, Any]]]:
    schema = arrow_schema(job.schema.fields)
    assert rows.select(schema.names).schema.equals(schema)
    kinds = [0] * rows.num_rows if job.decode is RecordFormat.JSON else rows["_row_kind"].to_pylist()
    columns = {name: comparable(rows[name].combine_chunks()) for name in schema.names}
    listed = [{name: values[n] for name, values in columns.items()} for n in range(rows.num_rows)]
    return [(kind, shown(row, kind, job)) for kind, row in zip(kinds, listed, strict=True)]


def shown(row: Any, kind: int, job: Judged) -> dict[str, Any]:
    """What counts of a row: of a delete its key, where it takes nothing back."""
    names = job.rules().needed if kind == DELETE and job.engine == "deduplicate" else row
    return {name: row[name] for name in names}
