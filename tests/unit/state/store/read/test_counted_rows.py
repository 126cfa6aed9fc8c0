"""Counts of rows by metadata: the same as by reading, without a data file that need not be opened."""

import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io

COLUMNS = "k BIGINT NOT NULL, p STRING NOT NULL, v INT, c CHAR(4), x DOUBLE, d DECIMAL(4, 1)"
MODES: list[tuple[bool, Mapping[str, str]]] = [
    (False, {"bucket": "-1"}),
    (False, {"bucket": "-1", "deletion-vectors.enabled": "true"}),
    (True, {"bucket": "1", "write-only": "true"}),
    (True, {"bucket": "2", "num-sorted-run.compaction-trigger": "2"}),
    (True, {"bucket": "1", "deletion-vectors.enabled": "true"}),
    (True, {"bucket": "1", "merge-engine": "first-row"}),
    (True, {"bucket": "1", "merge-engine": "partial-update", "ignore-delete": "true"}),
    (True, {"bucket": "-2", "postpone.merge-on-read": "true"}),
    (True, {"bucket": "-1"}),
]


def _rows(draw: random.Random, count: int) -> pa.Table:
    keys = [draw.randrange(200) for _ in range(count)]
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "p": pa.array([draw.choice(("a", "b", "B ")) for _ in keys]),
            "v": pa.array([draw.choice((None, k % 7, k % 7)) for k in keys], pa.int32()),
            "c": pa.array([draw.choice(("x", "xy", None)) for _ in keys]),
            "x": pa.array([draw.choice((1.0, -0.0, float("nan"))) for _ in keys]),
            "d": pa.array([Decimal("1.5")] * count, pa.decimal128(4, 1)),
        }
    )


def _opened(table: Table, condition: str | None) -> tuple[int, int]:
    """The rows that pass, counted, and how many data files were opened for it."""
    io = FaultyIO(handle_of(table).io)
    count = on_io(table, io).to_arrow(columns=[], filter=condition).num_rows
    return count, len({path for _, path in io.calls if path.endswith((".parquet", ".avro"))})


CONDITIONS = [
    "p = 'a'", "p IN ('a', 'b')", "p <> 'a'", "k > 100", "k >= 0", "k < 200 AND p = 'b'", "v IS NULL", "v >= 0",
    "v IS NOT NULL OR p = 'a'", "c = 'x'", "c >= 'w'", "x = 0.0", "x < 2", "NOT (p = 'a')", "k + 1 > 0", "k < 0",
    "d > 0",
]  # fmt: skip


@pytest.mark.parametrize(("keyed", "options"), MODES, ids=str)
def test_counts_are_those_of_the_rows(tmp_path: Path, keyed: bool, options: Mapping[str, str]) -> None:
    keys = ["p", "k"] if keyed else []
    table = create_table(str(tmp_path / "t"), COLUMNS, keys, ["p"], options)
    draw = random.Random(str(options))
    spared = 0
    for turn in range(3):
        kinds = pa.array([draw.choice((0, 0, 0, 3)) for _ in range(60)], pa.int8()) if keyed else None
        if options.get("merge-engine") == "first-row":
            kinds = None
        table.write(_rows(draw, 60), kinds)
        if turn == 1 and options.get("bucket") != "-2" and options.get("merge-engine", "") == "":
            table.delete("k % 5 = 0" if keyed else "k < 40")
        if turn == 2 and options.get("write-only") is None:
            table.compact()
        for condition in (None, *draw.sample(CONDITIONS, 5)):
            found = table.to_arrow(filter=condition)
            count, opened = _opened(table, condition)
            assert count == found.num_rows, (turn, condition)
            spared += count > 0 and opened == 0
        batches = table.to_batches(columns=[], filter="p <> 'a'")
        expected = table.to_arrow(filter="p <> 'a'").num_rows
        assert sum(b.num_rows for b in batches) == expected
        assert open_table(table.path).dataset().count_rows("p <> 'a'") == expected
    assert spared > 0 or options.get("bucket") == "-2" or options.get("write-only") == "true"


def test_a_count_of_whole_partitions_opens_no_data_file(tmp_path: Path) -> None:
    path = tmp_path / "w" / "default.db" / "t"
    table = create_table(str(path), COLUMNS, (), ["p"], {"bucket": "-1"})
    for turn in range(3):
        table.write(_rows(random.Random(turn), 50))
    expected = table.to_arrow().num_rows
    assert _opened(table, None) == (expected, 0)
    of_a = table.to_arrow(filter="p = 'a'").num_rows
    assert 0 < of_a < expected
    assert _opened(table, "p = 'a'") == (of_a, 0)
    # Some rows of these files pass and others do not.
    assert _opened(table, "k > 100")[1] > 0
    for data in path.rglob("data-*.parquet"):
        data.unlink()
    text = "SELECT count(*) AS n, count(1) FROM t WHERE p = 'a' AND k >= 0"
    assert bl.sql(None, text, str(tmp_path / "w")).to_pydict() == {"n": [of_a], "count(1)": [of_a]}


def test_a_limit_of_rows_without_columns_counts_no_further(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k BIGINT", options={"bucket": "-1"})
    table.write(pa.table({"k": range(100)}))
    assert table.to_arrow(columns=[], limit=7).num_rows == 7
    assert [b.num_rows for b in table.to_batches(columns=[])] == [100]
