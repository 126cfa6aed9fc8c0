"""What becomes of records: rows with their kinds, bad records with their reasons, and records that hold no row."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.sources.message_options import UNAVAILABLE
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.logical import DataField, parse_type
from bucketline.state.types.row_kind import SHORT_NAMES
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.records import decode_debezium, decode_json
from bucketline.streaming.decode.row_changes import UpdateBefore
from bucketline.streaming.decode.schema_needs import WatchFor

Json = dict[str, Any]
NAMES = {int(kind): name for name, kind in SHORT_NAMES.items()}


def columns(**types: Any) -> tuple[DataField, ...]:
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


ORDERS = columns(id="BIGINT NOT NULL", customer="STRING", amount="DECIMAL(12, 2)", code="VARCHAR(3) NOT NULL")


def values(*records: object) -> pa.Array:
    return pa.array([r if r is None or isinstance(r, bytes) else json.dumps(r).encode() for r in records], pa.binary())


def order(key: int | None, customer: str | None = "ann", **more: object) -> Json:
    return {"id": key, "customer": customer, "amount": "9.90", "code": "x", **more}


def event(op: str | None, before: Json | None, after: Json | None) -> Json:
    return {"before": before, "after": after, "source": {"table": "orders"}, "op": op, "ts_ms": 1}


def told(found: Decoded) -> list[tuple[str, int, str | None, int]]:
    """Kind, id, customer and origin of each row."""
    return [
        (NAMES[kind], row["id"], row["customer"], origin)
        for kind, row, origin in zip(
            found.kinds.to_pylist(), found.rows.to_pylist(), found.origin.to_pylist(), strict=True
        )
    ]


def reasons(found: Decoded) -> dict[int, str]:
    return dict(zip(found.bad.to_pylist(), found.reasons.to_pylist(), strict=True))


def debezium(*records: object, **more: Any) -> Decoded:
    return decode_debezium(values(*records), ORDERS, primary_key=("id",), **more)


def test_json_rows_are_inserts_in_table_types() -> None:
    found = decode_json(values(order(1), order(2, None, note="unknown")), ORDERS)

    assert found.rows.schema.equals(arrow_schema(ORDERS), check_metadata=True)
    assert told(found) == [("+I", 1, "ann", 0), ("+I", 2, None, 1)]
    assert found.rows["amount"].to_pylist() == [Decimal("9.90")] * 2
    assert len(found.bad) == 0


@pytest.mark.parametrize("watch", [WatchFor.NOTHING, WatchFor.ALL])
def test_half_a_surrogate_pair_makes_its_record_bad_and_no_other(watch: WatchFor) -> None:
    wrong = order(2, "\ud83d")
    in_unknown = order(3, note={"\ud83d": 1}, **{"\ud83d": 1, "size": 5})

    found = decode_json(values(order(1), wrong, in_unknown), ORDERS, watch)
    assert told(found) == [("+I", 1, "ann", 0), ("+I", 3, "ann", 2)]
    assert reasons(found) == {1: 'field customer: "\\ud83d" cannot become STRING'}
    assert found.need == (pa.null() if watch is WatchFor.NOTHING else pa.struct([("size", pa.int64())]))

    found = debezium(*(event("c", None, row) for row in (order(1), wrong, in_unknown)), watch=watch)
    assert told(found) == [("+I", 1, "ann", 0), ("+I", 3, "ann", 2)]
    assert reasons(found) == {1: 'field after.customer: "\\ud83d" cannot become STRING'}


def test_json_records_are_judged_one_by_one() -> None:
    found = decode_json(
        values(
            order(1),
            None,
            order(None),
            b"{no json",
            {"id": 4, "code": "long"},
            [1],
            order(6, amount=12345678901),
            b"null",
            order(8),
        ),
        ORDERS,
    )

    assert told(found) == [("+I", 1, "ann", 0), ("+I", 8, "ann", 8)]
    bad = reasons(found)
    assert sorted(bad) == [2, 3, 4, 5, 6]
    assert bad[2] == "field id: null, but the column is NOT NULL"
    assert bad[3].startswith("no JSON: ")
    assert bad[4] == "column code: expected VARCHAR(3) NOT NULL, found a value of 4 characters"
    assert bad[5] == "the record: [1] is not a JSON object"
    assert bad[6] == "field amount: 12345678901 cannot become DECIMAL(12, 2)"


def test_a_null_deep_inside_a_row_is_bad_where_it_may_not_be() -> None:
    place = {"type": "ROW", "fields": [{"id": 1, "name": "x", "type": "INT NOT NULL"}]}
    fields = columns(places={"type": "ARRAY", "element": place})

    found = decode_json(values({"places": [{"x": 1}]}, {"places": [{"x": 2}, {}]}, {"places": None}), fields)

    assert found.rows["places"].to_pylist() == [[{"x": 1}], None]
    assert reasons(found) == {1: "column places.element.x: expected INT NOT NULL, found 1 null values"}


def test_text_values_are_as_good_as_bytes() -> None:
    assert told(decode_json(pa.array([json.dumps(order(1))]), ORDERS)) == [("+I", 1, "ann", 0)]
    assert decode_json(pa.array([], pa.large_binary()), ORDERS).rows.num_rows == 0


def test_debezium_operations_become_row_kinds() -> None:
    found = debezium(
        event("r", None, order(1, "snapshot")),
        event("c", None, order(2, "new")),
        event("u", order(2, "new"), order(2, "changed")),
        event("u", None, order(1, "blind")),
        event("d", order(2, "changed"), None),
        None,
        b"",
        event("m", None, None),
    )

    assert told(found) == [
        ("+I", 1, "snapshot", 0),
        ("+I", 2, "new", 1),
        ("+U", 2, "changed", 2),
        ("+U", 1, "blind", 3),
        ("-D", 2, "changed", 4),
    ]
    assert len(found.bad) == 0


def test_an_update_that_changes_the_key_deletes_the_old_one() -> None:
    found = debezium(event("c", None, order(1)), event("u", order(1), order(9)), event("c", None, order(2)))
    assert told(found) == [("+I", 1, "ann", 0), ("-D", 1, "ann", 1), ("+U", 9, "ann", 1), ("+I", 2, "ann", 2)]


def test_rows_before_an_update_are_there_when_asked_for() -> None:
    found = debezium(
        event("u", order(1, "old"), order(1, "new")),
        event("u", None, order(2)),
        event("u", order(3), order(4)),
        update_before=UpdateBefore.EMIT,
    )
    assert told(found) == [
        ("-U", 1, "old", 0),
        ("+U", 1, "new", 0),
        ("+U", 2, "ann", 1),
        ("-D", 3, "ann", 2),
        ("+U", 4, "ann", 2),
    ]


def test_of_the_row_before_only_what_gives_a_row_is_read() -> None:
    broken = order(1, amount="no number", customer={"deep": 1}, code="long")
    records = (
        event("u", broken, order(1, "new")),
        event("u", broken, order(2)),
        event("d", broken, None),
        event("u", {"id": "no number"}, order(3)),
        event("d", order(4, "gone"), None),
        event("u", order(5, "moved"), order(6)),
    )
    found = debezium(*records)
    assert told(found) == [("+U", 1, "new", 0), ("-D", 4, "gone", 4), ("-D", 5, "moved", 5), ("+U", 6, "ann", 5)]
    assert list(reasons(found)) == [1, 2, 3]
    assert list(reasons(debezium(*records, update_before=UpdateBefore.EMIT))) == [0, 1, 2, 3]
    assert list(reasons(debezium(*map(enveloped, records)))) == [1, 2, 3]


def test_a_delete_needs_nothing_but_its_key() -> None:
    found = debezium(event("d", {"id": 1}, None), event("d", {"id": 2, "customer": None, "code": None}, None))

    assert told(found) == [("-D", 1, None, 0), ("-D", 2, None, 1)]
    assert found.rows["code"].to_pylist() == ["", ""]
    told_of_key = "a delete without the column id of the table's primary key; set REPLICA IDENTITY FULL"
    assert reasons(debezium(event("d", {"customer": "x"}, None)))[0].startswith(told_of_key)


def test_a_delete_that_may_not_miss_a_column_is_bad_without_it() -> None:
    found = debezium(event("d", {"id": 1}, None), loose=())
    assert reasons(found) == {0: "field code: null, but the column is NOT NULL"}


def test_a_delete_without_a_row_takes_the_records_key() -> None:
    keys = values({"id": 1}, {"schema": {"fields": []}, "payload": {"id": "2"}}, {"other": 3}, None, b"{", {"id": "x"})
    found = debezium(*[event("d", None, None)] * 6, keys=keys)

    assert told(found) == [("-D", 1, None, 0), ("-D", 2, None, 1)]
    assert sorted(reasons(found)) == [2, 3, 4, 5]
    assert reasons(found)[2].startswith("a delete (op d) without before")
    assert sorted(reasons(debezium(event("d", None, None)))) == [0]


WIDE = columns(id="BIGINT NOT NULL", dt="STRING NOT NULL", v="INT")


def wide(records: Sequence[Any], keys: Sequence[Any]) -> Decoded:
    return decode_debezium(values(*records), WIDE, primary_key=("id", "dt"), keys=values(*keys))


def test_an_update_that_may_leave_an_old_row_behind_is_bad() -> None:
    old, new = {"id": 1, "dt": "d1", "v": 1}, {"id": 1, "dt": "d2", "v": 1}
    narrow, whole = {"id": 1}, {"id": 1, "dt": "d2"}
    in_schema = {"schema": {"fields": [{"field": "id"}, {"field": "dt"}]}, "payload": narrow}
    found = wide(
        [event("u", before, new) for before in (None, old, None, {**old, "dt": None}, None, None)],
        [narrow, narrow, whole, narrow, in_schema, {**in_schema, "payload": whole}],
    )
    assert found.origin.to_pylist() == [1, 1, 2, 5]
    assert [NAMES[kind] for kind in found.kinds.to_pylist()] == ["-D", "+U", "+U", "+U"]
    assert list(reasons(found)) == [0, 3, 4]
    for reason in reasons(found).values():
        assert "an update without the row before it" in reason and "set REPLICA IDENTITY FULL" in reason


def test_a_delete_that_lacks_a_part_of_the_tables_key_says_what_to_set() -> None:
    found = wide([event("d", {"id": 1, "dt": None, "v": None}, None)], [{"id": 1}])
    assert reasons(found)[0].startswith(
        "a delete without the column dt of the table's primary key; set REPLICA IDENTITY"
    )


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (event("t", None, None), "a truncate of the source table (op t)"),
        (event("x", None, order(1)), "an event with op 'x'"),
        (event(None, None, order(1)), "not a Debezium event: it has no field op"),
        (event("c", None, None), "an event with op c and without after"),
        (event("u", order(1), None), "an event with op u and without after"),
        (order(1), "not a Debezium event: it has no field op"),
        (event("c", None, order(1, amount="much")), 'field after.amount: "much" cannot become DECIMAL(12, 2)'),
        (event("c", None, order(1, UNAVAILABLE)), f"field customer: {UNAVAILABLE}: the source left out"),
        (event("c", None, order(1, amount=UNAVAILABLE)), f'field after.amount: "{UNAVAILABLE}" cannot become'),
        ({"schema": None, "payload": order(1)}, "not a Debezium event"),
        ({"payload": [1], "schema": None}, "not a Debezium event"),
        (b"{", "no JSON"),
        (b"\0\0\0\0\1{}", "no JSON: it begins with a zero byte, as records of a schema registry do"),
        ([1], "the record: [1] is not a JSON object"),
    ],
)
def test_events_that_cannot_be_followed_are_bad_and_say_why(record: object, reason: str) -> None:
    found = debezium(event("c", None, order(1)), record, event("c", None, order(2)))

    assert told(found) == [("+I", 1, "ann", 0), ("+I", 2, "ann", 2)]
    assert list(reasons(found)) == [1]
    assert reasons(found)[1].startswith(reason)


def test_an_update_is_bad_as_a_whole() -> None:
    found = debezium(event("u", order(1), order(2, code="long")))
    assert (told(found), list(reasons(found))) == ([], [0])


def test_the_placeholder_is_found_in_arrays_and_bytes_too() -> None:
    fields = columns(id="INT", tags={"type": "ARRAY", "element": "STRING"}, raw="BYTES")
    placeholder = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    found = decode_debezium(
        values(
            event("c", None, {"id": 1, "tags": ["a", "b"], "raw": "YQ=="}),
            event("u", None, {"id": 2, "tags": ["a", UNAVAILABLE]}),
            event("u", None, {"id": 3, "raw": placeholder}),
            event("d", {"id": 4, "tags": [UNAVAILABLE], "raw": placeholder}, None),
        ),
        fields,
        primary_key=("id",),
    )

    assert found.rows["id"].to_pylist() == [1, 4]
    assert list(reasons(found)) == [1, 2]


TYPED = columns(
    id="INT NOT NULL",
    amount="DECIMAL(10, 2)",
    any_scale="DECIMAL(10, 3)",
    day="DATE",
    noon="TIME(3)",
    milli="TIMESTAMP(6)",
    micro="TIMESTAMP(6)",
    nano="TIMESTAMP(9)",
    short="TIMESTAMP(3)",
    zoned="TIMESTAMP(6) WITH LOCAL TIME ZONE",
    micro_noon="TIME(3)",
    raw="BYTES",
    as_text="STRING",
    raw_micros="BIGINT",
)
KAFKA, DEBEZIUM = "org.apache.kafka.connect.data", "io.debezium.time"
SEMANTICS: dict[str, Json] = {
    "id": {"type": "int32"},
    "amount": {"type": "bytes", "name": f"{KAFKA}.Decimal", "parameters": {"scale": "2"}},
    "any_scale": {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
    "day": {"type": "int32", "name": f"{DEBEZIUM}.Date"},
    "noon": {"type": "int32", "name": f"{DEBEZIUM}.Time"},
    "milli": {"type": "int64", "name": f"{DEBEZIUM}.Timestamp"},
    "micro": {"type": "int64", "name": f"{DEBEZIUM}.MicroTimestamp"},
    "nano": {"type": "int64", "name": f"{DEBEZIUM}.NanoTimestamp"},
    "short": {"type": "int64", "name": f"{DEBEZIUM}.MicroTimestamp"},
    "zoned": {"type": "string", "name": f"{DEBEZIUM}.ZonedTimestamp"},
    "micro_noon": {"type": "int64", "name": f"{DEBEZIUM}.MicroTime"},
    "raw": {"type": "bytes"},
    "as_text": {"type": "bytes", "name": f"{KAFKA}.Decimal", "parameters": {"scale": "1"}},
    "raw_micros": {"type": "int64", "name": f"{DEBEZIUM}.MicroTimestamp"},
}
ROW_SCHEMA = [{**node, "field": name, "optional": True} for name, node in SEMANTICS.items()]
SCHEMA = {
    "type": "struct",
    "name": "shop.orders.Envelope",
    "fields": [
        {"type": "struct", "field": "before", "optional": True, "fields": ROW_SCHEMA},
        {"type": "struct", "field": "after", "optional": True, "fields": ROW_SCHEMA},
        {"type": "string", "field": "op"},
    ],
}
SENT = {
    "id": 1,
    "amount": "AN6t",  # 57005
    "any_scale": {"scale": 1, "value": "/w=="},  # -1
    "day": 19782,
    "noon": 36_672_123,
    "milli": -1,
    "micro": 1_709_201_472_123_456,
    "nano": 1_709_201_472_123_456_789,
    "short": 1_709_201_472_123_456,
    "zoned": "2024-02-29T12:11:12.5+02:00",
    "micro_noon": 36_672_123_999,
    "raw": "AAEC",
    "as_text": "AN6t",
    "raw_micros": 5,
}
READ = {
    "id": 1,
    "amount": Decimal("570.05"),
    "any_scale": Decimal("-0.100"),
    "day": date(2024, 2, 29),
    "noon": time(10, 11, 12, 123000),
    "milli": datetime(1969, 12, 31, 23, 59, 59, 999000),
    "micro": datetime(2024, 2, 29, 10, 11, 12, 123456),
    "short": datetime(2024, 2, 29, 10, 11, 12, 123000),
    "zoned": datetime(2024, 2, 29, 10, 11, 12, 500000, tzinfo=UTC),
    "micro_noon": time(10, 11, 12, 123000),
    "raw": b"\x00\x01\x02",
    "as_text": "5700.5",
    "raw_micros": 5,
}


PLAIN_SCHEMA = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": []}]}


def enveloped(payload: Json | None, schema: Json | None = PLAIN_SCHEMA) -> Json:
    return {"schema": schema, "payload": payload}


def test_the_schema_of_an_envelope_says_what_its_values_mean() -> None:
    found = decode_debezium(
        values(
            enveloped(event("c", None, SENT), SCHEMA),
            enveloped(None, SCHEMA),
            {"payload": event("c", None, SENT), "schema": SCHEMA},
            json.dumps(enveloped(event("c", None, SENT), SCHEMA), indent=1).encode() + b"\n",
        ),
        TYPED,
        primary_key=("id",),
    )

    assert reasons(found) == {}
    assert found.origin.to_pylist() == [0, 2, 3]
    for row in found.rows.drop_columns(["nano"]).to_pylist():
        assert row == READ
    assert found.rows["nano"].cast(pa.int64()).to_pylist() == [SENT["nano"]] * 3


def test_records_with_and_without_schemas_may_follow_each_other() -> None:
    other = {**PLAIN_SCHEMA, "version": 2}
    found = debezium(
        enveloped(event("c", None, order(1))),
        event("c", None, order(2)),
        enveloped(event("c", None, order(3)), other),
        enveloped(event("c", None, order(4)), None),
        enveloped(event("u", order(1), order(5)), other),
        enveloped(event("c", None, order(6, amount="x")), other),
    )

    assert [(kind, key, origin) for kind, key, _, origin in told(found)] == [
        ("+I", 1, 0),
        ("+I", 2, 1),
        ("+I", 3, 2),
        ("+I", 4, 3),
        ("-D", 1, 4),
        ("+U", 5, 4),
    ]
    assert list(reasons(found)) == [5]


@pytest.mark.parametrize(("mode", "sent"), [("precise", "BNI="), ("string", "12.34"), ("double", 12.34)])
def test_each_decimal_mode_gives_the_same_decimal(mode: str, sent: object) -> None:
    node = {"precise": SEMANTICS["amount"], "string": {"type": "string"}, "double": {"type": "double"}}[mode]
    image = {"type": "struct", "field": "after", "fields": [{**node, "field": "amount"}]}
    found = decode_debezium(
        values(enveloped(event("c", None, {"amount": sent}), {"fields": [image]})), columns(amount="DECIMAL(12, 2)")
    )
    assert found.rows["amount"].to_pylist() == [Decimal("12.34")]


def test_a_unit_that_does_not_fit_the_column_is_refused_instead_of_misread() -> None:
    image = {"type": "struct", "field": "after", "fields": [{**SEMANTICS["milli"], "field": "v"}]}
    record = enveloped(event("c", None, {"v": 5}), {"fields": [image]})
    for kind in ("DATE", "TIME(3)"):
        found = decode_debezium(values(record), columns(v=kind))
        assert "the source sends io.debezium.time.Timestamp" in reasons(found)[0]


ROWS = st.builds(order, st.integers(1, 3), st.sampled_from(["a", "b", None]))
EVENTS = st.one_of(
    st.builds(event, st.sampled_from("cru"), st.none() | ROWS, ROWS),
    st.builds(event, st.just("d"), ROWS, st.none()),
    st.builds(event, st.sampled_from(["t", "m", "z", None]), st.none(), st.none()),
    st.just(order(1)),
)
RECORDS = st.none() | st.sampled_from([b"", b"{", b"null"]) | EVENTS | st.builds(enveloped, st.none() | EVENTS)


@given(st.lists(RECORDS, max_size=12))
def test_debezium_events_become_what_a_reader_of_one_record_at_a_time_says(records: Sequence[Any]) -> None:
    found = debezium(*records)

    expected: list[tuple[str, int, str | None, int]] = []
    bad: list[int] = []
    for i, record in enumerate(records):
        rows = _one_by_one(record)
        if rows is None:
            bad.append(i)
        else:
            expected += [(kind, row["id"], row["customer"], i) for kind, row in rows]
    assert told(found) == expected
    assert found.bad.to_pylist() == bad


def _one_by_one(record: Any) -> list[tuple[str, Json]] | None:
    """The judge: the rows of one record, None for a bad one."""
    if record in (None, b"", b"null"):
        return []
    if isinstance(record, bytes):
        return None
    payload = record.get("payload", record)
    if payload is None:
        return []
    op, before, after = payload.get("op"), payload.get("before"), payload.get("after")
    if op in ("c", "r"):
        return [("+I", after)]
    if op == "u":
        moved = before is not None and before["id"] != after["id"]
        return [("-D", before), ("+U", after)] if moved else [("+U", after)]
    if op == "d":
        return [("-D", before)]
    return [] if op == "m" else None
