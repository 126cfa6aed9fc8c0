"""Jobs: buckets that tasks do by themselves end alike in this process and in tasks, all of them or none."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.commit.message import CommitMessage
from bucketline.state.plans.plan import ItemState
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import Engine, Jobs
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.item_work import BucketJob, TableWork
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.spark.tasks import Cluster
from tests.support.tables.compactors import compactor_of

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
FULL = {"compaction-plan.strategy": "full"}


def planned(path: Path) -> tuple[bl.Table, tuple[BucketJob, ...]]:
    """A table with a plan of four items, and the items as jobs."""
    table = bl.create_table(
        str(path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "4", "write-only": "true"}
    )
    for number in range(3):
        table.write(pa.table({"id": range(60), "v": [number] * 60}, schema=COLUMNS))
    session = table_at(open_handle(table.uri), FULL).refreshed()
    handle = session.table
    plan = make_plan(session, PlanFolder(handle.io, handle.metadata_path)).plan
    looked = [TableWork(session).look(plan, item) for item in plan.items]
    jobs = tuple(job for job in looked if isinstance(job, BucketJob))
    assert len(jobs) == len(looked) == 4
    return table, jobs


def shape(messages: tuple[CommitMessage, ...]) -> list[tuple[object, ...]]:
    return [
        (m.partition, m.bucket, [f.level for f in m.compact_after], sum(f.row_count for f in m.compact_after))
        for m in messages
    ]


def test_messages_come_in_the_order_of_the_jobs_from_any_engine(tmp_path: Path) -> None:
    _, jobs = planned(tmp_path)
    cluster = Cluster(random.Random(5), 2, unrest=0.5)
    turned = Jobs((jobs[2], jobs[0], jobs[3], jobs[1]))
    here = shape(LOCAL_ENGINE.run(turned).messages)
    assert [found[1] for found in here] == [job.place[1] for job in turned.jobs]  # type: ignore[attr-defined]
    assert shape(SparkEngine(cluster).run(turned).messages) == here and sum(f[3] for f in here) == 60  # type: ignore[misc]
    assert cluster.actions == 1 and cluster.tasks_run == 4
    # Another thread may use the session at the same time.
    assert cluster.settings == {}


@pytest.mark.parametrize("engine", [LOCAL_ENGINE, SparkEngine(Cluster(random.Random(7), 2))], ids=["here", "spark"])
def test_a_compactor_closes_its_items_with_any_engine(tmp_path: Path, engine: Engine) -> None:
    table, _ = planned(tmp_path)
    handle = table_at(open_handle(table.uri), {}).table
    compactor = compactor_of(handle, {}, engine, lease_ms=60_000, take=lambda open_items: 3)
    found = [f.result.state for _ in range(2) for f in compactor.round() if f.result is not None]
    assert found == [ItemState.DONE] * 4 and compactor.round() == []
    after = bl.open_table(table.path)
    assert {f["level"] for f in after.files().to_pylist()} == {5}
    assert after.to_arrow()["v"].to_pylist() == [2] * 60 and after.doctor() == []


def test_no_jobs_are_no_action() -> None:
    cluster = Cluster(random.Random(1), 2)
    assert SparkEngine(cluster).run(Jobs(())) == LOCAL_ENGINE.run(Jobs(()))
    assert cluster.actions == 0
