"""SQL expressions over columns: values, nulls, types, and what is refused by name."""

from datetime import date, datetime
from decimal import Decimal as D
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression, assigned, condition, evaluate, expr
from bucketline.state.types.logical import DataField, parse_type_text

NAN = pytest.approx(float("nan"), nan_ok=True)
COLUMNS = {
    "a": pa.array([1, 2, None], pa.int32()),
    "amount": pa.array([D("1.25"), None, D("-7.00")], pa.decimal128(12, 2)),
    "s": pa.array(["x y", " b ", None]),
    "f": pa.array([1.5, float("nan"), 0.0]),
    "d": pa.array([0, 19000, None], pa.int32()).cast(pa.date32()),
    "b": pa.array([True, None, False]),
    "ti": pa.array([0, 3_600_000, None], pa.int32()).cast(pa.time32("ms")),
    "at": pa.array([datetime(1969, 12, 31, 23, 59, 59, 1), datetime(2024, 1, 1), None], pa.timestamp("us")),
    "source.a": pa.array([0, 2, 5]),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amount * 2", [D("2.50"), None, D("-14.00")]),
        ("amount * 1.115", [D("1.39375"), None, D("-7.80500")]),
        ("amount / 3", [D("0.416667"), None, D("-2.333333")]),
        ("a / 2", [0.5, 1.0, None]),
        ("cast(9000000000000000507 AS BIGINT) / 99999999999999999999", [D("0.090000000000000005")] * 3),
        ("a % 2 - -a", [2, 2, None]),
        ("target.a + source.a", [1, 4, None]),
        ("CASE WHEN source.a <> 0 THEN 10 / source.a ELSE 0 END", [0, 5.0, 2.0]),
        ("case a when 1 then 1 when 2 then 2.5 end", [1, D("2.5"), None]),
        ("if(b, 1, 2)", [1, 2, 2]),
        ("coalesce(s, 'z') || '!'", ["x y!", " b !", "z!"]),
        ("concat(upper(trim(s)), 'a')", ["X Ya", "Ba", None]),
        ("concat_ws('-', s, a, s)", ["x y-1-x y", " b -2- b ", ""]),
        ("concat_ws('-', s)", ["x y", " b ", ""]),
        ("concat_ws(s, 'p', NULL, 'q')", ["px yq", "p b q", None]),
        ("repeat(s, 2)", ["x yx y", " b  b ", None]),
        ("replace(substring(s, 1, 2), 'x', 'q')", ["q ", " b", None]),
        ("replace(s, '', 'q')", ["x y", " b ", None]),
        ("length(s)", [3, 3, None]),
        ("a IN (1, NULL)", [True, None, None]),
        ("a NOT IN (1, 5)", [False, True, None]),
        ("a BETWEEN 1 AND 1 OR b", [True, None, None]),
        ("a BETWEEN 9 AND cast(s AS INT)", [False, False, None]),
        ("try_cast('2024-02-30 01:00:00' AS TIMESTAMP)", [None] * 3),
        ("try_cast('27:15' AS TIMESTAMP)", [None] * 3),
        ("NOT b AND a IS NULL", [False, False, True]),
        ("s LIKE 'x%'", [True, False, None]),
        ("s NOT LIKE '%b%'", [True, False, None]),
        ("a IS NOT DISTINCT FROM source.a", [False, True, False]),
        ("f > 1 AND f = f", [True, True, False]),
        ("d >= '2000-01-01'", [False, True, None]),
        ("d = DATE '2022-01-08'", [False, True, None]),
        ("ti >= '01:00:00'", [False, True, None]),
        ("year(d) + extract(month from d)", [1971, 2023, None]),
        ("cast(at AS DATE)", [date(1969, 12, 31), date(2024, 1, 1), None]),
        ("cast(at AS BIGINT)", [-1, 1704067200, None]),
        ("year(at) - 1900", [69, 124, None]),
        ("cast(at AS STRING)", ["1969-12-31 23:59:59.000001", "2024-01-01 00:00:00", None]),
        ("upper('straße ŉ') || lower('İX')", ["STRASSE ʼNi\u0307x"] * 3),
        ("greatest(f, 0.5, source.a)", [1.5, NAN, 5.0]),
        ("least(f, 0.5)", [0.5, 0.5, 0.0]),
        ("NOT (128 = 1) OR 1 / source.a = 1", [True, True, True]),
        ("source.a <> 0 AND 10 / source.a > 3", [False, True, False]),
        ("source.a = 0 OR 10 / source.a > 3 OR b", [True, True, False]),
        ("NOT (a > 1 AND a / source.a = 1) OR b", [True, None, None]),
        ("greatest(a, source.a)", [1, 2, 5]),
        ("greatest(b, a = 2)", [True, True, False]),
        ("least(b, a = 2)", [False, True, False]),
        ("nullif(a, 1)", [None, 2, None]),
        ("round(amount, 1)", [D("1.3"), None, D("-7.0")]),
        ("round(a - 0.995e0, 2)", [0.01, 1.01, None]),
        ("round(-0.3e0) = 0 AND cast(round(-0.3e0) AS STRING) = '0.0'", [True, True, True]),
        ("round(cast(a AS FLOAT) / 3e0, 2)", [0.33, 0.67, None]),
        ("floor(amount)", [D("1"), None, D("-7")]),
        ("cast(amount AS DECIMAL(5, 1))", [D("1.3"), None, D("-7.0")]),
        ("cast('12' AS INT) + cast(a AS BIGINT)", [13, 14, None]),
        ("cast(f AS DECIMAL(5, 1))", [D("1.5"), None, D("0.0")]),
        ("cast(a AS STRING)", ["1", "2", None]),
        ("`a` + 1e0", [2.0, 3.0, None]),
        ("NULL", [None, None, None]),
        ("X'0aff'", [b"\n\xff"] * 3),
    ],
)
def test_an_expression_has_the_value_that_sql_gives_it(text: str, expected: list[Any]) -> None:
    assert evaluate(expr(text), COLUMNS, 3).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nope", "unknown column 'nope'"),
        ("source.aa", r"did you mean 'source\.a'"),
        ("a.b.c", "has no field 'b'"),
        ("foo(a)", "function foo is not supported"),
        ("current_timestamp", "CURRENT_TIMESTAMP.. is not supported here"),
        ("count(*)", "COUNT"),
        ("row_number() over ()", "WINDOW"),
        ("(select 1)", "SUBQUERY"),
        ("d + interval '1' day", "INTERVAL"),
        ("s LIKE a", "must be a literal"),
        ("substring(s, a)", "must be a literal"),
        ("cast(a AS ARRAY<INT>)", "ARRAY"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        evaluate(SqlExpression(text), COLUMNS, 3)


@pytest.mark.parametrize("text", ["a +", "a, b", "a; b", "*", "a AS b", "DISTINCT a", "a FROM t", "", "select a"])
def test_text_that_is_no_single_expression_is_refused_at_once(text: str) -> None:
    with pytest.raises(OptionError):
        expr(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10 / source.a", "divide by zero"),
        ("10 % source.a", "divide by zero"),
        ("9223372036854775807 + a", "overflow"),
        ("cast(300 AS TINYINT)", "cannot be cast to TINYINT"),
        ("cast(s AS INT)", "cannot be cast to INT"),
        ("cast(1000 AS DECIMAL(3, 1))", "cannot be cast"),
        ("a + s", "CAST"),
        ("a = s", "cannot be cast to BIGINT"),
        ("s AND b", "not a condition"),
        ("upper(ti)", "not a string"),
        ("try_cast('12:30' AS TIMESTAMP)", "a time without a date"),
        ("try_cast('2024-01-01 12:30 Europe/Berlin' AS TIMESTAMP)", "the name of a zone"),
        ("try_cast('+2024-01-01' AS DATE)", "a year with a sign"),
    ],
)
def test_a_value_that_cannot_be_computed_is_an_error(text: str, why: str) -> None:
    with pytest.raises(SchemaMismatchError, match=why):
        evaluate(expr(text), COLUMNS, 3)


