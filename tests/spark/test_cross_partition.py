"""Cross-partition upserts under a running query: one row a key, an index that outlives batches and machines."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("pt", pa.int32())])


def batch(number: int) -> pa.Table:
    ids = [(i * 13 + number * 31) % 300 for i in range(120)]
    return pa.table(
        {"id": ids, "n": [number * 1000 + i for i in range(120)], "pt": [(i + number) % 4 for i in ids]}, schema=COLUMNS
    )


def content(table: Table) -> list[tuple[int, int, int]]:
    return sorted((r["id"], r["n"], r["pt"]) for r in open_table(table.path).to_arrow().to_pylist())


def test_a_stream_moves_keys_between_partitions_across_restarts_and_lost_indexes(spark: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",))
    stream, local = FileStream(tmp_path, "id long, n long, pt int"), tmp_path / "local"
    sink = TableSink(table.path, {"assigner-parallelism": "3", "local-directory": str(local)})
    expected: dict[int, tuple[int, int]] = {}
    for number in range(6):
        data = batch(number)
        stream.add(data)
        expected |= {r["id"]: (r["n"], r["pt"]) for r in data.to_pylist()}
        if number % 2:
            stream.run(spark, sink)
            assert content(table) == sorted((i, n, p) for i, (n, p) in expected.items())
        if number == 3:
            shutil.rmtree(local)
    assert len(list((stream.checkpoint / "bucketline").rglob("current.json"))) == 3
    # Keys of two shares lie in one bucket from here on.
    stream.add(batch(6))
    expected |= {r["id"]: (r["n"], r["pt"]) for r in batch(6).to_pylist()}
    stream.run(spark, TableSink(table.path, {"assigner-parallelism": "2", "local-directory": str(local)}))
    open_table(table.path).compact()
    assert content(table) == sorted((i, n, p) for i, (n, p) in expected.items())
