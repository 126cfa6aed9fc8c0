"""Records in Avro become rows: messages of Confluent's serializers, several schemas in a batch, damage, Debezium."""

import json
import pickle
import struct
import uuid
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, Truncate
from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.unavailable import MARKS, Keeping, LeftOut
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry

Json = dict[str, Any]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FIELDS: list[Json] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": ["null", "string"], "default": None},
    {"name": "amount", "type": ["null", DECIMAL], "default": None},
]
NOTE: Json = {"name": "note", "type": ["null", "string"], "default": None}


def record(name: str, fields: list[Json]) -> Json:
    return {"type": "record", "name": name, "fields": fields}


def columns(**types: Any) -> tuple[DataField, ...]:
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


ORDERS = columns(id="BIGINT NOT NULL", customer="STRING", amount="DECIMAL(12, 2)")


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What steps keep of schemas goes with the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as server:
        yield server


class Producer:
    """Writes messages as Confluent's serializers do."""

    def __init__(self, registry: SchemaRegistry, field: MessageField = MessageField.VALUE, **more: Any) -> None:
        self._url, self._field, self._more = registry.url, field, more

    def write(self, schema: Json, value: object, headers: Any = None) -> bytes:
        # Each message has a client of its own: the client of confluent-kafka 2.12 takes a subject's name for a GUID
        # when it meets a schema again.
        client = SchemaRegistryClient({"url": self._url})
        serializer = AvroSerializer(client, str(schema).replace("'", '"').replace("None", "null"), **self._more)
        written = serializer(value, SerializationContext("orders", self._field, headers))
        assert isinstance(written, bytes)
        return written


