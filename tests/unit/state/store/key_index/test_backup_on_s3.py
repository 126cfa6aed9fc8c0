"""Backups of the key index in a checkpoint on S3: a job starts from them on a machine that has nothing."""

import logging
import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.servers.fault_proxy import FaultProxy, Trouble
from tests.support.servers.s3_server import S3Server, storage_of
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
KEYS = 50


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def rows(number: int) -> pa.Table:
    """All keys move to another partition."""
    return pa.table({"id": range(KEYS), "v": [number] * KEYS, "pt": [(number + i) % 3 for i in range(KEYS)]}, COLUMNS)


class Job:
    """A job with its table and its checkpoint on S3; each batch may run on a machine of its own."""

    def __init__(self, server: S3Server, root: Path) -> None:
        self.uri, self.storage, self.root = server.new_uri(), server.storage, root
        self.checkpoint = f"{self.uri.replace('s3://', 's3a://')}-checkpoint"
        create_table(self.uri, COLUMNS, ("id",), ("pt",), {"bucket": "-1"}, storage_options=self.storage)
        self.number = 0

    def write(self, machine: str, storage: dict[str, str] | None = None, checkpoint: str | None = None) -> None:
        forget_table(self.uri, "query")
        place = checkpoint or self.checkpoint
        sink = TableSink(
            self.uri,
            {"local-directory": str(self.root / machine), "assigner-parallelism": "2"},
            storage_options=storage or self.storage,
            checkpoint=place,
            decode=as_is,
        )
        at = self.number
        identity = BatchIdentity("query", at, f"[{at - 1}]", f"[{at}]", "d", checkpoint=place)
        sink.write(Cluster(random.Random(at)).frame(rows(at), 1), identity)
        self.number += 1

    def content(self) -> list[tuple[int, int, int]]:
        found = open_table(self.uri, storage_options=self.storage).to_arrow()
        return sorted(zip(*(found[c].to_pylist() for c in ("id", "v", "pt")), strict=True))

    def expected(self) -> list[tuple[int, int, int]]:
        at = self.number - 1
        return [(i, at, (at + i) % 3) for i in range(KEYS)]


@pytest.fixture
def job(s3_server: S3Server, tmp_path: Path) -> Job:
    """One batch is written: the index was built on the way, and lies on S3 as it was before it."""
    job = Job(s3_server, tmp_path)
    open_table(job.uri, storage_options=job.storage).write(rows(7))
    job.write("first")
    return job


@pytest.fixture
def built(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Notes each index that is built from the table."""
    caplog.set_level(logging.INFO, "bucketline.state.store.key_index.ready")
    return caplog


def test_a_job_on_an_empty_machine_starts_from_the_backup_and_reads_what_came_since(
    job: Job, built: pytest.LogCaptureFixture
) -> None:
    io, root = file_io_for(job.checkpoint, job.storage)
    names = [f.path.rpartition("/")[2] for f in io.list_files(f"{root}/bucketline")]
    assert names.count("current.json") == 2 and len(names) > 4
    job.write("first")
    built.clear()
    job.write("second")
    assert job.content() == job.expected()
    assert [r for r in built.records if " loaded" in r.msg] == []
    assert examine(open_to_examine(job.uri, storage_options=job.storage), rows=True) == []


def test_a_backup_that_is_damaged_is_not_used(job: Job, built: pytest.LogCaptureFixture) -> None:
    """Each job finds the backups as the one before has left them, and makes them anew."""
    io, root = file_io_for(job.checkpoint, job.storage)

    def harm(kind: str) -> None:
        files = io.list_files(f"{root}/bucketline")
        for shard in {f.path.rpartition("/")[0] for f in files}:
            largest = max((f for f in files if f.path.startswith(f"{shard}/")), key=lambda f: f.size_bytes).path
            assert not largest.endswith(".json")
            if kind == "missing":
                io.delete(largest)
            else:
                io.overwrite(largest, io.read(largest)[:-100])

    for kind in ("missing", "cut off"):
        harm(kind)
        built.clear()
        job.write(f"after {kind}")
        assert len([r for r in built.records if " loaded" in r.msg]) == 2, kind
        assert job.content() == job.expected(), kind
    built.clear()
    job.write("last")
    assert [r for r in built.records if " loaded" in r.msg] == [] and job.content() == job.expected()


@pytest.mark.parametrize("trouble", [Trouble.FORBIDDEN, None])
def test_a_checkpoint_that_only_spark_reaches_costs_the_backup_and_no_batch(
    trouble: Trouble | None, s3_server: S3Server, tmp_path: Path, built: pytest.LogCaptureFixture
) -> None:
    """Its keys may be others than the table's, and Spark knows more storages."""
    job = Job(s3_server, tmp_path)

    def choose(method: str, path: str) -> Trouble | None:
        return trouble if "-checkpoint/bucketline" in path else None

    with FaultProxy(s3_server.endpoint, choose) as proxy:
        for machine in ("first", "second"):
            job.write(machine, storage_of(proxy.endpoint), None if trouble else "dbfs:/checkpoints/c")
            assert job.content() == job.expected()
    warned = [r.getMessage() for r in built.records if r.levelname == "WARNING"]
    assert any(("cannot be read: " if trouble else "gets no backup") in text for text in warned), warned
    assert trouble or len(warned) == 1
