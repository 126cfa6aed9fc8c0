"""Delete and update, whose buckets are shared among Spark's tasks."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64())])


@pytest.mark.parametrize(
    ("key", "options"),
    [
        (("dt", "id"), {"bucket": "3", "deletion-vectors.enabled": "true"}),
        (("id",), {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}),
    ],
    ids=["vectors", "cross-partition"],
)
def test_rows_are_changed_in_tasks(spark: Any, key: tuple[str, ...], options: dict[str, str], tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "w.db" / "t"), COLUMNS, key, ["dt"], options)
    ids = list(range(60))
    for number in range(2):
        table.write(pa.table({"dt": ["ab"[i % 2] for i in ids], "id": ids, "v": [number] * 60}, schema=COLUMNS))
    engine = bl.spark_engine(spark)
    newest = table.snapshots().num_rows
    assert table.delete("id > 1000", engine=engine) == newest
    assert table.delete("id >= 40 OR id + v = 4", engine=engine) > newest
    table.update("dt = 'a'", {"v": bl.expr("v + id * 10")}, engine=engine)
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {i: 1 + i * 10 * (i % 2 == 0) for i in range(40) if i != 3}
    assert table.doctor(rows=True) == []
