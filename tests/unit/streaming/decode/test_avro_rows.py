"""Avro values in columns: what the schema says of them decides, and one value that does not fit harms no other."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.avro.avro_bodies import read_bodies
from bucketline.streaming.decode.avro.avro_rows import Misfits, columns_of
from bucketline.streaming.decode.avro.avro_schema import parse_avro_schema
from bucketline.streaming.decode.avro.avro_source import source_of
from bucketline.streaming.decode.declared.declared_rows import declared_columns
from bucketline.streaming.decode.json_values.json_shape import row_shape
from tests.support.models.avro_values import body_of

NOON = 12 * 3_600_000
DAY = 86_400_000


def in_column(kind: object, column: Any, *values: object) -> tuple[list[object], dict[int, str]]:
    """Values of an Avro type in a column of a table, and why some are not there."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    bodies = [body_of(schema, {"v": value}) for value in values]
    parsed = parse_avro_schema(schema)
    read = read_bodies(pa.array(bodies, pa.binary()), parsed)
    shape = row_shape([DataField(0, "v", parse_type(column))], source_of(parsed))
    misfits = Misfits()
    rows = columns_of(read.values, shape, misfits)
    assert rows.type == shape.arrow
    rows.validate(full=True)
    return rows.field("v").to_pylist(), misfits.reasons


def logical(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "connect.name": name, **more}


@pytest.mark.parametrize(
    ("kind", "column", "value", "expected"),
    [
        ("int", "TINYINT", 7, 7),
        ("long", "BIGINT", -(2**63), -(2**63)),
        ("long", "DECIMAL(20, 2)", 7, Decimal("7.00")),
        ("int", "DOUBLE", 7, 7.0),
        ("double", "DECIMAL(10, 2)", 0.1, Decimal("0.10")),
        ("double", "BIGINT", 3.0, 3),
        ("float", "FLOAT", 1.5, 1.5),
        ("long", "STRING", 7, "7"),
        ("boolean", "STRING", True, "true"),
        ("boolean", "BOOLEAN", True, True),
        ("string", "BIGINT", "12", 12),
        ("string", "DECIMAL(4, 2)", "1.5", Decimal("1.50")),
        ("string", "TIMESTAMP(3)", "2024-02-29T12:00:00Z", dt.datetime(2024, 2, 29, 12)),
        ("bytes", "BYTES", b"\x00\xff", b"\x00\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "BINARY(2)", b"ab", b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["new", "old"]}, "STRING", "old", "old"),
        (logical("int", "date"), "DATE", 19_782, dt.date(2024, 2, 29)),
        (logical("int", "time-millis"), "TIME(0)", NOON, dt.time(12)),
        (logical("long", "time-micros"), "TIME(3)", NOON * 1000, dt.time(12)),
        (logical("long", "timestamp-millis"), "TIMESTAMP(3)", DAY, dt.datetime(1970, 1, 2)),
        (logical("long", "timestamp-micros"), "TIMESTAMP(6)", DAY * 1000 + 1, dt.datetime(1970, 1, 2, 0, 0, 0, 1)),
        (logical("long", "local-timestamp-micros"), "TIMESTAMP(3)", DAY * 1000 + 1, dt.datetime(1970, 1, 2)),
        (logical("bytes", "decimal", precision=9, scale=2), "DECIMAL(9, 2)", b"\xff", Decimal("-0.01")),
        (logical("bytes", "decimal", precision=3, scale=5), "DECIMAL(5, 5)", b"\x7b", Decimal("0.00123")),
        (logical("bytes", "decimal", precision=5, scale=-2), "DECIMAL(7, 0)", b"\x7b", Decimal(12300)),
        (logical("bytes", "decimal", precision=3, scale=5), "DOUBLE", b"\x7b", 0.00123),
        (
            {"type": "fixed", "name": "F", "size": 20, **logical("fixed", "decimal", precision=9, scale=2)},
            "DECIMAL(9, 2)",
            b"\xff" * 19 + b"\x85",
            Decimal("-1.23"),
        ),
        ({"type": "int", "connect.name": ["no", "text"]}, "INT", 7, 7),
        (connect("int", "io.debezium.time.Date"), "DATE", 0, dt.date(1970, 1, 1)),
        (connect("long", "io.debezium.time.MicroTimestamp"), "TIMESTAMP(6)", 1, dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
        (
            connect("string", "io.debezium.time.ZonedTimestamp"),
            "TIMESTAMP(0)",
            "2024-02-29T12:00:00+02:00",
            dt.datetime(2024, 2, 29, 10),
        ),
        ({"type": "array", "items": "int"}, {"type": "ARRAY", "element": "BIGINT"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "int"}, {"type": "MAP", "key": "STRING", "value": "INT"}, {"a": 1}, [("a", 1)]),
        ({"type": "map", "values": "int"}, "STRING", {"a": 1}, '{"a":1}'),
        ({"type": "array", "items": {"type": "map", "values": "bytes"}}, "STRING", [{"a": b"\x01"}], '[{"a":"AQ=="}]'),
    ],
)
def test_a_value_in_a_column(kind: object, column: Any, value: object, expected: object) -> None:
    assert in_column(kind, column, value) == ([expected], {})
    branch = ["null", kind]
    values, bad = in_column(branch, column, None, value, *[value] * 20)
    assert values == [None, expected, *[expected] * 20]
    assert not bad


@pytest.mark.parametrize(
    ("kind", "column", "value", "reason"),
    [
        ("long", "INT", 2**40, f"field v: {2**40} cannot become INT"),
        ("double", "BIGINT", 0.5, "field v: 0.5 cannot become BIGINT"),
        ("string", "DATE", "soon", "field v: soon cannot become DATE"),
        ("bytes", "STRING", b"\x01", "field v: 01 are bytes, but the column is STRING; declare the column as BYTES"),
        ("boolean", "DATE", True, "field v: true cannot become DATE"),
        ({"type": "array", "items": "int"}, "BIGINT", [1], "field v: [1] cannot become BIGINT"),
        ("int", {"type": "ARRAY", "element": "INT"}, 1, "field v: 1 cannot become ARRAY"),
        (
            logical("bytes", "decimal", precision=38, scale=0),
            "DECIMAL(38, 0)",
            b"\x80" + bytes(15),
            f"field v: 80{'00' * 15} cannot become DECIMAL(38, 0)",
        ),
        (
            logical("long", "time-micros"),
            "TIME(0)",
            -1,
            "field v: -1 is not a time of day: it is negative, or 24 hours or more",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_one_bad_record(kind: object, column: Any, value: object, reason: str) -> None:
    good = {"long": 0, "double": 1.0, "string": "2024-02-29"}.get(str(kind))
    if isinstance(kind, dict) and "logicalType" in kind:
        good = b"\x01" if kind["type"] == "bytes" else 0
    values = [value] if good is None else [good, value, good, good]
    rows, bad = in_column(kind, column, *values)
    assert bad == {values.index(value): reason}
    assert [row is None for row in rows] == [v is value for v in values]


def test_debeziums_decimals_with_a_scale_of_their_own_are_decimals() -> None:
    fields = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
    kind = {
        "type": "record",
        "name": "io.debezium.data.VariableScaleDecimal",
        "connect.name": "io.debezium.data.VariableScaleDecimal",
        "fields": fields,
    }
    values = [{"scale": 1, "value": b"\x0f"}, {"scale": 3, "value": b"\x0f"}]
    assert in_column(kind, "DECIMAL(9, 3)", *values) == ([Decimal("1.500"), Decimal("0.015")], {})
    for scale in (2**31 - 1, -(2**31)):  # as text such a number would fill the memory
        rows, bad = in_column(kind, "STRING", *values, {"scale": scale, "value": b"\x0f"})
        assert rows == ["1.5", "0.015", None]
        assert list(bad) == [2]


def test_fields_are_matched_by_name_and_missing_ones_are_null() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "int"}, {"name": "x", "type": "string"}]}
    column = {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "INT"}, {"id": 2, "name": "b", "type": "INT"}]}
    assert in_column(inner, column, {"b": 1, "x": "y"}) == ([{"a": None, "b": 1}], {})


