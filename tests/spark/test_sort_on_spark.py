"""Append tables whose rows are sorted in Spark's tasks, a range of the key each."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl

pytestmark = pytest.mark.spark


def test_tasks_sort_an_append_table_in_ranges(spark: Any, tmp_path: Path) -> None:
    options = {"target-file-size": "8 kb", "parquet.row-group.size.bytes": "4 kb", "file.format": "parquet"}
    table = bl.create_table(str(tmp_path / "shop.db" / "log"), "id BIGINT, v BIGINT", options=options)
    for number in range(4):
        ids = [(i * 7919 + number) % 4001 for i in range(1000)]
        table.write(pa.table({"id": ids, "v": [number] * 1000}))
    before = sorted(table.to_arrow()["id"].to_pylist())
    assert bl.compact(spark, table.path, order_by=["id"], order_strategy="order") == 5
    found = bl.open_table(table.path)
    assert found.to_arrow()["id"].to_pylist() == before and found.doctor(rows=True) == []
    assert len(found.files()) == 2 and found.remove_orphan_files(older_than=timedelta(0), no_writers=True).files == ()
    done = bl.sql(
        spark, f"CALL sys.compact(`table` => '{table.path}', order_strategy => 'hilbert', order_by => 'v,id')"
    )
    assert done.collect()[0][0] and sorted(bl.open_table(table.path).to_arrow()["id"].to_pylist()) == before
