"""What becomes of a record never depends on the records beside it, whatever its numbers are."""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.binlog_messages import CANAL, MAXWELL, decode_binlog
from bucketline.streaming.decode.decoded_rows import Decoded
from bucketline.streaming.decode.records import decode_debezium, decode_json
from tests.support.models.sweeps import draws

PLACE = {
    "type": "ROW",
    "fields": [{"id": 20, "name": "x", "type": "DOUBLE"}, {"id": 21, "name": "y", "type": "FLOAT"}],
}
TYPES: dict[str, Any] = {
    "id": "BIGINT",
    "d": "DOUBLE",
    "f": "FLOAT",
    "n": "DECIMAL(10, 2)",
    "i": "INT",
    "list": {"type": "ARRAY", "element": "DOUBLE"},
    "place": PLACE,
}
FIELDS = tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items()))
LARGE = ["1e400", "-1e400", "9" * 400, "-" + "9" * 400 + ".5", "1e309", "-1.8e308", "1e39", "-3.5e38", "1e99999999999"]
SMALL = ["0", "1.5", "-2", "1e-400", "1e300", "3.4e38", "1e22", "12345678901234567890"]
NUMBERS = st.sampled_from([*LARGE, *SMALL, *SMALL])
SCALARS = NUMBERS | NUMBERS.map(json.dumps) | st.sampled_from(["null", '"Infinity"', '"x"', "true"])
COLUMNS: dict[str, st.SearchStrategy[str]] = {
    **dict.fromkeys(("d", "f", "n", "i"), SCALARS),
    "list": st.lists(SCALARS, max_size=3).map(lambda v: f"[{','.join(v)}]"),
    "place": st.fixed_dictionaries({"x": SCALARS}, optional={"y": SCALARS}).map(lambda v: _object(v)),
}
ROWS = st.fixed_dictionaries({}, optional=COLUMNS)

Decode = Callable[[pa.Array], Decoded]


def _object(parts: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in parts.items()) + "}"


def _debezium(row: str) -> str:
    return f'{{"before":null,"after":{row},"source":{{"table":"t"}},"op":"c","ts_ms":1}}'


def _canal(row: str) -> str:
    return f'{{"data":[{row}],"database":"a","es":1,"isDdl":false,"old":null,"table":"t","type":"INSERT"}}'


def _maxwell(row: str) -> str:
    return f'{{"database":"a","table":"t","type":"insert","ts":1,"data":{row}}}'


FORMATS: dict[str, tuple[Decode, Callable[[str], str]]] = {
    "json": (partial(decode_json, fields=FIELDS), str),
    "debezium": (partial(decode_debezium, fields=FIELDS, primary_key=("id",)), _debezium),
    "canal": (partial(decode_binlog, fields=FIELDS, form=CANAL, primary_key=("id",)), _canal),
    "maxwell": (partial(decode_binlog, fields=FIELDS, form=MAXWELL, primary_key=("id",)), _maxwell),
}


def _records(form: str, rows: Sequence[dict[str, str]]) -> list[bytes]:
    wrap = FORMATS[form][1]
    return [wrap(_object({"id": str(n), **row})).encode() for n, row in enumerate(rows)]


def _results(form: str, records: Sequence[bytes]) -> list[Any]:
    """For each record its row, or why it is bad."""
    found = FORMATS[form][0](pa.array(records, pa.binary()))
    results: list[Any] = [None] * len(records)
    for origin, row in zip(found.origin.to_pylist(), found.rows.to_pylist(), strict=True):
        results[origin] = repr(row)
    for position, reason in zip(found.bad.to_pylist(), found.reasons.to_pylist(), strict=True):
        results[position] = f"bad: {reason}"
    return results


@pytest.mark.parametrize("form", FORMATS)
@draws(100)
@given(st.data())
def test_a_record_becomes_the_same_alone_and_among_others(form: str, data: st.DataObject) -> None:
    records = _records(form, data.draw(st.lists(ROWS, min_size=2, max_size=6)))
    together, alone = _results(form, records), [result for record in records for result in _results(form, [record])]
    # Of several reasons against a record it may be another one that is told.
    assert [f"{f:.4}" if f.startswith("bad:") else f for f in together] == [
        f"{f:.4}" if f.startswith("bad:") else f for f in alone
    ]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("column", ["d", "f", "list", "place"])
@pytest.mark.parametrize("number", LARGE)
@pytest.mark.parametrize("is_text", [False, True])
def test_a_number_too_large_for_its_column_is_always_bad(form: str, column: str, number: str, is_text: bool) -> None:
    value = json.dumps(number) if is_text else number
    fits_double = math.isfinite(float(number))
    whole = {
        "d": value,
        "f": value,
        "list": f"[1.5,{value}]",
        "place": f'{{"x":{1 if fits_double else value},"y":{value}}}',
    }
    plain = {"d": "1.5", "f": "2", "list": "[1]", "place": '{"x":1}'}
    odd = {"d": '"x"'}
    is_bad = column in ("f", "place") or not fits_double
    for rows, at in [
        ([{column: whole[column]}], 0),
        ([plain, {column: whole[column]}, plain], 1),
        ([odd, whole, plain], 1),
    ]:
        results = _results(form, _records(form, rows))
        assert results[at].startswith("bad:") or not (is_bad or rows[at] is whole)
        # Debezium's texts may be base64 as well.
        assert not results[at].startswith("bad:") or is_bad or rows[at] is whole or (form == "debezium" and is_text)
        assert all(result.startswith("{'id'") for result, row in zip(results, rows, strict=True) if row is plain)
