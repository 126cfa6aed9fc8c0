"""A stream that compacts in Spark jobs of its own beside its batches: readers, restarts and names of commits."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.support.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])


def test_a_stream_compacts_beside_its_batches_and_its_restart_recognises_them(spark: Any, tmp_path: Path) -> None:
    options = {"bucket": "3", "num-sorted-run.compaction-trigger": "2", "compaction": "async"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    stream, sink = FileStream(tmp_path, "id long, n long"), TableSink(table.path, {"async-compaction.tasks": "1"})
    for number in range(4):
        stream.add(pa.table({"id": range(60), "n": [number] * 60}, schema=COLUMNS))
    query = stream.run(spark, sink)
    sink.finish(spark, str(query.id))
    snapshots = open_table(table.path).snapshots().to_pylist()
    batches = [s["commit_identifier"] for s in snapshots if s["commit_kind"] == "APPEND"]
    compactors = {s["commit_user"] for s in snapshots if s["commit_kind"] == "COMPACT"}
    assert batches == [0, 1, 2, 3] and compactors and all(c.startswith("compactor-") for c in compactors)
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} != {0}
    # The compaction of batch 3 has come after it; Spark believes the batch unfinished.
    stream.forget_commit(3)
    stream.add(pa.table({"id": range(60), "n": [4] * 60}, schema=COLUMNS))
    query = stream.run(spark, sink)
    sink.stop(str(query.id))
    found = open_table(table.path)
    appended = [s["commit_identifier"] for s in found.snapshots().to_pylist() if s["commit_kind"] == "APPEND"]
    assert appended == [0, 1, 2, 3, 4]
    assert found.to_arrow()["n"].to_pylist() == [4] * 60 and found.doctor() == []
