"""Debezium's placeholder for an unchanged large value makes a record bad, wherever it stands."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.sources.message_options import UNAVAILABLE, MessageOptions, message_options
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.records import decode_debezium
from bucketline.streaming.decode.unavailable import Placeholder

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