def kafka(*values: bytes | None, keys: list[bytes | None] | None = None, headers: Any = None) -> pa.Table:
    count = len(values)
    found = {
        "key": pa.array(keys or [None] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
    }
    if headers is not None:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        found["headers"] = pa.array([[{"key": k, "value": v} for k, v in one] for one in headers], kind)
    return pa.table(found)


def step(registry: SchemaRegistry, decode: RecordFormat = RecordFormat.AVRO, **more: Any) -> DecodeStep:
    schemas = RegistrySchemas(RegistryOptions(registry.url, retries=0, wait_ms=0), str(uuid.uuid4()))
    made = DecodeStep(decode, more.pop("fields", ORDERS), reject_limit=1000, registry=schemas, **more)
    return pickle.loads(pickle.dumps(made))


def reasons(decoded: DecodedRows) -> dict[int, str]:
    if decoded.rejects is None:
        return {}
    found = pa.ipc.open_stream(decoded.rejects.blob).read_all()
    return dict(zip(found["offset"].to_pylist(), found["reason"].to_pylist(), strict=True))


def order(key: int, **more: object) -> Json:
    return {"id": key, "customer": "ann", "amount": Decimal("9.90"), **more}


@pytest.mark.parametrize("copies", [1, 50])
def test_messages_of_two_schemas_a_damaged_one_and_an_unknown_id(registry: SchemaRegistry, copies: int) -> None:
    producer = Producer(registry)
    old, new = record("Order", FIELDS), record("Order", [*FIELDS, NOTE])
    good = [producer.write(old, order(1)), producer.write(new, order(2, note="x")), producer.write(old, order(3))]
    values = [*good[:2], good[0][:-2], b"\x00\x00\x00\x03\xe7\x02", b"{}", None, good[2]]

    decoded = step(registry)(kafka(*values * copies))

    assert decoded.rows.to_pylist() == [order(1), order(2), order(3)] * copies
    why = reasons(decoded)
    assert {at % 7: why[at] for at in why} == {at: why[at] for at in (2, 3, 4)}
    assert len(why) == 3 * copies
    assert why[2] == "field amount: the record ends too early"
    assert why[3] == "the schema registry has no schema with id 999"
    assert "not in the frame of a schema registry" in why[4]


def test_ids_in_headers_are_read(registry: SchemaRegistry) -> None:
    producer = Producer(registry, conf={"schema.id.serializer": header_schema_id_serializer})
    headers: list[tuple[str, bytes]] = []
    body = producer.write(record("Order", FIELDS), order(1), headers)
    plain = Producer(registry).write(record("Order", FIELDS), order(2))
    assert not body.startswith(b"\x00\x00\x00\x00")
    assert [name for name, _ in headers] == ["__value_schema_id"]

    decoded = step(registry)(kafka(body, plain, headers=[[("other", b"x"), *headers], []]))

    assert decoded.rows.to_pylist() == [order(1), order(2)]
    assert not reasons(decoded)


def test_new_fields_are_what_the_schema_declares(registry: SchemaRegistry) -> None:
    value = Producer(registry).write(record("Order", [*FIELDS, NOTE]), order(1, note=None))
    watching = step(registry, watch=WatchFor.ALL)
    assert watching(kafka(value)).need.type == pa.struct([("note", pa.string())])
    assert step(registry)(kafka(value)).need.type == pa.null()


def test_a_number_that_is_too_large_for_its_column_says_which_type_it_needs(registry: SchemaRegistry) -> None:
    value = Producer(registry).write(record("Order", FIELDS), order(2**40))
    decoded = step(registry, fields=columns(id="INT"), watch=WatchFor.WIDER)(kafka(value))
    assert decoded.need.type == pa.struct([("id", pa.int64())])
    assert "cannot become INT" in reasons(decoded)[0]


def test_a_tombstone_is_bad_where_it_would_delete_a_row(registry: SchemaRegistry) -> None:
    assert "deletes the row with that key" in reasons(step(registry, primary_key=("id",))(kafka(None, keys=[b"k"])))[0]


def test_a_registry_that_does_not_answer_is_no_records_fault(registry: SchemaRegistry) -> None:
    value = Producer(registry).write(record("Order", FIELDS), order(1))
    registry.status = 500
    with pytest.raises(RegistryDownError, match="answers 500"):
        step(registry)(kafka(value))


SOURCE = record("Source", [{"name": name, "type": "string"} for name in ("db", "schema", "table")])
VALUE = record("Value", FIELDS)
ENVELOPE = record(
    "Envelope",
    [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
)
LSN: Json = {"name": "lsn", "type": ["null", "long"], "default": None}
KEY = record("Key", [{"name": "id", "type": "long"}])


def event(op: str, before: Json | None, after: Json | None, table: str = "orders") -> Json:
    source = {"db": "shop", "schema": "public", "table": table}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}


def debezium(registry: SchemaRegistry, **more: Any) -> DecodeStep:
    return step(registry, RecordFormat.DEBEZIUM_AVRO, primary_key=("id",), **more)


def rows(decoded: DecodedRows) -> list[tuple[int, int, object]]:
    return [(row["_row_kind"], row["id"], row["customer"]) for row in decoded.rows.to_pylist()]


@pytest.mark.parametrize("copies", [1, 30])
def test_debeziums_events_become_changes_of_rows(registry: SchemaRegistry, copies: int) -> None:
    write = Producer(registry).write
    values = [
        write(ENVELOPE, event("c", None, order(1))),
        write(ENVELOPE, event("u", order(1), order(1, customer="bob"))),
        write(ENVELOPE, event("u", order(1), order(7))),
        write(ENVELOPE, event("d", order(7), None)),
        write(ENVELOPE, event("r", None, order(9))),
    ]
    decoded = debezium(registry)(kafka(*values * copies))
    assert not reasons(decoded)
    expected = [(0, 1, "ann"), (2, 1, "bob"), (3, 1, "ann"), (2, 7, "ann"), (3, 7, "ann"), (0, 9, "ann")]
    assert rows(decoded) == expected * copies


def test_a_delete_without_the_row_before_it_takes_the_key_of_the_record(registry: SchemaRegistry) -> None:
    key = Producer(registry, MessageField.KEY).write(KEY, {"id": 5})
    value = Producer(registry).write(ENVELOPE, event("d", None, None))
    decoded = debezium(registry)(kafka(value, None, keys=[key, key]))
    assert rows(decoded) == [(3, 5, None)]
    assert not reasons(decoded)


def test_an_update_whose_key_is_narrower_than_the_tables_is_bad(registry: SchemaRegistry) -> None:
    key = Producer(registry, MessageField.KEY).write(KEY, {"id": 5})
    value = Producer(registry).write(ENVELOPE, event("u", None, order(5)))
    wider = step(registry, RecordFormat.DEBEZIUM_AVRO, primary_key=("id", "customer"))
    assert "REPLICA IDENTITY FULL" in reasons(wider(kafka(value, keys=[key])))[0]


def test_heartbeats_are_skipped_and_other_records_are_bad(registry: SchemaRegistry) -> None:
    write = Producer(registry).write
    heartbeat = write(record("Heartbeat", [{"name": "ts_ms", "type": "long"}]), {"ts_ms": 1})
    decoded = debezium(registry)(kafka(heartbeat, write(VALUE, order(1))))
    assert {kind.value: count for kind, count in decoded.seen.skipped.items()} == {"heartbeat": 1}
    assert "not a Debezium event" in reasons(decoded)[1]


def test_records_of_other_tables_are_left_out(registry: SchemaRegistry) -> None:
    write = Producer(registry).write
    values = [write(ENVELOPE, event("c", None, order(1), table)) for table in ("orders", "items")]
    chosen = debezium(registry, messages=MessageOptions(source_table="public.orders"))
    decoded = chosen(kafka(*values))
    assert rows(decoded) == [(0, 1, "ann")]
    assert not reasons(decoded)


@pytest.mark.parametrize("copies", [1, 30])
def test_columns_about_the_source_are_filled_from_avro_too(registry: SchemaRegistry, copies: int) -> None:
    source = record("Place", [{"name": "db", "type": "string"}, {"name": "table", "type": "string"}, LSN])
    fields = [{**f, "type": source} if f["name"] == "source" else f for f in ENVELOPE["fields"]]
    sent = event("c", None, order(1)) | {"source": {"db": "shop", "table": "orders", "lsn": 7}}
    value = Producer(registry).write(record("Envelope", fields), sent)
    more = columns(
        id="BIGINT", _op="STRING", _source_table="STRING", _source_schema="STRING", _source_position="STRING"
    )
    decoded = debezium(registry, fields=more)(kafka(*[value] * copies))
    assert not reasons(decoded)
    assert [tuple(row.values()) for row in decoded.rows.to_pylist()] == [
        (1, "c", "orders", None, "00000000000000000007", 0)
    ] * copies


def test_debeziums_placeholder_is_refused_in_avro_too(registry: SchemaRegistry) -> None:
    value = Producer(registry).write(ENVELOPE, event("u", None, order(1, customer="__debezium_unavailable_value")))
    assert "field customer: __debezium_unavailable_value" in reasons(debezium(registry)(kafka(value)))[0]


def test_values_that_are_left_out_have_the_same_marks_as_in_json(registry: SchemaRegistry) -> None:
    left_out = order(1, customer="__debezium_unavailable_value")
    events = [event("c", None, order(1)), event("u", None, left_out), event("u", order(1), order(7))]
    write = Producer(registry).write
    avro = replace(
        debezium(registry), keeping=Keeping(LeftOut.MARKED, names=tuple(f.name for f in debezium(registry).fields))
    )
    texts = kafka(*[json.dumps(one, default=str).encode() for one in events])
    found = avro(kafka(*[write(ENVELOPE, one) for one in events]))
    as_json = replace(avro, decode=RecordFormat.DEBEZIUM_JSON, registry=None)(texts)
    assert not reasons(found) and not reasons(as_json)
    assert MARKS.name in found.rows.column_names
    names = ["id", "customer", "_row_kind", MARKS.name]
    assert found.rows.select(names).to_pylist() == as_json.rows.select(names).to_pylist()
    assert found.rows[MARKS.name].null_count < found.rows.num_rows


def test_rows_of_debezium_without_an_envelope_are_bad_as_plain_rows(registry: SchemaRegistry) -> None:
    flat = record("Flat", [*FIELDS, {"name": "__deleted", "type": "string"}])
    value = Producer(registry).write(flat, order(1, __deleted="true"))
    assert "use decode: debezium-avro" in reasons(step(registry)(kafka(value)))[0]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x00" + (7).to_bytes(8, "big") + b"\x02", "Apicurio"),
        (b"\x03\x00" + bytes(16) + b"\x02", "AWS Glue"),
        (b"\x03\x05" + bytes(16), "AWS Glue"),
        (b"\x00\x00", "not in the frame of a schema registry"),
        (b"\x00\xff\xff\xff\xff\x02", "not in the frame of a schema registry"),
    ],
)
def test_frames_of_other_serializers_are_refused_by_name(registry: SchemaRegistry, message: bytes, reason: str) -> None:
    assert reason in reasons(step(registry)(kafka(message)))[0]


