"""Fields of structs in what Spark writes: as Spark itself matches them when it inserts into a table of its own."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import bucketline as bl
from bucketline.state.errors import SchemaMismatchError
from bucketline.streaming.batch.sink import TableSink
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

_PAIR = "STRUCT<a: INT, b: INT>"
_COLUMNS = f"id INT, s STRUCT<r: {_PAIR}, l: ARRAY<{_PAIR}>, m: MAP<STRING, {_PAIR}>>"
_SWAPPED, _SHORT = "named_struct('b', 2L, 'a', 1)", "named_struct('b', 2)"
_OTHER_CASE = "named_struct('B', 2, 'A', 1)"
_LONG = "named_struct('b', 2, 'a', 1, 'c', 3)"


def _in_order(pair: str) -> str:
    return f"named_struct('r', {pair}, 'l', array({pair}, NULL), 'm', map('k', {pair}))"


def _out_of_order(pair: str) -> str:
    return f"named_struct('m', map('k', {pair}), 'r', {pair}, 'l', array({pair}, NULL))"


_STATEMENTS = (
    f"INSERT INTO t BY NAME SELECT {_out_of_order(_SWAPPED)} AS s, 1 AS id",
    f"INSERT INTO t BY NAME SELECT {_out_of_order(_OTHER_CASE)} AS S, 1 AS id",
    f"INSERT INTO t SELECT 1 AS id, {_in_order(_SWAPPED)} AS s",
    f"INSERT INTO t VALUES (1, {_in_order('struct(1, 2)')})",
    "INSERT INTO t BY NAME SELECT 1 AS id, NULL AS s",
    f"INSERT INTO t BY NAME SELECT 1 AS id, {_out_of_order(_SHORT)} AS s",
    f"INSERT INTO t BY NAME SELECT 1 AS id, {_out_of_order(_LONG)} AS s",
    f"INSERT INTO t SELECT 1, {_in_order(_SHORT)}",
    f"INSERT INTO t SELECT 1, {_in_order(_LONG)}",
    "INSERT INTO t SELECT 1, 2",
)


@pytest.fixture
def of_spark(spark: SparkSession) -> Any:
    """The rows, or none where it is refused, that a statement leaves in an empty table of Spark's own."""

    def left(statement: str) -> list[Any] | None:
        spark.sql(f"CREATE TABLE t ({_COLUMNS}) USING parquet")
        try:
            spark.sql(statement)
            return [row.asDict(recursive=True) for row in spark.table("t").collect()]
        except AnalysisException as e:
            assert "INCOMPATIBLE_DATA" in str(e), e
            return None
        finally:
            spark.sql("DROP TABLE t")

    return left


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_insert_matches_fields_of_structs_as_spark_does(
    spark: SparkSession, tmp_path: Path, of_spark: Any, ansi: str
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for statement in _STATEMENTS:
            expected = of_spark(statement)
            bl.sql(spark, f"DROP TABLE IF EXISTS t; CREATE TABLE t ({_COLUMNS})", str(tmp_path))
            if expected is None:
                with pytest.raises(SchemaMismatchError, match=r"field s\.r\.\w: |column s: "):
                    bl.sql(spark, statement, str(tmp_path))
                expected = []
            else:
                bl.sql(spark, statement, str(tmp_path))
            found = [r.asDict(recursive=True) for r in bl.sql(spark, "SELECT * FROM t", str(tmp_path)).collect()]
            assert found == expected, statement
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_frames_are_written_and_merged_by_the_names_of_nested_fields(spark: SparkSession, tmp_path: Path) -> None:
    bl.sql(None, f"CREATE TABLE t ({_COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket'='1')", str(tmp_path))
    table, engine = bl.open_table(str(tmp_path / "default.db" / "t")), bl.spark_engine(spark)
    pair = {"a": 1, "b": 2}
    expected = [{"id": 1, "s": {"r": pair, "l": [pair, None], "m": [("k", pair)]}}]
    frame = spark.sql(f"SELECT 1 AS id, {_out_of_order(_SWAPPED)} AS s")
    table.overwrite(frame, engine=engine)
    assert table.to_arrow().to_pylist() == expected
    bl.sql(None, "UPDATE t SET s = NULL WHERE id = 1", str(tmp_path))
    table.merge(frame, ["id"], {"s": bl.expr("source.s")}, engine=engine)
    assert table.to_arrow().to_pylist() == expected
    source = f"(SELECT 1 AS id, {_out_of_order(_SWAPPED)} AS s) f"
    insert = f"MERGE INTO t USING {source} ON t.id = f.id WHEN NOT MATCHED THEN INSERT *"
    bl.sql(spark, f"DELETE FROM t; {insert}", str(tmp_path))
    assert table.to_arrow().to_pylist() == expected


def test_a_stream_writes_structs_by_the_names_of_their_fields(spark: SparkSession, tmp_path: Path) -> None:
    pair = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    table = bl.create_table(str(tmp_path / "shop.db" / "t"), pa.schema([("s", pa.list_(pair))]))
    stream = FileStream(tmp_path, "s array<struct<b: int, a: int>>")
    stream.add(pa.table({"s": pa.array([[{"b": 2, "a": 1}]], pa.list_(pa.struct([*reversed(list(pair))])))}))
    stream.run(spark, TableSink(table.path))
    assert table.to_arrow().to_pylist() == [{"s": [{"a": 1, "b": 2}]}]
    stream.ddl = "s array<struct<b: bigint, c: bigint>>"
    stream.add(pa.table({"s": pa.array([[{"b": 2, "c": 1}]])}))
    with pytest.raises(Exception, match=r"field s\.element\.c: unknown to the table"):
        stream.run(spark, TableSink(table.path))
