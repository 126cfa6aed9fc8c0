"""Tables in object stores and on HDFS: made, written, compacted, read, expired, cleaned and examined there."""

import logging
import random
from datetime import timedelta
from pathlib import Path
from statistics import median

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage.hdfs_io import HdfsIO
from bucketline.state.store.storage.objects.object_io import ObjectIO
from bucketline.state.store.storage.storage_clock import storage_now_ms
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.servers.azurite import Azurite
from tests.support.servers.fake_gcs import FakeGcs
from tests.support.servers.hdfs_cluster import HdfsCluster
from tests.support.servers.s3_server import S3Server, wait_until
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string()), ("n", pa.int32())])
TABLES = {
    "fixed": ({"bucket": "2"}, ("id", "day")),
    "fixed with a lookup changelog in ORC": (
        {"bucket": "1", "changelog-producer": "lookup", "file.format": "orc"},
        ("id", "day"),
    ),
    "dynamic in Avro": ({"bucket": "-1", "file.format": "avro"}, ("id", "day")),
    "cross-partition": ({"bucket": "-1"}, ("id",)),
    "deletion vectors": ({"bucket": "1", "deletion-vectors.enabled": "true"}, ("id", "day")),
    "postpone": ({"bucket": "-2"}, ("id", "day")),
    "append": ({}, ()),
}


EMULATED = [pytest.param(name, marks=pytest.mark.stores) for name in ("azurite", "versitygw", "fake_gcs", "hdfs")]


@pytest.fixture(params=["s3_server", *EMULATED])
def server(request: pytest.FixtureRequest) -> S3Server | Azurite | FakeGcs | HdfsCluster:
    found: S3Server | Azurite | FakeGcs | HdfsCluster = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_a_table_lives_far_away_in_every_bucket_mode_and_format(
    name: str, server: S3Server | Azurite | FakeGcs | HdfsCluster
) -> None:
    options, keys = TABLES[name]
    uri, storage = server.new_uri(), server.storage
    create_table(uri, COLUMNS, keys, ("day",), options, storage_options=storage)
    for n in range(4):
        rows = pa.table({"id": range(20), "day": [f"a b%{i % 2}" for i in range(20)], "n": [n] * 20}).cast(COLUMNS)
        open_table(uri, storage_options=storage).write(rows)
    open_table(uri, storage_options=storage).compact()
    table = open_table(uri, storage_options=storage)
    found = table.to_arrow()
    assert isinstance(handle_of(table).io, ObjectIO | HdfsIO)
    expected = [(i, f"a b%{i % 2}", n) for i in range(20) for n in (range(4) if name == "append" else (3,))]
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == expected
    assert table.expire_snapshots(retain_max=1).data_files >= 0
    orphan = f"{table.path}/day=a b%250/bucket-0/data-{'0' * 8}-orphan-0.parquet"
    handle_of(table).io.write_new(orphan, b"orphan")
    # The store tells times in whole seconds, and nothing that may be of this second is taken.
    io = handle_of(table).io
    wait_until(lambda: storage_now_ms(io, table.path, SYSTEM_WORLD) > io.modified_ms(orphan))
    removed = table.remove_orphan_files(dry_run=False, older_than=timedelta(0), no_writers=True)
    assert [f.path for f in removed.files] == [orphan] and not handle_of(table).io.exists(orphan)
    assert open_table(uri, storage_options=storage).to_arrow().num_rows == len(expected)
    assert examine(open_to_examine(uri, storage_options=storage), rows=True) == []


def test_the_schemes_of_one_store_mean_the_same_tables(s3_server: S3Server) -> None:
    uri, storage = s3_server.new_uri(), s3_server.storage
    create_table(uri, COLUMNS, storage_options=storage)
    assert bl.open_table(uri.replace("s3://", "s3a://"), storage_options=storage).to_arrow().num_rows == 0


def test_a_table_is_written_and_read_under_the_names_of_oss(s3_server: S3Server) -> None:
    """Over a server of S3, by whose protocol OSS is reached."""
    storage = {
        "fs.oss.endpoint": s3_server.endpoint,
        "fs.oss.accessKeyId": s3_server.storage["s3.access-key"],
        "fs.oss.accessKeySecret": s3_server.storage["s3.secret-key"],
    }
    uri = s3_server.new_uri()
    table = bl.create_table(uri.replace("s3://", "oss://"), COLUMNS, storage_options=storage)
    table.write(pa.table({"id": [1], "day": ["a"], "n": [2]}).cast(COLUMNS))
    found = bl.open_table(uri, storage_options=s3_server.storage).to_arrow()
    assert found["n"].to_pylist() == [2]


def test_the_requests_of_a_small_batch_do_not_grow_with_the_table(
    s3_server: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Between two compactions, with one data file each; what comes now and then is bounded over 30 commits."""
    caplog.set_level(logging.INFO, "bucketline.progress")
    uri, storage = s3_server.new_uri(), s3_server.storage
    io = handle_of(create_table(uri, COLUMNS, ("id", "day"), options={"bucket": "1"}, storage_options=storage)).io
    assert isinstance(io, ObjectIO)
    sink = TableSink(
        uri,
        {"local-directory": str(tmp_path)},
        storage_options=storage,
        checkpoint=str(tmp_path / "checkpoint"),
        decode=DecodedRows,
    )
    taken = []
    for number in range(31):
        before = io.requests
        rows = pa.table({"id": range(20), "day": ["a"] * 20, "n": [number] * 20}).cast(COLUMNS)
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", "d", checkpoint=sink.checkpoint)
        sink.write(Cluster(random.Random(number)).frame(rows, 1), identity)
        taken.append(io.requests.since(before))
    quiet = [t for t in taken[1:] if t.put <= 7]
    assert len(quiet) >= 18
    assert {(t.put, t.delete) for t in quiet} == {(7, 0)}
    # One is for the data file, three are for the stream's tag, and two or three ask whether snapshots have expired.
    assert median(t.total for t in quiet) - 7 <= 12 and {t.list for t in quiet} == {0}
    assert max(t.total for t in quiet) <= 23
    assert max(t.total for t in taken) <= 44
    assert sum(t.total for t in taken[1:]) <= 30 * 19 + 8 * 20
    assert [r.bucketline.storage_requests for r in caplog.records] == [t.total for t in taken]  # type: ignore[attr-defined]
