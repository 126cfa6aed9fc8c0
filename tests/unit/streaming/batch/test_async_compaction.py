"""A stream with `compaction` = `async`: what its thread does to batches, restarts and the end of a job."""

import logging
import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CompactionFailedError
from bucketline.state.plans.lease import Lease
from bucketline.state.plans.plan import ItemState
from bucketline.state.store.plans.backlog import plan_backlog
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.async_compaction import check_pool, finish_async
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.processes.compactor_process import wait_until_closed
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ASYNC = {"compaction": "async"}


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def made(path: Path, **options: str) -> Table:
    own = {k.replace("_", "-"): v for k, v in options.items()}
    given = {"bucket": "2", "num-sorted-run.compaction-trigger": "2", **own}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options=given)


class Job:
    """A job that is one process: its sink, and its Spark."""

    def __init__(self, table: Table, options: Mapping[str, str] = ASYNC) -> None:
        self.table, self.cluster = table, Cluster(random.Random(1), 2)
        self.sink = TableSink(table.path, options, decode=as_is)

    def batch(self, number: int) -> None:
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        data = pa.table({"id": range(20), "v": [number] * 20}, schema=COLUMNS)
        self.sink.write(self.cluster.frame(data, 2), identity)


def levels(table: Table) -> set[int]:
    return {f["level"] for f in open_table(table.path).files().to_pylist()}


def kinds(table: Table) -> list[str]:
    return [s["commit_kind"] for s in open_table(table.path).snapshots().to_pylist()]


def test_a_table_says_that_its_streams_compact_beside_their_batches(tmp_path: Path) -> None:
    """The option of the table counts, and that of the job comes first; a batch write has nothing to run beside."""
    table = made(tmp_path, compaction="async")
    job = Job(table, {})
    for number in range(4):
        job.batch(number)
    assert job.sink.finish(job.cluster, "query") == 0
    found = open_table(table.path).snapshots().to_pylist()
    assert {s["commit_user"] for s in found if s["commit_kind"] == "APPEND"} == {"query"}
    assert "COMPACT" in kinds(table) and levels(table) != {0}
    assert all(s["commit_user"] != "query" for s in found if s["commit_kind"] == "COMPACT")
    assert (Path(table.path) / "compaction").is_dir()
    assert open_table(table.path).to_arrow()["v"].to_pylist() == [3] * 20
    other = made(tmp_path / "other", compaction="async")
    Job(other, {"compaction": "none"}).batch(0)
    Job(other, {"compaction": "none"}).batch(1)
    assert kinds(other) == ["APPEND"] * 2
    rows = pa.table({"id": range(20), "v": [9] * 20}, schema=COLUMNS)
    open_table(other.path).write(rows)
    assert kinds(other) == ["APPEND"] * 3 + ["COMPACT"]
    by_others = made(tmp_path / "third", compaction="dedicated")
    for _ in range(3):
        open_table(by_others.path).write(rows)
    assert kinds(by_others) == ["APPEND"] * 3


def test_rows_of_a_postpone_table_are_moved_beside_the_batches(tmp_path: Path) -> None:
    table = made(tmp_path, bucket="-2", **{"postpone.default-bucket-num": "2"})
    job = Job(table)
    for number in range(4):
        job.batch(number)
    assert job.sink.finish(job.cluster, "query") == 0
    found = open_table(table.path)
    assert "COMPACT" in kinds(table) and found.to_arrow()["v"].to_pylist() == [3] * 20
    newest = handle_of(found).snapshot_store.latest()
    assert newest is not None and {e.bucket for e in handle_of(found).manifests.live_entries(newest)} == {0, 1}
    assert found.doctor(rows=True) == []


def test_a_failing_compaction_fails_the_next_batch_and_a_restart_tries_again(tmp_path: Path) -> None:
    table = made(tmp_path)
    job = Job(table)
    job.batch(0)
    finish_async(table.path, "query")
    [damaged] = Path(table.path).glob("bucket-1/*.parquet")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-20])
    job.batch(1)
    with pytest.raises(CompactionFailedError, match="bucket-1 in the background failed"):
        job.sink.finish(job.cluster, "query")
    with pytest.raises(CompactionFailedError, match="bucket-1"):
        for number in range(2, 500):
            job.batch(number)
    batches = kinds(table).count("APPEND")
    damaged.write_bytes(whole)
    forget_table(table.path, "query")
    job.batch(batches)
    assert job.sink.finish(job.cluster, "query") == 0
    assert kinds(table).count("APPEND") == batches + 1
    assert open_table(table.path).to_arrow()["v"].to_pylist() == [batches] * 20


