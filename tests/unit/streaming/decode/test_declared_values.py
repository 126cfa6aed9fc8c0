"""Values whose schema says what they are: Debezium's times in each form, decimals of any size, bits, booleans."""

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.sources.message_options import Infinity, MessageOptions, parse_source_type
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.json_values.json_declared import declared_type
from bucketline.streaming.decode.records import decode_debezium
from bucketline.streaming.decode.step_for_table import decode_step

TIME = "io.debezium.time."
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def decoded(kind: Any, *values: object, node: dict[str, Any] | None = None, **messages: Any) -> Decoded:
    fields = (DataField(0, "id", parse_type("INT NOT NULL")), DataField(1, "v", parse_type(kind)))
    records: list[Any] = [{"before": None, "after": {"id": 1, "v": v}, "op": "c"} for v in values]
    if node is not None:
        image = {
            "type": "struct",
            "field": "after",
            "fields": [{"type": "int32", "field": "id"}, {**node, "field": "v"}],
        }
        records = [{"schema": {"type": "struct", "fields": [image]}, "payload": r} for r in records]
    data = pa.array([json.dumps(r).encode() for r in records], pa.binary())
    return decode_debezium(data, fields, primary_key=("id",), messages=MessageOptions(**messages))


def values(kind: Any, *given: object, **more: Any) -> list[Any]:
    """The values in the column, in both ways of reading: alone, and beside one that goes the exact way."""
    found = decoded(kind, *given, **more)
    assert found.reasons.to_pylist() == []
    beside = decoded(kind, [[{}]], *given, **more)
    assert beside.bad.to_pylist() == [0] and beside.rows["v"].to_pylist() == found.rows["v"].to_pylist()
    column: list[Any] = found.rows["v"].to_pylist()
    return column


def only_bad(kind: Any, value: object, told: str, **more: Any) -> None:
    for given in ((value,), (None, value, None)):
        found = decoded(kind, *given, **more)
        assert found.bad.to_pylist() == [len(given) // 2]
        assert told in found.reasons[0].as_py()


def number(value: int) -> str:
    return base64.b64encode(value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True)).decode()


@pytest.mark.parametrize("digits", [30, 38, 39, 65, 90])
def test_a_decimal_of_any_size_is_a_text(digits: int) -> None:
    largest = 10**digits - 1
    node = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}
    texts = [f"{'9' * (digits - 2)}.99", f"-{'9' * (digits - 2)}.99", "0.01", None]
    raw = [number(largest), number(-largest), number(1), None]
    assert values("STRING", *raw, node=node) == texts
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    scaled = [None if one is None else {"scale": 2, "value": one} for one in raw]
    assert values("STRING", *scaled, node=variable) == texts
    if digits > 38:
        only_bad("DECIMAL(38, 2)", number(largest), "cannot become DECIMAL(38, 2)", node=node)


def test_small_and_negative_scales_are_written_without_an_exponent() -> None:
    node = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "10"}}
    assert values("STRING", number(1), node=node) == ["0.0000000001"]
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    assert values("STRING", {"scale": -3, "value": number(12)}, node=variable) == ["12000"]


def test_a_scale_that_no_number_has_makes_its_record_bad_and_fills_no_memory() -> None:
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    for scale in (2**31 - 1, -(2**31)):
        for kind in ("STRING", "DECIMAL(9, 2)", "DOUBLE"):
            only_bad(kind, {"scale": scale, "value": number(12)}, "cannot become", node=variable)
    node = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "99999999999"}}
    only_bad("DECIMAL(9, 2)", number(12), "cannot become", node=node)


def test_bytes_that_only_repeat_the_sign_change_no_decimal() -> None:
    node = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}
    padded = [base64.b64encode(value.to_bytes(20, "big", signed=True)).decode() for value in (123, -123, 10**38 - 1)]
    assert [str(one) for one in values("DECIMAL(38, 2)", *padded, node=node)] == ["1.23", "-1.23", f"{'9' * 36}.99"]
    for value in (2**127, -(2**127), -(2**127) - 1, 2**130):
        only_bad("DECIMAL(38, 2)", base64.b64encode(value.to_bytes(20, "big", signed=True)).decode(), "", node=node)


