"""A time with a zone in a column without one, and the other way round: the message says what to do, and that works."""

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.fit import fit_array

NOON = datetime.datetime(2026, 7, 1, 12)


def _fitted(array: pa.Array, declared: str) -> pa.Array:
    (field,) = parse_columns(f"at {declared}")
    data_type = field.type
    return fit_array(array, data_type, arrow_type(data_type), "at")


def test_moments_in_a_column_of_times_name_the_casts() -> None:
    moments = pc.assume_timezone(pa.array([NOON], pa.timestamp("us")), "Europe/Berlin")
    with pytest.raises(SchemaMismatchError) as e:
        _fitted(moments, "TIMESTAMP(6)")
    said = e.value.message
    assert said.startswith("column at: expected TIMESTAMP(6), found timestamp[us, tz=Europe/Berlin]; the column has ")
    assert "column.cast(pa.timestamp('us'))" in said and "pc.local_timestamp(column)" in said
    assert "CAST(... AS TIMESTAMP_NTZ)" in said and "TIMESTAMP_LTZ" in said
    in_utc = _fitted(moments.cast(pa.timestamp("us")), "TIMESTAMP(6)")
    assert in_utc.to_pylist() == [NOON - datetime.timedelta(hours=2)]
    assert _fitted(pc.local_timestamp(moments), "TIMESTAMP(6)").to_pylist() == [NOON]


def test_times_in_a_column_of_moments_name_the_zone() -> None:
    times = pa.array([NOON], pa.timestamp("us"))
    with pytest.raises(
        SchemaMismatchError, match=r"so values need a time zone\. .*pc\.assume_timezone\(column, 'UTC'\)"
    ):
        _fitted(times, "TIMESTAMP_LTZ(6)")
    assert _fitted(pc.assume_timezone(times, "UTC"), "TIMESTAMP_LTZ(6)").cast(pa.timestamp("us")).to_pylist() == [NOON]


def test_another_type_gets_no_such_advice() -> None:
    with pytest.raises(SchemaMismatchError, match=r"found int64$"):
        _fitted(pa.array([1]), "TIMESTAMP(6)")
