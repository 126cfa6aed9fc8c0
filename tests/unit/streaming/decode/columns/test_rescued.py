"""`rescued-data-column`: what no column takes, as JSON; what is needed makes a record bad as before."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.column_options import ColumnOptions
from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.step_for_table import decode_step

COLUMNS = "id BIGINT NOT NULL, n INT, s ROW<a INT>, _rescued STRING, dt STRING"
KINDS = [RecordFormat.JSON, RecordFormat.DEBEZIUM_JSON, RecordFormat.DEBEZIUM_FLAT_JSON, RecordFormat.MAXWELL_JSON]


def step_of(decode: RecordFormat, columns: str = COLUMNS, **more: Any) -> DecodeStep:
    schema = plan_schema(columns, ("id",), (), {"bucket": "1"}, None, storage_options={}, time_ms=0)
    options = ColumnOptions(rescued="_rescued", **more)
    step = decode_step(decode, schema, BadRecords("/bad", 99), NO_MESSAGE_OPTIONS, columns=options)
    assert step is not None
    return step


def message(decode: RecordFormat, row: dict[str, Any]) -> bytes:
    if decode is RecordFormat.DEBEZIUM_JSON:
        return json.dumps({"op": "u", "before": row, "after": row, "source": {"table": "t"}, "other": 1}).encode()
    if decode is RecordFormat.MAXWELL_JSON:
        return json.dumps({"type": "insert", "database": "d", "table": "t", "data": row, "other": 1}).encode()
    return json.dumps({**row, **({"__op": "c"} if decode is RecordFormat.DEBEZIUM_FLAT_JSON else {})}).encode()


def run(step: DecodeStep, *rows: Any) -> DecodedRows:
    values = [row if isinstance(row, bytes) else message(step.decode, row) for row in rows]
    return step(
        pa.table(
            {
                "value": pa.array(values, pa.binary()),
                "topic": ["t"] * len(rows),
                "partition": pa.array([3] * len(rows), pa.int32()),
                "offset": list(range(len(rows))),
            }
        )
    )


def rescued(found: DecodedRows) -> list[Any]:
    texts = found.rows["_rescued"].to_pylist()
    return [None if text is None else json.loads(text) for text in texts]


def reasons(found: DecodedRows) -> list[tuple[str, bytes]]:
    if found.rejects is None:
        return []
    bad = pa.ipc.open_stream(found.rejects.blob).read_all()
    return list(zip(bad["reason"].to_pylist(), bad["value"].to_pylist(), strict=True))


def place(offset: int) -> dict[str, Any]:
    return {"_kafka_topic": "t", "_kafka_partition": 3, "_kafka_offset": offset}


@pytest.mark.parametrize("decode", KINDS)
def test_fields_without_a_column_and_values_that_do_not_fit_are_rescued_with_their_place(decode: RecordFormat) -> None:
    found = run(
        step_of(decode),
        {"id": 1, "n": 5, "dt": "x"},
        {"id": 2, "n": 5, "extra": {"b": [1, "ü,}"]}, "gone": None},
        {"id": 3, "n": "many", "s": {"a": "q"}, "extra": 2},
        {"id": 4, "n": 99_999_999_999},
    )
    rows = found.rows.select(["id", "n", "s", "dt"]).to_pylist()
    assert [r["id"] for r in rows] == [1, 2, 3, 4] and [r["n"] for r in rows] == [5, 5, None, None]
    assert rows[2]["s"] is None and rows[0]["dt"] == "x"
    assert rescued(found) == [
        None,
        {"extra": {"b": [1, "ü,}"]}, **place(1)},
        {"n": "many", "s": {"a": "q"}, "extra": 2, **place(2)},
        {"n": 99_999_999_999, **place(3)},
    ]
    assert reasons(found) == []


@pytest.mark.parametrize("decode", KINDS)
def test_a_key_that_does_not_fit_and_what_is_no_json_stay_bad_as_they_were(decode: RecordFormat) -> None:
    found = run(step_of(decode), {"id": "k", "n": "y", "extra": 1}, b"{no", {"id": 1, "n": "y"})
    assert found.rows["id"].to_pylist() == [1] and rescued(found) == [{"n": "y", **place(2)}]
    (first, value), (second, broken) = reasons(found)
    assert first.startswith("field ") and second.startswith("no JSON") and broken == b"{no"
    assert b'"extra": 1' in value and b'"y"' in value


def test_columns_that_are_computed_take_what_they_read_and_secrets_stay_out() -> None:
    step = step_of(
        RecordFormat.JSON,
        "id BIGINT NOT NULL, n INT, _rescued STRING, dt STRING",
        select="id, n, upper(city) AS dt",
    )
    found = run(step, {"id": 1, "n": "x", "city": "Rome", "password": "p"})
    assert found.rows.select(["id", "n", "dt"]).to_pylist() == [{"id": 1, "n": None, "dt": "ROME"}]
    assert rescued(found) == [{"n": "x", "password": "p", **place(0)}]
    left_out = step_of(
        RecordFormat.JSON, "id BIGINT NOT NULL, password STRING, _rescued STRING", select="* EXCEPT (password)"
    )
    assert rescued(run(left_out, {"id": 1, "password": "p"})) == [None]


def test_a_record_that_is_nested_too_deeply_is_rescued_as_a_whole() -> None:
    deep = b'{"id":2,"deep":' + b"[" * 120 + b"]" * 120 + b"}"
    found = run(step_of(RecordFormat.JSON), {"id": 1, "x": 1}, deep, {"id": 3})
    assert found.rows["id"].to_pylist() == [1, 2, 3]
    assert rescued(found) == [{"x": 1, **place(0)}, {"_record": deep.decode()}, None]


def test_a_column_that_cannot_take_it_is_refused_and_so_are_other_formats() -> None:
    for columns, why in (
        ("id BIGINT NOT NULL, n INT", "the table has no column '_rescued'"),
        ("id BIGINT NOT NULL, _rescued INT", "must be a nullable STRING"),
        ("id BIGINT NOT NULL, _rescued STRING NOT NULL", "must be a nullable STRING"),
    ):
        with pytest.raises(OptionError, match=why):
            step_of(RecordFormat.JSON, columns)
    with pytest.raises(OptionError, match="needs records in one of the formats"):
        step_of(RecordFormat.CANAL_JSON)
