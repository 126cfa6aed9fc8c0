"""The fast and the exact way of reading JSON agree, and neither lets one record spoil another."""

import json
import math
from base64 import b64encode
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.json_values.json_blocks import read_exact, read_fast, read_objects
from bucketline.streaming.decode.json_values.json_shape import row_shape
from bucketline.streaming.decode.texts.base64_column import decimals_of_bytes, decode_base64

TAGS = {"type": "ARRAY", "element": "STRING"}
PLACE = {
    "type": "ROW",
    "fields": [{"id": 20, "name": "x", "type": "INT"}, {"id": 21, "name": "seen", "type": "TIMESTAMP(3)"}],
}
TYPES: dict[str, Any] = {
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "id": "BIGINT",
    "real": "DOUBLE",
    "amount": "DECIMAL(20, 4)",
    "name": "STRING",
    "raw": "BYTES",
    "day": "DATE",
    "noon": "TIME(3)",
    "at": "TIMESTAMP(6)",
    "instant": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "tags": TAGS,
    "place": PLACE,
}
FIELDS = tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items()))
SHAPE = row_shape(FIELDS)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENTS = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "id": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(allow_nan=False, allow_infinity=False),
    "amount": st.decimals(min_value=-(10**15), max_value=10**15, places=4),
    "name": TEXT,
    "raw": st.binary(max_size=7),
    "day": st.dates(),
    "noon": st.integers(0, 86_399_999),
    "at": MOMENTS,
    "instant": MOMENTS,
    "tags": st.lists(st.none() | TEXT, max_size=3),
    "place": st.fixed_dictionaries({}, optional={"x": st.none() | st.integers(-(2**31), 2**31 - 1)}),
}
ROWS = st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in VALUES.items()})


class Written:
    """A number that is written into JSON digit by digit."""

    def __init__(self, text: str) -> None:
        self.text = text


def json_of(row: dict[str, Any]) -> bytes:
    """A row as JSON text, decimals with all their digits, and two fields no table knows."""
    parts = [f"{json.dumps(name)}: {_json_value(value)}" for name, value in row.items()]
    return ("{" + ", ".join(['"extra": {"deep": [1, null]}', *parts, '"0": "\\u00e9"']) + "}").encode()


def _json_value(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Written):
        return value.text
    if isinstance(value, bytes):
        return json.dumps(b64encode(value).decode())
    if isinstance(value, datetime):
        return json.dumps(value.isoformat())
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    return json.dumps(value)


def texts_of(rows: list[dict[str, Any]]) -> pa.Array:
    return pa.array([json_of(_as_sent(row)) for row in rows], pa.binary())


def _as_sent(row: dict[str, Any]) -> dict[str, Any]:
    """Times of day go as texts, instants with a zone."""
    sent = dict(row)
    if sent.get("noon") is not None:
        sent["noon"] = (datetime(1970, 1, 1) + timedelta(milliseconds=sent["noon"])).time().isoformat()
    if sent.get("instant") is not None:
        sent["instant"] = sent["instant"].isoformat() + "Z"
    return sent


def _as_read(row: dict[str, Any]) -> dict[str, Any]:
    """What a row becomes, by rules of its own: the judge of both ways."""
    found: dict[str, Any] = {name: row.get(name) for name in TYPES}
    if found["noon"] is not None:
        found["noon"] = (datetime(1970, 1, 1) + timedelta(milliseconds=found["noon"])).time()
    if found["instant"] is not None:
        found["instant"] = found["instant"].replace(tzinfo=UTC)
    if found["place"] is not None:
        found["place"] = {"x": found["place"].get("x"), "seen": None}
    return found


@given(st.lists(ROWS, max_size=12))
def test_both_ways_read_what_was_written(rows: list[dict[str, Any]]) -> None:
    texts = texts_of(rows)

    exact = read_exact(texts, SHAPE)
    assert exact.bad == ()
    assert exact.structs.to_pylist() == [_as_read(row) for row in rows]

    fast = read_fast(texts, SHAPE)
    if fast is not None:
        assert fast.equals(exact.structs)
    assert read_objects(texts, SHAPE).structs.equals(exact.structs)


