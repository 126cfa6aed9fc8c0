"""`type-mapping`: new columns differ from the source's as the job asks for, in each format that tells types."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.sources.message_options import MessageOptions, TypeMapping, message_options
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.declared.declared_rows import declared_rows
from bucketline.streaming.decode.declared.declared_table import declared_table
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.json_values.json_declared import declared_type
from bucketline.streaming.decode.mysql_types import column_type
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.step_for_table import decode_step

ID = DataField(0, "id", parse_type("INT NOT NULL"))


def mapped(*names: str) -> MessageOptions:
    return MessageOptions(type_mapping=frozenset(map(TypeMapping, names)))


def column(kind: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "parameters": {f"__debezium.source.column.{name}": text for name, text in parameters.items()}}


def test_the_option_is_a_list_of_paimons_names() -> None:
    text = "table: t\nsource: {format: text}\ncheckpoint: c\ntype-mapping: [tinyint1-not-bool, to-nullable]\n"
    job = resolve_job(read_settings(text, name="job.yaml"))
    assert job.messages.type_mapping == {TypeMapping.TINYINT1_NOT_BOOL, TypeMapping.TO_NULLABLE}
    with pytest.raises(OptionError, match="type-mapping"):
        message_options({"type-mapping": "tinyint1"})


@pytest.mark.parametrize(
    ("name", "node", "before", "after"),
    [
        ("tinyint1-not-bool", column("int16", type="TINYINT", length="1"), pa.int16(), pa.int8()),
        ("tinyint1-not-bool", column("boolean", type="TINYINT", length="1"), pa.bool_(), pa.int8()),
        ("tinyint1-not-bool", column("int16", type="TINYINT", length="4"), pa.int16(), pa.int16()),
        ("to-string", {"type": "int32"}, pa.int32(), pa.string()),
        ("to-string", {"type": "array", "items": {"type": "int32"}}, pa.list_(pa.int32()), pa.string()),
        ("char-to-string", column("string", type="CHAR", length="3"), pa.string(), pa.string()),
        ("longtext-to-bytes", column("string", type="LONGTEXT"), pa.string(), pa.binary()),
        ("longtext-to-bytes", column("string", type="TEXT"), pa.string(), pa.string()),
        ("bigint-unsigned-to-bigint", column("int64", type="BIGINT UNSIGNED"), pa.decimal128(20, 0), pa.int64()),
        ("bigint-unsigned-to-bigint", column("int64", type="BIGINT"), pa.int64(), pa.int64()),
    ],
)
def test_types_of_debeziums_schemas(name: str, node: dict[str, Any], before: Any, after: Any) -> None:
    assert declared_type(node) == before
    assert declared_type(node, mapped(name).type_mapping) == after


@pytest.mark.parametrize(
    ("name", "declared", "before", "after"),
    [
        ("tinyint1-not-bool", "tinyint(1)", pa.bool_(), pa.int8()),
        ("tinyint1-not-bool", "bit(1)", pa.bool_(), pa.bool_()),
        ("to-string", "decimal(10,2)", pa.decimal128(10, 2), pa.string()),
        ("to-string", "set('a','b')", pa.list_(pa.string()), pa.string()),
        ("char-to-string", "char(3)", pa.string(), pa.string()),
        ("longtext-to-bytes", "longtext", pa.string(), pa.binary()),
        ("longtext-to-bytes", "text", pa.string(), pa.string()),
        ("bigint-unsigned-to-bigint", "bigint(20) unsigned zerofill", pa.decimal128(20, 0), pa.int64()),
        ("bigint-unsigned-to-bigint", "serial", pa.decimal128(20, 0), pa.int64()),
        ("bigint-unsigned-to-bigint", "int unsigned", pa.int64(), pa.int64()),
    ],
)
def test_types_of_mysql(name: str, declared: str, before: Any, after: Any) -> None:
    assert column_type(declared) == before
    assert column_type(declared, mapped(name).type_mapping) == after


def step(decode: RecordFormat, messages: MessageOptions, *more: DataField) -> DecodeStep:
    return DecodeStep(decode, (ID, *more), ("id",), reject_limit=9, watch=WatchFor.ALL, messages=messages)


def read(own: DecodeStep, *records: dict[str, Any]) -> DecodedRows:
    values = pa.array([json.dumps(record).encode() for record in records], pa.binary())
    return own(pa.table({"key": pa.nulls(len(records), pa.binary()), "value": values}))


def enveloped(row: dict[str, Any], **nodes: dict[str, Any]) -> dict[str, Any]:
    fields = [{"field": "id", "type": "int32"}, *({**node, "field": name} for name, node in nodes.items())]
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
    return {"schema": schema, "payload": {"before": None, "after": {"id": 1, **row}, "op": "c"}}


def canal(row: dict[str, Any], **types: str) -> dict[str, Any]:
    return {"type": "INSERT", "isDdl": False, "data": [{"id": "1", **row}], "mysqlType": {"id": "int", **types}}


def maxwell(row: dict[str, Any]) -> dict[str, Any]:
    return {"type": "insert", "database": "d", "table": "t", "data": {"id": 1, **row}}


def test_new_columns_are_mapped_in_each_format() -> None:
    unsigned = mapped("bigint-unsigned-to-bigint")
    texts = mapped("to-string")
    events = enveloped({"v": 5}, v=column("int64", type="BIGINT UNSIGNED"))
    bare = {"op": "c", "after": {"id": 1, "v": 2**64 - 1}}
    for decode, record in (
        (RecordFormat.DEBEZIUM_JSON, events),
        (RecordFormat.DEBEZIUM_JSON, bare),
        (RecordFormat.CANAL_JSON, canal({"v": "5"}, v="bigint unsigned")),
        (RecordFormat.MAXWELL_JSON, maxwell({"v": 2**64 - 1})),
    ):
        assert read(step(decode, unsigned), record).need.type == pa.struct([("v", pa.int64())])
        assert read(step(decode, texts), record).need.type == pa.struct([("v", pa.string())])


def test_wider_numbers_of_known_columns_stay_what_they_are() -> None:
    known = DataField(1, "n", parse_type("INT"))
    need = read(
        step(RecordFormat.DEBEZIUM_JSON, mapped("to-string"), known), {"op": "c", "after": {"id": 1, "n": 2**40}}
    )
    assert need.need.type == pa.struct([("n", pa.int64())])


def test_a_longtext_in_bytes_is_its_text_in_utf8() -> None:
    raw, other = DataField(1, "raw", parse_type("BYTES")), DataField(2, "other", parse_type("BYTES"))
    messages = mapped("longtext-to-bytes")
    record = enveloped({"raw": "ré00", "other": "AQI="}, raw=column("string", type="LONGTEXT"), other={"type": "bytes"})
    rows = read(step(RecordFormat.DEBEZIUM_JSON, messages, raw, other), record).rows
    assert rows["raw"].to_pylist() == ["ré00".encode()] and rows["other"].to_pylist() == [b"\x01\x02"]
    given = canal({"raw": "ré€", "other": "é"}, raw="longtext", other="blob")
    rows = read(step(RecordFormat.CANAL_JSON, messages, raw, other), given, canal({"raw": None, "other": None})).rows
    assert rows["raw"].to_pylist() == ["ré€".encode(), None] and rows["other"].to_pylist() == [b"\xe9", None]


def test_a_tinyint_that_debezium_has_made_a_boolean_is_a_number_again() -> None:
    flag = DataField(1, "flag", parse_type("TINYINT"))
    node = column("boolean", type="TINYINT", length="1")
    rows = read(
        step(RecordFormat.DEBEZIUM_JSON, mapped("tinyint1-not-bool"), flag), enveloped({"flag": True}, flag=node)
    )
    assert rows.rows["flag"].to_pylist() == [1]


def test_formats_that_do_not_tell_types_refuse_it() -> None:
    schema = plan_schema("id BIGINT NOT NULL", ("id",), (), {"bucket": "1"}, None, time_ms=0)
    for decode in (RecordFormat.JSON, RecordFormat.NONE):
        with pytest.raises(OptionError, match="type-mapping needs messages with types of a database"):
            decode_step(decode, schema, BadRecords(None, 0), mapped("to-string"))
    with pytest.raises(OptionError, match="longtext-to-bytes needs messages that name the type"):
        decode_step(RecordFormat.MAXWELL_JSON, schema, BadRecords(None, 0), mapped("longtext-to-bytes"))


def test_new_tables_are_mapped_too() -> None:
    event = enveloped({"v": 5}, v={**column("int64", type="BIGINT UNSIGNED"), "optional": False})
    for decode, record, nullable in (
        (RecordFormat.DEBEZIUM_JSON, event, True),
        (RecordFormat.CANAL_JSON, {**canal({"v": "5"}, v="bigint unsigned"), "pkNames": ["id"]}, True),
    ):
        values, keys = (pa.array([json.dumps(r).encode()], pa.binary()) for r in (record, {"id": 1}))
        for name, kind in (("bigint-unsigned-to-bigint", pa.int64()), ("to-string", pa.string())):
            table = declared_table(declared_rows(values, keys, decode, mapped(name, "to-nullable")), decode)
            assert table is not None and table.primary_key == ("id",)
            assert table.columns.field("v") == pa.field("v", kind, nullable)
            assert not table.columns.field("id").nullable
