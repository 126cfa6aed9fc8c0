"""Buckets with more sorted runs than the stop trigger: the next batch waits, compacts them, or goes on, and says so."""

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.serve import Stop, serve_plans
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import live_table
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.target import Target
from bucketline.streaming.batch.write_batch import Job, write_batch
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster
from tests.support.tables.compactors import compactor_of
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
STOP = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "3"}
PLANNING = {"compaction": "dedicated", "compaction-plan.commits": "3"}


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


class Pauses:
    """Pauses that are not waited for; somebody else may work meanwhile."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.meanwhile, self.waits = meanwhile, list[int]()

    def wait_ms(self, duration_ms: int) -> None:
        self.waits.append(duration_ms)
        self.meanwhile()


class Stream:
    def __init__(self, path: Path, options: dict[str, str], pause: Pauses) -> None:
        self.table = create_table(
            str(path / "shop.db" / "t"), COLUMNS, ("id", "pt"), ("pt",), options={"bucket": "1", **STOP}
        )
        self.options = options
        live = live_table(self.table.path, options, "query", table=handle_in(self.table, pause=pause))
        self.target = Target(live.target.at, "query")
        self.reports: list[BatchReport] = []

    def batch(self, number: int, partition: int = 0) -> BatchReport:
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        data = pa.table({"id": range(9), "v": [number] * 9, "pt": [partition] * 9}).cast(COLUMNS)
        frame = Cluster(random.Random(number), 2).frame(data, 1)
        self.target, report = write_batch(self.target, identity, frame, Job(as_is))
        return report


def work_off(table: Table) -> int:
    compactors = {table.path: compactor_of(handle_of(open_table(table.path)), {}, LOCAL_ENGINE, lease_ms=60_000)}
    return serve_plans(compactors, poll_ms=1, once=True, stop=Stop(), tell=lambda path, found: None)


def test_a_batch_goes_on_by_default_where_others_compact_and_says_so(tmp_path: Path) -> None:
    pause = Pauses()
    stream = Stream(tmp_path, PLANNING, pause)
    found = [stream.batch(number) for number in range(6)]
    assert [r.most_runs for r in found] == [0, 1, 2, 3, 4, 5] and pause.waits == []
    assert [r.crowded_buckets for r in found] == [0, 0, 0, 0, 1, 1]
    assert "1 bucket has too many sorted runs" in found[4].line() and "sorted runs" not in found[3].line()
    assert found[5].level0_bytes > found[1].level0_bytes > 0
    assert [r.open_items for r in found] == [0, 0, 1, 1, 1, 1]
    work_off(stream.table)
    assert stream.batch(6).most_runs < 5


def test_a_batch_waits_until_a_compactor_has_come_and_not_below_the_stop_trigger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table: list[Table] = []
    pause = Pauses(lambda: len(pause.waits) == 3 and work_off(table[0]))
    stream = Stream(tmp_path, {**PLANNING, "back-pressure": "wait"}, pause)
    table.append(stream.table)
    for number in range(4):
        assert stream.batch(number).crowded_buckets == 0
    assert pause.waits == []
    with caplog.at_level(logging.WARNING):
        report = stream.batch(4)
    assert pause.waits == [100, 200, 400] and report.crowded_buckets == 1 and report.most_runs < 4
    assert (
        "more than 'num-sorted-run.stop-trigger' = 3: the batch waits until these buckets are compacted" in caplog.text
    )
    assert open_table(stream.table.path).to_arrow()["v"].to_pylist() == [4] * 9


def test_a_wait_ends_with_its_time_and_the_batch_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pause = Pauses()
    stream = Stream(tmp_path, {"compaction": "none", "back-pressure": "wait", "back-pressure.timeout": "5 s"}, pause)
    for number in range(5):
        stream.batch(number)
    assert (
        sum(pause.waits) == 5_000
        and "has not reduced the sorted runs in time; the batch is written anyway" in caplog.text
    )
    # Another partition is written without a wait, once it is known that batches go there.
    stream.batch(5, partition=1)
    waited = sum(pause.waits)
    stream.batch(6, partition=1)
    assert sum(pause.waits) == waited == 10_000
    assert open_table(stream.table.path).to_arrow().num_rows == 18


def test_a_batch_compacts_crowded_buckets_first_under_a_name_of_its_own(tmp_path: Path) -> None:
    stream = Stream(tmp_path, {"compaction": "none", "back-pressure": "compact"}, Pauses())
    found = [stream.batch(number) for number in range(6)]
    assert [r.crowded_buckets for r in found] == [0, 0, 0, 0, 1, 0] and found[5].most_runs <= 3
    snapshots = open_table(stream.table.path).snapshots().to_pylist()
    assert [s["commit_kind"] for s in snapshots] == ["APPEND"] * 4 + ["COMPACT"] + ["APPEND"] * 2
    assert {s["commit_user"] for s in snapshots if s["commit_kind"] == "COMPACT"} == {"compactor-query"}
    assert open_table(stream.table.path).to_arrow()["v"].to_pylist() == [5] * 9
