"""Filters that Spark pushes down keep every row that Spark keeps."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bucketline.streaming.reader.pushed_filters import condition_of


@dataclass(frozen=True)
class Binary:
    attribute: tuple[str, ...]
    value: Any = None


@dataclass(frozen=True)
class Not:
    child: Any


def named(kind: str, column: str, value: Any = None) -> Any:
    """A filter as PySpark 4.1 has it; the release that the tests run on may be older."""
    return type(kind, (Binary,), {})((column,), value)


AT = datetime(2026, 1, 1, 1, 2, 3, 456789)
ROWS = pa.table(
    {
        "i": pa.array([1, 2, None, 4]),
        "s": pa.array(["ab", "abc", None, "b"]),
        "d": pa.array([Decimal("1.50"), None, Decimal("2.00"), Decimal("-1.00")], pa.decimal128(9, 2)),
        "day": pa.array([date(2026, 1, 1), None, date(2026, 1, 2), date(2025, 1, 1)]),
        "ms": pa.array([datetime(2026, 1, 1), None, datetime(2026, 1, 2), datetime(2025, 1, 1)], pa.timestamp("ms")),
        "us": pa.array([AT, None, AT, AT], pa.timestamp("us", "UTC")),
        "ns": pa.array([AT, None, AT, AT], pa.timestamp("ns")),
        "f": pa.array([1.0, float("nan"), None, -0.0]),
    }
)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (named("EqualTo", "i", 2), [2]),
        (named("EqualNullSafe", "i", None), [3]),
        (named("EqualNullSafe", "i", 4), [4]),
        (named("GreaterThan", "i", 1), [2, 4]),
        (named("GreaterThanOrEqual", "i", 2), [2, 4]),
        (named("LessThan", "s", "b"), [1, 2]),
        (named("LessThanOrEqual", "d", Decimal("1.5")), [1, 4]),
        (named("In", "i", (1, 4, None)), [1, 4]),
        (named("IsNull", "s"), [3]),
        (named("IsNotNull", "f"), [1, 2, 4]),
        (named("StringStartsWith", "s", "ab"), [1, 2]),
        (named("StringEndsWith", "s", "c"), [2]),
        (named("StringContains", "s", "b"), [1, 2, 4]),
        (named("EqualTo", "day", date(2026, 1, 2)), [3]),
        (named("EqualTo", "ms", datetime(2026, 1, 2)), [3]),
        (named("EqualTo", "us", AT.replace(tzinfo=UTC)), [1, 3, 4]),
        (Not(named("EqualTo", "i", 2)), [1, 4]),
        (Not(named("IsNull", "i")), [1, 2, 4]),
    ],
    ids=str,
)
def test_a_filter_becomes_a_condition(one: Any, expected: list[int]) -> None:
    found = condition_of([one], ROWS.schema)
    assert found is not None
    numbered = ROWS.append_column("row", pa.array([1, 2, 3, 4]))
    assert numbered.filter(found)["row"].to_pylist() == expected


@pytest.mark.parametrize(
    "one",
    [
        named("EqualTo", "f", 1.0),
        named("GreaterThan", "f", 1.0),
        named("EqualTo", "ns", AT),
        named("EqualTo", "ms", AT),
        named("EqualTo", "d", Decimal("1.505")),
        named("EqualTo", "gone", 1),
        named("Other", "i", 1),
        named("In", "i", ("a",)),
        Not(named("StringContains", "s", "b")),
        Binary(("s", "inner"), 1),
    ],
    ids=str,
)
def test_what_spark_may_see_otherwise_is_left_to_it(one: Any) -> None:
    assert condition_of([one], ROWS.schema) is None


def test_several_filters_are_taken_together() -> None:
    found = condition_of([named("IsNotNull", "i"), named("EqualTo", "f", 1.0), named("LessThan", "i", 4)], ROWS.schema)
    assert found is not None
    assert ROWS.filter(found)["i"].to_pylist() == [1, 2]
