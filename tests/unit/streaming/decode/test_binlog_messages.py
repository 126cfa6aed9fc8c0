"""What becomes of messages of Canal and Maxwell: rows with their kinds, bad records, and what is skipped."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.types.logical import DataField, parse_type
from bucketline.state.types.row_kind import SHORT_NAMES
from bucketline.streaming.decode.binlog_messages import CANAL, MAXWELL, BinlogFormat, decode_binlog
from bucketline.streaming.decode.canal_values import column_types
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.row_changes import UpdateBefore
from bucketline.streaming.decode.schema_needs import WatchFor
from tests.support.models.sweeps import draws

Json = dict[str, Any]
NAMES = {int(kind): name for name, kind in SHORT_NAMES.items()}
TYPES = {"id": "bigint", "name": "varchar(20)", "amount": "decimal(12,2)", "raw": "blob"}


def columns(**types: Any) -> tuple[DataField, ...]:
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


ORDERS = columns(id="BIGINT NOT NULL", name="STRING", amount="DECIMAL(12, 2)", raw="BYTES", code="STRING NOT NULL")


def texts(*messages: object) -> pa.Array:
    return pa.array(
        [m if m is None or isinstance(m, bytes) else json.dumps(m, ensure_ascii=False).encode() for m in messages],
        pa.binary(),
    )


def canal(kind: str | None, data: object, old: object = None, **more: object) -> Json:
    """A message with all fields that Canal writes, in its order."""
    message = {"data": data, "database": "shop", "es": 1, "id": 7, "isDdl": False, "mysqlType": TYPES, "old": old}
    return (
        message | {"pkNames": ["id"], "sql": "", "sqlType": {"id": -5}, "table": "orders", "ts": 2, "type": kind} | more
    )


def maxwell(kind: str | None, data: object, old: object = None) -> Json:
    message: Json = {"database": "shop", "table": "orders", "type": kind, "ts": 1, "xid": 5, "commit": True}
    return message | {"data": data} | ({} if old is None else {"old": old})


def order(key: int, name: str | None = "ann", **more: object) -> Json:
    """A row of Canal."""
    return {"id": str(key), "name": name, "amount": "9.90", "raw": "\x00é", "code": "x", **more}


def decoded(*messages: object, form: BinlogFormat = CANAL, **more: Any) -> Decoded:
    return decode_binlog(texts(*messages), ORDERS, form, primary_key=("id",), **more)


def shown(found: Decoded) -> list[tuple[str, int, str | None, int]]:
    """Kind, id, name and record of each row."""
    return [
        (NAMES[kind], row["id"], row["name"], record)
        for kind, row, record in zip(
            found.kinds.to_pylist(), found.rows.to_pylist(), found.origin.to_pylist(), strict=True
        )
    ]


def reasons(found: Decoded) -> dict[int, str]:
    return dict(zip(found.bad.to_pylist(), found.reasons.to_pylist(), strict=True))


def test_each_row_of_a_canal_message_becomes_one_of_its_kind() -> None:
    found = decoded(
        canal("INSERT", [order(1), order(2, None)]),
        canal("UPDATE", [order(1, "bob")], [{"name": "ann"}]),
        canal("DELETE", [order(2, None)]),
    )

    assert shown(found) == [("+I", 1, "ann", 0), ("+I", 2, None, 0), ("+U", 1, "bob", 1), ("-D", 2, None, 2)]
    assert found.rows.to_pylist()[0] == {
        "id": 1, "name": "ann", "amount": Decimal("9.90"), "raw": b"\x00\xe9", "code": "x",
    }  # fmt: skip
    assert reasons(found) == {}


def test_maxwell_has_values_of_their_own_types() -> None:
    row = {"id": 1, "name": "ann", "amount": 9.9, "raw": "AOk=", "code": "x"}
    found = decoded(
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", row),
        maxwell("insert", row | {"id": 2}),
        maxwell("update", row | {"name": "bob"}, {"name": "ann"}),
        maxwell("delete", row),
        form=MAXWELL,
    )

    assert shown(found) == [("+I", 1, "ann", 1), ("+I", 2, "ann", 2), ("+U", 1, "bob", 3), ("-D", 1, "ann", 4)]
    assert found.rows["amount"].to_pylist() == [Decimal("9.90")] * 4
    assert found.rows["raw"].to_pylist() == [b"\x00\xe9"] * 4
    assert reasons(found) == {}


def test_an_update_that_changes_the_key_deletes_the_whole_old_row() -> None:
    found = decoded(canal("UPDATE", [order(2, "bob"), order(3)], [{"id": "1", "name": None}, {"name": "x"}]))

    assert shown(found) == [("-D", 1, None, 0), ("+U", 2, "bob", 0), ("+U", 3, "ann", 0)]
    assert found.rows["amount"].to_pylist() == [Decimal("9.90")] * 3


def test_rows_before_updates_are_there_when_asked_for_and_null_is_not_left_out() -> None:
    found = decoded(
        canal("UPDATE", [order(1, "bob")], [{"name": None}]),
        canal("UPDATE", [order(1, None)], [{"name": "bob"}]),
        canal("UPDATE", [order(1, "null")], [{"amount": "1.00"}]),
        canal("UPDATE", [order(1, "last")]),
        update_before=UpdateBefore.EMIT,
    )

    assert shown(found) == [
        ("-U", 1, None, 0),
        ("+U", 1, "bob", 0),
        ("-U", 1, "bob", 1),
        ("+U", 1, None, 1),
        ("-U", 1, "null", 2),
        ("+U", 1, "null", 2),
        ("+U", 1, "last", 3),
    ]
    assert found.rows["amount"].to_pylist()[4] == Decimal("1.00")


def test_a_delete_needs_nothing_but_its_key() -> None:
    found = decoded(canal("DELETE", [{"id": "1"}]), maxwell("delete", {"id": 1}))
    assert shown(found) == [("-D", 1, None, 0)]
    assert found.rows["code"].to_pylist() == [""]
    assert "not a JSON array" in reasons(found)[1]

    strict = decoded(canal("DELETE", [{"id": "1"}]), loose=())
    assert reasons(strict) == {0: "field code: null, but the column is NOT NULL"}


def test_changes_of_the_schema_are_skipped() -> None:
    ddl = canal("ALTER", None, isDdl=True, mysqlType=None, sql="ALTER TABLE orders ADD COLUMN v INT")
    watermark = canal("TIDB_WATERMARK", None, _tidb={"watermarkTs": 1})
    found = decoded(ddl, canal("QUERY", None), watermark, canal("INSERT", [order(1)], isDdl=True), None, b"", b"null")
    assert (shown(found), reasons(found)) == ([], {})

    found = decoded(maxwell("table-alter", None), maxwell("database-create", None), form=MAXWELL)
    assert (shown(found), reasons(found)) == ([], {})


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (canal("TRUNCATE", None, isDdl=True), "a truncate of the source table (type TRUNCATE)"),
        (canal("DELETE", None), "a message of type DELETE without a row in data"),
        (canal("INSERT", []), "a message of type INSERT without a row in data"),
        (canal("INSERT", [order(1), None]), "a message of type INSERT without a row in data"),
        (
            canal("UPDATE", [order(1), order(2)], [{"name": "a"}]),
            "a message of type UPDATE whose data and old have different numbers of rows: 2, 1",
        ),
        (
            canal("MERGE", [order(1)]),
            "a message of Canal with type 'MERGE'; rows come with INSERT, ROW, UPDATE, DELETE",
        ),
        ({"before": None, "after": order(1), "op": "c"}, "not a message of Canal: it has no field type"),
        (canal("INSERT", [order(1, raw="\u0100")]), "field raw: is not bytes: Canal sends each byte as a character up "
            "to"),
        (canal("INSERT", [order(1), order(2, amount="x")]), 'field data[].amount: "x" cannot become DECIMAL(12, 2)'),
        (b"{broken", "no JSON: "),
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_followed_is_bad_as_a_whole_and_says_why(message: object, reason: str) -> None:
    found = decoded(canal("INSERT", [order(8)]), message, canal("INSERT", [order(9)]))
    assert [row[1] for row in shown(found)] == [8, 9]
    assert list(reasons(found)) == [1] and reasons(found)[1].startswith(reason)


def test_numbers_of_enums_and_sets_become_their_labels() -> None:
    fields = columns(
        id="INT NOT NULL", size="STRING", tags="STRING", many={"type": "ARRAY", "element": "STRING"}, note="STRING"
    )
    types = {"id": "int", "size": "enum('s','it''s {l}')", "tags": "set('a','b','c')", "many": "SET('a','b','c')"}
    rows = [
        {"id": "1", "size": "2", "tags": "5", "many": "5", "note": "2"},
        {"id": "2", "size": "0", "tags": "0", "many": "0", "note": None},
        {"id": "3", "size": None, "tags": None, "many": None, "note": ""},
    ]
    other = canal("INSERT", [{"id": "4", "size": "2", "note": "5"}], mysqlType={"id": "int", "size": "varchar(9)"})
    wrong = canal("INSERT", [{"id": "5", "size": "3"}], mysqlType=types)
    unnamed = canal("INSERT", [{"id": "6", "many": "1"}], mysqlType={"id": "int", "many": "int"})
    found = decode_binlog(
        texts(canal("INSERT", rows, mysqlType=types), other, wrong, unnamed), fields, CANAL, primary_key=("id",)
    )

    assert [list(row.values()) for row in found.rows.to_pylist()] == [
        [1, "it's {l}", "a,c", ["a", "c"], "2"],
        [2, "", "", [], None],
        [3, None, None, None, ""],
        [4, "2", None, None, "5"],
    ]
    assert reasons(found) == {
        2: "field size: \"3\" is not the number of a label of enum('s','it''s {l}')",
        3: 'field many: "1" is not a SET, the only type of MySQL that can become an array of strings',
    }


@pytest.mark.parametrize("form", [CANAL, MAXWELL])
def test_an_update_may_mend_what_cannot_be_read(form: BinlogFormat) -> None:
    def update(row: Json, old: Json) -> Json:
        return canal("UPDATE", [row], [old]) if form is CANAL else maxwell("update", row, old)

    fields = columns(id="BIGINT NOT NULL", day="DATE", n="INT", name="STRING")
    day, never = "2026-01-01", "0000-00-00"
    messages = texts(
        update({"id": "1", "day": day, "name": "a"}, {"day": never, "name": None}),
        update({"id": "2", "day": day}, {"day": "2025-01-01"}),
        update({"id": "3", "n": "7"}, {"n": "3000000000"}),
        update({"id": "4", "day": day}, {"id": "9", "day": never}),
        update({"id": "5", "day": never}, {"day": never}),
    )
    dropped = decode_binlog(messages, fields, form, primary_key=("id",))
    assert shown(dropped) == [("+U", 1, "a", 0), ("+U", 2, None, 1), ("+U", 3, None, 2)]
    assert dropped.bad.to_pylist() == [3, 4]

    before = decode_binlog(
        messages, fields, form, primary_key=("id",), update_before=UpdateBefore.EMIT, watch=WatchFor.ALL
    )
    assert before.bad.to_pylist() == [0, 2, 3, 4]
    assert form is MAXWELL or before.need.field("n").type == pa.int64()


def test_an_old_label_counts_where_a_row_has_it() -> None:
    fields, types = columns(id="BIGINT NOT NULL", size="STRING"), {"id": "bigint", "size": "enum('a')"}
    messages = texts(
        canal("UPDATE", [{"id": "1", "size": "1"}], [{"size": "7"}], mysqlType=types),
        canal("UPDATE", [{"id": "2", "size": "1"}], [{"id": "3", "size": "7"}], mysqlType=types),
    )
    dropped = decode_binlog(messages, fields, CANAL, primary_key=("id",))
    assert (dropped.rows.to_pylist(), dropped.bad.to_pylist()) == ([{"id": 1, "size": "a"}], [1])
    before = decode_binlog(messages, fields, CANAL, primary_key=("id",), update_before=UpdateBefore.EMIT)
    assert before.bad.to_pylist() == [0, 1]


def test_labels_with_braces_and_quotes_are_found_in_one_pass() -> None:
    fields = columns(id="INT NOT NULL", size="STRING")
    types = {"id": "int", "size": """enum('a{','}"\\','é','{"b":1}')"""}
    rows = [canal("INSERT", [{"id": str(n), "size": str(n)}], mysqlType=types) for n in range(1, 5)]
    found = column_types(texts(*rows, canal("ALTER", None, mysqlType=None), canal("ALTER", None, mysqlType=None)))
    assert [found.types[code] for code in found.codes] == [types] * 4 + [{}] * 2
    assert len(set(found.codes.tolist())) == 2
    decoded_rows = decode_binlog(texts(*rows), fields, CANAL, primary_key=("id",)).rows
    assert decoded_rows["size"].to_pylist() == ["a{", '}"\\', "é", '{"b":1}']


def test_new_columns_have_the_types_that_canal_declares() -> None:
    fields = columns(id="BIGINT NOT NULL", name="STRING")
    types = TYPES | {"size": "enum('s')", "at": "datetime(3)", "ok": "tinyint(1)"}
    found = decode_binlog(
        texts(canal("INSERT", [order(1)], mysqlType=types), canal("ALTER", None, isDdl=True, mysqlType={"ddl": "int"})),
        fields,
        CANAL,
        primary_key=("id",),
        watch=WatchFor.ALL,
    )
    assert {f.name: f.type for f in found.need} == {
        "amount": pa.decimal128(12, 2),
        "raw": pa.binary(),
        "size": pa.string(),
        "at": pa.timestamp("ms"),
        "ok": pa.bool_(),
    }
    assert shown(found) == [("+I", 1, "ann", 0)]


def test_a_number_too_wide_for_its_column_asks_for_a_wider_one() -> None:
    fields = columns(id="BIGINT NOT NULL", count="INT", day="DATE")
    rows = [{"id": "1", "count": "3000000000"}, {"id": "2", "count": "7"}]
    wide = canal("INSERT", rows, mysqlType={"id": "int", "count": "int unsigned"})
    wrong = canal(
        "INSERT", [{"id": "1", "count": "1", "day": "0000-00-00"}], mysqlType={"id": "int", "count": "bigint"}
    )
    found = decode_binlog(texts(wide), fields, CANAL, primary_key=("id",), watch=WatchFor.ALL)
    assert {f.name: f.type for f in found.need} == {"count": pa.int64()}
    assert list(reasons(found)) == [0]

    needless = decode_binlog(texts(wrong), fields, CANAL, primary_key=("id",), watch=WatchFor.ALL)
    assert (needless.need, list(reasons(needless))) == (pa.null(), [0])


def test_maxwells_new_columns_have_the_types_of_their_values() -> None:
    found = decode_binlog(
        texts(
            maxwell("insert", {"id": 1, "n": 2, "at": "2026-01-01 00:00:00"}), maxwell("update", {"id": 1}, {"x": 1.5})
        ),
        columns(id="BIGINT NOT NULL"),
        MAXWELL,
        primary_key=("id",),
        watch=WatchFor.ALL,
    )
    assert {f.name: f.type for f in found.need} == {"n": pa.int64(), "at": pa.string(), "x": pa.float64()}


CHANGED = st.fixed_dictionaries({}, optional={"id": st.integers(1, 3), "name": st.sampled_from(["a", "null", None])})
ROW = st.tuples(st.integers(1, 3), st.sampled_from(["a", "null", None]), CHANGED)
MESSAGES = st.tuples(
    st.sampled_from(["insert", "update", "delete", "skipped", "truncate", "odd"]),
    st.lists(ROW, max_size=3),
    st.sampled_from(["whole", "whole", "whole", "short", "none"]),
)


@draws(200)
@given(st.lists(MESSAGES, max_size=8), st.sampled_from(UpdateBefore), st.booleans())
def test_messages_become_what_a_reader_of_one_row_at_a_time_says(
    messages: Sequence[tuple[str, list[tuple[int, str | None, Json]], str]], before: UpdateBefore, is_canal: bool
) -> None:
    made = [_canal_of(m) if is_canal else _maxwell_of(m) for m in messages]
    found = decoded(*made, form=CANAL if is_canal else MAXWELL, update_before=before)

    expected, bad = [], []
    for i, (kind, rows, olds) in enumerate(messages):
        of_message = rows if is_canal else rows[:1]
        if kind == "skipped":
            continue
        short = kind == "update" and olds == "short" and is_canal
        if kind in ("truncate", "odd") or not of_message or short:
            bad.append(i)
            continue
        for key, name, old in of_message:
            expected += [(*row, i) for row in _one_by_one(kind, key, name, None if olds != "whole" else old, before)]
    assert shown(found) == expected
    assert found.bad.to_pylist() == bad


def _one_by_one(
    kind: str, key: int, name: str | None, old: Json | None, update_before: UpdateBefore
) -> list[tuple[str, int, str | None]]:
    """The judge: the changes of one row."""
    if kind == "insert":
        return [("+I", key, name)]
    if kind == "delete":
        return [("-D", key, name)]
    after = ("+U", key, name)
    if old is None:
        return [after]
    before = {"id": key, "name": name} | old
    if before["id"] != key:
        return [("-D", before["id"], before["name"]), after]
    return [("-U", key, before["name"]), after] if update_before is UpdateBefore.EMIT else [after]


def _canal_of(message: tuple[str, list[tuple[int, str | None, Json]], str]) -> Json:
    kind, rows, olds = message
    data = [order(key, name) for key, name, _ in rows]
    old = [{n: v if v is None else str(v) for n, v in changed.items()} for *_, changed in rows]
    given_old = None if olds == "none" or kind != "update" else old[:-1] if olds == "short" else old
    named = {"skipped": "ALTER", "odd": None}.get(kind, kind.upper())
    return canal(named, data or None, given_old, isDdl=kind in ("skipped", "truncate"))


def _maxwell_of(message: tuple[str, list[tuple[int, str | None, Json]], str]) -> Json:
    kind, rows, olds = message
    data = [{"id": key, "name": name, "code": "x"} for key, name, _ in rows]
    old = rows[0][2] if rows and olds == "whole" and kind == "update" else None
    return maxwell({"skipped": "table-alter", "odd": None}.get(kind, kind), data[0] if data else None, old)
