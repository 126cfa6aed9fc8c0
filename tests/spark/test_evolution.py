"""Columns that change while a stream runs: by policy, once, on the driver."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.table import create_table, open_table
from bucketline.streaming.sink import TableSink
from tests.support.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])


def test_new_and_wider_columns_by_policy(spark: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    stream = FileStream(tmp_path, "id long, n int")
    stream.add(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
    stream.run(spark, TableSink(table.path))
    stream.ddl = "id long, n long, note string"
    stream.add(pa.table({"id": [2], "n": [2**40], "note": ["new"]}))
    with pytest.raises(Exception, match="column 'note' of the input is not in the table"):
        stream.run(spark, TableSink(table.path))
    stream.run(spark, TableSink(table.path, {"schema-evolution": "evolve"}))
    evolved = open_table(table.path)
    assert evolved.table_schema.id == 1
    assert sorted(evolved.to_arrow().to_pylist(), key=lambda r: r["id"]) == [
        {"id": 1, "n": 1, "note": None},
        {"id": 2, "n": 2**40, "note": "new"},
    ]
    stream.ddl = "id long, n long, other string"
    stream.add(pa.table({"id": [3], "n": [3], "other": ["left out"]}))
    stream.run(spark, TableSink(table.path, {"schema-evolution": "ignore"}))
    assert open_table(table.path).table_schema.id == 1
    assert open_table(table.path).to_arrow().num_rows == 3
