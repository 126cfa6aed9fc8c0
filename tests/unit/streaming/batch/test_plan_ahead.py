"""A stream that only plans: compactors do the work, and the stream never waits for them."""

import logging
import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.determinism import SystemClock
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.serve import Stop, serve_plans
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.plan_ahead import Planner
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster
from tests.support.tables.compactors import compactor_of
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
DEDICATED = {"compaction": "dedicated", "compaction-plan.commits": "2", "compaction-plan.strategy": "full"}


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def made(path: Path, **options: str) -> Table:
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "2", **options})


def stream(table: Table, number: int, options: dict[str, str] | None = None) -> None:
    identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
    data = pa.table({"id": range(20), "v": [number] * 20}, schema=COLUMNS)
    frame = Cluster(random.Random(number), 2).frame(data, 2)
    TableSink(table.path, DEDICATED if options is None else options, decode=as_is).write(frame, identity)


def work_off(table: Table) -> int:
    compactors = {table.path: compactor_of(handle_of(open_table(table.path)), {}, LOCAL_ENGINE, lease_ms=60_000)}
    return serve_plans(compactors, poll_ms=1, once=True, stop=Stop(), tell=lambda path, found: None)


def test_a_dedicated_writer_plans_every_n_batches_and_compacts_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    for number in range(8):
        stream(table, number)
    assert {s["commit_kind"] for s in table.snapshots().to_pylist()} == {"APPEND"}
    folder = PlanFolder(handle_of(table).io, table.path)
    plans = folder.plans(folder.list())
    assert list(plans) == [1] and {i.bucket for i in plans[1].items} == {0, 1}
    assert plans[1].base_snapshot == 2 and {len(i.inputs) for i in plans[1].items} == {2}
    assert work_off(table) == 2
    stream(table, 8)
    stream(table, 9)
    assert work_off(table) == 2
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {5}
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {9}
    stream(table, 10)
    assert open_table(table.path).doctor() == []


def test_a_plan_that_cannot_be_read_is_reported_and_stops_no_planning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path)
    (Path(table.path) / "compaction").mkdir()
    (Path(table.path) / "compaction" / "plan-1").write_text("{")
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            stream(table, number)
    folder = PlanFolder(handle_of(table).io, table.path)
    assert folder.list().plan_numbers == (1, 2) and folder.plan(2) is not None
    assert [
        r.getMessage().count("plan-1") for r in caplog.records if "a compaction plan is skipped" in r.getMessage()
    ] == [1]
    assert work_off(table) == 2 and set(open_table(table.path).to_arrow()["v"].to_pylist()) == {3}
    assert [f.message for f in open_table(table.path).doctor() if "plan-1" in f.message]


def test_planning_never_fails_a_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path)
    stream(table, 0)
    (Path(table.path) / "compaction").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        stream(table, 1)
    assert table.snapshots().num_rows == 2 and "no compaction was planned after batch 1" in caplog.text


def test_full_compactions_that_the_table_asks_for_are_planned_also_for_buckets_that_had_an_open_item(
    tmp_path: Path,
) -> None:
    minor = {"compaction": "dedicated", "compaction-plan.commits": "100"}
    logged = made(tmp_path / "logged", **{"changelog-producer": "full-compaction"})
    stream(logged, 0, minor)
    assert work_off(logged) == 2
    table = made(tmp_path, **{"full-compaction.delta-commits": "3", "num-sorted-run.compaction-trigger": "9"})
    stream(table, 0, minor)
    session = table_at(
        open_handle(table.path), {"compaction-plan.strategy": "level-0", "compaction-plan.min-runs": "1"}
    ).refreshed()
    assert make_plan(session, PlanFolder(handle_of(table).io, table.path)).number == 1
    stream(table, 1, minor)
    stream(table, 2, minor)
    assert work_off(table) == 2
    stream(table, 3, minor)
    assert work_off(table) == 2
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {9}


def test_rows_of_a_postpone_table_are_planned_and_moved_by_others(tmp_path: Path) -> None:
    """Those that come while they are moved wait for the next plan; a full compaction that is owed comes with them."""
    table = made(tmp_path, bucket="-2", **{"postpone.default-bucket-num": "2", "full-compaction.delta-commits": "4"})
    minor = {"compaction": "dedicated", "compaction-plan.commits": "2"}
    for number in range(3):
        stream(table, number, minor)
    folder = PlanFolder(handle_of(table).io, table.path)
    [item] = folder.plans(folder.list())[1].items
    assert item.moves_rows and len(item.inputs) == 4 and item.output_level == 0
    # A full compaction is due with the next batch, but the partition has an open item.
    stream(table, 3, minor)
    assert open_table(table.path).to_arrow().num_rows == 0 and work_off(table) == 1
    assert open_table(table.path).to_arrow()["v"].to_pylist() == [1] * 20
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {0}
    stream(table, 4, minor)
    [item] = folder.plans(folder.list())[2].items
    assert item.moves_rows and item.output_level == 5 and work_off(table) == 1
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {5}
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {4} and open_table(table.path).doctor() == []


def test_what_cannot_be_planned_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(OptionError, match="needs a stream"):
        open_table(table.path, options={"compaction": "dedicated"})
    with pytest.raises(OptionError, match="did you mean"):
        stream(made(tmp_path / "other"), 0, {**DEDICATED, "compaction-plan.commit": "3"})


def test_a_writer_plans_by_time_whatever_the_machines_clock_says(tmp_path: Path) -> None:
    class Elapsed:
        now_ms = 5

        def elapsed_ms(self) -> int:
            return self.now_ms

    table, clock = made(tmp_path), Elapsed()
    by_time = {"compaction": "dedicated", "compaction-plan.trigger": "time", "compaction-plan.strategy": "full"}
    by_time["compaction-plan.interval"] = "1 min"
    session = table_at(handle_in(table, stopwatch=clock), by_time)
    planner = Planner(session)
    found = []
    for batch_id, now_ms in ((0, 5), (1, 60_004), (2, 60_005), (3, 60_006)):
        open_table(table.path, options={"compaction": "none"}).write(
            pa.table({"id": range(20), "v": range(20)}, schema=COLUMNS)
        )
        clock.now_ms = now_ms
        found.append(planner.after_batch(session, batch_id))
        work_off(table)
    assert found == [1, None, 2, None]
    # A restart counts from the last compaction that the table shows.
    again, late = Elapsed(), Elapsed()
    for world, expected in (({"stopwatch": again}, None), ({"stopwatch": late, "clock": Later()}, 3)):
        session = table_at(handle_in(table, **world), by_time).refreshed()
        assert Planner(session).after_batch(session, 4) == expected


class Later(SystemClock):
    """The machine's clock, an hour later."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000
