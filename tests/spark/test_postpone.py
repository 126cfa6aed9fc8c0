"""Postpone tables under a running query, their compaction and rescale over Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.procedures import compact, rescale
from bucketline.streaming.batch.sink import TableSink
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False),
                     ("n", pa.int64())])  # fmt: skip


def test_rows_wait_keep_their_order_and_kinds_and_can_be_rescaled(spark: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("day", "id"), ("day",), {"bucket": "-2"})
    stream = FileStream(tmp_path, "id long, day string, n long, _row_kind byte")
    expected: dict[tuple[str, int], int] = {}
    for number in range(4):
        ids = [(i * 7 + number * 5) % 60 for i in range(100)]
        days = [f"d{i % 2}" for i in ids]
        kinds = [3 if (i + number) % 9 == 0 else 0 for i in ids]
        stream.add(
            pa.table(
                {"id": ids, "day": days, "n": [number * 100 + k for k in range(100)],
                 "_row_kind": pa.array(kinds, pa.int8())}
            )
        )  # fmt: skip
        for k, (i, day, kind) in enumerate(zip(ids, days, kinds, strict=True)):
            if kind:
                expected.pop((day, i), None)
            else:
                expected[day, i] = number * 100 + k
        stream.run(spark, TableSink(table.path, {"write-parallelism": str(number % 3 + 1)}))
    assert open_table(table.path).to_arrow().num_rows == 0
    before = table.snapshots().num_rows
    assert compact(spark, table.path, partitions=[{"day": "d0"}]) == before + 1
    assert compact(spark, table.path) == before + 2
    assert compact(spark, table.path) is None

    def content() -> dict[tuple[str, int], int]:
        return {(r["day"], r["id"]): r["n"] for r in open_table(table.path).to_arrow().to_pylist()}

    assert content() == expected
    assert rescale(spark, table.path, 3, [{"day": "d1"}]) == before + 3
    assert content() == expected
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    totals = {e.partition: e.total_buckets for e in handle_of(table).manifests.live_entries(newest)}
    assert sorted(totals.values()) == [2, 3]
    assert rescale(spark, table.path, 3, [{"day": "d9"}]) is None


def test_the_job_deals_what_waits_every_few_batches(spark: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("day", "id"), ("day",), {"bucket": "-2"})
    stream = FileStream(tmp_path, "id long, day string, n long")
    for number in range(3):
        stream.add(pa.table({"id": list(range(5)), "day": ["d"] * 5, "n": [number] * 5}, schema=COLUMNS))
    stream.run(spark, TableSink(table.path, {"postpone-compaction.batches": "2"}))
    found = [(s["commit_identifier"], s["commit_kind"]) for s in table.snapshots().to_pylist()]
    assert found == [(0, "APPEND"), (1, "APPEND"), (1, "COMPACT"), (2, "APPEND")]
    assert open_table(table.path).to_arrow()["n"].to_pylist() == [1] * 5
