"""Aggregates, groups and order of numbers where Arrow's are not Spark's: NaN, both zeros, sums that are too large."""

import math
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.sql.aggregates import Aggregate, grouped, order_keys, sortable

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


INNER = st.tuples(NUMBERS, st.none() | st.sampled_from(["", "b"]))
STRUCTS = st.lists(st.none() | st.tuples(st.none() | st.integers(0, 2), st.none() | INNER), max_size=12)


def ordered(value: Any) -> Any:
    """A key in the order of Spark: null is less than every value, and structs are compared field by field."""
    if value is None:
        return (0,)
    if isinstance(value, tuple):
        return (1, *map(ordered, value))
    return (1, math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else (1, value)


@settings(deadline=None)
@given(STRUCTS)
def test_structs_are_ordered_field_by_field(values: list[Any]) -> None:
    inner = pa.struct([("x", pa.float64()), ("t", pa.string())])
    given_rows = [
        None if v is None else {"a": v[0], "s": None if v[1] is None else {"x": v[1][0], "t": v[1][1]}} for v in values
    ]
    column = pa.chunked_array([pa.array(given_rows, pa.struct([("a", pa.int32()), ("s", inner)]))])
    keys = {f"{at}": key for at, key in enumerate([column.is_valid(), *order_keys(column)])}
    by = [(name, "ascending") for name in keys]
    found = pc.sort_indices(pa.table(keys), sort_keys=by).to_pylist()
    assert [ordered(values[at]) for at in found] == sorted(map(ordered, values))


def test_rows_are_sorted_by_a_struct_in_both_directions(tmp_path: Path) -> None:
    pairs = [None, {"a": 2, "b": "x"}, {"a": None, "b": "z"}, {"a": 2, "b": None}, {"a": 1, "b": "y"}]
    rows = pa.table({"s": pa.array(pairs, pa.struct([("a", pa.int32()), ("b", pa.string())]))})
    table = bl.create_table(str(tmp_path / "d.db" / "t"), rows.schema)
    table.write(rows)
    ascending = [None, {"a": None, "b": "z"}, {"a": 1, "b": "y"}, {"a": 2, "b": None}, {"a": 2, "b": "x"}]
    for direction, expected in (
        ("", ascending),
        ("DESC", ascending[::-1]),
        ("NULLS LAST", [*ascending[1:], None]),
        ("DESC NULLS FIRST", [None, *ascending[:0:-1]]),
    ):
        found = bl.sql(None, f"SELECT s FROM `{table.path}` ORDER BY s {direction}")
        assert found["s"].to_pylist() == expected, direction
    nested = pa.table({"l": pa.array([[1]], pa.list_(pa.int32()))})
    other = bl.create_table(str(tmp_path / "d.db" / "u"), nested.schema)
    other.write(nested)
    with pytest.raises(OptionError, match="needs Spark"):
        bl.sql(None, f"SELECT l FROM `{other.path}` ORDER BY l")
