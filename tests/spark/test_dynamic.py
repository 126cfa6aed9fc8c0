"""Dynamic buckets under a running query: one bucket a key, whatever the parallelism was when it came."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int64())])


def test_a_changed_parallelism_never_puts_a_key_into_two_buckets(spark: Any, tmp_path: Path) -> None:
    options = {"dynamic-bucket.target-row-num": "40", "dynamic-bucket.initial-buckets": "3"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    stream = FileStream(tmp_path, "id long, name string, n long")
    expected: dict[int, int] = {}
    number = 0
    for parallelism in (4, 2, 7):
        for _ in range(2):
            ids = [(i * 13 + number * 31) % 500 for i in range(180)]
            stream.add(pa.table({"id": ids, "name": ["x"] * 180, "n": [number] * 180}, schema=COLUMNS))
            expected |= dict.fromkeys(ids, number)
            number += 1
        sink = TableSink(table.path, {"dynamic-bucket.assigner-parallelism": str(parallelism)})
        stream.run(spark, sink)
        found = [(r["id"], r["n"]) for r in open_table(table.path).to_arrow().to_pylist()]
        assert len(found) == len(expected) and dict(found) == expected
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    index = handle_of(table).manifests.read_index(newest.index_manifest)
    assert sum(e.row_count for e in index) == len(expected)
    assert max(e.row_count for e in index) <= 40
