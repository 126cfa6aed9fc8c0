"""SQL conditions as Arrow expressions, against SQL's own three values."""

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.expression import SqlExpression, condition, evaluate, expr
from bucketline.state.sql.compute.filters import untyped_scalar
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.columns_text import parse_columns
from tests.support.models.filters import parse_filter

FIELDS = parse_columns(
    "id INT, big BIGINT, amount DECIMAL(6, 2), name STRING, ok BOOLEAN, score DOUBLE, part FLOAT, day DATE, "
    "at TIMESTAMP(3), seen TIMESTAMP_LTZ(6), clock TIME(3), raw BYTES, tags ARRAY<STRING>, `odd name` INT"
)
ROWS: list[dict[str, object]] = [
    {
        "id": 1,
        "big": 2**53 + 1,
        "amount": Decimal("10.05"),
        "name": "a%b",
        "ok": True,
        "score": 1.5,
        "part": 0.1,
        "day": date(2024, 1, 1),
        "at": datetime(2024, 1, 1, 12, 0, 0, 500_000),
        "seen": datetime(2024, 1, 1, 12, 0, 0, 1, UTC),
        "clock": time(12, 30, 0, 5000),
        "raw": b"\x00\xff",
        "tags": ["x"],
        "odd name": 7,
    },
    {
        "id": 2,
        "amount": Decimal("-0.01"),
        "name": "axb",
        "ok": False,
        "score": math.nan,
        "part": math.inf,
        "day": date(1969, 12, 31),
    },
    {"id": 3, "amount": Decimal("9999.99"), "name": "it's\\", "score": -math.inf, "part": -math.inf},
    {"name": "", "score": -0.0},
]
TABLE = pa.Table.from_pylist(ROWS, schema=arrow_schema(FIELDS)).append_column("row", pa.array([0, 1, 2, 3]))