@pytest.mark.parametrize("layout", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_any_layout_of_text_is_text(layout: pa.DataType) -> None:
    columns = {"source.s": pa.array(["a", None]).cast(layout)}
    assert evaluate(expr("upper(source.s) || '!'"), columns, 2).to_pylist() == ["A!", None]


def field(text: str) -> DataField:
    return DataField(0, "c", parse_type_text(text))


def test_decimals_are_rounded_to_the_column_and_nothing_else_is_lost() -> None:
    assert assigned(expr("amount / 3"), COLUMNS, 3, field("DECIMAL(9, 2)")).to_pylist() == [D("0.42"), None, D("-2.33")]
    assert assigned(expr("a"), COLUMNS, 3, field("DOUBLE")).to_pylist() == [1.0, 2.0, None]
    for text, kind in (("amount", "INT"), ("f", "INT"), ("a + 299", "TINYINT"), ("amount * 1000", "DECIMAL(4, 2)")):
        with pytest.raises(SchemaMismatchError, match="cannot hold"):
            assigned(expr(text), COLUMNS, 3, field(kind))


def test_a_condition_that_is_unknown_is_false() -> None:
    assert condition(expr("a > 1 OR b"), COLUMNS, 3).to_pylist() == [True, True, False]
    assert condition(expr("NULL"), COLUMNS, 3).to_pylist() == [False] * 3
    with pytest.raises(BucketlineError, match="not a condition"):
        condition(expr("a + 1"), COLUMNS, 3)


DECIMALS = st.decimals(min_value=-(10**8), max_value=10**8, places=3)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(DECIMALS, DECIMALS.filter(bool)), min_size=1, max_size=5))
def test_decimals_are_computed_exactly(pairs: list[tuple[D, D]]) -> None:
    columns = {n: pa.array([p[i] for p in pairs], pa.decimal128(12, 3)) for i, n in enumerate("xy")}
    for sign, expected in (("+", [x + y for x, y in pairs]), ("-", [x - y for x, y in pairs])):
        assert evaluate(expr(f"x {sign} y"), columns, len(pairs)).to_pylist() == expected
    assert evaluate(expr("x * y"), columns, len(pairs)).to_pylist() == [x * y for x, y in pairs]
    quotients = evaluate(expr("x / y"), columns, len(pairs)).to_pylist()
    assert all(abs(q * y - x) <= abs(y) * D("1e-15") for q, (x, y) in zip(quotients, pairs, strict=True))


