"""Values that no schema describes: read as the job says, and refused where they may be two things."""

import json
from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.sources.message_options import (
    BytesForm,
    MessageOptions,
    SourceKind,
    SourceType,
    message_options,
    parse_source_type,
)
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.records import decode_debezium, decode_json
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.check import check_job

MOMENT = 1_709_201_472_123_456


def fields(kind: str) -> tuple[DataField, ...]:
    return (DataField(0, "id", parse_type("INT NOT NULL")), DataField(1, "v", parse_type(kind)))


def decoded(kind: str, *values: object, node: dict[str, Any] | None = None, **messages: Any) -> Decoded:
    records: list[Any] = [{"before": None, "after": {"id": 1, "v": v}, "op": "c"} for v in values]
    if node is not None:
        image = {
            "type": "struct",
            "field": "after",
            "fields": [{"type": "int32", "field": "id"}, {**node, "field": "v"}],
        }
        records = [{"schema": {"type": "struct", "fields": [image]}, "payload": r} for r in records]
    data = pa.array([json.dumps(r).encode() for r in records], pa.binary())
    return decode_debezium(data, fields(kind), primary_key=("id",), messages=MessageOptions(**messages))


def typed(text: str) -> dict[str, Any]:
    return {"types": (("v", parse_source_type(text)),)}


