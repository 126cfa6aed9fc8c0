"""Tables that Paimon Java wrote to be hard to read: every format, old schemas, odd partitions, deletion vectors.

`expected/java.*.jsonl` is what Paimon Java read from them.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import handle_of, open_table
from bucketline.state.types.char_text import chars_of, padded
from tests.support.peers.golden import GOLDEN, json_rows
from tests.support.peers.rows import assert_same_rows, table_fields

JAVA = GOLDEN / "java.db"
TABLES = sorted(p.name for p in JAVA.iterdir())
KINDS = {0: "+I", 1: "-U", 2: "+U", 3: "-D"}


def _expected(name: str) -> list[dict[str, object]]:
    text = (GOLDEN / "expected" / f"java.{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _assert_rows(found: pa.Table, expected: str, table: Path) -> None:
    rows = json_rows(found)
    for row in rows:
        if "_row_kind" in row:
            row["_row_kind"] = KINDS[int(str(row["_row_kind"]))]
    assert_same_rows(rows, [_as_in_spark(row, table) for row in _expected(expected)], table_fields(table))


def _as_in_spark(row: dict[str, object], table: Path) -> dict[str, object]:
    """A row that Java reads, with the blanks of a CHAR, which Java neither writes nor adds."""
    chars = chars_of(handle_of(open_table(str(table))).table_schema.fields)
    return row | {n: padded(str(row[n]), t) for n, t in chars.items() if row.get(n) is not None}


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_that_java_reads(name: str) -> None:
    table = open_table(str(JAVA / name))
    found = table.to_arrow()
    assert found.schema.equals(table.schema)
    found.validate(full=True)
    _assert_rows(found, name, JAVA / name)


@pytest.mark.parametrize("bits", ["32", "64"])
def test_rows_that_no_compaction_has_looked_up_are_seen_when_asked_for(bits: str) -> None:
    path = JAVA / f"dv{bits}"
    _assert_rows(open_table(str(path)).to_arrow(read_optimized=True), f"dv{bits}.ro", path)
    asked = open_table(str(path), options={"deletion-vectors.merge-on-read": "true"})
    expected = [{**row, "v": "unseen"} if row["k"] == 1 else row for row in _expected(f"dv{bits}")]
    assert_same_rows(json_rows(asked.to_arrow()), expected, table_fields(path))


def test_postponed_rows_are_seen_when_asked_for() -> None:
    path = str(JAVA / "postponed")
    assert open_table(path).to_arrow().num_rows == 0
    asked = open_table(path, options={"postpone.merge-on-read": "true"})
    assert json_rows(asked.to_arrow()) == [{"k": 1, "v": "a"}, {"k": 2, "v": "b2"}]


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_changes_between_two_snapshots_are_those_that_java_reads(producer: str) -> None:
    path = JAVA / f"changes_{producer}"
    table = open_table(str(path))
    last = table.snapshots()["snapshot_id"][-1].as_py()
    _assert_rows(table.to_arrow(changes_since=1), f"changes_{producer}.since1", path)
    _assert_rows(table.to_arrow(changes_since=1, snapshot=last - 1), f"changes_{producer}.between", path)
    assert table.to_arrow(changes_since=last).num_rows == 0
