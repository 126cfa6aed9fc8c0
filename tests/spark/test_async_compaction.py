"""A stream that compacts in Spark jobs of its own beside its batches: readers, restarts and names of commits."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.errors import CompactionFailedError
from bucketline.state.format.entries import ManifestEntry
from bucketline.state.plans.plan import ItemState
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.support.processes.compactor_process import left_files, wait_until_claimed, wait_until_closed
from tests.support.spark.streams import FileStream

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
    """Two tasks compress for several seconds; the stop waits for almost no time, and each task looks once a second."""
    rows = 500_000
    options = {"bucket": "2", "num-sorted-run.compaction-trigger": "2", "compaction": "none"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    for seed in range(2):
        drawn = np.random.default_rng(seed).integers(-(2**62), 2**62, rows)
        table.write(pa.table({"id": range(rows), "n": drawn}, schema=COLUMNS))
    slowly = {"file.compression.zstd-level": "19", "file.block-size": "256 kb"}
    slowly |= {"compaction": "async", "async-compaction.tasks": "2", "async-compaction.stop-timeout": "10 ms"}
    stream, sink = FileStream(tmp_path, "id long, n long"), TableSink(table.path, slowly)
    stream.add(pa.table({"id": range(20), "n": [7] * 20}, schema=COLUMNS))
    query = stream.run(spark, sink)
    wait_until_claimed(table, 30)
    sink.stop(str(query.id))
    found = open_table(table.path)
    assert [s["commit_kind"] for s in found.snapshots().to_pylist()] == ["APPEND"] * 3
    # On a busy machine the tasks may come to an end later than the stop waits for.
    assert left_files(table, 60) == []
    assert wait_until_closed(table, 0) == [ItemState.REQUESTED] * 2
    stream.add(pa.table({"id": [1], "n": [8]}, schema=COLUMNS))
    sink = TableSink(table.path, {"compaction": "async"})
    query = stream.run(spark, sink)
    sink.finish(spark, str(query.id))
    assert set(wait_until_closed(table, 0)) == {ItemState.DONE}
    found = open_table(table.path)
    assert 2 in {f["level"] for f in found.files().to_pylist()} and found.to_arrow().num_rows == rows
    assert sorted(found.to_arrow(filter="id < 2")["n"].to_pylist()) == [7, 8] and found.doctor() == []


def test_postponed_rows_are_moved_beside_the_batches_once_and_a_failure_says_why(spark: Any, tmp_path: Path) -> None:
    """A run; one whose compaction fails, and that Spark believes unfinished; and one that goes on."""
    options = {"bucket": "-2", "compaction": "async", "deletion-vectors.enabled": "true"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    stream, given = FileStream(tmp_path, "id long, n long"), {"async-compaction.tasks": "1"}

    def run(*numbers: int) -> None:
        for number in numbers:
            stream.add(pa.table({"id": range(number, 60), "n": [number] * (60 - number)}, schema=COLUMNS))
        sink = TableSink(table.path, given)
        sink.finish(spark, str(stream.run(spark, sink).id))

    def live() -> list[ManifestEntry]:
        newest = handle_of(open_table(table.path)).snapshot_store.latest()
        assert newest is not None
        return handle_of(table).manifests.live_entries(newest)

    run(0, 1, 2)
    # As many buckets as Spark has cores.
    assert {(e.bucket, e.total_buckets) for e in live()} == {(0, 2), (1, 2)}
    damaged = max((Path(p) for p in Path(table.path).glob("bucket-0/data-*")), key=lambda p: p.stat().st_mtime_ns)
    assert damaged.name in {e.file.file_name for e in live()}
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-20])
    with pytest.raises(CompactionFailedError, match=r"bucket-postpone in the background failed: .*bucket-0/data-"):
        run(3)
    assert -2 in {e.bucket for e in live()}
    damaged.write_bytes(whole)
    stream.forget_commit(3)
    run(4)
    found = open_table(table.path)
    snapshots = found.snapshots().to_pylist()
    assert [s["commit_identifier"] for s in snapshots if s["commit_kind"] == "APPEND"] == [0, 1, 2, 3, 4]
    assert found.to_arrow().sort_by("id")["n"].to_pylist() == [0, 1, 2, 3] + [4] * 56
    assert {(e.bucket, e.total_buckets) for e in live()} == {(0, 2), (1, 2)} and found.doctor(rows=True) == []
    assert {s["commit_user"][:10] for s in snapshots if s["commit_kind"] == "COMPACT"} == {"compactor-"}