BIG_DECIMAL = {"type": "bytes", "logicalType": "big-decimal"}
UUID_16 = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 80, "scale": 2}
DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
WIDE_NUMBER = str(int.from_bytes(b"\x7f" * 20, "big"))
WIDE_TEXT = f"{WIDE_NUMBER[:-2]}.{WIDE_NUMBER[-2:]}"
UUID_5 = uuid.UUID(int=5)


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize(
    ("schema", "body", "column", "expected"),
    [
        (UUID_16, UUID_5.bytes, "STRING", str(UUID_5)),
        (UUID_16, UUID_5.bytes, "BINARY(16)", UUID_5.bytes),
        (UUID_16, UUID_5.bytes, "BYTES", UUID_5.bytes),
        ({"type": "array", "items": UUID_16}, b"\x02" + UUID_5.bytes + b"\x00", "STRING", f'["{UUID_5}"]'),
        ({"type": "string", "logicalType": "uuid"}, b"\x02a", "STRING", "a"),
        (BIG_DECIMAL, b"\x08\x04\x04\xd2\x04", "DECIMAL(12, 2)", Decimal("12.34")),
        (BIG_DECIMAL, b"\x08\x04\x04\xd2\x06", "STRING", "1.234"),
        (BIG_DECIMAL, b"\x08\x04\x04\xd2\x06", "DECIMAL(12, 2)", None),
        (BIG_DECIMAL, b"\x04\x08\x01", "STRING", None),
        (WIDE, b"\x28" + b"\x7f" * 20, "STRING", WIDE_TEXT),
        (WIDE, b"\x28" + b"\x7f" * 20, "DECIMAL(38, 2)", None),
        (DURATION, bytes(12), "BYTES", bytes(12)),
        (DURATION, bytes(12), "STRING", None),
    ],
)
def test_logical_types_become_what_they_mean_or_are_bad(
    registry: SchemaRegistry, schema: Json, body: bytes, column: str, expected: object, copies: int
) -> None:
    known = registry.add("orders", record("R", [{"name": "v", "type": ["null", schema]}]))
    messages = [struct.pack(">bI", 0, known) + one for one in (b"\x02" + body, b"\x00")] * copies
    decoded = step(registry, fields=columns(v=column))(kafka(*messages))
    good = [None] if expected is None else [expected, None]
    assert decoded.rows["v"].to_pylist() == good * copies
    assert len(reasons(decoded)) == (copies if expected is None else 0)
    assert all(reason.startswith("field v: ") for reason in reasons(decoded).values())