def test_a_decimal_becomes_the_nearest_double() -> None:
    node = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "5"}}
    assert values("DOUBLE", number(123), number(-(10**30)), None, node=node) == [0.00123, -1e25, None]
    only_bad("FLOAT", number(10**60), "cannot become FLOAT", node=node)


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [("Year", "int32", 2024), ("MicroDuration", "int64", 10**15), ("NanoDuration", "int64", 1)],
)
def test_a_year_and_a_duration_are_no_moments(name: str, kind: str, number: int) -> None:
    node = {"type": kind, "name": TIME + name}
    for column in ("DATE", "TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIME(3)"):
        only_bad(column, number, f"the source sends {TIME}{name}, which is not", node=node)
    assert values("BIGINT", number, node=node) == [number]


def test_a_name_of_a_type_that_is_no_text_says_nothing() -> None:
    assert values("INT", 7, node={"type": "int32", "name": ["no", "text"]}) == [7]


PARTS = {"year": 2024, "month": 2, "day": 29}
CLOCK = {"hour": 10, "minute": 11, "second": 12, "picoseconds": 345678912345}
ENDLESS = {"year": None, "specialValue": "POSITIVE_INFINITY"}


@pytest.mark.parametrize("with_schema", [True, False])
def test_times_in_parts_are_dates_and_times(with_schema: bool) -> None:
    def node(name: str) -> dict[str, Any] | None:
        return {"type": "struct", "name": TIME + name} if with_schema else None

    moment = datetime(2024, 2, 29, 10, 11, 12, 345678)
    stamp = {**PARTS, **CLOCK, "specialValue": None, "precision": 6}
    nanos = {**PARTS, "hour": 10, "minute": 11, "second": 12, "nanos": 345678912}
    for name in ("StructuredTimestamp", "StructuredTimestampPrecision6SourceColumn76"):
        assert values("TIMESTAMP(6)", stamp, nanos, None, node=node(name)) == [moment, moment, None]
    zoned = {**stamp, "offsetSeconds": 7200, "zoneId": "+02:00"}
    assert values("TIMESTAMP(6) WITH LOCAL TIME ZONE", zoned, node=node("StructuredZonedTimestamp")) == [
        datetime(2024, 2, 29, 8, 11, 12, 345678, tzinfo=UTC)
    ]
    assert values("DATE", PARTS, node=node("StructuredDate")) == [date(2024, 2, 29)]
    assert values("TIME(3)", CLOCK, node=node("StructuredTime")) == [time(10, 11, 12, 345000)]
    assert values("TIME(3)", {**CLOCK, "hour": 1, "offsetSeconds": 7200}, node=node("StructuredZonedTime")) == [
        time(23, 11, 12, 345000)
    ]
    for kind, bad in (
        ("DATE", {"year": 2024, "month": 2, "day": 30}),
        ("DATE", {"year": 0, "month": 0, "day": 0}),
        ("DATE", {"year": -44, "month": 3, "day": 15}),
        ("DATE", {"year": 2024, "month": 2}),
        ("DATE", {}),
        ("TIME(3)", {"hour": 24, "minute": 0, "second": 0}),
        ("TIMESTAMP(6)", PARTS),
        ("DATE", {"year": "x"}),
    ):
        only_bad(kind, bad, "field after.v")


@pytest.mark.parametrize(
    ("node", "kind", "endless"),
    [
        (
            {"type": "int64", "name": TIME + "MicroTimestamp"},
            "TIMESTAMP(6)",
            (9223372036825200000, -9223372036832400000),
        ),
        ({"type": "int64", "name": TIME + "Timestamp"}, "TIMESTAMP(3)", (9223372036825200, -9223372036832400)),
        ({"type": "int32", "name": TIME + "Date"}, "DATE", (-622191234, 622191150)),
        (
            {"type": "string", "name": TIME + "ZonedTimestamp"},
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            ("infinity", "-infinity"),
        ),
        ({"type": "struct", "name": TIME + "StructuredDate"}, "DATE", (ENDLESS, {"specialValue": "NEGATIVE_INFINITY"})),
    ],
)
def test_infinity_is_bad_or_null_or_a_word(node: dict[str, Any], kind: str, endless: tuple[object, object]) -> None:
    for value in endless:
        only_bad(kind, value, "field after.v", node=node)
        only_bad(kind, value, "field after.v", node=node, infinity=Infinity.TEXT)
    assert values(kind, *endless, None, node=node, infinity=Infinity.NULL) == [None, None, None]
    never_null = decoded(f"{kind} NOT NULL", endless[0], node=node, infinity=Infinity.NULL)
    assert "the column is NOT NULL" in never_null.reasons[0].as_py()
    if node["type"] != "struct":
        other = "x" if node["type"] == "string" else 5
        found = decoded("STRING", *endless, other, None, node=node, infinity=Infinity.TEXT)
        assert found.rows["v"].to_pylist() == ["infinity", "-infinity", str(other), None]


