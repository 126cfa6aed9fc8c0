"""Debezium's placeholder for an unchanged large value makes a record bad, wherever it stands."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.sources.message_options import UNAVAILABLE, MessageOptions, message_options
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.flat_records import decode_flat
from bucketline.streaming.decode.records import decode_debezium, decode_json
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.unavailable import Keeping, LeftOut, Placeholder

IN_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
PLACE = {"type": "ROW", "fields": [{"id": 1, "name": "wkb", "type": "BYTES"}, {"id": 2, "name": "t", "type": "STRING"}]}
FIELDS = tuple(
    DataField(i, name, parse_type(kind))
    for i, (name, kind) in enumerate(
        {
            "id": "INT NOT NULL",
            "tags": {"type": "MAP", "key": "STRING", "value": "STRING"},
            "note": "STRING",
            "raw": "BYTES",
            "counts": {"type": "ARRAY", "element": "INT"},
            "large": {"type": "ARRAY", "element": "BIGINT"},
            "place": PLACE,
            "lists": {"type": "ARRAY", "element": {"type": "ARRAY", "element": "STRING"}},
            "words": {"type": "ARRAY", "element": "STRING"},
        }.items()
    )
)


def decoded(*rows: dict[str, Any], **messages: Any) -> Decoded:
    records = [{"before": None, "after": {"id": i, **row}, "op": "u"} for i, row in enumerate(rows)]
    values = pa.array([json.dumps(r).encode() for r in records], pa.binary())
    return decode_debezium(values, FIELDS, primary_key=("id",), messages=MessageOptions(**messages))


@pytest.mark.parametrize(
    "row",
    [
        {"note": UNAVAILABLE},
        {"note": json.dumps({UNAVAILABLE: UNAVAILABLE})},
        {"tags": {UNAVAILABLE: UNAVAILABLE}},
        {"tags": {"a": UNAVAILABLE}},
        {"raw": IN_BASE64},
        {"counts": list(UNAVAILABLE.encode())},
        {"large": list(UNAVAILABLE.encode())},
        {"large": [1868788]},
        {"place": {"wkb": "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ=="}},
        {"place": {"t": UNAVAILABLE}},
        {"lists": [["a"], [UNAVAILABLE]]},
        {"words": [*UNAVAILABLE.encode()]},
        *(
            {"note": text}
            for text in (
                IN_BASE64,
                UNAVAILABLE.encode().hex(),
                {UNAVAILABLE: UNAVAILABLE},
                [UNAVAILABLE],
                [IN_BASE64],
                [*UNAVAILABLE.encode()],
                [1868788],
                {"wkb": "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==", "srid": None},
            )
        ),
    ],
)
def test_the_placeholder_is_found_in_every_form(row: dict[str, Any]) -> None:
    plain = {
        "note": "x",
        "tags": {"a": "b"},
        "raw": "YQ==",
        "counts": [1],
        "large": [],
        "place": None,
        "lists": [None],
        "words": ["95", "x"],
    }
    found = decoded(plain, row, {"tags": None, "counts": None}, plain)

    assert found.rows["id"].to_pylist() == [0, 2, 3]
    assert found.bad.to_pylist() == [1]
    assert f"{UNAVAILABLE}: the source left out a large value" in found.reasons[0].as_py()
    assert found.reasons[0].as_py().startswith(f"field {next(iter(row))}")


def test_a_connector_may_have_a_placeholder_of_its_own() -> None:
    found = decoded({"note": UNAVAILABLE}, {"note": "n/a"}, {"raw": "bi9h"}, unavailable_value="n/a")
    assert found.bad.to_pylist() == [1, 2]
    assert found.reasons[0].as_py().startswith("field note: n/a: the source left out")
    assert message_options({"unavailable-value": "hex:6e2f61"}).unavailable_value == "n/a"
    with pytest.raises(OptionError, match="hexadecimal"):
        message_options({"unavailable-value": "hex:6e2"})


def test_parts_of_arrays_are_judged_as_the_whole_is() -> None:
    lists = pa.array([["a"], [UNAVAILABLE], None, [], ["b", UNAVAILABLE]])
    found = Placeholder(UNAVAILABLE).rows(lists.slice(1))
    assert found is not None and found.tolist() == [True, False, False, True]


HSTORE = {UNAVAILABLE: UNAVAILABLE}
SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int32"},
        {"field": "place", "type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
    ],
}
EVENT_SCHEMA = {"type": "struct", "fields": [{"field": "after", **SCHEMA}, {"field": "op", "type": "string"}]}
PLACES = tuple(f for f in FIELDS if f.name in ("id", "place"))
SPOTS = DataField(2, "spots", parse_type({"type": "ARRAY", "element": PLACE}))


def records_of(rows: list[dict[str, Any]], *, enveloped: bool, is_event: bool = True) -> pa.Array:
    payloads = [{"before": None, "after": r, "op": "u"} for r in rows] if is_event else rows
    schema = EVENT_SCHEMA if is_event else SCHEMA
    records = [{"schema": schema, "payload": p} for p in payloads] if enveloped else payloads
    return pa.array([json.dumps(r).encode() for r in records], pa.binary())


@pytest.mark.parametrize("enveloped", [False, True])
def test_the_placeholder_of_an_hstore_in_a_row_is_found(enveloped: bool) -> None:
    rows: list[dict[str, Any]] = [{"id": 0, "place": {"t": "x"}}, {"id": 1, "place": HSTORE}, {"id": 2, "place": None}]
    events = decode_debezium(records_of(rows, enveloped=enveloped), PLACES, primary_key=("id",))
    flat = decode_flat(records_of(rows, enveloped=enveloped, is_event=False), PLACES, primary_key=("id",))

    for found in (events, flat):
        assert found.bad.to_pylist() == [1]
        assert found.reasons[0].as_py().startswith(f"field place: {UNAVAILABLE}: the source left out a large value")
        assert found.rows["place"].to_pylist() == [{"wkb": None, "t": "x"}, None]


def test_the_placeholder_of_an_hstore_is_found_in_rows_of_json_and_inside_arrays() -> None:
    rows: list[dict[str, Any]] = [{"id": 0}, {"id": 1, "place": HSTORE}, {"id": 2, "spots": [{"t": "x"}, HSTORE]}]
    found = decode_json(records_of(rows, enveloped=False, is_event=False), (*PLACES, SPOTS))
    assert found.bad.to_pylist() == [1, 2]
    assert [reason.split(":")[0] for reason in found.reasons.to_pylist()] == ["field place", "field spots"]


def test_a_row_that_names_the_placeholder_in_a_text_or_in_an_unknown_field_is_kept() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 0, "place": {"t": "as " + json.dumps(HSTORE)}},
        {"id": 1, "place": {"t": "x"}, "other": HSTORE},
    ]
    found = decode_debezium(records_of(rows, enveloped=False), PLACES, primary_key=("id",))
    assert found.bad.to_pylist() == []
    assert found.rows["id"].to_pylist() == [0, 1]


@pytest.mark.parametrize("left_out", [LeftOut.NULL, LeftOut.MARKED])
def test_the_placeholder_of_an_hstore_in_a_row_is_kept_on_request(left_out: LeftOut) -> None:
    keeping = Keeping(left_out, names=("id", "place"))
    values = records_of([{"id": 0, "place": {"t": "x"}}, {"id": 1, "place": HSTORE}], enveloped=False)
    found = decode_debezium(values, PLACES, primary_key=("id",), keeping=keeping)
    assert found.bad.to_pylist() == []
    assert found.rows["place"].to_pylist() == [{"wkb": None, "t": "x"}, None]


def test_the_placeholder_of_an_hstore_in_a_row_is_no_new_field() -> None:
    values = records_of([{"id": 0, "place": {"t": "x", "new": 1}}, {"id": 1, "place": HSTORE}], enveloped=False)
    found = decode_debezium(values, PLACES, primary_key=("id",), watch=WatchFor.ALL)
    assert [f.name for f in found.need.field("place").type] == ["new"]
    alone = decode_debezium(values.slice(1), PLACES, primary_key=("id",), watch=WatchFor.ALL)
    assert pa.types.is_null(alone.need)
