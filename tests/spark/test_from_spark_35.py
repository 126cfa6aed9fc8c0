"""A checkpoint of Spark 3.5 goes on with a later Spark; and what stands for data sources on 3.5.

`.ci/run versions` runs the first with the environment of 3.5, which `BUCKETLINE_SPARK_35` names.
"""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import bucketline as bl
from bucketline.streaming.reader.data_source import HAS_DATA_SOURCES
from tests.support.processes.stream_job import Kill, StreamJob
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
DDL = "id long, n long"
OLDER = os.environ.get("BUCKETLINE_SPARK_35")


@pytest.mark.skipif(OLDER is None, reason="BUCKETLINE_SPARK_35 names no Python with Spark 3.5: `.ci/run versions`")
def test_a_checkpoint_of_spark_35_goes_on_with_this_spark(tmp_path: Path) -> None:
    """The job dies on 3.5 with a batch that is in the table and that Spark believes unfinished."""
    assert OLDER is not None
    table = bl.create_table(
        str(tmp_path / "shop.db" / "sums"),
        COLUMNS,
        ("id",),
        options={"bucket": "2", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    )
    stream = FileStream(tmp_path, DDL)
    for number in range(3):
        stream.add(pa.table({"id": list(range(20)), "n": [10**number] * 20}, schema=COLUMNS))
    job = StreamJob(str(tmp_path), DDL, (table.path,))
    dying = StreamJob(str(tmp_path), DDL, (table.path,), kill=Kill("before Spark's commit log", 1))
    assert dying.run(python=OLDER) == -9, dying.log()
    before = table.snapshots()["commit_user"].unique().to_pylist()
    assert job.run() == 0, job.log()
    assert {r["n"] for r in bl.open_table(table.path).to_arrow().to_pylist()} == {111}
    snapshots = bl.open_table(table.path).snapshots()
    assert snapshots["commit_user"].unique().to_pylist() == before
    rows = snapshots.filter(pa.compute.equal(snapshots["commit_kind"], "APPEND"))
    assert rows["commit_identifier"].to_pylist() == [0, 1, 2]


@pytest.fixture
def visits(tmp_path: Path) -> bl.Table:
    table = bl.create_table(
        str(tmp_path / "shop.db" / "visits"),
        "id BIGINT NOT NULL, page STRING, at TIMESTAMP(6), tags ARRAY<STRING>",
        primary_key=["id"],
        options={"bucket": "3"},
    )
    at = pa.array([1_700_000_000_000_000] * 4, pa.timestamp("us"))
    tags = pa.array([["a"], [], None, ["b", None]], pa.list_(pa.string()))
    table.write(pa.table({"id": [1, 2, 3, 4], "page": ["home", "help", None, "shop"], "at": at, "tags": tags}))
    table.write(pa.table({"id": [2], "page": ["cart"], "at": at[:1], "tags": tags[:1]}))
    return table


def test_read_gives_the_rows_of_the_table_on_each_release(spark: Any, visits: bl.Table) -> None:
    rows = {r.id: (r.page, r.at.year, r.tags) for r in bl.read(spark, visits.path).collect()}
    assert rows == {
        1: ("home", 2023, ["a"]),
        2: ("cart", 2023, ["a"]),
        3: (None, 2023, None),
        4: ("shop", 2023, ["b", None]),
    }
    some = bl.read(spark, visits.path, columns=["page"], filter="id <= 2", snapshot=1)
    assert some.columns == ["page"] and sorted(r.page for r in some.collect()) == ["help", "home"]
    assert bl.read(spark, visits.path).groupBy("tags").agg(F.count("id")).count() == 3
    changes = bl.read(spark, visits.path, options={"changes-since": "1"})
    assert [(r.id, r.page, r._commit_version) for r in changes.collect()] == [(2, "cart", 2)]
    assert bl.sql(spark, f"SELECT page FROM `{visits.path}` WHERE id = 4").collect()[0].page == "shop"


def test_read_of_an_empty_table_has_its_columns(spark: Any, tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "shop.db" / "empty"), "id BIGINT, at DATE")
    frame = bl.read(spark, table.path)
    assert frame.columns == ["id", "at"] and frame.collect() == []


def test_an_option_that_is_given_twice_and_one_that_is_not_known_are_refused(spark: Any, visits: bl.Table) -> None:
    with pytest.raises(bl.OptionError, match="'filter' is set twice"):
        bl.read(spark, visits.path, filter="id = 1", options={"Filter": "id = 2"})
    with pytest.raises(Exception, match="did you mean 'columns'"):
        bl.read(spark, visits.path, options={"colums": "id"}).collect()


@pytest.mark.skipif(HAS_DATA_SOURCES, reason="this Spark has data sources in Python")
def test_spark_35_is_told_what_stands_for_the_data_source(spark: Any) -> None:
    with pytest.raises(bl.OptionError, match=r"bucketline.read\(spark, path\), which returns the table as a DataFrame"):
        bl.register(spark)
