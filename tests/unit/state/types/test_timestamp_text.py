"""Texts as timestamps: nanoseconds hold the years 1677 to 2262, and whatever release of pyarrow is installed, a text of
another year is refused and never becomes a time of these."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.defaults import default_scalar
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.sql.compute.expression import evaluate, expr
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type_text
from bucketline.state.types.recast import recast
from bucketline.state.types.timestamp_text import cast_text, timestamps_of
from tests.support.models.filters import parse_filter

NS = pa.timestamp("ns")
EPOCH = datetime(1970, 1, 1)
OUTSIDE = [
    "2500-01-01 00:00:00",
    "9999-12-31T23:59:59",
    "0001-01-01 00:00:00",
    "1677-09-21 00:12:43",
    "2262-04-11 23:47:17",
]
NINE = parse_type_text("TIMESTAMP(9)")
FIELDS = (DataField(0, "x", NINE), DataField(1, "z", parse_type_text("TIMESTAMP(9) WITH LOCAL TIME ZONE")))


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_text_of_another_year_is_refused(text: str) -> None:
    for texts in ([text], [None, "2023-01-01 00:00:00", text]):
        with pytest.raises(pa.ArrowInvalid):
            timestamps_of(pa.array(texts, pa.string()), NS)
    with pytest.raises(pa.ArrowInvalid):
        cast_text(text, NS)
    with pytest.raises(pa.ArrowInvalid):
        timestamps_of(pa.array([f"{text}Z"]), pa.timestamp("ns", "UTC"))
    with pytest.raises(pa.ArrowInvalid):
        recast(pa.array([text]), DataType(TypeRoot.VARCHAR, length=100), NINE)
    with pytest.raises(UnsupportedTableError, match="cannot be filled in"):
        default_scalar(DataField(0, "x", NINE, default_value=text))


@pytest.mark.parametrize("text", OUTSIDE)
@pytest.mark.parametrize("form", ["x > '{}'", "x > TIMESTAMP '{}'", "x = '{}'", "z > '{}Z'", "x IN ('{}')"])
def test_a_literal_of_another_year_is_no_value_of_a_column_of_nanoseconds(text: str, form: str) -> None:
    with pytest.raises(OptionError, match=r"1677-09-21 to 2262-04-11|does not fit|no value"):
        parse_filter(form.format(text), FIELDS)


def test_an_expression_does_not_take_a_text_of_another_year_for_another_time() -> None:
    for text in OUTSIDE:
        with pytest.raises(SchemaMismatchError, match="cannot be computed"):
            evaluate(expr(f"CAST('{text}' AS TIMESTAMP(9))"), {"a": pa.array([1])}, 1)
        with pytest.raises(SchemaMismatchError, match="cannot be computed"):
            evaluate(expr("CAST(a AS TIMESTAMP(9))"), {"a": pa.array([text])}, 1)


@given(
    st.integers(-9_223_372_036 * 10**9, 9_223_372_036 * 10**9 + 854_775_807),
    st.sampled_from(["", "Z", "+02:30"]),
    st.sampled_from([0, 3, 6, 9]),
)
def test_every_time_in_reach_is_read_exactly(nanos: int, zone: str, digits: int) -> None:
    seconds, rest = divmod(nanos, 10**9)
    rest -= rest % 10 ** (9 - digits)
    shown = EPOCH + timedelta(seconds=seconds)
    if zone == "+02:30":
        shown += timedelta(hours=2, minutes=30)
    text = shown.isoformat() + (f".{rest:09}"[: digits + 1] if digits else "") + zone
    found = timestamps_of(pa.array([text, None]), pa.timestamp("ns", "UTC") if zone else NS)
    assert found.cast(pa.int64()).to_pylist() == [seconds * 10**9 + rest, None]


def test_coarser_units_hold_every_year() -> None:
    texts = pa.array(["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"])
    assert timestamps_of(texts, pa.timestamp("us")).to_pylist() == [datetime(1, 1, 1), datetime.max]
    assert cast_text("9999-12-31 00:00:00Z", pa.timestamp("ms", "UTC")).as_py() == datetime(9999, 12, 31, tzinfo=UTC)
    assert cast_text("7", pa.int64()).as_py() == 7
    assert pc.is_null(timestamps_of(pa.array([None], pa.string()), NS)).to_pylist() == [True]
