"""Types that may follow one another, and that readers can follow them."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from bucketline.state.commit.widen import narrows
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.cast import read_column
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import DataType

EXTREMES: dict[str, list[object]] = {
    "TINYINT": [-128, 127],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [1.5, -0.0],
    "DECIMAL(5, 2)": [Decimal("999.99"), Decimal("-0.01")],
    "CHAR(3)": ["abc", ""],
    "VARCHAR(3)": ["äöü", ""],
    "BINARY(2)": [b"ab", b""],
    "TIMESTAMP(3)": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999000)],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [dt.datetime(1, 1, 1, tzinfo=dt.UTC)],
    "TIME(0)": [dt.time(23, 59, 59)],
    "ARRAY<INT>": [[1, None], []],
    "MAP<STRING, INT>": [[("a", 1)], []],
}
ALLOWED = {
    "TINYINT": ["SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(3, 0)", "DECIMAL(10, 4)"],
    "SMALLINT": ["INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 0)"],
    "INT": ["BIGINT", "DOUBLE", "DECIMAL(10, 0)", "DECIMAL(38, 10)"],
    "BIGINT": ["DECIMAL(19, 0)", "DECIMAL(38, 19)"],
    "FLOAT": ["DOUBLE"],
    "DECIMAL(5, 2)": ["DECIMAL(6, 2)", "DECIMAL(6, 3)", "DECIMAL(38, 10)"],
    "CHAR(3)": ["CHAR(4)", "VARCHAR(3)", "STRING"],
    "VARCHAR(3)": ["VARCHAR(4)", "STRING"],
    "BINARY(2)": ["BINARY(3)", "VARBINARY(2)", "BYTES"],
    "TIMESTAMP(3)": ["TIMESTAMP(4)", "TIMESTAMP(6)"],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": ["TIMESTAMP(6) WITH LOCAL TIME ZONE"],
    "TIME(0)": ["TIME(3)"],
    "ARRAY<INT>": ["ARRAY<BIGINT>"],
    "MAP<STRING, INT>": ["MAP<STRING, BIGINT>"],
}
REFUSED = {
    "SMALLINT": ["TINYINT", "DECIMAL(4, 0)", "STRING", "BOOLEAN"],
    "INT": ["FLOAT", "DECIMAL(10, 1)", "DATE"],
    "BIGINT": ["DOUBLE", "INT", "DECIMAL(18, 0)"],
    "FLOAT": ["INT", "DECIMAL(38, 18)"],
    "DOUBLE": ["FLOAT"],
    "DECIMAL(5, 2)": ["DECIMAL(5, 3)", "DECIMAL(5, 1)", "DECIMAL(4, 2)", "DOUBLE", "INT"],
    "VARCHAR(3)": ["VARCHAR(2)", "CHAR(3)", "BYTES", "INT"],
    "TIMESTAMP(6)": ["TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "DATE"],
    "TIME(3)": ["TIME(0)"],
    "ARRAY<INT>": ["ARRAY<SMALLINT>", "INT", "ARRAY<BIGINT NOT NULL>"],
    "MAP<STRING, INT>": ["MAP<INT, INT>"],
}


def _type(text: str) -> DataType:
    return parse_columns(f"c {text}")[0].type


@pytest.mark.parametrize(("old", "new"), [(o, n) for o, found in ALLOWED.items() for n in found])
def test_a_wider_type_reads_every_old_value(old: str, new: str) -> None:
    before, after = _type(old), _type(new)
    assert narrows(before, after) is None
    stored = pa.array([*EXTREMES[old], None], arrow_type(before))
    found = read_column(stored, before, after)
    assert found.type == arrow_type(after)
    if new.startswith(("CHAR", "BINARY")):
        # Paimon fills up to a fixed length when it casts.
        trimmed = [None if v is None else v.rstrip(b"\0" if isinstance(v, bytes) else " ") for v in found.to_pylist()]
        found = pa.array(trimmed, found.type)
    assert found.cast(stored.type).equals(stored) if not pa.types.is_nested(stored.type) else len(found) == len(stored)
    assert found.null_count == 1


@pytest.mark.parametrize(("old", "new"), [(o, n) for o, found in REFUSED.items() for n in found])
def test_a_type_that_would_lose_something_is_refused(old: str, new: str) -> None:
    assert narrows(_type(old), _type(new))