def dead_lease(table: Table, period_ms: int) -> None:
    """Somebody plans what is due, claims the items, and is never heard of again."""
    session = table_at(handle_of(open_table(table.path)), {})
    folder = PlanFolder(session.table.io, table.path)
    plan = make_plan(session, folder).plan
    assert plan.items and all(folder.claim(plan, i.number, 1, Lease("dead", period_ms)) for i in plan.items)


@pytest.mark.parametrize("bucket", ["2", "-2"])
def test_a_job_that_ends_does_what_a_killed_one_has_claimed_once_its_lease_is_over(tmp_path: Path, bucket: str) -> None:
    """Its batches cannot be planned before that."""
    table = made(tmp_path, bucket=bucket)
    none = Job(table, {"compaction": "none"})
    for number in range(3):
        none.batch(number)
    dead_lease(table, 1500)
    job = Job(table)
    for number in range(3, 6):
        job.batch(number)
    assert job.sink.finish(job.cluster, "query") == 0
    assert set(wait_until_closed(table, 0)) == {ItemState.DONE} and plan_backlog(folder_of(table)).items == 0
    found = open_table(table.path)
    assert found.to_arrow()["v"].to_pylist() == [5] * 20 and found.doctor(rows=True) == []


def test_a_job_that_ends_does_not_wait_for_ever_for_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path)
    none = Job(table, {"compaction": "none"})
    for number in range(3):
        none.batch(number)
    dead_lease(table, 600_000)
    Job(table).batch(3)
    with caplog.at_level(logging.INFO):
        finish_async(table.path, "query", held_ms=1)
    assert "2 open items stay with other compactors" in caplog.text
    assert plan_backlog(folder_of(table)).items == 2 and kinds(table) == ["APPEND"] * 4


def folder_of(table: Table) -> PlanFolder:
    return PlanFolder(handle_of(table).io, table.path)


def test_what_cannot_compact_beside_its_batches_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(OptionError, match=r"'async-compaction.pool' = 'low' needs spark.scheduler.mode=FAIR"):
        check_pool("low", _Conf("FIFO"))
    check_pool("low", _Conf("FAIR"))
    check_pool(None, _Conf("FIFO"))
    for wrong, why in {
        ("compaction", "inline"): "has an effect only with 'compaction' = 'async'",
        ("async-compaction.tasks", "0"): "must be at least 1",
        ("async-compaction.stop-timeout", "20"): "has no unit",
        ("back-pressure", "panic"): "compact",
        ("commit.force-compact", "true"): "compacts after the commit",
    }.items():
        with pytest.raises(OptionError, match=why):
            Job(table, {**ASYNC, "async-compaction.tasks": "1", wrong[0]: wrong[1]}).batch(0)
    with pytest.raises(OptionError, match="has an effect only with 'compaction' = 'async', 'dedicated' or 'none'"):
        Job(table, {"back-pressure": "wait"}).batch(0)
    with pytest.raises(OptionError, match="needs a stream"):
        open_table(table.path, options=ASYNC)
    assert kinds(table) == []


class _Conf:
    def __init__(self, mode: str) -> None:
        self.mode = mode

    def getConf(self) -> dict[str, str]:
        return {"spark.scheduler.mode": self.mode}


def test_a_table_that_is_write_only_is_not_compacted_by_its_stream_nor_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path, write_only="true")
    job = Job(table)
    with caplog.at_level(logging.WARNING):
        for number in range(8):
            job.batch(number)
    assert job.sink.finish(job.cluster, "query") == 0 and kinds(table) == ["APPEND"] * 8
    assert "sorted runs" not in caplog.text


@pytest.mark.parametrize("compaction", ["async", "dedicated"])
def test_a_stream_into_a_branch_compacts_or_plans_there(tmp_path: Path, compaction: str) -> None:
    table = made(tmp_path)
    open_table(table.path).write(pa.table({"id": range(20), "v": [7] * 20}, schema=COLUMNS))
    table.create_tag("fork")
    table.create_branch("b", "fork")
    options = {"branch": "b", "compaction": compaction, "compaction-plan.commits": "1"}
    job = Job(table, options)
    for number in range(3):
        job.batch(number)
    job.sink.finish(job.cluster, "query")
    plans = Path(table.path, "branch", "branch-b", "compaction")
    assert (plans / "plan-1").is_file() and not Path(table.path, "compaction").exists()
    branch = open_table(table.path, options={"branch": "b"})
    assert branch.to_arrow()["v"].to_pylist() == [2] * 20 and branch.doctor() == []
    assert ("COMPACT" in branch.snapshots()["commit_kind"].to_pylist()) == (compaction == "async")
    assert open_table(table.path).to_arrow()["v"].to_pylist() == [7] * 20 and kinds(table) == ["APPEND"]
