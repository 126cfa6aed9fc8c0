"""Work that is given back while Spark's tasks do it: whatever each has written by then is removed."""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.message import CommitMessage
from bucketline.state.plans.plan import ItemResult
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.engine.engine import GivenBack, Jobs, TaskJob
from bucketline.state.store.plans.item_work import BucketJob, ItemJob, MoveJob, TableWork
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@dataclass(frozen=True)
class OnceWritten:
    """Ends the work once a real bucket of the table has a file that was not there before."""

    path: str
    before: frozenset[str]

    def __call__(self) -> None:
        if data_files(self.path) - self.before:
            raise GivenBack("item 0 was released")


@dataclass(frozen=True)
class Ended:
    """A job that was given back, and has removed its files."""

    access: BucketAccess

    def message(self) -> CommitMessage:
        raise GivenBack("item 1 was released")


def data_files(path: str) -> frozenset[str]:
    return frozenset(p.name for p in Path(path).glob("bucket-[0-9]/*"))


def planned(path: Path, bucket: str) -> tuple[Table, list[ItemJob]]:
    options = {"bucket": bucket, "postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "3"}
    table = create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options={**options, "write-only": "true"})
    for number in range(2):
        table.write(pa.table({"id": range(30), "v": [number] * 30}, schema=COLUMNS))
    session = table_at(handle_of(open_table(table.path)), {"compaction-plan.strategy": "full"}).refreshed()
    work = TableWork(session, workers=Workers(2, 1))
    plan = make_plan(session, PlanFolder(handle_of(table).io, table.path)).plan
    looked = [work.look(plan, item) for item in plan.items]
    return table, [job for job in looked if not isinstance(job, ItemResult)]


def test_buckets_that_other_tasks_have_compacted_leave_no_file(tmp_path: Path) -> None:
    table, jobs = planned(tmp_path, "2")
    whole, other = jobs
    assert isinstance(whole, BucketJob) and isinstance(other, BucketJob)
    engine, before = SparkEngine(Cluster(random.Random(1))), data_files(table.path)
    ended: list[TaskJob] = [whole, Ended(other.access)]
    with pytest.raises(GivenBack, match="item 1"):
        engine.run(Jobs(ended))
    assert data_files(table.path) == before and len(before) == 4
    assert len(engine.run(Jobs([whole, other])).messages) == 2 and data_files(table.path) > before


def test_buckets_that_postponed_rows_have_reached_leave_no_file(tmp_path: Path) -> None:
    """One task writes all three; it is stopped once the first is there."""
    table, [job] = planned(tmp_path, "-2")
    assert isinstance(job, MoveJob) and data_files(table.path) == frozenset()
    stage, engine = job.stages.write, SparkEngine(Cluster(random.Random(1)))
    watch = OnceWritten(table.path, frozenset())
    watched = replace(job.stages, write=replace(stage, write=replace(stage.write, watch=watch)))
    with pytest.raises(GivenBack, match="item 0"):
        engine.run(watched)
    assert data_files(table.path) == frozenset()
    assert len({m.bucket for m in engine.run(job.stages).messages}) == 4 and len(data_files(table.path)) == 3