def entries(key: object, value: object, **more: object) -> dict[str, object]:
    """A map of Connect whose keys are no texts."""
    fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
    of = {"namespace": "io.confluent.connect.avro", "name": "MapEntry", **more}
    return {"type": "array", "items": {"type": "record", "fields": fields, **of}}


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        (entries("int", ["null", "string"]), {"type": "MAP", "key": "INT", "value": "STRING"}, [(1, "a"), (2, None)]),
        (
            entries("int", ["null", "string"]),
            {"type": "MAP", "key": "BIGINT", "value": "STRING"},
            [(1, "a"), (2, None)],
        ),
        (
            entries("int", ["null", "string"]),
            {"type": "MAP", "key": "STRING", "value": "STRING"},
            [("1", "a"), ("2", None)],
        ),
        (
            entries("int", ["null", "string"], name="Mine", **{"connect.internal.type": "MapEntry"}),
            {"type": "MAP", "key": "INT", "value": "STRING"},
            [(1, "a"), (2, None)],
        ),
        (
            entries(connect("int", "io.debezium.time.Date"), ["null", "string"]),
            {"type": "MAP", "key": "DATE", "value": "STRING"},
            [(dt.date(1970, 1, 2), "a"), (dt.date(1970, 1, 3), None)],
        ),
    ],
)
def test_entries_with_keys_that_are_no_texts_are_a_map(kind: object, column: Any, expected: object) -> None:
    value = [{"key": 1, "value": "a"}, {"key": 2, "value": None}]
    assert in_column(kind, column, value, [], value) == ([expected, [], expected], {})


def test_a_map_with_a_key_that_is_null_or_does_not_fit_is_bad_and_no_other() -> None:
    kind = entries(["null", "long"], "string")
    bad = [{"key": None, "value": "a"}], [{"key": 2**40, "value": "a"}]
    rows, reasons = in_column(kind, {"type": "MAP", "key": "INT", "value": "STRING"}, *bad, [{"key": 7, "value": "b"}])
    assert rows[2] == [(7, "b")]
    assert reasons == {0: "field v: a key of the map is null", 1: f"field v key: {2**40} cannot become INT"}


def test_entries_declare_a_map_and_other_arrays_do_not() -> None:
    plain = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "int"}],
    }
    fields = [
        {"name": "m", "type": ["null", entries("int", "string")]},
        {"name": "a", "type": ["null", {"type": "array", "items": plain}]},
    ]
    source = source_of(parse_avro_schema({"type": "record", "name": "R", "fields": fields}))
    assert declared_columns(source) == (
        pa.field("m", pa.map_(pa.int32(), pa.string())),
        pa.field("a", pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int32())]))),
    )