@settings(deadline=None)
@given(st.integers(1, 63), st.integers(1, 30), st.sampled_from([20, 30]))
@example(63, 20, 20)
@example(57, 24, 30)
def test_a_quotient_of_decimals_is_right_where_arrows_is_wrong(bits: int, digits: int, precision: int) -> None:
    """Arrow 26 divides 2^63 - 1 by 10^20 - 1 wrong, and others of such shapes."""
    one, other = 2**bits - 1, 10 ** min(digits, precision) - 1
    pairs = [(one, other), (1, 3), (None, other), (one, None), (-one, other)]
    columns = {
        "a": pa.array([None if a is None else D(a) for a, _ in pairs], pa.decimal128(20, 0)),
        "b": pa.array([None if b is None else D(b) for _, b in pairs], pa.decimal128(precision, 0)),
    }
    exact = [None if a is None or b is None else Fraction(a, b) for a, b in pairs]
    for text, expected in (
        ("a / b", exact),
        (f"a / {other}", [None if a is None else Fraction(a, other) for a, _ in pairs]),
    ):
        for quotient, number in zip(evaluate(expr(text), columns, len(pairs)).to_pylist(), expected, strict=True):
            assert (quotient is None) is (number is None)
            if number is not None:
                unit = Fraction(10) ** quotient.as_tuple().exponent
                assert abs(Fraction(quotient) - number) * 2 <= unit


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("round(m, 2)", pa.decimal128(11, 2)),
        ("round(floor(m), 2)", pa.decimal128(10, 0)),
        ("round(m, 1)", pa.decimal128(10, 1)),
        ("floor(floor(m))", pa.decimal128(9, 0)),
    ],
)
def test_rounded_decimals_have_the_type_that_spark_gives_them(text: str, kind: pa.DataType) -> None:
    column = pa.array([D("1.25")], pa.decimal128(10, 2))
    assert evaluate(SqlExpression(text), {"m": column}, 1, Context("UTC", True)).type == kind


def test_the_digits_of_a_local_time_are_counted_as_they_are() -> None:
    local = pa.array([datetime(2024, 2, 29, 18, 59, 59)], pa.timestamp("us"))
    context = Context("America/New_York", True)
    assert evaluate(SqlExpression("unix_timestamp(p)"), {"p": local}, 1, context).to_pylist() == [1_709_233_199]


def test_a_text_that_is_compared_with_a_null_before_it_is_not_read() -> None:
    columns = {"i": pa.array([None, 1], pa.int32()), "s": pa.array(["abc", "2"])}
    assert evaluate(SqlExpression("i < s"), columns, 2, Context("UTC", has_instants=True)).to_pylist() == [None, True]
    with pytest.raises(SchemaMismatchError, match="'abc' cannot be cast to BIGINT"):
        evaluate(SqlExpression("s > i"), columns, 2, Context("UTC", has_instants=True))


def test_parts_of_a_date_are_right_in_every_year() -> None:
    counts = [*range(-146_300, 146_300, 997), 106_751_991, -106_751_992, 12_687_428, -12_687_429, 2**31 - 1, -(2**31)]
    days = np.array(counts).astype("datetime64[D]")
    years, months = days.astype("datetime64[Y]"), days.astype("datetime64[M]")
    expected = {
        "year": years.astype(int) + 1970,
        "quarter": months.astype(int) % 12 // 3 + 1,
        "month": months.astype(int) % 12 + 1,
        "day": (days - months).astype(int) + 1,
        "dayofyear": (days - years).astype(int) + 1,
        "dayofweek": (np.array(counts) + 4) % 7 + 1,
        "weekday": (np.array(counts) + 3) % 7,
    }
    given = pa.array([*counts, None], pa.int32()).cast(pa.date32())
    for name, wanted in expected.items():
        found = evaluate(expr(f"{name}(d)"), {"d": given}, len(given))
        assert found.to_pylist() == [*wanted.tolist(), None], name