METADATA = columns(
    id="BIGINT NOT NULL",
    _kafka_key="BYTES",
    _kafka_offset="BIGINT",
    _op="STRING",
    _ts_ms="BIGINT",
    _source_table="STRING",
    _source_position="STRING",
)


@pytest.mark.parametrize("copies", [1, 30])
def test_columns_of_kafka_and_of_the_source_are_filled(registry: SchemaRegistry, copies: int) -> None:
    key = Producer(registry, MessageField.KEY).write(KEY, {"id": 1})
    source = record("Source", [*SOURCE["fields"], {"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": "long"}])
    schema = {**ENVELOPE, "fields": [source_field(one, source) for one in ENVELOPE["fields"]]}
    told = event("c", None, order(1))
    told["source"] |= {"ts_ms": 7, "lsn": 24_023_128}
    value = Producer(registry).write(schema, told)
    decoded = debezium(registry, fields=METADATA)(kafka(*[value] * copies, keys=[key] * copies))
    first = decoded.rows.to_pylist()[0]
    assert (first["_kafka_key"], first["_kafka_offset"], first["_op"], first["_ts_ms"]) == (key, 0, "c", 7)
    assert (first["_source_table"], first["_source_position"]) == ("orders", "00000000000024023128")
    assert decoded.rows.num_rows == copies


def source_field(one: Json, source: Json) -> Json:
    return {**one, "type": source} if one["name"] == "source" else one


def test_a_key_that_is_no_record_does_not_tell_which_row_is_deleted(registry: SchemaRegistry) -> None:
    key = struct.pack(">bI", 0, registry.add("orders-key", '"long"')) + b"\x02"
    value = Producer(registry).write(ENVELOPE, event("d", None, None))
    decoded = debezium(registry)(kafka(value, value, keys=[key, b'"plain text"']))
    assert all("whose record key does not hold the primary key" in reason for reason in reasons(decoded).values())
    assert len(reasons(decoded)) == 2


def test_truncates_are_bad_or_passed_over_as_the_job_says(registry: SchemaRegistry) -> None:
    value = Producer(registry).write(ENVELOPE, event("t", None, None))
    assert "a truncate of the source table" in reasons(debezium(registry)(kafka(value)))[0]
    decoded = debezium(registry, messages=MessageOptions(truncate=Truncate.SKIP))(kafka(value))
    assert not reasons(decoded)
    assert {kind.value: count for kind, count in decoded.seen.skipped.items()} == {"truncate": 1}
