"""What a Parquet file of ours looks like to those who read it without us."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.state.store.datafile.parquet_sink import parquet_writer

NAN = float("nan")


def _footer(**columns: pa.Array) -> Any:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, table.schema, compression="NONE", compression_level=None) as writer:
        writer.write_table(table)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def _chunk(column: pa.Array) -> Any:
    return _footer(c=column).row_group(0).column(0)


@pytest.mark.parametrize(
    ("precision", "physical"), [(9, "INT32"), (10, "INT64"), (18, "INT64"), (19, "FIXED_LEN_BYTE_ARRAY")]
)
def test_decimals_lie_in_the_smallest_type_that_holds_them(precision: int, physical: str) -> None:
    assert _chunk(pa.array([Decimal(1)] * 2, pa.decimal128(precision, 0))).physical_type == physical


@pytest.mark.parametrize(("precision", "has_one"), [(18, True), (19, False)])
def test_wide_decimals_have_no_dictionary(precision: int, has_one: bool) -> None:
    assert _chunk(pa.array([Decimal(1)] * 2, pa.decimal128(precision, 0))).has_dictionary_page == has_one


def test_keys_and_sequence_numbers_have_no_dictionary() -> None:
    ones = pa.array([1, 1])
    group = _footer(_KEY_a=ones, _SEQUENCE_NUMBER=ones, a=ones).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, False, True]


def test_floats_have_no_statistics_since_those_would_leave_out_nan() -> None:
    group = _footer(f=pa.array([1.0, NAN], pa.float32()), d=pa.array([1.0, NAN]), i=pa.array([1, 2])).row_group(0)
    assert [group.column(i).is_stats_set for i in range(3)] == [False, False, True]


@pytest.mark.parametrize(("unit", "physical"), [("ms", "INT64"), ("us", "INT64"), ("ns", "INT96")])
def test_nanoseconds_are_int96(unit: str, physical: str) -> None:
    moments = pa.array([datetime.datetime(1969, 12, 31)], pa.timestamp(unit))
    assert _chunk(moments).physical_type == physical
    nested = _footer(c=pa.array([[moments[0].as_py()]], pa.list_(pa.timestamp(unit)))).row_group(0).column(0)
    assert nested.physical_type == physical