def only_bad(kind: str, value: object, told: str, **more: Any) -> None:
    for values in ((value,), (None, value, None)):
        found = decoded(kind, *values, **more)
        assert found.bad.to_pylist() == [len(values) // 2]
        assert told in found.reasons[0].as_py()


@pytest.mark.parametrize("kind", ["DECIMAL(10, 2)", "BIGINT", "DOUBLE"])
def test_a_text_that_may_be_a_number_or_base64_of_one_is_refused(kind: str) -> None:
    for text in ("1234", "12345678", "1e10", "+123"):
        only_bad(kind, text, "may be a number in text or a number in base64; declare the column under types")
    for text in ("12", "12345", "-123"):
        assert decoded(kind, text).rows["v"].to_pylist() == [float(text)]
    assert decoded("DECIMAL(10, 2)", "12.3", "1.50").rows["v"].to_pylist() == [Decimal("12.3"), Decimal("1.5")]


def test_the_types_that_a_job_names_say_what_values_are() -> None:
    assert decoded("DECIMAL(10, 2)", "1234", None, **typed("DECIMAL(12, 2)")).rows["v"].to_pylist() == [
        Decimal("-26588.24"),
        None,
    ]
    assert decoded("DECIMAL(10, 2)", "1234", **typed("STRING")).rows["v"].to_pylist() == [Decimal(1234)]
    assert decoded("TIMESTAMP(6)", MOMENT, **typed("epoch-micros")).rows["v"].cast(pa.int64())[0].as_py() == MOMENT
    assert decoded("TIMESTAMP(6)", MOMENT // 1000, **typed("epoch-millis")).rows["v"].cast(pa.int64())[0].as_py() == (
        MOMENT // 1000 * 1000
    )
    assert decoded("TIME(3)", 1_000_000, **typed("micros-of-day")).rows["v"].cast(pa.int32())[0].as_py() == 1000
    assert decoded("DATE", 19782, **typed("epoch-days")).rows["v"].cast(pa.int32())[0].as_py() == 19782


def test_the_types_count_for_json_and_for_keys_of_records() -> None:
    rows = pa.array([b'{"id": 1, "v": "1234"}'], pa.binary())
    found = decode_json(rows, fields("DECIMAL(10, 2)"), messages=MessageOptions(**typed("DECIMAL(12, 2)")))
    assert found.rows["v"].to_pylist() == [Decimal("-26588.24")]
    found = decode_debezium(
        pa.array([b'{"op": "d", "before": null}'], pa.binary()),
        fields("DECIMAL(10, 2)"),
        primary_key=("v",),
        loose=("id",),
        keys=pa.array([b'{"v": "1234"}'], pa.binary()),
        messages=MessageOptions(**typed("DECIMAL(12, 2)")),
    )
    assert found.rows["v"].to_pylist() == [Decimal("-26588.24")]


def test_a_new_column_gets_the_type_that_the_job_names() -> None:
    data = pa.array([b'{"op": "c", "after": {"id": 1, "v": "1234", "w": 5}}'], pa.binary())
    messages = MessageOptions(**typed("DECIMAL(12, 2)"))
    found = decode_debezium(data, fields("INT")[:1], primary_key=("id",), watch=WatchFor.ALL, messages=messages)
    assert found.need == pa.struct([("v", pa.decimal128(12, 2)), ("w", pa.int64())])


def test_bytes_that_may_be_base64_or_hex_are_refused() -> None:
    for text in ("00ff", "deadbeef"):
        only_bad("BYTES", text, "may be base64 or hex; say with source.bytes")
    only_bad("BYTES", "00ff61", "its length is not a multiple of 4; say with source.bytes")
    assert decoded("BYTES", "AP9hYg==", "", None).rows["v"].to_pylist() == [b"\x00\xffab", b"", None]


def test_bytes_are_read_as_the_job_says() -> None:
    for node in (None, {"type": "string"}):
        hex_form = {"bytes_form": BytesForm.HEX, "node": node}
        assert decoded("BYTES", "00ff6162", "00FF61", "", None, **hex_form).rows["v"].to_pylist() == [
            b"\x00\xffab",
            b"\x00\xffa",
            b"",
            None,
        ]
        only_bad("BYTES", "0", "its length is odd", **hex_form)
        only_bad("BYTES", "0g", "not hexadecimal", **hex_form)
        base64_form = {"bytes_form": BytesForm.BASE64, "node": node}
        assert decoded("BYTES", "00ff", **base64_form).rows["v"].to_pylist() == [b"\xd3G\xdf"]
        url = {"bytes_form": BytesForm.BASE64_URL, "node": node}
        assert decoded("BYTES", "-_8=", "-_8", "", None, "AAEC", **url).rows["v"].to_pylist() == [
            b"\xfb\xff",
            b"\xfb\xff",
            b"",
            None,
            b"\x00\x01\x02",
        ]
    declared = {"node": {"type": "bytes"}, "bytes_form": BytesForm.HEX}
    assert decoded("BYTES", "00ff", **declared).rows["v"].to_pylist() == [b"\xd3G\xdf"]


def test_a_negative_number_that_may_be_an_unsigned_one_is_refused() -> None:
    only_bad("DECIMAL(20, 0)", -1, "may be a BIGINT UNSIGNED")
    only_bad("DECIMAL(20, 0)", -1, "may be a BIGINT UNSIGNED", node={"type": "int64"})
    assert decoded("DECIMAL(20, 0)", 5, None).rows["v"].to_pylist() == [Decimal(5), None]
    for more in ({}, {"node": {"type": "int64"}}):
        assert decoded("DECIMAL(20, 0)", -1, **typed("BIGINT"), **more).rows["v"].to_pylist() == [Decimal(-1)]
    assert decoded("BIGINT", -1).rows["v"].to_pylist() == [-1]


def test_an_unsigned_number_is_what_the_source_has() -> None:
    largest = 2**64 - 1
    propagated = {"type": "int64", "parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"}}
    for more in (
        typed("bigint unsigned"),
        {"node": propagated},
        {"node": {"type": "int64"}, **typed("bigint unsigned")},
    ):
        assert decoded("DECIMAL(20, 0)", -1, 7, None, **more).rows["v"].to_pylist() == [
            Decimal(largest),
            Decimal(7),
            None,
        ]
        assert decoded("STRING", -1, 7, **more).rows["v"].to_pylist() == [str(largest), "7"]
        assert decoded("BIGINT", 7, **more).rows["v"].to_pylist() == [7]
        only_bad("BIGINT", -1, "stands for a BIGINT UNSIGNED that is too large", **more)


@pytest.mark.parametrize("count", [9223372036825200000, -9223372036832400000])
def test_infinity_is_no_timestamp(count: int) -> None:
    node = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    for kind in ("TIMESTAMP(3)", "TIMESTAMP(6)"):
        only_bad(kind, count, "is Postgres's infinity, which a timestamp cannot hold; set infinity to null", node=node)
        only_bad(
            kind,
            count,
            "is Postgres's infinity, which a timestamp cannot hold; set infinity to null",
            **typed("epoch-micros"),
        )


