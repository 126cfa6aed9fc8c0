"""Procedures over Spark on a table with nothing to do, where Spark is not asked for anything."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import bucketline as bl

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def test_a_branch_is_compacted_and_rescaled_by_name(tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "t"), COLUMNS, ["id"], options={"bucket": "2"})
    table.write(pa.table({"id": [1, 2, 3, 4], "v": [0] * 4}, schema=COLUMNS))
    table.create_branch("empty")
    spark, options = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)), {"branch": "empty"}
    assert bl.compact(spark, table.path, options=options) is None
    assert bl.rescale(spark, table.path, 4, options=options) is None
    branch = bl.open_table(table.path, options=options)
    assert (branch.options["bucket"], table.refreshed().options["bucket"]) == ("4", "2")
    with pytest.raises(bl.BranchNotFoundError):
        bl.compact(spark, table.path, options={"branch": "other"})
