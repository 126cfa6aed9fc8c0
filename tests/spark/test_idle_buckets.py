"""Full compaction on schedule reaches buckets that the batch brought nothing for, however little it brought."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("day", pa.string(), False), pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])
DDL = "day string, id long, n long"


def table_with_two_days(path: Path) -> Table:
    options = {"bucket": "4", "full-compaction.delta-commits": "3"}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("day", "id"), ("day",), options)


def rows(day: str, ids: list[int], number: int) -> pa.Table:
    return pa.table({"day": [day] * len(ids), "id": ids, "n": [number] * len(ids)}, schema=COLUMNS)


def runs(table: Table) -> dict[tuple[str, int], list[int]]:
    """The levels of the live files of each bucket."""
    found: dict[tuple[str, int], list[int]] = {}
    for file in table.files().to_pylist():
        found.setdefault((file["partition"], file["bucket"]), []).append(file["level"])
    return found


def test_buckets_and_partitions_without_rows_are_compacted_on_schedule(spark: Any, tmp_path: Path) -> None:
    table = table_with_two_days(tmp_path)
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)
    batches = [rows("d1", list(range(100)), 0), rows("d2", list(range(100)), 1), rows("d1", [7], 2)]
    for data in batches[:2]:
        stream.add(data)
    stream.run(spark, sink)
    assert len(runs(table)) == 8 and all(levels == [0] for levels in runs(table).values())
    stream.add(batches[2])
    stream.run(spark, sink)
    assert len(runs(table)) == 8 and all(levels == [5] for levels in runs(table).values())
    assert table.snapshots()["commit_kind"].to_pylist() == ["APPEND", "APPEND", "APPEND", "COMPACT"]
    assert content(table) == folded(batches)


def test_a_batch_without_rows_but_with_moved_offsets_compacts_when_the_schedule_says_so(
    spark: Any, tmp_path: Path
) -> None:
    table = table_with_two_days(tmp_path)
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)
    batches = [rows("d1", list(range(100)), 0), rows("d2", list(range(100)), 1), rows("d1", [-1, -2], 2)]
    for data in batches:
        stream.add(data)
    stream.run(spark, lambda frame, batch_id: sink(frame.where("id >= 0"), batch_id))
    assert len(runs(table)) == 8 and all(levels == [5] for levels in runs(table).values())
    assert [(s["commit_identifier"], s["commit_kind"]) for s in table.snapshots().to_pylist()] == [
        (0, "APPEND"),
        (1, "APPEND"),
        (2, "APPEND"),
        (2, "COMPACT"),
    ]
    assert content(table) == folded(batches[:2])


def test_a_batch_that_the_optimizer_empties_compacts_all_the_same(spark: Any, tmp_path: Path) -> None:
    """Spark then plans no input at all: nothing is read, not even by an empty task."""
    table = table_with_two_days(tmp_path)
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)
    batches = [rows("d1", list(range(100)), 0), rows("d2", list(range(100)), 1), rows("d1", [1], 2)]
    for data in batches:
        stream.add(data)
    stream.run(spark, lambda frame, batch_id: sink(frame.where("false") if batch_id == 2 else frame, batch_id))
    assert len(runs(table)) == 8 and all(levels == [5] for levels in runs(table).values())
    assert content(table) == folded(batches[:2])


def content(table: Table) -> dict[tuple[str, int], int]:
    return {(r["day"], r["id"]): r["n"] for r in open_table(table.path).to_arrow().to_pylist()}


def folded(batches: list[pa.Table]) -> dict[tuple[str, int], int]:
    return {(r["day"], r["id"]): r["n"] for b in batches for r in b.to_pylist()}
