"""Tables of a job of many that are compacted beside the batches (`compaction: async`)."""

import logging
import random
from pathlib import Path

import pytest

from bucketline.state.errors import CompactionFailedError
from bucketline.state.store.table.table import open_table
from bucketline.streaming.batch.async_compaction import async_tables
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.spark.local_tables import LocalTables
from tests.support.spark.many_shop import QUERY, Shop
from tests.support.spark.tasks import Cluster

JOB = """
create:
  schema: "id BIGINT NOT NULL, v STRING, n BIGINT"
  primary-key: [id]
  options: {bucket: "BUCKET", num-sorted-run.compaction-trigger: "2"}
options: {compaction: async}
tables:
  - {source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}
"""


def beside(root: Path, bucket: str, names: tuple[str, ...] = ("a", "b")) -> tuple[Shop, SparkEngine]:
    """A job whose tables can be compacted beside its batches, and the engine that it has for that."""
    engine = SparkEngine(Cluster(random.Random(1), 2))
    job = Shop(root, JOB.replace("BUCKET", bucket), engine=LocalTables(engine=engine))
    for number in range(8):
        for name in names:
            job.topic.change(name, {"id": 1, "v": str(number), "n": number}, "u" if number else "c")
        job.batch()
    return job, engine


def threads(root: Path) -> list[str]:
    """The tables in a folder that have a thread. Streams of other tests, in this process, have the same name."""
    return [path for path in async_tables(QUERY) if path.startswith(f"{root}/")]


@pytest.mark.parametrize("bucket", ["1", "-2"])
def test_all_tables_of_a_job_are_compacted_beside_its_batches(
    tmp_path: Path, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        job, engine = beside(tmp_path, bucket)
        assert job.state().tables.finish(engine, 2) == 0
    assert "'back-pressure' = 'wait' has not reduced the sorted runs in time" not in caplog.text
    assert threads(tmp_path) == []
    for name in ("a", "b"):
        table = open_table(f"{tmp_path}/w/{name}")
        snapshots = table.snapshots().to_pylist()
        assert {s["commit_user"] for s in snapshots if s["commit_kind"] == "APPEND"} == {QUERY}
        users = {s["commit_user"] for s in snapshots if s["commit_kind"] == "COMPACT"}
        assert users and all(user.startswith("compactor-") for user in users)
        assert job.rows(name) == [{"id": 1, "v": "7", "n": 7}] and table.doctor(rows=True) == []
        assert len(table.files().to_pylist()) <= 2


def test_a_job_that_stops_ends_the_threads_of_all_its_tables_and_one_that_failed_fails_a_batch(tmp_path: Path) -> None:
    job, _ = beside(tmp_path, "1")
    assert threads(tmp_path) == [f"{tmp_path}/w/a", f"{tmp_path}/w/b"]
    job.state().tables.stop()
    assert threads(tmp_path) == []
    for file in Path(f"{tmp_path}/w/a").glob("bucket-0/data-*"):
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(CompactionFailedError, match="w/a: the compaction of bucket-0 in the background failed"):
        for number in range(500):
            job.topic.change("a", {"id": 1, "v": "x", "n": number}, "u")
            job.batch()
    job.state().tables.stop()
