"""Engines: the same stages end alike in this process and in tasks, and an error leaves nothing behind."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import World
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS, Outcome, Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import LocalEngine
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.placing import Placed, Placing
from bucketline.state.store.write.run_buffer import Blob
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import WriteScope
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("p", pa.int32(), nullable=False), pa.field("id", pa.int64(), nullable=False),
                     ("v", pa.int64())])  # fmt: skip


def make(path: Path, **options: str) -> bl.Table:
    chosen = {k.replace("_", "-"): v for k, v in options.items()}
    return bl.create_table(str(path / "shop.db" / "t"), COLUMNS, ("p", "id"), ("p",), options=chosen)


def rows(seed: int, count: int = 40) -> pa.Table:
    draw = random.Random(seed)
    ids = [draw.randrange(30) for _ in range(count)]
    return pa.table({"p": [i % 3 for i in ids], "id": ids, "v": [seed] * count}, schema=COLUMNS)


def content(table: bl.Table) -> list[tuple[object, ...]]:
    found = bl.open_table(table.path).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def levels(table: bl.Table) -> list[tuple[object, ...]]:
    found = bl.open_table(table.path).files().to_pylist()
    return sorted((f["partition"], f["bucket"], f["level"], f["record_count"]) for f in found)


@pytest.mark.parametrize("bucket", ["2", "-1", "-2"])
@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_a_compaction_over_spark_ends_as_one_in_this_process(tmp_path: Path, bucket: str, strategy: str) -> None:
    options = {"bucket": bucket, "write-only": "true", "postpone.batch-write-fixed-bucket": "false",
               "postpone.default-bucket-num": "2", "num-sorted-run.compaction-trigger": "3"}  # fmt: skip
    tables = [make(tmp_path / name, **options) for name in ("here", "spark")]
    cluster = Cluster(random.Random(3), 2, unrest=0.3)
    for table, engine in zip(tables, (bl.LocalEngine(), bl.spark_engine(cluster)), strict=True):
        for seed in range(4):
            table.write(rows(seed))
        assert table.compact(strategy, engine=engine) is not None
        actions = cluster.actions
        assert table.compact(strategy, engine=engine) is None
    here, spark = tables
    assert content(here) == content(spark) and len(content(here)) == 30
    assert levels(here) == levels(spark)
    assert actions == 1


def test_a_rescale_over_spark_ends_as_one_in_this_process(tmp_path: Path) -> None:
    tables = [make(tmp_path / name, bucket="2") for name in ("here", "spark")]
    cluster = Cluster(random.Random(3), 2, unrest=0.3)
    for table, engine in zip(tables, (bl.LocalEngine(), bl.spark_engine(cluster)), strict=True):
        table.write(rows(1))
        assert table.rescale(5, engine=engine) is not None
    here, spark = tables
    assert content(here) == content(spark) and levels(here) == levels(spark)
    assert {found[1] for found in levels(here)} > {0, 1}


def stages_of(table: bl.Table, source: Parts, trigger: CompactTrigger = CompactTrigger.NONE) -> Stages[Parts]:
    session = table_at(open_handle(table.path), {}).refreshed()
    return session.plan.mode.stages(session.plan, session, WriteScope(trigger, "me"), source)


def test_stages_without_work_start_no_task(tmp_path: Path) -> None:
    stages, cluster = stages_of(make(tmp_path, bucket="2"), NO_ROWS), Cluster(random.Random(3), 2)
    assert SparkEngine(cluster).run(stages) == LocalEngine().run(stages) == Outcome()
    assert cluster.actions == 0


@dataclass(frozen=True)
class FailsAtSecond(Placing):
    """Finds buckets as another does, and cannot go on after its first one was written."""

    inner: Placing
    done: list[str]

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[Placed]:
        return self.inner.place(share, runs)

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        if self.done:
            raise RuntimeError("the second bucket fails")
        self.done.append("one")
        return self.inner.with_news(message, payload, world)


def test_an_error_leaves_neither_data_files_nor_index_files_behind(tmp_path: Path) -> None:
    table = make(tmp_path, bucket="-1")
    stages = stages_of(table, Parts([GivenRows([rows(1)])]))
    assert stages.write.groups is not None
    done: list[str] = []
    failing = Stages(
        stages.source,
        stages.seal,
        type(stages.write)(stages.write.write, stages.write.states, FailsAtSecond(stages.write.groups, done)),
    )
    with pytest.raises(RuntimeError, match="second bucket"):
        LocalEngine().run(failing)
    assert done == ["one"]
    left = [p for p in Path(table.path).rglob("*") if p.is_file() and p.parent.name != "schema"]
    assert left == []


def test_an_index_that_cannot_be_written_takes_the_deletion_vectors_of_its_bucket_along(tmp_path: Path) -> None:
    table = make(tmp_path, bucket="-1", **{"deletion-vectors.enabled": "true"})
    ids = list(range(20_000))
    table.write(pa.table({"p": [0] * len(ids), "id": ids, "v": ids}, schema=COLUMNS))
    table.compact()
    update_and_insert = pa.table({"p": [0, 0], "id": [7, 20_000], "v": [1, 1]}, schema=COLUMNS)
    stages = stages_of(table, Parts([GivenRows([update_and_insert])]), CompactTrigger.MINOR)
    (made,) = LocalEngine().run(stages).messages
    assert made.compact_index_files and made.new_index_files
    assert stages.write.groups is not None
    failing = replace(stages, write=replace(stages.write, groups=FailsAtSecond(stages.write.groups, ["one"])))
    before = {p for p in Path(table.path).rglob("*") if p.is_file()}
    with pytest.raises(RuntimeError, match="second bucket"):
        LocalEngine().run(failing)
    assert {p for p in Path(table.path).rglob("*") if p.is_file()} == before


def test_who_watches_is_told_of_each_bucket(tmp_path: Path) -> None:
    table = make(tmp_path, bucket="2", write_only="true")
    table.write(rows(1))
    seen: list[tuple[int, int]] = []
    table.compact(engine=bl.LocalEngine(lambda done, total: seen.append((done, total))))
    assert seen == [(n, 6) for n in range(7)]
