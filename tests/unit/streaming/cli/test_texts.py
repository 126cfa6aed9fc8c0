"""Values as text: every value of every type, sliced or not, can be read back."""

import csv
import io
import json
import re
from contextlib import redirect_stdout
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.streaming.cli.rows import Format, print_rows, print_table
from bucketline.streaming.cli.texts import cell_texts, json_texts, printable

_TEXTS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
_NULLABLE_INTS = st.none() | st.integers(-5, 5)
_NESTED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "texts": (pa.string(), _TEXTS),
    "lists": (pa.list_(pa.int32()), st.lists(_NULLABLE_INTS, max_size=3)),
    "lists of lists": (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(_TEXTS, max_size=2), max_size=2)),
    "maps": (pa.map_(pa.string(), pa.int32()), st.dictionaries(_TEXTS, _NULLABLE_INTS, max_size=3)),
    "rows": (
        pa.struct([("a", pa.int32()), ('b "x', pa.list_(pa.string()))]),
        st.fixed_dictionaries({"a": _NULLABLE_INTS, 'b "x': st.none() | st.lists(_TEXTS, max_size=2)}),
    ),
}


@pytest.mark.parametrize("kind", _NESTED)
@given(data=st.data())
def test_json_reads_back_to_the_values(kind: str, data: st.DataObject) -> None:
    arrow, values = _NESTED[kind]
    rows = data.draw(st.lists(st.none() | values, max_size=6))
    start = data.draw(st.integers(0, len(rows)))
    as_arrow = [list(r.items()) if isinstance(r, dict) and pa.types.is_map(arrow) else r for r in rows]
    texts = json_texts(pa.array(as_arrow, arrow).slice(start)).to_pylist()
    assert [json.loads(t) for t in texts] == rows[start:]
    assert not any("\n" in t for t in texts)


def _one(value: object, arrow: pa.DataType) -> tuple[str, object]:
    array = pa.array([value], arrow)
    return cell_texts(array)[0].as_py(), json.loads(json_texts(array)[0].as_py())


@pytest.mark.parametrize(
    ("value", "arrow", "cell", "as_json"),
    [
        (True, pa.bool_(), "true", True),
        (-(2**63), pa.int64(), "-9223372036854775808", -(2**63)),
        (Decimal("1.20"), pa.decimal128(38, 2), "1.20", 1.2),
        (float("nan"), pa.float64(), "NaN", "NaN"),
        (float("-inf"), pa.float32(), "-Infinity", "-Infinity"),
        (0.1, pa.float32(), "0.1", 0.1),
        (1e20, pa.float64(), "1e+20", 1e20),
        (b"\x00\xff", pa.binary(), "00ff", "00ff"),
        (b"\x01\x02", pa.binary(2), "0102", "0102"),
        (date(1969, 12, 31), pa.date32(), "1969-12-31", "1969-12-31"),
        (time(1, 2, 3, 4000), pa.time32("ms"), "01:02:03.004", "01:02:03.004"),
        (datetime(2024, 1, 1), pa.timestamp("ms"), "2024-01-01 00:00:00.000", "2024-01-01 00:00:00.000"),
        (
            datetime(2024, 1, 1, tzinfo=UTC),
            pa.timestamp("us", "UTC"),
            "2024-01-01 00:00:00.000000Z",
            "2024-01-01 00:00:00.000000Z",
        ),
        (None, pa.null(), None, None),
        ([1.5, None], pa.list_(pa.float64(), 2), "[1.5,null]", [1.5, None]),
        ({}, pa.struct([]), "{}", {}),
        ([(7, b"\x01")], pa.map_(pa.int32(), pa.binary()), '{"7":"01"}', {"7": "01"}),
        ("x", pa.dictionary(pa.int32(), pa.string()), "x", "x"),
    ],
)
def test_unusual_types_have_a_text(value: object, arrow: pa.DataType, cell: str | None, as_json: object) -> None:
    assert _one(value, arrow) == (cell, as_json)


def _printed(table: pa.Table, form: Format) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        print_table(table, form)
    return out.getvalue()


@given(st.lists(st.tuples(st.none() | _TEXTS, st.none() | st.integers(0, 9)), max_size=5))
def test_csv_reads_back_to_the_texts_and_tells_null_from_empty(rows: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {"a": pa.array([r[0] for r in rows], pa.string()), "b": pa.array([r[1] for r in rows], pa.int32())}
    )
    printed = _printed(table, Format.CSV)
    found = list(csv.reader(io.StringIO(printed, newline="")))
    assert found == [["a", "b"], *([a or "", "" if b is None else str(b)] for a, b in rows)]
    if [r[0] for r in rows] == [""]:
        assert printed.splitlines()[1].startswith('"",')


def test_no_rows_print_the_names_of_the_columns() -> None:
    empty = pa.table({"id": pa.array([], pa.int32())})
    assert _printed(empty, Format.JSON) == ""
    assert _printed(empty, Format.CSV) == "id\n"
    assert "id" in _printed(empty, Format.TABLE) and "(no rows)" in _printed(empty, Format.TABLE)


def test_a_table_shows_nulls_and_spells_out_control_characters() -> None:
    printed = _printed(pa.table({"s": ["\x1b[31mred\n", None, "[bold]x[/bold]"]}), Format.TABLE)
    assert "\x1b" not in printed and "\\u001b[31mred\\n" in printed
    assert "NULL" in printed and "[bold]x[/bold]" in printed


def test_a_table_wider_than_the_terminal_becomes_a_block_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    rows = pa.table({"some_name": ["x" * 30, "y"], "other_name": ["z" * 30, "w"]})
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line).rstrip() for line in _printed(rows, Format.TABLE).splitlines()]
    assert lines[0].split() == ["some_name", "x" * 28] and lines[1].strip() == "x" * 2
    assert ["other_name", "w"] in [line.split() for line in lines]
    assert all(len(line) <= 40 for line in lines)


def test_pages_of_a_long_result_share_their_widths(capsys: pytest.CaptureFixture[str]) -> None:
    schema = pa.schema([("n", pa.int64())])
    batches = [pa.record_batch([pa.array([10**15])], schema), pa.record_batch([pa.array([1])], schema)]
    print_rows(iter(batches), schema, Format.TABLE)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip("n ─")]
    assert len(lines) == 2 and len(lines[0]) == len(lines[1]) >= 16


def test_printable_leaves_ordinary_text_alone() -> None:
    assert printable("Größe 日本 \\n") == "Größe 日本 \\n"
