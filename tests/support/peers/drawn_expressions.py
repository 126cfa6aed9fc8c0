"""SQL expressions that are drawn, over one frame of all types, for Spark to judge."""

# ruff: noqa: E501 - an expression is read best on one line

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa


def drawn_rows() -> pa.Table:
    """Rows with a null, zeros, extremes, texts that are other things, and local times that a zone passes over."""
    texts = [
        "abc",
        "",
        "  x y ",
        "2024-02-29",
        "12",
        "-7",
        "3.5",
        "true",
        "ÄÖü ß",
        "a,b,,c",
        None,
        "2024-03-10 02:30:00",
    ]
    moments = [
        datetime(2024, 2, 29, 23, 59, 59, 123456),
        datetime(1969, 12, 31, 23, 59, 59, 1),
        datetime(2024, 3, 10, 2, 30),
        datetime(2024, 11, 3, 1, 30),
        datetime(1970, 1, 1),
        datetime(2000, 1, 1, 12, 0, 0, 500000),
        datetime(1999, 12, 31, 0, 0, 1),
        datetime(2021, 7, 4, 13, 5, 9),
        datetime(1900, 3, 1),
        datetime(9998, 12, 31, 23),
        None,
        datetime(2024, 12, 30, 6),
    ]
    # In America/New_York the fourth one is the second half past one of its day.
    instants = [None if m is None else m.replace(tzinfo=UTC) for m in moments]
    instants[3] = datetime(2024, 11, 3, 6, 30, 5, tzinfo=UTC)
    objects = [
        {"a": {"b": i}, "l": [i, str(i)], "t": t, "f": i / 4, "n": None, "ok": i % 2 == 0} for i, t in enumerate(texts)
    ]
    n = len(texts)
    return pa.table(
        {
            "b": pa.array([True, False, None] * 4, pa.bool_()),
            "i": pa.array([0, 1, -1, 7, 2**31 - 1, -(2**31), None, 12, 100, -13, 5, 3], pa.int32()),
            "l": pa.array([0, 1, -1, 2**63 - 1, -(2**63), 86400, None, 10**12, 1709265967, -5, 42, 9], pa.int64()),
            "n": pa.array([0, 1, -1, 127, -128, 5, None, 12, 100, -13, 5, 3], pa.int8()),
            "d": pa.array([0.0, -0.0, 1.5, -2.5, 1e10, 1e-5, None, float("nan"), 0.1, 123456.789, -7.0, 3.25]),
            "f": pa.array([0.0, 1.5, -2.25, 0.1, 1024.5, 1e-5, None, 7.0, 0.3, 9.5, -1.0, 2.0], pa.float32()),
            "m": pa.array(
                [Decimal(x) if x else None for x in ["0.00", "1.25", "-7.10", "99999999.99", "0.01", "-0.05"]] * 2,
                pa.decimal128(10, 2),
            ),
            "s": pa.array(texts),
            "w": pa.array(["a", "B", None, "ab", "x y", "%", "12", "é", "", "c", "Z", "q"]),
            "y": pa.array([None if m is None else m.date() for m in moments]),
            "p": pa.array(moments, pa.timestamp("us")),
            "z": pa.array(instants, pa.timestamp("us", "UTC")),
            "j": pa.array([json.dumps(o) if i != 3 else "{no" for i, o in enumerate(objects)]),
            "a": pa.array([[i, None, i + 2] if i % 3 else [i, i, i] for i in range(n)], pa.list_(pa.int32())),
            "k": pa.array([[("x", i), ("y", None)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "r": pa.array([{"u": i, "v": {"w": t}} if i != 5 else None for i, t in enumerate(texts)]),
        }
    )


LITERALS = {
    "num": ["0", "1", "-3", "2.50", "7", "1e2", "100000", "3L", "1.5D"],
    "text": ["'a'", "'x y'", "''", "'12'", "'ß'", "'B'"],
    "bool": ["true", "false", "NULL"],
    "date": ["DATE'2024-02-29'", "DATE'1969-12-31'"],
    "time": ["TIMESTAMP'2024-03-01 05:06:07.25'", "TIMESTAMP_NTZ'1969-12-31 23:59:59'"],
}
COLUMNS = {
    "num": ["i", "l", "n", "d", "f", "m"],
    "text": ["s", "w"],
    "bool": ["b"],
    "date": ["y"],
    "time": ["p", "z"],
}
NO_MORE: Mapping[str, Sequence[str]] = {}
PATTERNS = [
    "yyyy-MM-dd",
    "yyyyMMdd",
    "yyyy/MM/dd HH:mm:ss",
    "dd.MM.yy",
    "HH:mm:ss.SSS",
    "EEE, d MMM y",
    "MMMM",
    "D",
    "hh:mm a",
    "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "EEEE",
    "Q",
    "k K h m s",
]
REGEXES = [
    "'a'",
    r"r'\d+'",
    r"r'^(\w+) (\w)'",
    r"r'[a-c]+$'",
    r"r'\s'",
    r"r'(x|y).*'",
    r"r'[^a]'",
    "'.'",
    r"r'(\d{4})-(\d+)'",
]
UNITS = ["YEAR", "quarter", "MONTH", "week", "DAY", "HOUR", "MINUTE", "second"]


def drawn_expression(
    draw: Random, kind: str | None = None, depth: int = 2, more: Mapping[str, Sequence[str]] = NO_MORE
) -> str:
    """An expression of a kind (num, text, bool, date, time). `more` are further columns by their kinds."""
    kind = kind or draw.choice(list(COLUMNS))
    if depth == 0 or draw.random() < 0.2:
        return draw.choice([*COLUMNS[kind], *more.get(kind, ()), *COLUMNS[kind], *LITERALS[kind]])

    def a(other: str) -> str:
        return drawn_expression(draw, other, depth - 1, more)

    def one(*texts: str) -> str:
        return draw.choice(texts)

    pattern, regex, unit = f"'{draw.choice(PATTERNS)}'", draw.choice(REGEXES), draw.choice(UNITS)
    any_kind = draw.choice(list(COLUMNS))
    shared = [
        lambda: f"coalesce({a(kind)}, {a(kind)})",
        lambda: f"CASE WHEN {a('bool')} THEN {a(kind)} ELSE {a(kind)} END",
        lambda: f"if({a('bool')}, {a(kind)}, {a(kind)})",
        lambda: f"nullif({a(kind)}, {a(kind)})",
        lambda: f"greatest({a(kind)}, {a(kind)})",
    ]
    own = {
        "num": [
            lambda: f"({a('num')} {one('+', '-', '*', '/', '%', 'div')} {a('num')})",
            lambda: f"-{a('num')}" if depth == 1 else f"abs({a('num')})",
            lambda: f"{one('floor', 'ceil')}({a('num')})",
            lambda: f"round({a('num')}, {one('0', '1', '2')})",
            lambda: f"length({a('text')})",
            lambda: (
                f"{one('year', 'month', 'day', 'quarter', 'dayofweek', 'weekday', 'dayofyear', 'weekofyear')}({a(one('date', 'time'))})"
            ),
            lambda: f"{one('hour', 'minute', 'second', 'unix_timestamp')}({a('time')})",
            lambda: f"{one('unix_seconds', 'unix_millis', 'unix_micros')}({one('z', a('time'))})",
            lambda: f"extract({one('second', 'month', 'hour')} FROM {a('time')})",
            lambda: f"datediff({a('date')}, {a(one('date', 'time'))})",
            lambda: (
                f"try_cast({a(one('text', 'num'))} AS {one('INT', 'BIGINT', 'DOUBLE', 'DECIMAL(8, 2)', 'SMALLINT', 'FLOAT')})"
            ),
            lambda: f"cast({a(one('num', 'bool'))} AS {one('INT', 'BIGINT', 'DOUBLE', 'DECIMAL(20, 3)', 'FLOAT')})",
            lambda: f"cast(z AS {one('BIGINT', 'INT', 'DOUBLE')})",
            lambda: f"xxhash64({a(any_kind)}, {a('text')})",
            lambda: f"crc32({a('text')})",
            lambda: one("a[0]", "a[1]", "k['x']", "element_at(a, -1)", "r.u", "element_at(k, 'q')", "size(a)", "a[i]"),
        ],
        "text": [
            lambda: f"{one('upper', 'lower', 'trim', 'ltrim', 'rtrim', 'reverse', 'md5', 'sha1')}({a('text')})",
            lambda: f"sha2({a('text')}, {one('224', '256', '384', '512', '0')})",
            lambda: f"concat({a('text')}, {a(any_kind)})",
            lambda: f"({a('text')} || {a('text')})",
            lambda: f"substring({a('text')}, {one('1', '0', '2', '-2')})",
            lambda: f"substr({a('text')}, {one('1', '3')}, {one('0', '1', '4')})",
            lambda: f"{one('left', 'right')}({a('text')}, {one('0', '1', '3')})",
            lambda: f"replace({a('text')}, {one(chr(39) + 'a' + chr(39), chr(39) * 2)}, 'zz')",
            lambda: f"regexp_extract({a('text')}, {regex}, {one('0', '1')})",
            lambda: (
                f"regexp_replace({a('text')}, {one(*[r for r in REGEXES if '$' not in r])}, {one(chr(39) + '<$0>' + chr(39), chr(39) + '-' + chr(39))})"
            ),
            lambda: f"date_format({a(one('time', 'date'))}, {pattern})",
            lambda: f"from_unixtime({one('i', 'n', '0', 'l % 100000')}, {pattern})",
            lambda: f"cast({a(any_kind)} AS STRING)",
            lambda: f"get_json_object(j, '$.{one('a', 'a.b', 'l', 'l[1]', 't', 'f', 'n', 'ok', 'q', 'a.b.c')}')",
            lambda: "r.v.w",
            lambda: "split(s, ',')[0]",
        ],
        "bool": [
            lambda: f"({a('bool')} {one('AND', 'OR')} {a('bool')})",
            lambda: f"(NOT {a('bool')})",
            lambda: f"({a(any_kind)} {one('=', '<>', '<', '<=', '>', '>=', '<=>')} {a(any_kind)})",
            lambda: f"({a('num')} {one('=', '<', '>=')} {a('text')})",
            lambda: f"({a(one('date', 'time'))} {one('=', '<', '>=')} {a(one('date', 'time'))})",
            lambda: f"({a(any_kind)} IS {one('', 'NOT')} NULL)",
            lambda: f"({a(any_kind)} {one('', 'NOT')} IN ({a(any_kind)}, {a(any_kind)}))",
            lambda: f"({a('num')} BETWEEN {a('num')} AND {a('num')})",
            lambda: f"({a('text')} {one('', 'NOT')} LIKE '{one('a%', '%b%', '_', '%', 'x y')}')",
            lambda: f"({a('text')} RLIKE {regex})",
            lambda: f"try_cast({a('text')} AS BOOLEAN)",
            lambda: f"cast({a('num')} AS BOOLEAN)",
        ],
        "date": [
            lambda: f"to_date({a(one('time', 'date'))})",
            lambda: f"try_cast({a('text')} AS DATE)",
            lambda: f"cast({a('time')} AS DATE)",
            lambda: f"trunc({a('date')}, '{one('YEAR', 'quarter', 'MON', 'week')}')",
            lambda: f"{one('date_add', 'date_sub')}({a('date')}, {one('1', '30', 'n')})",
            lambda: f"last_day({a(one('date', 'time'))})",
            lambda: f"to_date(date_format({a('date')}, 'yyyyMMdd'), 'yyyyMMdd')",
            lambda: "make_date(2024, 2, 20 + n % 9)",
        ],
        "time": [
            lambda: f"date_trunc('{unit}', {a(one('time', 'date'))})",
            lambda: f"to_timestamp({a('time')})",
            lambda: f"try_to_timestamp({a('text')})",
            lambda: f"try_cast({a('text')} AS {one('TIMESTAMP', 'TIMESTAMP_NTZ')})",
            lambda: f"cast({a(one('date', 'time'))} AS {one('TIMESTAMP', 'TIMESTAMP_NTZ')})",
            lambda: f"to_timestamp(date_format({a('time')}, 'yyyy-MM-dd HH:mm:ss'), 'yyyy-MM-dd HH:mm:ss')",
            lambda: (
                f"{one('timestamp_seconds', 'timestamp_millis', 'timestamp_micros')}({one('i', 'n', 'l % 1000000')})"
            ),
            lambda: (
                f"{one('from_utc_timestamp', 'to_utc_timestamp')}({a('time')}, '{one('Asia/Tokyo', 'UTC', 'Europe/Berlin')}')"
            ),
        ],
    }[kind]
    return draw.choice(own * 3 + shared)()