@given(st.lists(ROWS, min_size=1, max_size=12))
def test_the_fast_way_reads_rows_whose_columns_keep_their_forms(rows: list[dict[str, Any]]) -> None:
    assert read_fast(texts_of(rows), SHAPE) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*TYPES, "x", "y"]), inner, max_size=2),
    max_leaves=5,
)
ANY_ROWS = st.dictionaries(st.sampled_from(list(TYPES)), JSON, max_size=4)
BROKEN = st.sampled_from(
    [
        b"",
        b"{",
        b"}",
        b"null",
        b"[]",
        b'{"id":1}{"id":2}',
        b'{"id":1',
        b'{"name":"x}',
        b'{"name":"\\ud800"}',
        b'{"name":"\xff"}',
        b'{"id":01}',
        b" {}\n",
        b'{"id": 1} ',
        b'{"id":NaN}',
        b'{"real":NaN}',
        b'{"place":{"x":1}',
        b'\xef\xbb\xbf{"id":7}',
        b'{"id":1,"id":2}',
        b'{","id":3}',
    ]
)


@given(st.lists(ANY_ROWS.map(lambda row: json.dumps(row).encode()) | BROKEN, max_size=10))
def test_a_record_reads_the_same_whatever_its_neighbours_are(records: list[bytes]) -> None:
    whole = read_objects(pa.array(records, pa.binary()), SHAPE)
    reasons = dict(whole.bad)
    rows = dict(zip(whole.positions.tolist(), whole.structs.to_pylist(), strict=True))
    for i, record in enumerate(records):
        alone = read_objects(pa.array([record], pa.binary()), SHAPE)
        assert [reason for _, reason in alone.bad] == ([reasons[i]] if i in reasons else [])
        assert repr(alone.structs.to_pylist()) == repr([rows[i]] if i in rows else [])


@given(st.lists(ANY_ROWS.map(lambda row: json.dumps(row).encode()), min_size=1, max_size=8))
def test_what_the_fast_way_accepts_the_exact_way_reads_alike(records: list[bytes]) -> None:
    texts = pa.array(records, pa.binary())
    fast = read_fast(texts, SHAPE)
    if fast is not None:
        exact = read_exact(texts, SHAPE)
        assert exact.bad == ()
        assert repr(exact.structs.to_pylist()) == repr(fast.to_pylist())


def test_one_bad_record_among_thousands_is_found_and_the_others_stay() -> None:
    records = [json_of({"id": i, "name": f"n{i}"}) for i in range(5000)]
    records[3210] = b'{"id": "three", "name": "bad"}'

    found = read_objects(pa.array(records, pa.binary()), SHAPE)

    assert found.bad == ((3210, 'field id: "three" is not a whole number'),)
    assert found.structs.field("id").to_pylist() == [i for i in range(5000) if i != 3210]
    assert found.positions.tolist() == [i for i in range(5000) if i != 3210]


def test_blocks_of_many_bad_records_are_read_to_the_end() -> None:
    records = [b'{"id":%d}' % i if i % 3 else b'{"id":"x"}' for i in range(2000)]

    found = read_objects(pa.array(records, pa.binary()), SHAPE)

    assert found.structs.field("id").to_pylist() == [i for i in range(2000) if i % 3]
    assert [at for at, _ in found.bad] == [i for i in range(2000) if not i % 3]


def test_a_slice_of_a_longer_array_is_read_as_itself() -> None:
    records = pa.array([b'{"id":%d}' % i for i in range(10)], pa.binary())
    assert read_objects(records.slice(3, 4), SHAPE).structs.field("id").to_pylist() == [3, 4, 5, 6]


