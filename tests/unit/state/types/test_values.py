"""Single values of metadata as Arrow scalars, and back."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import Timestamp
from bucketline.state.types.logical import parse_type_text
from bucketline.state.types.values import from_scalar, to_scalar


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        ("BOOLEAN", True),
        ("BIGINT", -(2**63)),
        ("DOUBLE", -0.0),
        ("STRING", "é"),
        ("BYTES", b"\xff"),
        ("DECIMAL(38, 2)", Decimal("-1.50")),
        ("DATE", -1),
        ("TIME(3)", 86_399_999),
        ("TIMESTAMP(3)", Timestamp(-1, 0)),
        ("TIMESTAMP(6)", Timestamp(-1, 999_000)),
        ("TIMESTAMP(9)", Timestamp(-1, 999_999)),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", Timestamp(1, 1000)),
    ],
)
def test_a_value_comes_back_from_its_scalar(data_type: str, value: object) -> None:
    found = parse_type_text(data_type)
    assert repr(from_scalar(to_scalar(value, found), found)) == repr(value)
    assert from_scalar(to_scalar(None, found), found) is None


def test_the_scalar_of_a_date_is_the_day() -> None:
    scalar = pa.scalar(datetime.date(1970, 1, 3), arrow_type(parse_type_text("DATE")))
    assert from_scalar(scalar, parse_type_text("DATE")) == 2
