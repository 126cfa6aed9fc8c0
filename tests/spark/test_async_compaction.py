"""A stream that compacts in Spark jobs of its own beside its batches: readers, restarts and names of commits."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.plans.plan import ItemState
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.support.compactor_process import wait_until_claimed, wait_until_closed
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


def test_a_compaction_that_runs_when_the_job_stops_is_given_back_and_the_restart_does_it(
    spark: Any, tmp_path: Path
) -> None:
    """It compresses for several seconds; the stop waits for almost no time, and a task looks once a second."""
    rows = 500_000
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2", "compaction": "none"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    for seed in range(2):
        drawn = np.random.default_rng(seed).integers(-(2**62), 2**62, rows)
        table.write(pa.table({"id": range(rows), "n": drawn}, schema=COLUMNS))
    slowly = {"file.compression.zstd-level": "19", "file.block-size": "256 kb"}
    slowly |= {"compaction": "async", "async-compaction.stop-timeout": "10 ms"}
    stream, sink = FileStream(tmp_path, "id long, n long"), TableSink(table.path, slowly)
    stream.add(pa.table({"id": [0], "n": [7]}, schema=COLUMNS))
    query = stream.run(spark, sink)
    wait_until_claimed(table, 30)
    sink.stop(str(query.id))
    found = open_table(table.path)
    assert [s["commit_kind"] for s in found.snapshots().to_pylist()] == ["APPEND"] * 3
    assert found.remove_orphan_files(older_than=timedelta(0), no_writers=True).files == ()
    assert wait_until_closed(table, 0) == [ItemState.REQUESTED]
    stream.add(pa.table({"id": [1], "n": [8]}, schema=COLUMNS))
    sink = TableSink(table.path, {"compaction": "async"})
    query = stream.run(spark, sink)
    sink.finish(spark, str(query.id))
    assert set(wait_until_closed(table, 0)) == {ItemState.DONE}
    found = open_table(table.path)
    assert 5 in {f["level"] for f in found.files().to_pylist()} and found.to_arrow().num_rows == rows
    assert found.to_arrow(filter="id < 2")["n"].to_pylist() == [7, 8] and found.doctor() == []


def test_postponed_rows_are_moved_beside_the_batches(spark: Any, tmp_path: Path) -> None:
    options = {"bucket": "-2", "compaction": "async", "deletion-vectors.enabled": "true"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    stream, sink = FileStream(tmp_path, "id long, n long"), TableSink(table.path, {"async-compaction.tasks": "1"})
    for number in range(3):
        stream.add(pa.table({"id": range(60), "n": [number] * 60}, schema=COLUMNS))
    query = stream.run(spark, sink)
    sink.finish(spark, str(query.id))
    found = open_table(table.path)
    assert found.to_arrow()["n"].to_pylist() == [2] * 60 and found.doctor(rows=True) == []
    newest = found.handle.snapshot_store.latest()
    # As many buckets as Spark has cores.
    assert newest is not None and {e.total_buckets for e in found.handle.manifests.live_entries(newest)} == {2}