def test_decimals_keep_every_digit_of_a_json_number() -> None:
    digits = "12345678901234567890123456.789012345678"
    shape = row_shape((DataField(0, "d", parse_type("DECIMAL(38, 12)")),))
    texts = pa.array([f'{{"d":{digits}}}'.encode(), f'{{"d":"{digits}"}}'.encode(), b'{"d":1e-3}'], pa.binary())
    for found in (read_fast(texts, shape), read_exact(texts, shape).structs):
        assert found is not None
        assert found.field("d").to_pylist() == [Decimal(digits), Decimal(digits), Decimal("0.001")]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", 0, False),
        ("BOOLEAN", "1", True),
        ("INT", "+12", 12),
        ("INT", Written("12.0"), 12),
        ("INT", Written("1.2e1"), 12),
        ("DOUBLE", "1.5e3", 1500.0),
        ("DOUBLE", "Infinity", math.inf),
        ("FLOAT", 0.1, 0.10000000149011612),
        ("DECIMAL(5, 2)", "1.50", Decimal("1.50")),
        ("STRING", Written("1.50"), "1.50"),
        ("STRING", True, "true"),
        ("STRING", {"b": [1, None, "ü"]}, '{"b":[1,null,"ü"]}'),
        ("DATE", "2024-02-29", date(2024, 2, 29)),
        ("DATE", 19782, date(2024, 2, 29)),
        ("TIME(0)", "10:11:12.999", datetime(1970, 1, 1, 10, 11, 12).time()),
        ("TIME(3)", "10:11:12Z", datetime(1970, 1, 1, 10, 11, 12).time()),
        ("TIME(3)", "23:30:00-01:00", datetime(1970, 1, 1, 0, 30).time()),
        ("TIMESTAMP(6)", "2024-02-29 10:11:12", datetime(2024, 2, 29, 10, 11, 12)),
        ("TIMESTAMP(6)", "2024-02-29T10:11:12.1234567Z", datetime(2024, 2, 29, 10, 11, 12, 123456)),
        ("TIMESTAMP(6)", "2024-02-29T10:11:12+02:00", datetime(2024, 2, 29, 8, 11, 12)),
        ("TIMESTAMP(1)", "2024-02-29T10:11:12.19", datetime(2024, 2, 29, 10, 11, 12, 100000)),
        ("TIMESTAMP(1)", "1960-02-29T10:11:12.19", datetime(1960, 2, 29, 10, 11, 12, 100000)),
        ("TIMESTAMP(3)", 1_709_201_472_123, datetime(2024, 2, 29, 10, 11, 12, 123000)),
        ("TIMESTAMP(6)", 1_709_201_472_123_456, datetime(2024, 2, 29, 10, 11, 12, 123456)),
        ("TIMESTAMP(6)", 0, datetime(1970, 1, 1)),
        ({"type": "MAP", "key": "INT", "value": "DATE"}, {"7": "2024-02-29"}, [(7, date(2024, 2, 29))]),
        ({"type": "MULTISET", "element": "STRING"}, {"a": 2}, [("a", 2)]),
        ({"type": "VECTOR", "element": "FLOAT", "length": 2}, [0.5, 2], [0.5, 2.0]),
    ],
)
def test_forms_that_json_may_hold_a_value_in(kind: Any, value: Any, expected: Any) -> None:
    shape = row_shape((DataField(0, "v", parse_type(kind)),))
    texts = pa.array([b'{"v":%s}' % _json_value(value).encode()], pa.binary())

    exact = read_exact(texts, shape)
    assert exact.bad == ()
    assert exact.structs.field("v").to_pylist() == [expected]
    assert read_objects(texts, shape).structs.field("v").to_pylist() == [expected]


