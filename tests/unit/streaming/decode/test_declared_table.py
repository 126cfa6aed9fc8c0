"""Which table records declare: by their schemas, by what the job says of them, and by nothing else."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS, MessageOptions, parse_source_type
from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import columns_text
from bucketline.streaming.decode.avro.avro_schema import parse_avro_schema
from bucketline.streaming.decode.avro.avro_source import source_of
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.declared.declared_rows import declared_columns, declared_rows
from bucketline.streaming.decode.declared.declared_table import DeclaredTable, declared_table
from tests.support.servers.schema_registry import schema_registry

Json = dict[str, Any]


def field(column: str, kind: str, /, *, optional: bool = True, **more: Any) -> Json:
    return {"field": column, "type": kind, "optional": optional, **more}


ID, NAME = field("id", "int64", optional=False), field("name", "string")
AMOUNT = field(
    "amount",
    "bytes",
    name="org.apache.kafka.connect.data.Decimal",
    parameters={"scale": "2", "connect.decimal.precision": "12"},
)
MADE = field("made", "int64", optional=False, name="io.debezium.time.MicroTimestamp")


def enveloped(row: Json, *fields: Json) -> Json:
    schema = {"type": "struct", "optional": True, "fields": list(fields)}
    images = [{**schema, "field": "before"}, {**schema, "field": "after"}]
    return {"schema": {"type": "struct", "fields": images}, "payload": {"before": None, "after": row, "op": "c"}}


def key_of(*fields: Json) -> Json:
    return {"schema": {"type": "struct", "fields": list(fields)}, "payload": {f["field"]: 1 for f in fields}}


def declared(
    decode: RecordFormat, *records: tuple[Json | None, Json | None], given: tuple[str, ...] = (), **types: str
) -> DeclaredTable | None:
    """The table of pairs of key and value."""
    columns = [
        pa.array([None if pair[at] is None else json.dumps(pair[at]).encode() for pair in records], pa.binary())
        for at in (0, 1)
    ]
    own = tuple((name, parse_source_type(text)) for name, text in types.items())
    messages = MessageOptions(types=own) if own else NO_MESSAGE_OPTIONS
    return declared_table(declared_rows(columns[1], columns[0], decode, messages), decode, given)


def shown(table: DeclaredTable | None) -> tuple[str, tuple[str, ...]]:
    assert table is not None
    return columns_text(logical_fields(table.columns)), table.primary_key


def test_an_event_with_a_schema_declares_columns_nullability_and_key() -> None:
    record = enveloped({"id": 1}, ID, NAME, AMOUNT, MADE)
    heartbeat = {"schema": {"type": "struct", "fields": []}, "payload": {"ts_ms": 1}}
    found = declared(RecordFormat.DEBEZIUM_JSON, (None, heartbeat), (key_of(ID), record), (key_of(ID), None))
    columns = "id BIGINT NOT NULL, name STRING, amount DECIMAL(12, 2), made TIMESTAMP(6) NOT NULL"
    assert shown(found) == (columns, ("id",))


def test_rows_without_an_envelope_declare_all_but_what_the_transform_adds() -> None:
    row = {"schema": {"type": "struct", "fields": [ID, NAME, field("__deleted", "string")]}, "payload": {"id": 1}}
    found = declared(RecordFormat.DEBEZIUM_FLAT_JSON, (key_of(ID), row))
    assert shown(found) == ("id BIGINT NOT NULL, name STRING", ("id",))


def test_events_without_a_schema_need_types_for_each_column() -> None:
    record = {"before": None, "after": {"id": 1, "made": 5}, "op": "c"}
    found = declared(RecordFormat.DEBEZIUM_JSON, ({"id": 1}, record), id="BIGINT", made="epoch-millis")
    assert shown(found) == ("id BIGINT NOT NULL, made TIMESTAMP(3)", ("id",))
    with pytest.raises(OptionError, match=r"do not declare the type of made, .* set types\.made, or .*create\.schema"):
        declared(RecordFormat.DEBEZIUM_JSON, ({"id": 1}, record), id="BIGINT")


def test_canal_declares_by_the_types_of_mysql() -> None:
    record = {"type": "INSERT", "mysqlType": {"id": "bigint unsigned", "e": "enum('a')"}, "pkNames": ["id"], "data": []}
    ddl = {"type": "ALTER", "isDdl": True, "mysqlType": None}
    found = declared(RecordFormat.CANAL_JSON, (None, ddl), (None, record))
    assert shown(found) == ("id DECIMAL(20, 0) NOT NULL, e STRING", ("id",))


def test_records_with_several_schemas_declare_columns_that_hold_both() -> None:
    older = enveloped({"id": 1}, field("id", "int32", optional=False), field("name", "string", optional=False))
    newer = enveloped({"id": 2}, ID, MADE)
    found = declared(RecordFormat.DEBEZIUM_JSON, (key_of(ID), older), (key_of(ID), newer))
    assert shown(found) == ("id BIGINT NOT NULL, name STRING, made TIMESTAMP(6)", ("id",))


def test_a_column_that_is_declared_in_two_ways_is_refused() -> None:
    other = enveloped({"id": 2}, ID, field("name", "int32"))
    with pytest.raises(OptionError, match="declare column 'name' as string and as int32; write all columns"):
        declared(RecordFormat.DEBEZIUM_JSON, (key_of(ID), enveloped({"id": 1}, ID, NAME)), (key_of(ID), other))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ((None,), "do not declare a primary key, which decode: debezium-json needs"),
        ((key_of(ID), key_of(ID, NAME)), r"several primary keys: \(id\), \(id, name\)"),
        ((key_of(field("other", "int32")),), "the fields other of the records' keys are not columns of the rows"),
    ],
)
def test_a_key_that_is_not_declared_has_to_be_named(keys: tuple[Json | None, ...], why: str) -> None:
    records = [(key, enveloped({"id": 1}, ID, NAME)) for key in keys]
    with pytest.raises(OptionError, match=f"{why}; write the primary key in create.primary-key"):
        declared(RecordFormat.DEBEZIUM_JSON, *records)
    assert shown(declared(RecordFormat.DEBEZIUM_JSON, *records, given=("name",)))[1] == ("name",)


def test_records_without_a_row_declare_nothing() -> None:
    assert declared(RecordFormat.DEBEZIUM_JSON, (key_of(ID), None), (None, {"payload": {"ts_ms": 1}})) is None
    with pytest.raises(OptionError, match="do not declare the type of a"):
        declared(RecordFormat.JSON, ({"id": 1}, {"a": 1}))


CONNECTS_DECIMAL = {
    "type": "bytes",
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "connect.parameters": {"scale": "2"},
}
AVRO_FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "either", "type": ["string", "long"]},
    {"name": "raw", "type": ["bytes", {"type": "fixed", "name": "F", "size": 2}]},
    {"name": "money", "type": {**CONNECTS_DECIMAL, "logicalType": "decimal", "scale": 2, "precision": 64}},
]
ROW = {"type": "record", "name": "Row", "fields": AVRO_FIELDS}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": AVRO_FIELDS[:1]}
HEARTBEAT = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
AVRO_COLUMNS = (
    "id BIGINT NOT NULL, day DATE, paid DECIMAL(9, 2) NOT NULL, tags ARRAY<STRING> NOT NULL, either STRING NOT NULL, "
    "raw BYTES NOT NULL, money DECIMAL(38, 2) NOT NULL"
)


@pytest.mark.parametrize(
    ("decode", "schema", "key", "primary_key"),
    [
        (RecordFormat.AVRO, ROW, None, ()),
        (RecordFormat.AVRO, ROW, KEY, ("id",)),
        (RecordFormat.AVRO, ROW, "string", ()),
        (RecordFormat.DEBEZIUM_AVRO, EVENT, KEY, ("id",)),
    ],
)
def test_the_registry_declares_the_table_of_records_in_avro(
    decode: RecordFormat, schema: Json, key: Json | str | None, primary_key: tuple[str, ...]
) -> None:
    with schema_registry() as registry:
        frames = [b"\0" + registry.add(name, of).to_bytes(4, "big") for name, of in (("v", schema), ("h", HEARTBEAT))]
        key_frame = None if key is None else b"\0" + registry.add("k", json.dumps(key)).to_bytes(4, "big")
        schemas = RegistrySchemas(RegistryOptions(registry.url), "a job")
        is_event = decode is RecordFormat.DEBEZIUM_AVRO
        values = pa.array([frames[0], frames[1] if is_event else None, b"\0\0\0\0\x63"], pa.binary())
        keys = pa.array([key_frame] * 3, pa.binary())
        rows = declared_rows(values, keys, decode, NO_MESSAGE_OPTIONS, schemas)
        found = declared_table(rows, decode)
        schemas.forget()
    assert shown(found) == (AVRO_COLUMNS, primary_key)


def test_a_record_without_fields_declares_no_type_and_stops_no_other_column() -> None:
    empty = {"type": "record", "name": "Empty", "fields": []}
    row = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "none", "type": empty}]}
    found = declared_columns(source_of(parse_avro_schema(row)))
    assert [(f.name, f.type, f.nullable) for f in found] == [("id", pa.int32(), False), ("none", pa.null(), True)]
