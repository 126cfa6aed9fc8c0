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
from bucketline.streaming.decode.schema_needs import Watch

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
    *records: object, watch: Watch = Watch.NOTHING, key: tuple[str, ...] = ("id",), **types: Any
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


@pytest.mark.parametrize("watch", Watch)
def test_each_row_says_where_it_comes_from(watch: Watch) -> None:
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
