"""The first step of a map task: records in, table columns and rejects out."""

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import RecordFormat
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA

SENT_AT = datetime(2024, 2, 29, 10, 11, 12, 345000, tzinfo=UTC)


def columns(**types: Any) -> tuple[DataField, ...]:
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


def kafka(*found: bytes | None, keys: list[bytes | None] | None = None) -> pa.Table:
    """Records as Spark's Kafka source gives them, offsets from 100 on."""
    count = len(found)
    return pa.table(
        {
            "key": pa.array(keys or [b"k"] * count, pa.binary()),
            "value": pa.array(found, pa.binary()),
            "topic": pa.array(["orders"] * count, pa.string()),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([SENT_AT] * count, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
    )


def rejects_of(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(blob).read_all()


FIELDS = columns(id="INT NOT NULL", name="STRING")


def test_json_records_become_columns_and_bad_ones_rejects_with_their_place() -> None:
    step = DecodeStep(RecordFormat.JSON, FIELDS, reject_limit=10)

    rows, rejects, *_ = step(kafka(b'{"id":1,"name":"a"}', b'{"id":"x"}', None, b'{"name":"b"}', b'{"id":5}'))

    assert rows.to_pylist() == [{"id": 1, "name": "a"}, {"id": 5, "name": None}]
    assert rejects is not None and rejects.row_count == 2
    found = rejects_of(rejects.blob)
    assert found.schema == REJECTS_SCHEMA
    assert found["code"].to_pylist() == ["VALUE", "NULL"]
    assert found["key"].to_pylist() == [b"k", b"k"]
    assert found.select(["topic", "partition", "offset", "reason", "value"]).to_pylist() == [
        {
            "topic": "orders",
            "partition": 3,
            "offset": 101,
            "reason": 'field id: "x" is not a whole number',
            "value": b'{"id":"x"}',
        },
        {
            "topic": "orders",
            "partition": 3,
            "offset": 103,
            "reason": "field id: null, but the column is NOT NULL",
            "value": b'{"name":"b"}',
        },
    ]


def test_no_more_rejects_travel_than_can_matter() -> None:
    _, rejects, *_ = DecodeStep(RecordFormat.JSON, FIELDS, reject_limit=2)(kafka(*[b"{}"] * 50))
    assert rejects is not None and rejects.row_count == 2
    assert rejects_of(rejects.blob)["offset"].to_pylist() == [100, 101]


@pytest.mark.parametrize(
    ("decode", "values"),
    [
        (
            RecordFormat.CANAL_JSON,
            [
                b'{"type":"INSERT","data":[{"id":"1","name":"a"}]}',
                b'{"type":"DELETE","data":[{"id":"1","name":"a"}]}',
            ],
        ),
        (
            RecordFormat.MAXWELL_JSON,
            [b'{"type":"insert","data":{"id":1,"name":"a"}}', b'{"type":"delete","data":{"id":1,"name":"a"}}'],
        ),
    ],
)
def test_messages_of_the_binary_log_bring_their_row_kinds(decode: RecordFormat, values: list[bytes]) -> None:
    rows, rejects, *_ = DecodeStep(decode, FIELDS, primary_key=("id",))(kafka(*values))
    assert rejects is None
    assert rows.to_pylist() == [{"id": 1, "name": "a", "_row_kind": 0}, {"id": 1, "name": "a", "_row_kind": 3}]


def test_debezium_records_bring_their_row_kinds() -> None:
    step = DecodeStep(RecordFormat.DEBEZIUM_JSON, FIELDS, primary_key=("id",))
    records = [
        {"op": "c", "before": None, "after": {"id": 1, "name": "a"}},
        {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 2, "name": "a"}},
    ]

    rows, rejects, *_ = step(kafka(*[json.dumps(r).encode() for r in records]))

    assert rejects is None
    assert rows.column_names == ["id", "name", "_row_kind"]
    assert rows.schema.field("_row_kind").type == pa.int8()
    assert rows.to_pydict() == {"id": [1, 1, 2], "name": ["a"] * 3, "_row_kind": [0, 3, 2]}


def test_columns_of_the_record_fill_table_columns_of_their_names() -> None:
    fields = columns(
        _kafka_offset="BIGINT NOT NULL",
        id="INT",
        _kafka_topic="STRING",
        _kafka_partition="INT",
        _kafka_key="STRING",
        _kafka_timestamp="TIMESTAMP(1)",
        _kafka_timestamp_type="INT",
    )
    step = DecodeStep(RecordFormat.JSON, fields)
    payload = b'{"id": 7, "_kafka_topic": "not from here"}'

    rows, rejects, *_ = step(kafka(None, payload, payload, keys=[b"a", b"\xff", b"c"]))

    assert rows.to_pylist() == [
        {
            "_kafka_offset": 102,
            "id": 7,
            "_kafka_topic": "orders",
            "_kafka_partition": 3,
            "_kafka_key": "c",
            "_kafka_timestamp": datetime(2024, 2, 29, 10, 11, 12, 300000),
            "_kafka_timestamp_type": 0,
        }
    ]
    assert rejects is not None
    assert rejects_of(rejects.blob)["offset"].to_pylist() == [101]
    assert set(step.input_columns) == {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType"}


def test_only_the_columns_a_step_reads_are_asked_for() -> None:
    assert DecodeStep(RecordFormat.JSON, FIELDS).input_columns == ("value", "topic", "partition", "offset")
    assert DecodeStep(RecordFormat.DEBEZIUM_JSON, FIELDS).input_columns == (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
    )


def test_headers_and_zoned_timestamps_keep_their_types() -> None:
    element = {
        "type": "ROW",
        "fields": [{"id": 9, "name": "key", "type": "STRING"}, {"id": 10, "name": "value", "type": "BYTES"}],
    }
    fields = columns(
        _kafka_headers={"type": "ARRAY", "element": element},
        _kafka_timestamp="TIMESTAMP(3) WITH LOCAL TIME ZONE",
        _kafka_key="BYTES",
    )
    headers = pa.array(
        [[{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )

    rows, *_ = DecodeStep(RecordFormat.JSON, fields)(kafka(b"{}").append_column("headers", headers))

    assert rows.to_pylist() == [
        {"_kafka_headers": [{"key": "h", "value": b"1"}], "_kafka_timestamp": SENT_AT, "_kafka_key": b"k"}
    ]


def test_any_source_with_values_will_do() -> None:
    rows, rejects, *_ = DecodeStep(RecordFormat.JSON, FIELDS)(pa.table({"value": ['{"id":1}', "x"]}))

    assert rows.to_pylist() == [{"id": 1, "name": None}]
    assert rejects is not None
    assert rejects_of(rejects.blob).select(["topic", "offset", "value"]).to_pylist() == [
        {"topic": None, "offset": None, "value": b"x"}
    ]
    with pytest.raises(SchemaMismatchError, match="use 'decode: none'"):
        DecodeStep(RecordFormat.JSON, FIELDS)(pa.table({"id": [1]}))


def test_tables_no_record_can_fill_are_refused_before_the_first_one() -> None:
    DecodeStep(RecordFormat.DEBEZIUM_JSON, FIELDS, primary_key=("id",)).check()
    with pytest.raises(SchemaMismatchError, match="_kafka_offset"):
        DecodeStep(RecordFormat.JSON, columns(_kafka_offset="STRING")).check()
    with pytest.raises(UnsupportedTableError, match="whose keys are strings"):
        keys = {"type": "ARRAY", "element": "INT"}
        DecodeStep(RecordFormat.JSON, columns(m={"type": "MAP", "key": keys, "value": "INT"})).check()


def test_the_step_travels() -> None:
    step = DecodeStep(RecordFormat.DEBEZIUM_JSON, FIELDS, primary_key=("id",))
    assert pickle.loads(pickle.dumps(step)) == step


def test_rows_say_which_record_they_are_of() -> None:
    """Also where the rows of a record are left out, as its key does not fit a column."""
    fields = columns(id="INT NOT NULL", _kafka_key="STRING")
    good, bad = b'{"id":1}', b'{"id":"x"}'
    records = kafka(good, bad, None, good, good, keys=[b"a", b"b", b"c", b"\xff", b"e"])
    found = DecodeStep(RecordFormat.JSON, fields, reject_limit=9)(records)
    assert found.records is not None and found.records.to_pylist() == [0, 4]
    assert found.rows["_kafka_key"].to_pylist() == ["a", "e"]