def _rows(condition: str) -> list[int]:
    found: list[int] = TABLE.filter(parse_filter(condition, FIELDS))["row"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("id = 1", [0]),
        ("1 = id", [0]),
        ("2 < id", [2]),
        ("id <> 1", [1, 2]),
        ("id != 1 AND NOT id = 2", [2]),
        ("id > 1.5", [1, 2]),
        ("id >= 2.0", [1, 2]),
        ("id < 1e0", []),
        ("id = 1.5", []),
        ("NOT id = 1.5", [0, 1, 2]),
        ("id < 99999999999", [0, 1, 2]),
        ("id > 99999999999", []),
        ("id > -99999999999", [0, 1, 2]),
        ("id = -99999999999", []),
        ("big = 9007199254740993", [0]),
        ("big = 9007199254740992", []),
        ("amount = 10.05", [0]),
        ("amount = 10.050", [0]),
        ("amount > 10.049", [0, 2]),
        ("amount >= -0.005", [0, 2]),
        ("amount < 123456789", [0, 1, 2]),
        ("amount IN (10.05, 10.051, 5e9)", [0]),
        ("name = 'it''s\\\\'", [2]),
        ("name = ''", [3]),
        ("name LIKE 'a_b'", [0, 1]),
        ("name LIKE 'a\\%b'", [0]),
        ("name LIKE 'a!%b' ESCAPE '!'", [0]),
        ("name NOT LIKE 'a%'", [2, 3]),
        ("NOT name NOT LIKE 'a%'", [0, 1]),
        ("NOT (name LIKE 'a!%b' ESCAPE '!')", [1, 2, 3]),
        ("name LIKE 'it''s!\\\\' ESCAPE '!'", None),
        ("name LIKE 'it''s\\\\' ESCAPE '!'", [2]),
        ("ok", [0]),
        ("NOT ok", [1]),
        ("ok = false", [1]),
        ("ok IS NOT TRUE", [1, 2, 3]),
        ("ok IS NULL", [2, 3]),
        ("score > 0", [0, 1]),
        ("NOT score <= 0", [0, 1]),
        ("score <> 1.5", [1, 2, 3]),
        ("score < -1e300", [2]),
        ("score BETWEEN 0 AND 2", [0, 3]),
        ("score NOT BETWEEN 0 AND 2", [1, 2]),
        ("score = CAST('NaN' AS DOUBLE)", [1]),
        ("score <> DOUBLE 'nan'", [0, 2, 3]),
        ("score < CAST('NaN' AS DOUBLE)", [0, 2, 3]),
        ("NOT score < CAST('NaN' AS DOUBLE)", [1]),
        ("score <= CAST('NaN' AS DOUBLE)", [0, 1, 2, 3]),
        ("score > CAST('NaN' AS DOUBLE)", []),
        ("score IN (CAST('NaN' AS DOUBLE), 1.5)", [0, 1]),
        ("score BETWEEN 1 AND CAST('NaN' AS DOUBLE)", [0, 1]),
        ("score <= CAST('-Infinity' AS DOUBLE)", [2]),
        ("score = CAST('NaNs' AS DOUBLE)", None),
        ("part < 1e39", [0, 2]),
        ("part = 1e39", []),
        ("part <> 1e39", [0, 1, 2]),
        ("part > 1e39", [1]),
        ("NOT part <= 1e39", [1]),
        ("part IN (1e39, -1e39)", []),
        ("score IN (0, 1.5)", [0, 3]),
        ("score NOT IN (0)", [0, 1, 2]),
        ("part >= -1e39", [0, 1]),
        ("part <= -1e39", [2]),
        ("part = CAST('Infinity' AS FLOAT)", [1]),
        ("score < 1e400 AND score >= -1e399", [0, 3]),
        ("part = 0.1", [0]),
        ("day = '2024-01-01'", [0]),
        ("day < DATE '1970-01-01'", [1]),
        ("at = TIMESTAMP '2024-01-01 12:00:00.5'", [0]),
        ("at < '2024-01-02'", [0]),
        ("seen = '2024-01-01 14:00:00.000001+02:00'", [0]),
        ("clock = '12:30:00.005'", [0]),
        ("raw = X'00FF'", [0]),
        ("raw < X'01'", [0]),
        ("tags IS NOT NULL", [0]),
        ("`odd name` = 7 OR `ODD name` = 8", [0]),
        ("id IN (1, 3)", [0, 2]),
        ("id NOT IN (1)", [1, 2]),
        ("id NOT IN (1, NULL)", []),
        ("id IN (1, NULL)", [0]),
        ("TRUE", [0, 1, 2, 3]),
        ("FALSE OR id = - -2", [1]),
        ("id = 1 -- and the rest is a comment", [0]),
    ],
)
def test_a_condition_finds_the_rows_that_sql_finds(condition: str, rows: list[int] | None) -> None:
    if rows is None:
        with pytest.raises(OptionError):
            parse_filter(condition, FIELDS)
    else:
        assert _rows(condition) == rows


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("", "no single SQL expression"),
        ("idd = 1", "did you mean 'id'"),
        ("nothing_like_it = 1", "the table has id, big"),
        ("id = 1; DROP TABLE x", "write one"),
        ("DROP TABLE x", "DROP"),
        ("SELECT 1", "SELECT"),
        ("id = '1'", "it takes a number"),
        ("id = NULL", "IS NULL"),
        ("id = big", "compares two columns"),
        ("name = 5", "a string"),
        ("lower(name) = 'x'", "one side must be a column"),
        ("id + 1 = 2", "one side must be a column"),
        ("1 = 1", "one side must be a column"),
        ("id", "not a condition"),
        ("id = (SELECT 1)", "no value"),
        ("id IN (SELECT 1)", "IN in"),
        ("EXISTS (SELECT 1)", "EXISTS"),
        ("CASE WHEN ok THEN ok END", "CASE"),
        ("name RLIKE 'x'", "REGEXPLIKE"),
        ("name ILIKE 'x'", "ILIKE"),
        ("name GLOB 'x'", "GLOB"),
        ("id <=> 1", "NULLSAFEEQ"),
        ("id LIKE '1%'", "LIKE needs a string column"),
        ("name LIKE 'a\\\\'", "escapes only"),
        ("name LIKE 'a!b' ESCAPE '!'", "escapes only"),
        ("name LIKE 'a' ESCAPE 'xy'", "one character"),
        ("id BETWEEN SYMMETRIC 1 AND 2", "BETWEEN"),
        ("a.b = 1", "fields inside columns"),
        ("tags = 'x'", "only IS NULL"),
        ("day = '2024-13-01'", "a date"),
        ("day = 20240101", "a date"),
        ("at = '2024-01-01 12:00:00.0001'", "no finer than ms"),
        ("seen = '2024-01-01 12:00:00'", "with a zone"),
        ("clock = '25:00:00'", "a time"),
        ("raw = 'ff'", "bytes in hex"),
        ("ok = 1", "true or false"),
        ("id = ?", "a number"),
        ("id = CURRENT_DATE", "a number"),
        ("id = 1e999999999", "a number"),
        ("id = 1 LIMIT 3", "LIMIT"),
        ("id = 5L", "it takes a number"),
        ("id = 'a' 'b'", "a number"),
        ("id = 1 AND", "no SQL expression"),
        ("(" * 3000 + "id = 1" + ")" * 3000, "too deeply"),
        ("name = 'x", "no SQL expression"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(condition: str, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_filter(condition, FIELDS)
    assert says.lower() in caught.value.message.lower()
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize("digits", [28, 29, 38])
@pytest.mark.parametrize("sign", ["", "-"])
def test_decimals_of_any_length_are_compared_exactly(digits: int, sign: str) -> None:
    fields = parse_columns("id INT, d DECIMAL(38, 10)")
    whole = ("1234567890" * 4)[: digits - 10]
    texts = [f"{sign}{whole}.1234567890", f"{sign}{whole}.1234567891"]
    values = pa.array([Decimal(t) for t in texts], pa.decimal128(38, 10))
    table = pa.table({"id": pa.array([0, 1], pa.int32()), "d": values})

    def found(condition: str) -> list[int]:
        return list(table.filter(parse_filter(condition, fields))["id"].to_pylist())

    for i, text in enumerate(texts):
        assert found(f"d = {text}") == found(f"d IN ({text}, 1)") == found(f"d BETWEEN {text} AND {text}") == [i]
        assert found(f"d <> {text}") == found(f"d NOT IN ({text})") == [1 - i]
        assert found(f"d <= {text}") == sorted({i, 1 if sign else 0})
        assert found(f"d = {text}5") == []
    assert found(f"d > {texts[0]}5") == ([0] if sign else [1])


@pytest.mark.parametrize("escape", ["\\", "!", "a", "^"])
def test_like_knows_escapes_and_backslashes_in_every_place(escape: str) -> None:
    fields = parse_columns("s STRING")
    marks = [escape, "\\", "%", "_", "x", ".", "\n", "ž", "🐎"]
    texts = ["".join(t) for n in range(4) for t in product(marks, repeat=n)]
    table = pa.table({"s": [*texts, None]})
    for literal, (before, behind) in product(marks, [("", ""), ("", "%"), ("%", ""), ("%", "%"), ("_", ""), ("", "_")]):
        written = escape + literal if literal in ("%", "_", escape) else literal
        quoted = f"'{before}{written}{behind}'" + (f" ESCAPE '{escape}'" if escape != "\\" else "")
        quoted = quoted.replace("\\", "\\\\")
        pattern = "".join({"%": ".*", "_": "."}.get(p, "") for p in before) + re.escape(literal)
        pattern += {"%": ".*", "_": "."}.get(behind, "")
        expected = [t for t in texts if re.fullmatch(pattern, t, re.DOTALL)]
        assert table.filter(parse_filter(f"s LIKE {quoted}", fields))["s"].to_pylist() == expected, quoted
        assert table.filter(evaluated(f"s LIKE {quoted}", table))["s"].to_pylist() == expected, quoted


def evaluated(text: str, table: pa.Table) -> pa.Array:
    columns = {name: table[name].combine_chunks() for name in table.schema.names}
    return evaluate(SqlExpression(text), columns, table.num_rows)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_the_two_zeros_are_one_value(kind: str) -> None:
    fields = parse_columns(f"f {kind}")
    table = pa.table({"f": pa.array([0.0, -0.0, 1.0, None], arrow_schema(fields).field("f").type)})
    for zero in ("0", "0.0", "-0.0"):
        for text in (f"f = {zero}", f"f IN ({zero})", f"f IN (5, {zero})", f"NOT f NOT IN ({zero})"):
            assert table.filter(parse_filter(text, fields)).num_rows == 2, text
        assert table.filter(parse_filter(f"f NOT IN ({zero})", fields))["f"].to_pylist() == [1.0]


@pytest.mark.parametrize("text", ["12345678901234567890123456789012345678", "-1234567890123456789012345678901234.5678"])
def test_a_constant_of_a_query_keeps_all_its_digits(text: str) -> None:
    found = untyped_scalar(sqlglot.parse_one(text, read="sqlite"))
    assert found is not None
    assert str(found.as_py()) == text


def test_thousands_of_alternatives_are_no_matter_of_depth() -> None:
    condition = " OR ".join(f"id = {i}" for i in range(3, 5003))
    assert _rows(condition) == [2]
    assert _rows(f"NOT ({condition})") == [0, 1]


Truth = bool | None
Case = tuple[str, Callable[[dict[str, object]], Truth]]


def _leaf(column: str, sign: str, value: int) -> Case:
    tests: dict[str, Callable[[float], bool]] = {
        "=": lambda v: v == value,
        "<>": lambda v: v != value,
        "<": lambda v: v < value,
        ">=": lambda v: v >= value or v != v,
    }

    def judge(row: dict[str, object]) -> Truth:
        found = row.get(column)
        assert found is None or isinstance(found, int | float)
        return None if found is None else tests[sign](found)

    return f"{column} {sign} {value}", judge


def _in(column: str, values: list[int], with_null: bool) -> Case:
    texts = [*map(str, values), *(["NULL"] if with_null else [])]

    def judge(row: dict[str, object]) -> Truth:
        found = row.get(column)
        if found is None:
            return None
        return True if found in values else None if with_null else False

    return f"{column} IN ({', '.join(texts)})", judge


def _not(case: Case) -> Case:
    def judge(row: dict[str, object]) -> Truth:
        found = case[1](row)
        return None if found is None else not found

    return f"NOT ({case[0]})", judge


def _both(left: Case, right: Case, word: str) -> Case:
    def judge(row: dict[str, object]) -> Truth:
        found = (left[1](row), right[1](row))
        decisive = word == "OR"
        return decisive if decisive in found else None if None in found else not decisive

    return f"({left[0]}) {word} ({right[0]})", judge


_LEAVES = st.one_of(
    st.builds(
        _leaf, st.sampled_from(["id", "score", "big"]), st.sampled_from(["=", "<>", "<", ">="]), st.integers(-1, 3)
    ),
    st.builds(
        _in, st.sampled_from(["id", "score"]), st.lists(st.integers(0, 3), min_size=1, max_size=3), st.booleans()
    ),
    st.sampled_from(["id", "ok"]).map(lambda c: (f"{c} IS NULL", lambda row: row.get(c) is None)),
)
_CASES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(inner.map(_not), st.builds(_both, inner, inner, st.sampled_from(["AND", "OR"]))),
    max_leaves=8,
)


@given(_CASES)
def test_any_condition_is_true_exactly_where_sql_says_true(case: Case) -> None:
    condition, judge = case
    assert _rows(condition) == [i for i, row in enumerate(ROWS) if judge(row) is True]


@pytest.mark.parametrize("literal", ["1.5", "CAST('NaN' AS DOUBLE)"])
@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
def test_a_filter_and_an_expression_agree_about_nan(sign: str, literal: str) -> None:
    text = f"score {sign} {literal}"
    computed = condition(expr(text), {"score": TABLE["score"].combine_chunks()}, TABLE.num_rows)
    assert _rows(text) == TABLE.filter(computed)["row"].to_pylist()
