"""Rows as Spark takes them: each type of Paimon, or a refusal that names the column."""

from datetime import datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.streaming.reader.spark_rows import check_given, fit, spark_arrow, spark_schema

AT = datetime(1969, 12, 31, 23, 59, 59, 999999)
ROWS = pa.record_batch(
    {
        "id": pa.array([1, 2]),
        "ms": pa.array([AT.replace(microsecond=999000), None], pa.timestamp("ms")),
        "ns": pa.array([-1, None], pa.timestamp("ns", "UTC")),
        "list": pa.array([[datetime(2026, 1, 1), None], None], pa.list_(pa.timestamp("ms"))),
        "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        "row": pa.array(
            [{"x": 1, "at": datetime(2026, 1, 1)}, None], pa.struct([("x", pa.int32()), ("at", pa.timestamp("ms"))])
        ),
    }
)


def test_each_type_has_one_of_spark() -> None:
    assert spark_schema(ROWS.schema, {}).simpleString() == (
        "struct<id:bigint,ms:timestamp_ntz,ns:timestamp,list:array<timestamp_ntz>,vector:array<float>,"
        "map:map<string,int>,row:struct<x:int,at:timestamp_ntz>>"
    )


def test_values_stay_and_parts_of_a_microsecond_are_cut_off_towards_the_past() -> None:
    found = fit(ROWS, spark_arrow(ROWS.schema))
    assert found.schema == spark_arrow(ROWS.schema)
    assert found["ns"].cast(pa.int64()).to_pylist() == [-1, None]  # -1 ns is in the microsecond before 1970
    for name in ("id", "ms", "list", "vector", "map", "row"):
        assert found[name].to_pylist() == ROWS[name].to_pylist()


def test_nanoseconds_inside_of_values_are_cut_off_as_those_of_columns_are() -> None:
    ns = pa.timestamp("ns")
    values = {
        "list": pa.array([[5], None, [-1, None, -1001, 1999], []], pa.list_(ns)),
        "map": pa.array([[("a", 5)], None, [("b", -1)], []], pa.map_(pa.string(), ns)),
        "deep": pa.array([[{"at": [5]}], None, [{"at": [-1]}, None], []], pa.list_(pa.struct([("at", pa.list_(ns))]))),
    }
    rows = pa.RecordBatch.from_pydict(values).slice(1)
    found = fit(rows, spark_arrow(rows.schema))
    found.validate(full=True)
    before, epoch = AT, datetime(1970, 1, 1)
    assert found["list"].to_pylist() == [
        None,
        [before, None, before.replace(microsecond=999998), epoch.replace(microsecond=1)],
        [],
    ]
    assert found["map"].to_pylist() == [None, [("b", before)], []]
    assert found["deep"].to_pylist() == [None, [{"at": [before]}, None], []]


def test_a_column_without_a_type_is_refused_by_name_with_the_remedy() -> None:
    with pytest.raises(
        UnsupportedTableError, match=r"column at: Spark has no type for TIME.*'columns', for example 'id'"
    ):
        spark_schema(pa.schema([("id", pa.int64()), ("at", pa.time32("ms"))]), {})


def test_a_given_schema_needs_the_types_of_the_table() -> None:
    own = StructType([StructField("id", LongType(), False), StructField("n", DecimalType(9, 2))])
    check_given(StructType([StructField("id", LongType())]), own)
    with pytest.raises(
        SchemaMismatchError, match="column n: the given schema has the type string, but the table has decimal"
    ):
        check_given(StructType([StructField("n", StringType())]), own)
    with pytest.raises(SchemaMismatchError, match="column n: the given schema says NOT NULL"):
        check_given(StructType([StructField("n", DecimalType(9, 2), False)]), own)
    with pytest.raises(
        SchemaMismatchError, match="has a column 'idd', which the read does not have; it has id, n; did you"
    ):
        check_given(StructType([StructField("idd", LongType())]), own)
