"""`spark.read.format("bucketline")`: the rows of the table, whatever the options."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.store.catalog.consumers import next_of_consumers
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.spark.test_spark_versions import release, settings

pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no data sources in Python")
pytestmark = pytest.mark.spark


def frame(spark: Any, path: str, **options: object) -> Any:
    found = spark.read.format("bucketline")
    for key, value in options.items():
        found = found.option(key.replace("__", ".").replace("_", "-") if not key.startswith("_") else key, value)
    return found.load(path)


def error_of(run: Any) -> str:
    with pytest.raises(Exception) as caught:
        run()
    return str(caught.value)


def ids(found: Any) -> list[int]:
    return sorted(row.id for row in found.collect())


def values(numbers: Iterable[int], text: str) -> pa.Table:
    numbers = list(numbers)
    return pa.table({"id": numbers, "dt": [f"d{n % 2}" for n in numbers], "name": [f"{text}{n}" for n in numbers]})


def test_reads_a_table_by_snapshot_columns_filter_and_changes(spark: Any, tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "shop.db" / "t"),
        "id BIGINT NOT NULL, dt STRING NOT NULL, name STRING",
        ["id", "dt"],
        ["dt"],
        options={"bucket": "2", "num-sorted-run.compaction-trigger": "9"},
    )
    table.write(values(range(100), "a"))
    table.write(values(range(90, 130), "b"))
    table.write(values([3, 5], "c").append_column("_row_kind", pa.array([3, 3], pa.int8())))
    path = table.path
    found = frame(spark, path, source__split__target_size="1 kb")
    assert [(r.id, r.name) for r in found.orderBy("id").collect()] == [
        (r["id"], r["name"]) for r in open_table(path).to_arrow().sort_by("id").to_pylist()
    ]
    assert found.rdd.getNumPartitions() == 4
    assert ids(frame(spark, path, snapshot=1)) == list(range(100))
    assert ids(frame(spark, path).where("dt = 'd0' AND id IN (4, 5, 6) AND name LIKE 'a%'")) == [4, 6]
    if release(spark) >= (4, 1):
        with settings(spark, spark__sql__python__filterPushdown__enabled="true"):
            pushed = frame(spark, path, source__split__target_size="1 kb").where("dt = 'd0' AND id < 200")
            assert (pushed.rdd.getNumPartitions(), pushed.count()) == (2, 65)
    given = spark.read.schema("name STRING").format("bucketline").option("filter", "id < 10 AND dt = 'd1'").load(path)
    assert (given.columns, sorted(row.name for row in given.collect())) == (["name"], ["a1", "a7", "a9"])

    changes = frame(spark, path, changes_since=1, columns="id,_change_type,_commit_version,_row_kind")
    expected = [(n, "insert", 2, 0) for n in range(90, 130)] + [(3, "delete", 3, 3), (5, "delete", 3, 3)]
    assert sorted(tuple(r) for r in changes.collect()) == sorted(expected)

    assert "did you mean 'columns'?" in error_of(lambda: frame(spark, path, colums="id"))
    assert "has no snapshot 9" in error_of(lambda: frame(spark, path, snapshot=9))
    secret = frame(spark, path, **{"s3__access_key": "me", "s3__secret_key": "hidden-word"})
    assert "hidden-word" not in secret._jdf.queryExecution().toString()


def test_values_of_each_type_are_those_of_the_table(spark: Any, tmp_path: Path) -> None:
    columns = (
        "id BIGINT NOT NULL, t TINYINT, s SMALLINT, f FLOAT, d DOUBLE, b BOOLEAN, bin BYTES, day DATE, "
        "amount DECIMAL(38, 10), ntz TIMESTAMP(3), ltz TIMESTAMP(6) WITH LOCAL TIME ZONE, "
        "l ARRAY<TIMESTAMP(3)>, m MAP<STRING, DECIMAL(9, 2)>, r ROW<x INT, y ROW<z STRING>>"
    )
    table = create_table(str(tmp_path / "shop.db" / "t"), columns, options={"bucket": "-1"})
    at = datetime(2026, 1, 1, 1, 2, 3, 456000)
    row = {
        "id": 1, "t": -1, "s": 2, "f": 1.5, "d": float("inf"), "b": True, "bin": b"\x00\xff", "day": at.date(),
        "amount": Decimal("12345678901234567890.1234567890"), "ntz": at, "ltz": at,
        "l": [at, None], "m": [("k", Decimal("1.50"))], "r": {"x": 1, "y": {"z": "ä"}},
    }  # fmt: skip
    table.write(pa.Table.from_pylist([row, {"id": 2}], schema=table.schema))
    first, second = frame(spark, table.path).orderBy("id").collect()
    assert first.asDict(recursive=True) == {**row, "m": dict(row["m"])}  # type: ignore[call-overload]
    assert [v for v in second.asDict().values()] == [2, *[None] * 13]


def test_spark_compares_a_char_with_blanks(spark: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), "id BIGINT, c CHAR(4), s STRING")
    table.write(pa.table({"id": [1, 2, 3], "c": ["ab", "abcd", None], "s": ["ab", "ab ", "x"]}))
    found = frame(spark, table.path)
    assert [r.c for r in found.orderBy("id").collect()] == ["ab  ", "abcd", None]
    for condition in ("c = 'ab'", "c IN ('ab  ', 'x')", "c < 'abc'", "c = 'ab' AND s = 'ab'"):
        assert ids(found.where(condition)) == [1]
    assert ids(found.where("s = 'ab'")) == [1] and ids(found.where("c LIKE 'ab'")) == []
    view = bl.sql(spark, "SELECT id FROM shop.t WHERE c = 'ab' OR upper(c) = 'ABCD'", warehouse=str(tmp_path))
    assert ids(view) == [1, 2]
    insert = "INSERT INTO shop.t SELECT 4L, 'cd ', upper(s) FROM shop.t WHERE id = 3"
    bl.sql(spark, insert, warehouse=str(tmp_path))
    assert open_table(table.path).to_arrow(filter="id = 4")["c"].to_pylist() == ["cd  "]


def test_a_stream_of_changes_goes_through_restarts_into_another_table(spark: Any, tmp_path: Path) -> None:
    columns = "id BIGINT NOT NULL, n INT"
    options = {"bucket": "2", "changelog-producer": "input", "num-sorted-run.compaction-trigger": "3"}
    table = create_table(str(tmp_path / "shop.db" / "t"), columns, ["id"], options=options)
    copy = create_table(str(tmp_path / "shop.db" / "copy"), columns, ["id"], options={"bucket": "3"})
    checkpoint, seen = tmp_path / "checkpoint", list[int]()
    sink = TableSink(copy.path)

    def write(numbers: Iterable[int], n: int, kind: int = 0) -> None:
        found = list(numbers)
        rows = pa.table({"id": found, "n": pa.array([n] * len(found), pa.int32())})
        table.write(rows, pa.array([kind] * len(found), pa.int8()))

    def each(found: Any, number: int) -> None:
        seen.append(number)
        sink(found, number)

    def start(**limits: str) -> Any:
        stream = spark.readStream.format("bucketline").option("columns", "id,n,_row_kind").option("consumer-id", "copy")
        for key, text in limits.items():
            stream = stream.option(f"read.stream.{key}", text)
        writer = stream.load(table.path).writeStream.option("checkpointLocation", str(checkpoint))
        writer = writer.foreachBatch(each)
        return (writer if limits else writer.trigger(availableNow=True)).start()

    write(range(50), 1)
    start().awaitTermination()
    write(range(0, 50, 5), 1, kind=3)
    write(range(30, 60), 2)
    start().awaitTermination()
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    for n in range(3, 7):
        write(range(n), n)
    table.compact()
    table.expire_snapshots(retain_max=1, retain_min=1)
    query = start(maxFilesPerTrigger="4")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = open_table(copy.path).to_arrow().sort_by("id")
    assert rows.to_pylist() == open_table(table.path).to_arrow().sort_by("id").to_pylist()
    assert seen[:3] == [0, 1, 1]
    assert len(seen) >= 3 + 2
    assert next_of_consumers(handle_of(table).io, table.path)["copy"] > 3
