"""Items of plans in Spark tasks: one task each, and an item that fails does not take the others with it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.plans.plan import ItemState
from bucketline.state.store.plans.compactor import Finished
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.serve import Stop, serve_plans
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.tables.compactors import compactor_of

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def planned(path: Path) -> Table:
    table = create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "3", "write-only": "true"})
    for number in range(3):
        table.write(pa.table({"id": range(60), "v": [number] * 60}, schema=COLUMNS))
    session = table_at(handle_of(open_table(table.path)), {"compaction-plan.strategy": "full"}).refreshed()
    assert make_plan(session, PlanFolder(handle_of(table).io, table.path)).number == 1
    return table


def work_off(spark: Any, table: Table) -> list[Finished]:
    found: list[Finished] = []
    compactor = compactor_of(
        handle_of(open_table(table.path)), {}, SparkEngine(spark), lease_ms=60_000, take=lambda open_items: 3
    )
    serve_plans({table.path: compactor}, poll_ms=1, once=True, stop=Stop(), tell=lambda path, item: found.append(item))
    return found


def test_items_are_done_in_tasks_and_committed_one_by_one(spark: Any, tmp_path: Path) -> None:
    table = planned(tmp_path)
    assert SparkEngine(spark).workers.parallelism == 2
    found = work_off(spark, table)
    assert [f.result is not None and f.result.state for f in found] == [ItemState.DONE] * 3
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {5}
    assert set(open_table(table.path).to_arrow()["v"].to_pylist()) == {2}
    assert open_table(table.path).doctor() == []


def test_tasks_share_what_waits_in_a_partition_of_a_postpone_table(spark: Any, tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "changelog-producer": "lookup"}
    schema = COLUMNS.append(pa.field("day", pa.string(), nullable=False))
    table = create_table(str(tmp_path / "shop.db" / "t"), schema, ("day", "id"), ("day",), options)
    for number in range(3):
        rows = {"id": range(60), "v": [number] * 60, "day": [f"d{i % 3 % 2}" for i in range(60)]}
        kinds = pa.array([3 if i % 10 == number else 0 for i in range(60)], pa.int8())
        table.write(pa.table(rows, schema=schema), kinds)
    session = table_at(handle_of(open_table(table.path)), {})
    assert len(make_plan(session, PlanFolder(handle_of(table).io, table.path)).plan.items) == 2
    found = work_off(spark, table)
    assert [f.result is not None and f.result.state for f in found] == [ItemState.DONE] * 2
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    live = handle_of(table).manifests.live_entries(newest)
    # Each new partition gets as many buckets as Spark has cores.
    assert {(e.bucket, e.total_buckets) for e in live} == {(0, 2), (1, 2)}
    moved = open_table(table.path)
    assert moved.to_arrow()["v"].to_pylist() == [2] * 54 and moved.doctor(rows=True) == []
    assert moved.to_arrow(changes_since=0).num_rows == 54


def test_an_item_whose_file_is_damaged_fails_alone(spark: Any, tmp_path: Path) -> None:
    table = planned(tmp_path)
    damaged = min(Path(table.path).glob("bucket-1/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    found = work_off(spark, table)
    done = [f for f in found if f.result is not None and f.result.state is ItemState.DONE]
    assert {f.item.bucket for f in done} == {0, 2}
    failed = [f for f in found if f not in done]
    assert {f.item.bucket for f in failed} == {1}
    # Three tries, and the end of it.
    assert [f.result is None for f in failed] == [True, True, True, False]
    folder = PlanFolder(handle_of(table).io, table.path)
    plan = folder.plan(1)
    assert plan is not None
    states = {i.bucket: r.state for i in plan.items if (r := folder.result(plan, i.number)) is not None}
    assert states == {0: ItemState.DONE, 1: ItemState.FAILED, 2: ItemState.DONE}
