"""Rows are changed in tasks as in this process: on every sort of table, while attempts of tasks are repeated."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import create_table
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.row_changes import SORTS, ChangedTable, data_of
from tests.support.tasks import Cluster


@pytest.mark.parametrize("sort", SORTS)
def test_the_table_holds_what_a_dictionary_says(sort: str, tmp_path: Path) -> None:
    draw = random.Random(f"tasks {sort}")
    engine = SparkEngine(Cluster(draw, 3, unrest=0.1))
    changed = ChangedTable.create(str(tmp_path / "w.db" / "t"), sort, draw, engine)
    for act in [changed.change, changed.change, changed.overwrite] * 3:
        act()
        changed.check()
    assert engine.spark.tasks_run > 0


@pytest.mark.parametrize("bucket", ["2", "-1", "-2"])
def test_rows_outside_of_the_partition_that_is_overwritten_are_refused(bucket: str, tmp_path: Path) -> None:
    rows = data_of([("a", 1, 1, "x"), ("b", 2, 2, "x")])
    for name, key in (("own", ("dt", "id")), ("moving", ("id",))):
        if bucket != "-1" and name == "moving":
            continue
        table = create_table(str(tmp_path / "w.db" / name), rows.schema, key, ["dt"], {"bucket": bucket})
        table.write(rows)
        before = table.to_arrow().num_rows, table.snapshots().num_rows
        engine = SparkEngine(Cluster(random.Random(1), 2))
        with pytest.raises(SchemaMismatchError, match="rows of partition dt=b"):
            table.overwrite(rows, {"dt": "a"}, engine=engine)
        null = rows.set_column(1, "id", pa.nulls(2, pa.int64()))
        with pytest.raises(SchemaMismatchError, match="column id: expected BIGINT"):
            table.overwrite(null, engine=engine)
        assert (table.to_arrow().num_rows, table.snapshots().num_rows) == before
        assert table.doctor(rows=True) == []