@pytest.mark.parametrize("count", [253402300800000000, -62135596800000001, -9223372036853775810])
def test_a_moment_that_no_calendar_of_ours_has_is_bad(count: int) -> None:
    node = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    only_bad("TIMESTAMP(6)", count, "", node=node)
    assert decoded("TIMESTAMP(6)", 253402300799999999, -62135596800000000, node=node).rows.num_rows == 2


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("DECIMAL(12, 2)", SourceType(SourceKind.DECIMAL, 12, 2)),
        ("decimal(5)", SourceType(SourceKind.DECIMAL, 5, 0)),
        ("Bigint  Unsigned", SourceType(SourceKind.UNSIGNED)),
        ("epoch-micros", SourceType(SourceKind.EPOCH_MICROS)),
    ],
)
def test_types_are_read_in_any_case(text: str, known: SourceType) -> None:
    assert message_options({"types.v": text}).types == (("v", known),)


@pytest.mark.parametrize("text", ["DECIMAL", "DECIMAL(39, 2)", "DECIMAL(2, 3)", "epoch", "INT", ""])
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"types\.v"):
        message_options({"types.v": text})


def test_what_messages_do_not_need_is_refused() -> None:
    schema = plan_schema("id BIGINT NOT NULL", ("id",), (), {"bucket": "1"}, None, time_ms=0)
    for messages, key in (
        (MessageOptions(bytes_form=BytesForm.HEX), "source.bytes"),
        (MessageOptions(**typed("BIGINT")), "types"),
    ):
        for decode in (RecordFormat.CANAL_JSON, RecordFormat.MAXWELL_JSON, RecordFormat.NONE):
            with pytest.raises(OptionError, match=f"{key} needs JSON"):
                decode_step(decode, schema, BadRecords(None, 0), messages)


def test_a_type_of_a_column_that_the_table_lacks_is_refused_unless_it_may_get_it(tmp_path: Path) -> None:
    text = f"""
table: {tmp_path}/shop.db/t
source: {{format: text, options: {{path: {tmp_path}}}, decode: debezium-json, bytes: hex}}
checkpoint: {tmp_path}/c
create: {{schema: "id BIGINT NOT NULL, amount DECIMAL(12,2)", primary-key: [id], options: {{bucket: "1"}}}}
types: {{amuont: "DECIMAL(12, 2)"}}
"""
    with pytest.raises(OptionError, match=r"'types' contains a column 'amuont'.*amount"):
        check_job(resolve_job(read_settings(text, name="job.yaml")))
    job = resolve_job(read_settings(text + "options: {schema-evolution: evolve}\n", name="job.yaml"))
    check_job(job)
    assert job.messages.bytes_form is BytesForm.HEX


BITS = {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}}


def test_bits_become_the_number_that_they_write() -> None:
    texts = ("AQI=", "BQ==", None, "//////////8=")
    assert decoded("DECIMAL(20, 0)", *texts, node=BITS).rows["v"].to_pylist() == [513, 5, None, 2**64 - 1]
    assert decoded("BIGINT", *texts[:3], node=BITS).rows["v"].to_pylist() == [513, 5, None]
    assert decoded("BIGINT", *texts[:3], **typed("BITS")).rows["v"].to_pylist() == [513, 5, None]
    assert decoded("BYTES", *texts[:3], node=BITS).rows["v"].to_pylist() == [b"\x01\x02", b"\x05", None]
    only_bad("BIGINT", texts[3], "", node=BITS)
    only_bad("DECIMAL(20, 0)", "AAAAAAAAAAAA", "has more than 64 bits", node=BITS)


def test_a_decimal_with_its_scale_is_read_without_a_schema_and_beside_nulls() -> None:
    value = {"scale": 5, "value": "AJdAGQ=="}
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    for node in (None, variable):
        assert decoded("DECIMAL(38, 10)", value, None, node=node).rows["v"].to_pylist() == [Decimal("99.12345"), None]
        # A value that is wrong elsewhere takes the block through the exact way.
        found = decoded("DECIMAL(38, 10)", None, value, None, [1], node=node)
        assert found.rows["v"].to_pylist() == [None, Decimal("99.12345"), None] and found.bad.to_pylist() == [3]


