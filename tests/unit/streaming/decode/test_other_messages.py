"""Messages that hold no row are skipped and counted by kind; messages of other programs are refused by name."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, Truncate, message_options
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.binlog_messages import CANAL, MAXWELL, decode_binlog
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.other_messages import Skipped
from bucketline.streaming.decode.records import decode_debezium, decode_json
from bucketline.streaming.decode.seen import Seen, decode_seen, joined_seen
from bucketline.streaming.decode.step_for_table import decode_step

FIELDS = (DataField(0, "id", parse_type("BIGINT NOT NULL")), DataField(1, "name", parse_type("STRING")))
SOURCE = {"version": "3.5.0.Final", "connector": "mysql", "name": "s", "db": "shop", "table": "orders", "file": "b.1"}
EVENT = {"before": None, "after": {"id": 1, "name": "ann"}, "source": SOURCE, "op": "c", "ts_ms": 5}
HEARTBEAT = {"ts_ms": 1795452731147}
BEGIN = {"status": "BEGIN", "id": "757:1", "event_count": None, "data_collections": None, "ts_ms": 1}
END = {"status": "END", "id": "757:1", "event_count": 1, "data_collections": [{"data_collection": "a.b"}], "ts_ms": 1}
SCHEMA_CHANGE = {
    "source": {**SOURCE, "table": "orders"},
    "ts_ms": 1,
    "databaseName": "shop",
    "schemaName": None,
    "ddl": "ALTER TABLE orders ADD x INT",
    "tableChanges": [{"type": "ALTER", "id": '"shop"."orders"', "table": {"columns": []}}],
}
NOTIFICATION = {"id": "1", "aggregate_type": "Initial Snapshot", "type": "STARTED", "additional_data": {}}
MESSAGE = {"op": "m", "ts_ms": 1, "source": SOURCE, "message": {"prefix": "foo", "content": "YmFy"}}
OTHERS = (HEARTBEAT, BEGIN, END, SCHEMA_CHANGE, NOTIFICATION, MESSAGE)
COUNTS = {
    Skipped.HEARTBEAT: 1,
    Skipped.TRANSACTION: 2,
    Skipped.SCHEMA_CHANGE: 1,
    Skipped.NOTIFICATION: 1,
    Skipped.MESSAGE: 1,
    Skipped.TOMBSTONE: 2,
}


def decoded(*records: object) -> Decoded:
    values = pa.array([r if r is None else json.dumps(r).encode() for r in records], pa.binary())
    return decode_debezium(values, FIELDS, primary_key=("id",))


def with_schema(payload: object, name: str) -> dict[str, Any]:
    return {"schema": {"type": "struct", "name": name, "fields": []}, "payload": payload}


def test_messages_that_are_no_events_are_skipped_and_counted_by_kind() -> None:
    found = decoded(None, EVENT, *OTHERS, EVENT, None)

    assert found.rows["id"].to_pylist() == [1, 1]
    assert found.origin.to_pylist() == [1, 8]
    assert found.bad.to_pylist() == []
    assert found.seen.skipped == COUNTS


def test_messages_with_a_schema_are_skipped_too() -> None:
    wrapped = [with_schema(payload, f"kind {number}") for number, payload in enumerate(OTHERS)]
    unusual = [dict(reversed(list(record.items()))) for record in wrapped]
    for records in (wrapped, unusual):
        found = decoded(None, *records, with_schema(None, "tombstone"))
        assert (found.rows.num_rows, found.bad.to_pylist()) == (0, [])
        assert found.seen.skipped == COUNTS


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {}}, "a CloudEvents message"),
        ({"table": "T", "op_type": "I", "op_ts": "", "current_ts": "", "pos": "1", "after": {}}, "Oracle GoldenGate"),
        ({"data": {"id": 1}, "metadata": {"record-type": "data"}}, "a message of AWS DMS"),
        ({**EVENT, "after": '{"_id": 1}', "source": {"connector": "mongodb"}}, "Debezium for MongoDB"),
        ({"status": "BEGUN", "id": "1", "event_count": 1, "data_collections": []}, "it has no field op"),
        ({"ts_ms": 1, "id": 1}, "it has no field op"),
    ],
)
def test_what_is_no_message_of_debezium_is_bad_and_named(record: object, reason: str) -> None:
    for sent in (record, with_schema(record, "x")):
        found = decoded(EVENT, sent)
        assert found.bad.to_pylist() == [1]
        assert reason in found.reasons[0].as_py()


def test_what_is_skipped_of_canal_and_maxwell_is_counted_by_kind() -> None:
    def count(form: Any, *messages: dict[str, Any] | None) -> Any:
        values = pa.array([m if m is None else json.dumps(m).encode() for m in messages], pa.binary())
        return decode_binlog(values, FIELDS, form, primary_key=("id",)).seen

    named = {"database": "shop", "table": "orders"}
    canal = [
        {**named, "type": "ALTER", "isDdl": True},
        {**named, "type": "QUERY", "isDdl": False},
        {**named, "type": "INSERT", "isDdl": False, "data": [{"id": "1", "name": "a"}]},
        {"type": "MHEARTBEAT", "isDdl": False},
    ]
    assert count(CANAL, *canal, None) == Seen(
        {Skipped.SCHEMA_CHANGE: 2, Skipped.HEARTBEAT: 1, Skipped.TOMBSTONE: 1}, frozenset({"shop.orders"})
    )
    maxwell = [{**named, "type": "table-alter"}, {**named, "type": "bootstrap-start"}, {"type": "heartbeat"}]
    assert count(MAXWELL, *maxwell).skipped == {
        Skipped.SCHEMA_CHANGE: 1,
        Skipped.NOTIFICATION: 1,
        Skipped.HEARTBEAT: 1,
    }


def test_json_records_without_a_value_are_counted() -> None:
    assert decode_json(pa.array([b'{"id":1}', None, b"null"], pa.binary()), FIELDS).seen.skipped == {
        Skipped.TOMBSTONE: 2
    }


def test_what_was_seen_travels_and_adds_up() -> None:
    one, other = Seen({Skipped.HEARTBEAT: 2}, frozenset({"a.b"})), Seen({Skipped.HEARTBEAT: 1, Skipped.TOMBSTONE: 1})
    joined = joined_seen([decode_seen(one.encode()), decode_seen(other.encode())])
    assert joined == Seen({Skipped.HEARTBEAT: 3, Skipped.TOMBSTONE: 1}, frozenset({"a.b"}))
    assert not Seen() and joined


def test_truncates_are_passed_over_where_the_job_says_so() -> None:
    def seen(decode: RecordFormat, *records: dict[str, Any], truncate: Truncate = Truncate.SKIP) -> DecodedRows:
        step = DecodeStep(decode, FIELDS, ("id",), reject_limit=9, messages=MessageOptions(truncate=truncate))
        return step(pa.table({"value": pa.array([json.dumps(r).encode() for r in records], pa.binary())}))

    event = {"before": None, "after": None, "source": SOURCE, "op": "t", "ts_ms": 5}
    canal = {"type": "TRUNCATE", "isDdl": True, "data": None, "database": "shop", "table": "orders"}
    maxwell = {"type": "table-truncate", "database": "shop", "table": "orders"}
    for decode, record in (
        (RecordFormat.DEBEZIUM_JSON, event),
        (RecordFormat.CANAL_JSON, canal),
        (RecordFormat.MAXWELL_JSON, maxwell),
    ):
        assert seen(decode, record).seen.skipped == {Skipped.TRUNCATE: 1}
        assert seen(decode, record).rejects is None
        refused = seen(decode, record, truncate=Truncate.REJECT)
        assert refused.rejects is not None and not refused.seen.skipped
    schema = plan_schema("id BIGINT NOT NULL", ("id",), (), {"bucket": "1"}, None, time_ms=0)
    for decode in (RecordFormat.JSON, RecordFormat.DEBEZIUM_FLAT_JSON, RecordFormat.NONE):
        with pytest.raises(OptionError, match="truncate needs messages"):
            decode_step(decode, schema, BadRecords(None, 0), MessageOptions(truncate=Truncate.SKIP))
    with pytest.raises(OptionError, match="must be one of reject, skip, apply"):
        message_options({"truncate": "empty"})


@pytest.mark.parametrize("name", ["debezium-postgres.tsv", "debezium-postgres-schema.tsv"])
def test_a_recording_of_all_topics_has_no_bad_record_but_the_truncate_and_one_placeholder(name: str) -> None:
    lines = (Path(__file__).parent / "recorded" / name).read_text().splitlines()
    topics, _, values = zip(*(line.split("\t") for line in lines), strict=True)
    is_other = [topic not in ("s.public.types",) for topic in topics]
    records = [v.encode() for v, keep in zip(values, is_other, strict=True) if keep]
    sent = pa.array([None if r == b"null" else r for r in records], pa.binary())
    fields = (DataField(0, "id", parse_type("BIGINT")), DataField(1, "note", parse_type("STRING")))

    found = decode_debezium(sent, fields)

    assert len(found.reasons) == 2
    assert found.reasons[0].as_py().startswith("field note: __debezium_unavailable_value")
    assert found.reasons[1].as_py().startswith("a truncate of the source table")
    assert set(found.seen.skipped) == {Skipped.HEARTBEAT, Skipped.TRANSACTION, Skipped.TOMBSTONE, Skipped.MESSAGE}
    assert found.seen.tables >= {"postgres.public.orders", "postgres.public.composite", "postgres.public.nopk"}
