"""Streams follow the rules of their table, and write the branch they are given; Spark's part is played here."""

import logging
import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster

RULES = {
    "partition.expiration-time": "36500 d",
    "partition.expiration-check-interval": "0 s",
    "partition.end-input-to-done": "true",
    "tag.automatic-creation": "process-time",
    "tag.creation-period": "hourly",
    "snapshot.num-retained.min": "2",
    "snapshot.num-retained.max": "2",
    "changelog.num-retained.max": "50",
}


def _table(tmp_path: Path, bucket: str, options: dict[str, str] | None = None) -> Table:
    given = {"bucket": bucket, **RULES, **(options or {})}
    columns = "k INT NOT NULL, dt STRING NOT NULL, v INT"
    return create_table(str(tmp_path / "t"), columns, primary_key=["k", "dt"], partition_by=["dt"], options=given)


def _write(sink: TableSink, number: int, *rows: tuple[int, str, int]) -> None:
    identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
    columns = zip(*rows, strict=True)
    types = (pa.int32(), pa.string(), pa.int32())
    data = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=["k", "dt", "v"])
    sink.write(Cluster(random.Random(number), 2).frame(data, 2), identity)


def _sink(table: Table, **options: str) -> TableSink:
    return TableSink(table.path, options, decode=DecodedRows)


def _rows(table: Table) -> set[tuple[object, ...]]:
    return {tuple(r.values()) for r in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_a_stream_tags_expires_and_marks_as_its_table_says(
    tmp_path: Path, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(tmp_path, bucket)
    caplog.set_level(logging.INFO, "bucketline.progress")
    sink = _sink(table)
    for number in range(5):
        _write(sink, number, (1, "1900-01-01", number), (2, "2026-01-01", number), (number + 10, "2026-01-02", 0))
    reports: list[BatchReport] = [r.bucketline for r in caplog.records]  # type: ignore[attr-defined]
    assert len(reports[0].created_tags) == 1
    assert [r.dropped_partitions for r in reports] == [("dt=1900-01-01",)] * 5
    assert "dropped 1 partition that had expired" in reports[0].line() and "created tag" in reports[0].line()
    assert _rows(table) == {(2, "2026-01-01", 4), *((n + 10, "2026-01-02", 0) for n in range(5))}
    assert len(handle_of(table).snapshot_store.ids()) <= 3 and sum(r.expired_snapshots for r in reports) > 4
    assert table.to_arrow(changes_since=0).num_rows == 15
    sink.finish(Cluster(random.Random(0), 2), "query")
    assert sorted(p.parent.name for p in Path(table.path).glob("dt=*/_SUCCESS")) == ["dt=2026-01-01", "dt=2026-01-02"]
    # A restart finds the last batch done, and goes on.
    forget_table(table.path, "query")
    _write(sink, 4, (1, "1900-01-01", 4))
    _write(sink, 5, (2, "2026-01-01", 5))
    assert (2, "2026-01-01", 5) in _rows(table) and table.doctor(rows=True) == []


def test_two_streams_write_a_table_and_its_branch(tmp_path: Path) -> None:
    table = _table(tmp_path, "2", {"full-compaction.delta-commits": "2", "partition.expiration-time": "99999 d"})
    table.write(pa.table({"k": [0], "dt": ["d"], "v": [0]}, schema=table.schema))
    table.create_tag("start")
    table.create_branch("dev", "start")
    dev = open_table(table.path, options={"branch": "dev"})
    main_sink, dev_sink = _sink(table), _sink(table, branch="dev")
    for number in range(6):
        _write(main_sink, number, (1, "d", number), (number + 10, "d", 0))
        _write(dev_sink, number, (1, "d", -number))
        if number == 3:
            forget_table(table.path, "query")
            _write(dev_sink, number, (1, "d", -100))
    assert _rows(table) == {(0, "d", 0), (1, "d", 5), *((n + 10, "d", 0) for n in range(6))}
    assert _rows(dev) == {(0, "d", 0), (1, "d", -5)}
    assert "COMPACT" in dev.snapshots()["commit_kind"].to_pylist()
    marker = {"bucketline-writer-query"}
    assert marker <= set(table.tags()["tag_name"].to_pylist()) and marker <= set(dev.tags()["tag_name"].to_pylist())
    assert table.doctor(rows=True) == [] and dev.doctor(rows=True) == []
