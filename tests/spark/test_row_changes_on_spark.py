"""Changes of rows in Spark's tasks: of buckets of the table, and of DataFrames."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.streaming.tasks.spark_engine import SparkEngine

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64())])


@pytest.mark.parametrize(
    ("key", "options"),
    [
        (("dt", "id"), {"bucket": "3", "deletion-vectors.enabled": "true"}),
        (("id",), {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}),
    ],
    ids=["vectors", "cross-partition"],
)
def test_rows_are_changed_in_tasks(spark: Any, key: tuple[str, ...], options: dict[str, str], tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "w.db" / "t"), COLUMNS, key, ["dt"], options)
    ids = list(range(60))
    for number in range(2):
        table.write(pa.table({"dt": ["ab"[i % 2] for i in ids], "id": ids, "v": [number] * 60}, schema=COLUMNS))
    engine = bl.spark_engine(spark)
    newest = table.snapshots().num_rows
    assert table.delete("id > 1000", engine=engine) == newest
    assert table.delete("id >= 40 OR id + v = 4", engine=engine) > newest
    table.update("dt = 'a'", {"v": bl.expr("v + id * 10")}, engine=engine)
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {i: 1 + i * 10 * (i % 2 == 0) for i in range(40) if i != 3}
    assert table.doctor(rows=True) == []


def test_a_dataframe_takes_the_place_of_partitions_and_is_merged(spark: Any, tmp_path: Path) -> None:
    engine = bl.spark_engine(spark)
    frame = spark.range(0, 50).selectExpr("'a' AS dt", "id", "id * 2 AS kept").withColumnRenamed("kept", "v")
    for name, key, options in (
        ("moving", ("id",), {"bucket": "-1"}),
        ("fixed", ("dt", "id"), {"bucket": "3"}),
        ("postpone", ("dt", "id"), {"bucket": "-2"}),
        ("append", (), {}),
        ("vectors", (), {"deletion-vectors.enabled": "true"}),
    ):
        table = bl.create_table(str(tmp_path / "w.db" / name), COLUMNS, key, ["dt"], options)
        table.write(pa.table({"dt": ["a", "b", "b"], "id": [0, 60, 7], "v": [1, 1, 1]}, schema=COLUMNS))
        table.overwrite(frame, engine=engine)
        moved = {7} if name == "moving" else set()
        found = sorted(row["id"] for row in table.to_arrow().to_pylist())
        assert found == sorted([*range(50), *({60, 7} - moved)])
        assert sum(table.to_arrow()["v"].to_pylist()) == 50 * 49 + len({60, 7} - moved)
        with pytest.raises(bl.SchemaMismatchError, match="column w: unknown to the table"):
            table.overwrite(frame.withColumn("w", frame.v), engine=engine)
        with pytest.raises(bl.SchemaMismatchError, match="found DataFrame; Spark's tasks read one with engine="):
            table.overwrite(frame)
        if not key:
            table.delete("id < 10 OR id + v = 61", engine=engine)
            table.update("dt = 'a' AND id > 47", {"v": bl.expr("v + 1000"), "dt": "c"}, engine=engine)
            found = [tuple(row.values()) for row in table.to_arrow().to_pylist() if row["id"] >= 47]
            assert sorted(found) == [("a", 47, 94), ("c", 48, 1096), ("c", 49, 1098)]
            assert table.to_arrow().num_rows == 40
        held = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
        columns = ["'c' AS dt", "CAST(id + 45 AS INT) AS id", "id AS v", "now() AS at"]
        source = frame.selectExpr(*columns)
        table.merge(source, ["id"], {"v": bl.expr("v - source.v")}, engine=engine)
        merged = {i: held[i] - (i - 45) if i in held else i - 45 for i in range(45, 95)}
        assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == {**held, **merged}
        assert table.doctor(rows=True) == []
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def test_a_dataframe_that_gives_other_rows_each_time_is_read_once_or_refused(spark: Any, tmp_path: Path) -> None:
    """Its ids are random. Without a place on the executors' disks, as when one is lost, it is read twice."""

    class Forgetting(SparkEngine):
        @contextmanager
        def rows(self, data: object, row_kinds: object = None) -> Iterator[Any]:
            with super().rows(data, row_kinds) as found:
                yield replace(found, is_kept=False)

    engine = bl.spark_engine(spark)
    # In the JVM: a task that fails with two Python workers can leave one to the next task that is closed.
    drawn = "xxhash64(reflect('java.util.UUID', 'randomUUID')) AS id"
    source = spark.range(0, 20, 1, 2).selectExpr("id AS v", drawn)
    source = source.selectExpr("concat('d', pmod(id, 1000)) AS dt", "id", "v")
    table = bl.create_table(str(tmp_path / "fixed"), COLUMNS, ("dt", "id"), ["dt"], {"bucket": "2"})
    table.merge(source, ["id"], {"v": bl.expr("source.v")}, engine=engine)
    assert sorted(table.to_arrow()["v"].to_pylist()) == list(range(20))
    moving = bl.create_table(str(tmp_path / "moving"), COLUMNS, ("id",), ["dt"], {"bucket": "-1"})
    moving.overwrite(source, engine=engine)
    assert sorted(moving.to_arrow()["v"].to_pylist()) == list(range(20))
    held = table.to_arrow(), moving.to_arrow()
    with pytest.raises(Exception, match="the source returns other keys when it is read again"):
        table.merge(source, ["id"], {"v": bl.expr("source.v")}, engine=Forgetting(spark))
    with pytest.raises(OptionError, match="when they are read again"):
        moving.overwrite(source, engine=Forgetting(spark))
    assert held == (table.to_arrow(), moving.to_arrow())
    assert table.doctor(rows=True) == moving.doctor(rows=True) == []


def test_a_row_of_an_insert_that_cannot_be_stored_is_an_error(spark: Any, tmp_path: Path) -> None:
    warehouse = str(tmp_path)
    bl.sql(spark, "CREATE TABLE t (id BIGINT NOT NULL, v STRING)", warehouse)
    with pytest.raises(bl.SchemaMismatchError, match="column id: expected BIGINT"):
        bl.sql(spark, "INSERT INTO t SELECT IF(id = 3, NULL, id), 'x' FROM range(10)", warehouse)
    assert bl.sql(spark, "SELECT count(*) AS n FROM t", warehouse).toArrow()["n"].to_pylist() == [0]