@pytest.mark.parametrize(
    "sent",
    [
        ["2024-02-29T10:11:12", "2024-02-29 10:11:12.5"],
        ["2024-02-29T12:11:12+02:00", "2024-02-29T10:11:12.5Z", "2024-02-29T05:11:12-0500", "2024-02-29T12:11+02"],
        ["2024-02-29T10:11:12", "2024-02-29T12:11:12+02:00", None, "2024-02-29T10:11:12.1234567"],
    ],
)
def test_timestamps_with_and_without_zone_may_stand_in_one_block(sent: list[str | None]) -> None:
    shape = row_shape((DataField(0, "v", parse_type("TIMESTAMP(6)")),))
    texts = pa.array([json.dumps({"v": text}).encode() for text in sent], pa.binary())

    fast = read_fast(texts, shape)

    assert fast is not None and fast.equals(read_exact(texts, shape).structs)
    assert fast.field("v")[0].as_py() == datetime(2024, 2, 29, 10, 11, 12)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("TINYINT", 128, "field v: 128 cannot become TINYINT"),
        ("INT", 1.5, "field v: 1.5 is no 64-bit whole number"),
        ("BIGINT", 2**63, "field v: 9223372036854775808 is no 64-bit whole number"),
        ("INT", "0x10", 'field v: "0x10" is not a whole number'),
        ("INT", " 1", 'field v: " 1" is not a whole number'),
        ("INT", True, "field v: true cannot become INT"),
        ("BOOLEAN", 2, "field v: 2 is not 0 or 1, so it is not a boolean"),
        ("FLOAT", 1e39, "field v: 1e+39 is too large for FLOAT"),
        ("DOUBLE", Written("1e400"), "field v: 1e400 is too large for a double"),
        ("DECIMAL(5, 2)", "1.005", 'field v: "1.005" cannot become DECIMAL(5, 2)'),
        ("DECIMAL(5, 2)", 1000, "field v: 1000 cannot become DECIMAL(5, 2)"),
        ("BYTES", "a", 'field v: "a" cannot become BYTES'),
        ("BYTES", "a=b=", 'field v: "a=b=" cannot become BYTES'),
        ("DATE", 20240229, "field v: 20240229 is not a number of days between the years 1 and 9999"),
        ("DATE", "2024-02-30", 'field v: "2024-02-30" cannot become DATE'),
        ("TIME(3)", 5, "field v: 5 the unit of a number is not known here"),
        ("TIME(3)", "24:00:00", 'field v: "24:00:00" cannot become TIME(3)'),
        ("TIMESTAMP(6)", 1_709_201_472_123, "field v: 1709201472123 may be us since 1970"),
        ("TIMESTAMP(3)", "yesterday", 'field v: "yesterday" cannot become TIMESTAMP(3)'),
        ({"type": "ARRAY", "element": "INT"}, [1, "x"], 'field v[]: "x" is not a whole number'),
        ({"type": "ARRAY", "element": "INT"}, {}, "field v: {} is not a JSON array"),
        ({"type": "MAP", "key": "INT", "value": "INT"}, {"x": 1}, 'field v key: "x" is not a whole number'),
        ({"type": "MAP", "key": "INT", "value": "INT"}, {"1": "x"}, 'field v{}: "x" is not a whole number'),
    ],
)
def test_values_that_do_not_fit_are_bad_and_the_reason_names_the_field(kind: Any, value: Any, reason: str) -> None:
    shape = row_shape((DataField(0, "v", parse_type(kind)),))
    bad = b'{"v":%s}' % _json_value(value).encode()

    found = read_objects(pa.array([b"{}", bad, b"{}"], pa.binary()), shape)

    assert len(found.structs) == 2
    assert [at for at, _ in found.bad] == [1]
    assert found.bad[0][1].startswith(reason)


@given(st.lists(st.none() | st.binary(max_size=9), max_size=6))
def test_base64_texts_become_their_bytes(values: list[bytes | None]) -> None:
    texts = [None if v is None else b64encode(v).decode() for v in values]
    assert decode_base64(pa.array(texts, pa.string())).to_pylist() == values


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=6))
def test_bytes_become_the_decimals_java_wrote(numbers: list[int | None]) -> None:
    data = [None if n is None else n.to_bytes(max(1, (n.bit_length() + 8) // 8), "big", signed=True) for n in numbers]
    found = decimals_of_bytes(pa.array(data, pa.large_binary()), 3)
    assert found.to_pylist() == [None if n is None else Decimal(n).scaleb(-3, _wide()) for n in numbers]


def _wide() -> Any:
    return Context(prec=60)


@pytest.mark.parametrize("kind", ["STRING", "INT"])
def test_values_nested_too_deeply_make_their_record_bad_and_no_other(kind: str) -> None:
    shape = row_shape([DataField(0, "v", parse_type(kind))])
    deep = b'{"v":' + b"[" * 700 + b"]" * 700 + b"}"
    found = read_objects(pa.array([b'{"v":"1"}', deep], pa.binary()), shape)
    assert found.positions.tolist() == [0]
    assert "nested too deeply" in dict(found.bad)[1]
