"""Rows as ExtractNewRecordState makes them: what each becomes, and what is refused because it cannot be known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.types.logical import DataField, parse_type
from bucketline.state.types.row_kind import SHORT_NAMES
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.flat_records import decode_flat
from bucketline.streaming.decode.other_messages import Skipped
from bucketline.streaming.decode.records import decode_json
from bucketline.streaming.decode.row_changes import UpdateBefore
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.step_for_table import decode_step

Json = dict[str, Any]
NAMES = {int(kind): name for name, kind in SHORT_NAMES.items()}


def columns(**types: Any) -> tuple[DataField, ...]:
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


ORDERS = columns(id="BIGINT NOT NULL", name="STRING", code="STRING NOT NULL")


def data(records: Sequence[object]) -> pa.Array:
    return pa.array([r if r is None or isinstance(r, bytes) else json.dumps(r).encode() for r in records], pa.binary())


def row(key: int | None, name: str | None = "ann", **more: object) -> Json:
    return {"id": key, "name": name, "code": "x", **more}


def gone(key: int, **more: object) -> Json:
    """A delete as `rewrite` makes it under the default replica identity."""
    return {"id": key, "name": None, "code": None, "__deleted": "true", **more}


def flat(records: Sequence[object], keys: Sequence[object] | None = None, **more: Any) -> Decoded:
    own = data([None if r is None else {"id": r["id"]} for r in records] if keys is None else keys)  # type: ignore[index]
    return decode_flat(data(records), ORDERS, primary_key=("id",), keys=own, **more)


def told(found: Decoded) -> list[tuple[str, int, str | None, int]]:
    return [
        (NAMES[kind], r["id"], r["name"], origin)
        for kind, r, origin in zip(
            found.kinds.to_pylist(), found.rows.to_pylist(), found.origin.to_pylist(), strict=True
        )
    ]


def reasons(found: Decoded) -> dict[int, str]:
    return dict(zip(found.bad.to_pylist(), found.reasons.to_pylist(), strict=True))


def test_added_fields_say_what_became_of_a_row() -> None:
    found = flat(
        [
            row(1, __op="r", __deleted="false", __lsn=5),
            row(2, __op="c"),
            row(2, "bob", __op="u", __deleted="false"),
            gone(1, __op="d"),
            row(3, __op="d"),
            row(4, __deleted=False),
            row(5),
        ]
    )
    assert told(found) == [
        ("+I", 1, "ann", 0),
        ("+I", 2, "ann", 1),
        ("+U", 2, "bob", 2),
        ("-D", 1, None, 3),
        ("-D", 3, "ann", 4),
        ("+I", 4, "ann", 5),
        ("+I", 5, "ann", 6),
    ]
    assert found.rows["code"].to_pylist()[3] == ""
    assert found.bad.to_pylist() == [] and found.rows.schema.names == ["id", "name", "code"]


def test_a_tombstone_deletes_the_row_of_its_key() -> None:
    key = {"id": 7}
    with_schema = {"schema": {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}, "payload": key}
    found = flat([row(7), None, None, b"", None], [key, key, with_schema, key, None])
    assert told(found) == [("+I", 7, "ann", 0), ("-D", 7, None, 1), ("-D", 7, None, 2), ("-D", 7, None, 3)]
    assert found.seen.skipped == {Skipped.TOMBSTONE: 1}


def test_a_tombstone_whose_key_cannot_be_read_is_bad() -> None:
    found = flat([row(1), None, None], [{"id": 1}, {"id": "x"}, b"plain"])
    assert told(found) == [("+I", 1, "ann", 0)]
    assert list(reasons(found)) == [1, 2]
    assert "whose key does not hold the primary key" in reasons(found)[2]


def test_rows_with_a_schema_are_read_by_it() -> None:
    fields = columns(id="INT NOT NULL", amount="DECIMAL(10, 2)")
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    nodes = [{"type": "int32", "field": "id"}, {**decimal, "field": "amount"}, {"type": "string", "field": "__deleted"}]
    record = {
        "schema": {"type": "struct", "fields": nodes},
        "payload": {"id": 1, "amount": "1234", "__deleted": "false"},
    }
    for sent in (record, dict(reversed(record.items()))):
        found = decode_flat(data([sent, {"schema": None, "payload": None}]), fields, primary_key=("id",))
        assert [str(v) for v in found.rows["amount"].to_pylist()] == ["-26588.24"]
        assert found.seen.skipped == {Skipped.TOMBSTONE: 1}


def test_what_is_no_row_is_skipped_or_refused_by_name() -> None:
    event = {"before": None, "after": {"id": 1}, "op": "c"}
    begin = {"status": "BEGIN", "id": "841:2", "event_count": None, "data_collections": None, "ts_ms": 1}
    assert flat([row(1), begin], [{"id": 1}, {"id": "841:2"}]).seen.skipped == {Skipped.TRANSACTION: 1}
    found = flat(
        [{"ts_ms": 5}, {"status": "END", "id": None, "event_count": 1, "data_collections": []}, event, {"x": 1}],
        [{"serverName": "s"}] * 4,
    )
    assert found.seen.skipped == {Skipped.HEARTBEAT: 1, Skipped.TRANSACTION: 1}
    assert "use decode: debezium-json" in reasons(found)[2]
    assert reasons(found)[3] == "not a row: it has none of the columns of the key (id)"
    assert "known are c, r, u and d" in reasons(flat([row(1, __op="t")]))[0]


def test_a_new_field_is_found_and_those_of_the_transform_are_not() -> None:
    found = flat([row(1, size=5, __deleted="false", __op="c", __table="orders")], watch=WatchFor.ALL)
    assert found.need == pa.struct([("size", pa.int64())])
    assert found.seen.tables == {"orders"}


def test_a_table_that_retracts_needs_rows_that_say_what_they_are() -> None:
    found = flat(
        [row(1, __op="c", __deleted="false"), gone(1, __op="d"), None, row(2), row(3, __op="u", __deleted="false")],
        [{"id": i} for i in (1, 1, 1, 2, 3)],
        update_before=UpdateBefore.EMIT,
    )
    assert told(found) == [("+I", 1, "ann", 0), ("-D", 1, None, 1)]
    assert found.seen.skipped == {Skipped.TOMBSTONE: 1}
    assert "no field __deleted or __op" in reasons(found)[3] and "an update without the row" in reasons(found)[4]


def test_a_key_that_is_wider_than_the_sources_needs_rows_that_say_what_they_are() -> None:
    fields = columns(id="BIGINT NOT NULL", dt="STRING NOT NULL")

    def day(key: int, **more: object) -> Json:
        return {"id": key, "dt": "d1", **more}

    records = [day(1, __op="c", __deleted="false"), day(1, __op="d", __deleted="true"), None, day(2), day(3, __op="u")]
    keys = data([{"id": i} for i in (1, 1, 1, 2, 3)])
    found = decode_flat(data(records), fields, primary_key=("id", "dt"), keys=keys)
    assert found.origin.to_pylist() == [0, 1] and list(reasons(found)) == [3, 4]
    assert found.seen.skipped == {Skipped.TOMBSTONE: 1}


def test_the_table_of_rows_is_chosen_by_the_added_fields() -> None:
    said = {"__db": "shop", "__op": "u", "__deleted": "false"}
    named = [row(1, __table="orders", **said), row(2, __table="carts", **said), row(3, **said), None, row(4)]
    step = DecodeStep(
        RecordFormat.DEBEZIUM_FLAT_JSON,
        ORDERS,
        ("id",),
        reject_limit=9,
        messages=MessageOptions(source_table="shop.orders"),
    )
    found = step(pa.table({"value": data(named), "key": data([{"id": 1}] * 5)}))
    assert found.rows["id"].to_pylist() == [1] and found.seen.skipped == {Skipped.OTHER_TABLE: 1, Skipped.TOMBSTONE: 1}
    assert found.rejects is not None
    told = pa.ipc.open_stream(found.rejects.blob).read_all()["reason"].to_pylist()
    assert len(told) == 2 and all("does not say its table" in reason for reason in told)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, UpdateBefore.DROP),
        ({"merge-engine": "partial-update"}, UpdateBefore.DROP),
        ({"merge-engine": "partial-update", "fields.n.aggregate-function": "last_non_null_value"}, UpdateBefore.EMIT),
        ({"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}, UpdateBefore.EMIT),
        ({"changelog-producer": "input"}, UpdateBefore.EMIT),
    ],
)
def test_which_tables_need_the_row_before_an_update(options: dict[str, str], expected: UpdateBefore) -> None:
    columns, more = "id BIGINT NOT NULL, n INT", {"bucket": "1", **options}
    schema = plan_schema(columns, ("id",), (), more, None, time_ms=0)
    step = decode_step(RecordFormat.DEBEZIUM_FLAT_JSON, schema, BadRecords(None, 0))
    assert step is not None and step.update_before is expected and "key" in step.input_columns


def test_a_recording_of_flattened_rows_becomes_the_table_of_the_source() -> None:
    path = Path(__file__).parent / "recorded" / "debezium-postgres-flattened.tsv"
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    own = [line for line in lines if line[0] != "s.public.types" and line[0] != "s.public.nopk"]
    records, keys = ([None if line[i] == "null" else line[i].encode() for line in own] for i in (2, 1))
    orders = [at for at, line in enumerate(own) if "composite" not in line[0]]
    fields = columns(id="BIGINT NOT NULL", name="STRING", note="STRING", remark="STRING")

    found = decode_flat(
        data([records[at] for at in orders]), fields, primary_key=("id",), keys=data([keys[at] for at in orders])
    )

    assert reasons(found)[int(found.bad[0].as_py())].startswith("field note: __debezium_unavailable_value")
    assert len(found.bad) == 1
    table: dict[int, Json] = {}
    for kind, r in zip(found.kinds.to_pylist(), found.rows.to_pylist(), strict=True):
        if NAMES[kind] == "-D":
            table.pop(r["id"], None)
        else:
            table[r["id"]] = r
    assert sorted(table) == [1, 10, 11, 12, 13, 14]  # the truncate of the source is not among flattened rows
    assert table[13]["remark"] == "n" and table[14]["remark"] == "t"


def test_rows_of_debezium_are_not_read_as_plain_json() -> None:
    key = data([{"id": 1}] * 5)
    records = data([row(1, __op="c"), gone(2), row(3), None, row(4, "__debezium_unavailable_value")])
    found = decode_json(records, ORDERS, keys=key)
    assert found.rows["id"].to_pylist() == [3] and list(reasons(found)) == [0, 1, 3, 4]
    assert all("debezium-flat-json" in reasons(found)[at] for at in (0, 1, 3))
    assert reasons(found)[4].startswith("field name: __debezium_unavailable_value")
    assert found.seen.skipped == {}


def test_plain_json_goes_on_where_nothing_can_be_taken_for_something_else() -> None:
    soft = columns(id="BIGINT NOT NULL", __deleted="STRING")
    assert decode_json(data([gone(2)]), soft).rows["__deleted"].to_pylist() == ["true"]
    found = decode_json(
        data([{"id": 1, "name": '"__op": ', "code": "x"}, {"id": 2, "code": "y", "z": {"__op": "c"}}]), ORDERS
    )
    assert found.rows["id"].to_pylist() == [1, 2]
    assert decode_json(data([None, None]), ORDERS, keys=data([None, b""])).seen.skipped == {Skipped.TOMBSTONE: 2}
    step = DecodeStep(RecordFormat.JSON, ORDERS, ("id",))
    assert "key" in step.input_columns and "key" not in DecodeStep(RecordFormat.JSON, ORDERS).input_columns