def test_a_day_in_utc_is_a_date() -> None:
    node = {"type": "string", "name": "io.debezium.time.IsoDate"}
    for more in ({}, {"node": node}):
        assert [str(day) for day in decoded("DATE", "2024-02-29Z", "2024-03-01", **more).rows["v"].to_pylist()] == [
            "2024-02-29",
            "2024-03-01",
        ]


@pytest.mark.parametrize("count", [-1, 86_400_000_000, 3_020_399_000_000])
def test_a_time_that_is_no_time_of_day_is_bad_and_its_count_can_be_kept(count: int) -> None:
    node = {"type": "int64", "name": "io.debezium.time.MicroTime"}
    only_bad("TIME(3)", count, "is not a time of day: it is negative, or 24 hours or more", node=node)
    assert decoded("BIGINT", count, None, node=node).rows["v"].to_pylist() == [count, None]


@pytest.mark.parametrize("value", [12345678901234567890, -1.2345678901234567e19, "12345678901234567890.5", 1e37])
def test_a_number_of_too_many_digits_before_its_point_is_bad_and_never_another_number(value: object) -> None:
    only_bad("DECIMAL(38, 21)", value, "cannot become DECIMAL(38, 21)")
    assert decoded("DECIMAL(38, 21)", "-12345678901234567.5").rows["v"].to_pylist() == [Decimal("-12345678901234567.5")]


def test_bytes_of_a_number_of_too_many_digits_are_bad_too() -> None:
    base64 = b64encode((123456789012345678905).to_bytes(12, "big")).decode()
    node = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}}
    only_bad("DECIMAL(38, 21)", base64, "cannot become DECIMAL(38, 21)", node=node)
    only_bad("DECIMAL(38, 21)", {"scale": 1, "value": base64}, "cannot become DECIMAL(38, 21)")
    assert decoded("DECIMAL(38, 18)", base64, node=node).rows["v"].to_pylist() == [Decimal("12345678901234567890.5")]


def test_what_a_job_says_of_an_array_counts_for_its_elements() -> None:
    array = "ARRAY<DECIMAL(8, 2)>", ["fQ==", None]
    assert decoded_array(*array, **typed("DECIMAL(8, 2)")) == [[Decimal("1.25"), None]]
    moments = decoded_array("ARRAY<TIMESTAMP(6)>", [1709201472123], **typed("epoch-millis"))
    assert [[m.isoformat() for m in moments[0]]] == [["2024-02-29T10:11:12.123000"]]


def test_a_bit_in_a_column_of_whole_numbers_is_one_or_zero() -> None:
    for more in ({}, typed("BITS")):
        assert decoded("INT", True, None, False, **more).rows["v"].to_pylist() == [1, None, 0]
    plain = pa.array([b'{"id": 1, "v": true}'], pa.binary())
    assert decode_json(plain, fields("INT")).bad.to_pylist() == [0]


def test_a_text_of_an_object_is_read_into_a_map_as_the_object_is() -> None:
    texts = ['{"a":"1","b":null}', None, "{}", {"a": "2"}]
    assert decoded_array("MAP<STRING, STRING>", *texts) == [[("a", "1"), ("b", None)], None, [], [("a", "2")]]
    for wrong in ("", "a=>1", '{"a"', "[1]"):
        assert decoded_any("MAP<STRING, STRING>", wrong).bad.to_pylist() == [0]


def decoded_any(kind: str, *values: object, **messages: Any) -> Decoded:
    """As `decoded`, for a column of any type."""
    schema = plan_schema(f"id INT NOT NULL, v {kind}", ("id",), (), {"bucket": "1"}, None, time_ms=0)
    data = pa.array([json.dumps({"after": {"id": 1, "v": v}, "op": "c"}).encode() for v in values], pa.binary())
    return decode_debezium(data, tuple(schema.fields), primary_key=("id",), messages=MessageOptions(**messages))


def decoded_array(kind: str, *values: object, **messages: Any) -> list[Any]:
    found = decoded_any(kind, *values, **messages)
    assert found.reasons.to_pylist() == []
    return found.rows["v"].to_pylist()  # type: ignore[no-any-return]
