"""Columns that say where a row comes from: database, table, operation, time, and the position in the source's log."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import RecordFormat
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.schema_needs import WatchFor

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "_source_database": "STRING",
    "_source_schema": "STRING",
    "_source_table": "STRING",
    "_op": "STRING",
    "_ts_ms": "BIGINT",
    "_source_position": "STRING",
}


def columns(**types: Any) -> tuple[DataField, ...]:
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


def event(op: str, source: dict[str, Any] | None, key: int = 1, **more: Any) -> dict[str, Any]:
    row = {"id": key}
    return {
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "source": source,
        "op": op,
    } | more


def decoded(
    *records: object, watch: WatchFor = WatchFor.NOTHING, key: tuple[str, ...] = ("id",), **types: Any
) -> DecodedRows:
    step = DecodeStep(RecordFormat.DEBEZIUM_JSON, columns(**(types or COLUMNS)), key, reject_limit=9, watch=watch)
    step.check()
    return step(pa.table({"value": pa.array([json.dumps(r).encode() for r in records], pa.binary())}))


def postgres(lsn: int, **more: Any) -> dict[str, Any]:
    head = {"version": "3", "connector": "postgresql", "name": "s", "ts_ms": 1795452729898}
    return {**head, "db": "shop", "schema": "public", "table": "orders", "lsn": lsn, "xmin": None, **more}


def mysql(file: str, pos: int, row: int) -> dict[str, Any]:
    head = {"version": "3", "connector": "mysql", "name": "s", "ts_ms": 5}
    return {**head, "db": "shop", "table": "orders", "server_id": 1, "file": file, "pos": pos, "row": row}


MYSQL = (("000009", 4, 0), ("000009", 4, 2), ("000009", 104, 0), ("999999", 1, 0), ("1000000", 1, 0))


@pytest.mark.parametrize("watch", WatchFor)
def test_each_row_says_where_it_comes_from(watch: WatchFor) -> None:
    found = decoded(event("c", postgres(5)), event("d", postgres(70)), event("c", None), watch=watch)
    first, deleted, unknown = found.rows.to_pylist()
    assert first == {
        "id": 1,
        "_source_database": "shop",
        "_source_schema": "public",
        "_source_table": "orders",
        "_op": "c",
        "_ts_ms": 1795452729898,
        "_source_position": "00000000000000000005",
        "_row_kind": 0,
    }
    assert (deleted["_op"], deleted["_row_kind"], deleted["_source_position"]) == ("d", 3, "00000000000000000070")
    assert unknown["_op"] == "c" and unknown["_source_table"] is None and unknown["_source_position"] is None
    assert not found.need


def test_positions_sort_as_the_log_of_the_source_goes() -> None:
    sql_server = [
        {"connector": "sqlserver", "commit_lsn": "0027:0758:0005", "change_lsn": f"0027:0758:000{at}"} | more
        for at, more in ((3, {"event_serial_no": 1}), (3, {"event_serial_no": 2}), (4, {}))
    ]
    logs: list[list[dict[str, Any]]] = [
        [postgres(9), postgres(10), postgres(2**62)],
        [mysql(f"mysql-bin.{file}", *at) for file, *at in MYSQL],
        sql_server,
    ]
    for log in logs:
        positions = decoded(*(event("c", source) for source in log)).rows["_source_position"].to_pylist()
        assert None not in positions and positions == sorted(set(positions))


def test_a_time_may_be_a_timestamp_and_a_type_that_cannot_hold_it_is_refused() -> None:
    found = decoded(event("c", postgres(1)), id="BIGINT NOT NULL", _ts_ms="TIMESTAMP(3)")
    assert found.rows["_ts_ms"].to_pylist() == [datetime(2026, 11, 23, 16, 52, 9, 898000)]
    with pytest.raises(SchemaMismatchError, match="_op"):
        decoded(id="BIGINT NOT NULL", _op="INT")


def test_a_key_that_names_the_table_takes_records_of_several() -> None:
    types = {"id": "BIGINT NOT NULL", "_source_table": "STRING NOT NULL"}
    records = [event("c", postgres(1)), event("c", postgres(2, table="carts")), event("d", postgres(3))]
    found = decoded(*records, key=("id", "_source_table"), **types)
    assert found.rows["_source_table"].to_pylist() == ["orders", "carts", "orders"]
    step = DecodeStep(RecordFormat.DEBEZIUM_JSON, columns(**types), ("id", "_source_table", "_source_schema"))
    assert step.key_of_table("shop.public.orders") == ("orders", "public")
    assert step.key_of_table("shop.orders") == ("orders", None)
    assert DecodeStep(RecordFormat.DEBEZIUM_JSON, columns(**types), ("id",)).key_of_table("shop.orders") == ()
    without = decoded(event("c", None), key=("id", "_source_table"), **types)
    assert without.rejects is not None and without.rows.num_rows == 0


@pytest.mark.parametrize("name", ["debezium-postgres.tsv", "debezium-postgres-schema.tsv"])
def test_positions_of_a_recording_never_go_back(name: str) -> None:
    lines = (Path(__file__).parent / "recorded" / name).read_text().splitlines()
    values = [line.split("\t")[2] for line in lines if line.startswith("s.public.composite\t")]
    step = DecodeStep(
        RecordFormat.DEBEZIUM_JSON,
        columns(a="INT NOT NULL", b="STRING NOT NULL", _source_position="STRING NOT NULL", _source_table="STRING"),
        ("a", "b"),
    )
    found = step(pa.table({"value": pa.array([None if v == "null" else v.encode() for v in values], pa.binary())}))
    positions = found.rows["_source_position"].to_pylist()
    assert len(positions) == 4 and positions == sorted(positions) and found.rejects is None
    assert set(found.rows["_source_table"].to_pylist()) == {"composite"}


def read(decode: RecordFormat, *records: object, key: tuple[str, ...] = ("id",), **types: Any) -> list[dict[str, Any]]:
    step = DecodeStep(decode, columns(**types), key, reject_limit=9)
    step.check()
    keys = pa.array([b'{"id": 9}'] * len(records), pa.binary())
    values = pa.array([None if r is None else json.dumps(r).encode() for r in records], pa.binary())
    found = step(pa.table({"key": keys, "value": values}))
    assert found.rejects is None
    rows: list[dict[str, Any]] = found.rows.to_pylist()
    return rows


def test_canal_says_database_table_operation_and_time() -> None:
    types = {name: kind for name, kind in COLUMNS.items() if name not in ("_source_schema", "_source_position")}
    head = {"database": "shop", "table": "orders", "isDdl": False, "es": 1700000000123, "ts": 1700000000500}
    rows = read(
        RecordFormat.CANAL_JSON,
        {**head, "type": "INSERT", "data": [{"id": "1"}, {"id": "2"}]},
        {**head, "type": "UPDATE", "data": [{"id": "3"}], "old": [{"id": "1"}]},
        {**head, "type": "DELETE", "data": [{"id": "2"}], "es": 1700000000999},
        **types,
    )
    told = [(row["id"], row["_op"], row["_source_database"], row["_source_table"], row["_ts_ms"]) for row in rows]
    assert told == [
        (1, "c", "shop", "orders", 1700000000123),
        (2, "c", "shop", "orders", 1700000000123),
        (1, "u", "shop", "orders", 1700000000123),
        (3, "u", "shop", "orders", 1700000000123),
        (2, "d", "shop", "orders", 1700000000999),
    ]


def test_maxwell_says_the_place_in_the_log_too() -> None:
    types = {name: kind for name, kind in COLUMNS.items() if name != "_source_schema"}

    def message(kind: str, key: int, position: str | None, **more: Any) -> dict[str, Any]:
        head = {"database": "shop", "table": "orders", "type": kind, "ts": 1700000000, "data": {"id": key}}
        return {**head, **({} if position is None else {"position": position}), **more}

    rows = read(
        RecordFormat.MAXWELL_JSON,
        message("bootstrap-insert", 0, None),
        message("insert", 1, "master.000009:900", xoffset=0),
        message("insert", 2, "master.000009:900", xoffset=1),
        message("update", 3, "master.000009:900", commit=True, old={}),
        message("delete", 4, "master.000010:5", commit=True),
        **types,
    )
    assert [row["_op"] for row in rows] == ["r", "c", "c", "u", "d"]
    assert {row["_ts_ms"] for row in rows} == {1700000000000}
    assert rows[0]["_source_position"] is None
    positions = [row["_source_position"] for row in rows[1:]]
    assert positions == sorted(positions) and len(set(positions)) == 4


@pytest.mark.parametrize(
    ("decode", "column"),
    [
        (RecordFormat.CANAL_JSON, "_source_schema"),
        (RecordFormat.CANAL_JSON, "_source_position"),
        (RecordFormat.MAXWELL_JSON, "_source_schema"),
    ],
)
def test_what_a_format_does_not_say_is_refused_by_name(decode: RecordFormat, column: str) -> None:
    step = DecodeStep(decode, columns(id="BIGINT NOT NULL", **{column: "STRING"}), ("id",))
    with pytest.raises(SchemaMismatchError, match=f"{column}, which messages of .decode: {decode.value}. cannot fill"):
        step.check()


def test_flat_rows_say_what_the_transform_adds() -> None:
    rows = read(
        RecordFormat.DEBEZIUM_FLAT_JSON,
        {"id": 1, "__op": "r", "__db": "shop", "__schema": "public", "__table": "orders", "__lsn": 7, "__ts_ms": 3},
        {"id": 2, "__op": "u", "__source_db": "shop", "__source_lsn": 10, "__source_ts_ms": 5},
        {"id": 3, "__deleted": "true", "__source_file": "bin.000009", "__source_pos": 4, "__source_row": 1},
        None,
        **COLUMNS,
    )
    assert [row["_op"] for row in rows] == ["r", "u", "d", None]
    assert [row["_source_database"] for row in rows] == ["shop", "shop", None, None]
    assert [row["_source_schema"] for row in rows] == ["public", None, None, None]
    assert [row["_ts_ms"] for row in rows] == [None, 5, None, None]
    assert rows[0]["_source_position"] < rows[1]["_source_position"]
    assert rows[2]["_source_position"] == "bin.0000000009:00000000000000000004:0000000001"


def test_positions_of_flat_rows_of_a_recording_never_go_back() -> None:
    lines = (Path(__file__).parent / "recorded" / "debezium-postgres-flattened.tsv").read_text().splitlines()
    own = [line.split("\t")[2] for line in lines if line.startswith("s.public.composite\t")]
    types = {"a": "INT NOT NULL", "b": "STRING NOT NULL", "_source_position": "STRING", "_ts_ms": "BIGINT"}
    step = DecodeStep(RecordFormat.DEBEZIUM_FLAT_JSON, columns(**types, _op="STRING"), ("a", "b"))
    values = pa.array([v.encode() for v in own if v != "null"], pa.binary())
    rows = step(pa.table({"key": pa.nulls(len(values), pa.binary()), "value": values})).rows.to_pylist()
    positions = [row["_source_position"] for row in rows]
    assert len(rows) == len(values) and positions == sorted(positions)
    assert all(row["_ts_ms"] and row["_op"] for row in rows)


def test_a_key_of_canal_may_name_the_table() -> None:
    head = {"database": "shop", "isDdl": False, "type": "INSERT", "es": 5}
    types = {"id": "BIGINT NOT NULL", "_source_table": "STRING NOT NULL"}
    records = [{**head, "table": name, "data": [{"id": "1"}]} for name in ("orders", "carts")]
    rows = read(RecordFormat.CANAL_JSON, *records, key=("id", "_source_table"), **types)
    assert [row["_source_table"] for row in rows] == ["orders", "carts"]
    step = DecodeStep(RecordFormat.CANAL_JSON, columns(**types), ("id", "_source_table"))
    assert step.key_of_table("shop.orders") == ("orders",)
