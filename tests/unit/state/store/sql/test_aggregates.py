"""Aggregates, groups and order of numbers where Arrow's are not Spark's: NaN, both zeros, sums that are too large."""

import math
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketline as bl
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.sql.aggregates import Aggregate, grouped, sortable

NUMBERS = st.none() | st.sampled_from([math.nan, 0.0, -0.0, math.inf, -math.inf]) | st.floats(width=32)


def shown(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS)), st.sampled_from([pa.float32(), pa.float64()]))
def test_nan_is_one_value_and_the_greatest_and_zeros_are_one(
    rows: list[tuple[float | None, float | None]], arrow: pa.DataType
) -> None:
    table = pa.table({"k": pa.array([k for k, _ in rows], arrow), "v": pa.array([v for _, v in rows], arrow)})
    wanted = [Aggregate("max", "v"), Aggregate("min", "v"), Aggregate("count", "v", distinct=True)]
    groups: dict[Any, list[float]] = defaultdict(list)
    for key, value in rows:
        groups[shown(key)] += [] if value is None else [value]
    expected = {
        key: (
            shown(max(values, key=lambda v: (math.isnan(v), v), default=None)),
            shown(min(values, key=lambda v: (math.isnan(v), v), default=None)),
            len(set(map(shown, values))),
        )
        for key, values in groups.items()
    }
    (keys,), values = grouped(table, ["k"], wanted)
    found = zip(keys.to_pylist(), *(v.to_pylist() for v in values), strict=True)
    assert {shown(key): (shown(most), shown(least), count) for key, most, least, count in found} == expected
    known = [v for v in table["v"].to_pylist() if v is not None]
    ranks = [r for r in sortable(table["v"]).to_pylist() if r is not None]
    by_rank = [shown(v) for _, v in sorted(zip(ranks, known, strict=True), key=lambda pair: pair[0])]
    assert by_rank == [shown(v) for v in sorted(known, key=lambda v: (math.isnan(v), 0.0 if math.isnan(v) else v))]


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([2**63 - 1, 1], None),
        ([-(2**63), -(2**63)], None),
        ([2**63 - 1, 1, -1, -5], 2**63 - 6),
        ([2**63 - 1, -(2**63)], -1),
        ([None, None], None),
    ],
)
def test_a_sum_that_a_bigint_cannot_hold_is_an_error(numbers: list[int | None], total: int | None) -> None:
    for arrow in (pa.int64(), pa.decimal128(19, 0)):
        table = pa.table({"v": pa.array(numbers, pa.int64()).cast(arrow)})
        if arrow == pa.int64() and total is None and any(numbers):
            with pytest.raises(SchemaMismatchError, match="'v' is too large for a BIGINT"):
                grouped(table, [], [Aggregate("sum", "v")])
        else:
            assert grouped(table, [], [Aggregate("sum", "v")])[1][0].to_pylist() == [
                sum(n for n in numbers if n is not None) if any(numbers) else None
            ]


def test_a_sum_of_more_than_38_digits_is_an_error() -> None:
    with pytest.raises(SchemaMismatchError, match="too large for 38 digits"):
        large = pa.array(["9" * 36 + ".99"] * 2).cast(pa.decimal128(38, 2))
        grouped(pa.table({"v": large}), [], [Aggregate("sum", "v")])
    nines = pa.array(["9" * 38, None]).cast(pa.decimal128(38, 0))
    assert grouped(pa.table({"v": nines}), [], [Aggregate("sum", "v")])[1][0].to_pylist() == [Decimal("9" * 38)]


def test_queries_order_and_group_as_spark_does(tmp_path: Path) -> None:
    def run(text: str) -> list[Any]:
        return [tuple(map(shown, row.values())) for row in bl.sql(None, text, str(tmp_path)).to_pylist()]

    run("CREATE TABLE t (id INT, v DOUBLE)")
    nan = "CAST('NaN' AS DOUBLE)"
    run(f"INSERT INTO t SELECT 1, {nan}; INSERT INTO t VALUES (2, 1), (3, NULL), (4, 0); INSERT INTO t SELECT 5, -0e0")
    assert run("SELECT id FROM t WHERE id < 4 ORDER BY v DESC") == [(1,), (2,), (3,)]
    assert run("SELECT id FROM t WHERE id < 5 ORDER BY v, id") == [(3,), (4,), (2,), (1,)]
    assert sorted(map(repr, run("SELECT DISTINCT v FROM t"))) == ["('NaN',)", "(0.0,)", "(1.0,)", "(None,)"]
    assert run("SELECT max(v), min(v), count(*), count(v), count(1) AS n FROM t") == [("NaN", 0.0, 5, 4, 5)]
    assert run("SELECT count(*) FROM t WHERE v = 0 GROUP BY v") == [(2,)]