def test_infinity_without_a_schema_is_null_too() -> None:
    assert values("DATE", -622191234, "infinity", infinity=Infinity.NULL) == [None, None]
    micros = {"types": (("v", parse_source_type("epoch-micros")),), "infinity": Infinity.NULL}
    assert values("TIMESTAMP(6)", 9223372036825200000, "-infinity", **micros) == [None, None]


def test_the_word_null_of_a_job_file_is_an_answer_for_infinity(tmp_path: Any) -> None:
    text = f"""
table: {tmp_path}/shop.db/t
source: {{format: text, options: {{path: {tmp_path}}}, decode: debezium-json}}
checkpoint: {tmp_path}/c
infinity: null
"""
    assert resolve_job(read_settings(text, name="job.yaml")).messages.infinity is Infinity.NULL
    schema = plan_schema("id BIGINT NOT NULL", ("id",), (), {"bucket": "1"}, None, time_ms=0)
    with pytest.raises(OptionError, match="infinity needs messages of Debezium"):
        decode_step(RecordFormat.CANAL_JSON, schema, BadRecords(None, 0), MessageOptions(infinity=Infinity.NULL))


@pytest.mark.parametrize("text", ["0000-12-30T00:00:00.000000Z", "0000-12-30T00:00:00"])
def test_a_text_of_a_year_that_no_calendar_of_ours_has_is_bad(text: str) -> None:
    only_bad("TIMESTAMP(6)", text, "is not a time between the years 1 and 9999")
    only_bad("DATE", text[:10], "is not a number of days between the years 1 and 9999")


def test_arrays_of_arrays_are_read_as_their_elements_are() -> None:
    def array(item: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "items": item}

    def of(element: str) -> dict[str, Any]:
        return {"type": "ARRAY", "element": {"type": "ARRAY", "element": element}}

    decimals = array(array({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}))
    assert values(of("DECIMAL(10, 2)"), [[number(125), None], None, []], node=decimals) == [
        [[Decimal("1.25"), None], None, []]
    ]
    stamps = array(array({"type": "int64", "name": TIME + "MicroTimestamp"}))
    assert values(of("TIMESTAMP(6)"), [[1709201472345678]], node=stamps) == [
        [[datetime(2024, 2, 29, 10, 11, 12, 345678)]]
    ]
    assert values(of("INT"), [[1, 2], [None]]) == [[[1, 2], [None]]]
    days = array({"type": "struct", "name": TIME + "StructuredDate"})
    assert values({"type": "ARRAY", "element": "DATE"}, [PARTS, None], node=days) == [[date(2024, 2, 29), None]]


def test_bits_and_booleans_are_whole_numbers_of_any_width() -> None:
    bits = {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}}
    for kind in ("SMALLINT", "INT", "BIGINT"):
        assert values(kind, "AQI=", None, node=bits) == [513, None]
        assert values(kind, True, False, None, node={"type": "boolean"}) == [1, 0, None]
    only_bad("TINYINT", "AQI=", "cannot become TINYINT", node=bits)
    only_bad("INT", True, "cannot become INT", node={"type": "int32"})


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("IsoDate", pa.date32()),
        ("IsoTime", pa.time32("ms")),
        ("IsoTimestamp", pa.timestamp("us")),
        ("StructuredDate", pa.date32()),
        ("StructuredTimestampPrecision6", pa.timestamp("us")),
        ("StructuredZonedTimestampSourceColumn76", pa.timestamp("us", "UTC")),
        ("StructuredZonedTime", pa.time32("ms")),
        ("StructuredDuration", pa.string()),
    ],
)
def test_new_columns_of_times_have_types_of_times(name: str, declared: pa.DataType) -> None:
    assert declared_type({"type": "struct", "name": TIME + name}) == declared
