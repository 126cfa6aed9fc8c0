"""The sink with Spark's part played in this process: what a restart finds, and shares of keys."""

import itertools
import json
import random
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.errors import StorageError
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch import commit, live_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.batch.target import Target
from bucketline.streaming.batch.write_batch import Job, write_batch
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster
from tests.support.storage.interleaved import stopped_at
from tests.support.storage.stopped import HOUR_MS, StoppingClock, age_and_clean
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def write(table: Table, number: int, parallelism: int = 4, **options: str) -> None:
    identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
    data = pa.table({"id": range(50), "v": [number] * 50, "pt": pa.array([(number + i) % 3 for i in range(50)])})
    frame = Cluster(random.Random(number), parallelism).frame(data.cast(COLUMNS), 2)
    TableSink(table.path, {k.replace("_", "-"): v for k, v in options.items()}, decode=as_is).write(frame, identity)


def test_a_batch_that_died_right_after_its_commit_moves_its_marker_when_it_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    write(table, 0)

    class Died(BaseException):
        pass

    def die(target: object, snapshot: object) -> None:
        raise Died

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(commit, "mark", die)
        write(table, 1)
    forget_table(table.path, "query")
    write(table, 1)
    assert [s["commit_identifier"] for s in table.snapshots().to_pylist() if s["commit_kind"] == "APPEND"] == [0, 1]
    tags = {t["tag_name"]: t["snapshot_id"] for t in table.tags().to_pylist()}
    assert tags[f"{MARKER_TAG}query"] == 2
    # Others expire what the batch left: the marker proves it all the same.
    forget_table(table.path, "query")
    open_table(table.path).compact()
    table.expire_snapshots(retain_max=1, retain_min=1)
    write(table, 2)
    assert set(table.to_arrow()["v"].to_pylist()) == {2}


@pytest.mark.parametrize("input_of_other", ["same", "other"])
def test_a_replayed_batch_is_believed_only_if_it_has_the_same_input(tmp_path: Path, input_of_other: str) -> None:
    """Of two runs with copied checkpoints that have read different records, one would lose its rows."""

    def run(path: Path, digest: str) -> None:
        identity = BatchIdentity("query", 0, "[-1]", "[0]", digest)
        data = pa.table({"id": range(50), "v": [0] * 50, "pt": [i % 3 for i in range(50)]}).cast(COLUMNS)
        target = Target(table_at(open_handle(str(path)), {}, is_stream=True), "query")
        write_batch(target, identity, Cluster(random.Random(0), 2).frame(data, 2), Job(as_is))

    for name in ("counted", "t"):
        create_table(str(tmp_path / name), COLUMNS, ("id",), options={"bucket": "2"})
    with stopped_at(None) as counted:
        run(tmp_path / "counted", "mine")
    at = next(n for n, call in enumerate(counted.log, 1) if call.startswith("publish ") and "/snapshot-1" in call)
    digest = "mine" if input_of_other == "same" else "theirs"
    refused = pytest.raises(CheckpointMismatchError, match="with other input at the same time")
    with stopped_at(at, lambda: run(tmp_path / "t", digest)), nullcontext() if digest == "mine" else refused:
        run(tmp_path / "t", "mine")
    snapshots = open_table(str(tmp_path / "t")).snapshots().to_pylist()
    assert [s["commit_identifier"] for s in snapshots if s["commit_kind"] == "APPEND"] == [0]


def test_no_more_tasks_share_the_keys_than_buckets_may_exist(tmp_path: Path) -> None:
    options = {"bucket": "-1", "dynamic-bucket.max-buckets": "2"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), options)
    for number in range(3):
        write(table, number, local_directory=str(tmp_path / "local"), assigner_parallelism="7")
    assert {f["bucket"] for f in table.files().to_pylist()} == {0, 1}
    assert table.to_arrow().num_rows == 50


def test_a_cluster_of_another_size_keeps_the_shares_of_the_key_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's parallelism changes whenever executors come and go; the index of each share is kept by its number."""
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), {"bucket": "-1"})
    caplog.set_level("INFO", "bucketline.state.store.key_index.ready")
    for number, parallelism in enumerate((2, 8, 3)):
        write(table, number, parallelism, local_directory=str(tmp_path / "local"))
    forget_table(table.path, "query")
    write(table, 3, 8, local_directory=str(tmp_path / "local"))
    built = [r for r in caplog.records if " loaded" in r.msg]
    assert len(built) == 2 and len(list((tmp_path / "local").rglob("shard-*"))) == 2
    advice = [r.getMessage() for r in caplog.records if "assigner-parallelism" in r.getMessage()]
    # Once a run, and only where tasks would be idle.
    assert len(advice) == 2 and all("'assigner-parallelism' to 8" in a for a in advice)
    write(table, 4, 8, local_directory=str(tmp_path / "local"), assigner_parallelism="3")
    assert len([r for r in caplog.records if " loaded" in r.msg]) == 5
    write(table, 5, 8, local_directory=str(tmp_path / "local"))
    assert len([r for r in caplog.records if " loaded" in r.msg]) == 5
    assert table.to_arrow().num_rows == 50


def test_keys_that_wait_keep_their_writer_whatever_the_parallelism(tmp_path: Path) -> None:
    """Paimon's compactors know an order only among the files of one writer."""
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "-2"})

    def writers() -> dict[str, set[int]]:
        """The numbers of writers and the keys that each has written."""
        newest = handle_of(table).snapshot_store.latest()
        assert newest is not None
        found: dict[str, set[int]] = {}
        for bucket in group_by_bucket(handle_of(table).manifests.live_entries(newest)):
            for file in bucket.files if bucket.bucket < 0 else ():
                access = BucketAccess(table.path, handle_of(table).table_schema)
                keys = {k for b in access.files.rows(bucket, file, ["id"]) for k in b.column(0).to_pylist()}
                found.setdefault(file.file_name.split("-s-")[1].split("-w-")[0], set()).update(keys)
        return found

    write(table, 0, 2)
    first = writers()
    write(table, 1, 5)
    forget_table(table.path, "query")
    write(table, 2, 3, write_parallelism="7")
    assert writers() == first and len(first) == 2
    table.compact()
    write(table, 3, 5)
    assert len(writers()) == 5


def test_many_new_partitions_with_few_rows_each_get_one_bucket_each(tmp_path: Path) -> None:
    """However large the batch is, and however many tasks write it: what counts is what a partition gets."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("pt", pa.int32(), nullable=False)])
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "50"}
    table = create_table(str(tmp_path / "shop.db" / "t"), schema, ("pt", "id"), ("pt",), options)

    def write_partitions(number: int, partitions: range, rows_each: int) -> None:
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        parts = [p for p in partitions for _ in range(rows_each)]
        data = pa.table({"id": range(len(parts)), "pt": parts}, schema=schema)
        TableSink(table.path, decode=as_is).write(Cluster(random.Random(number), 8).frame(data, 2), identity)

    for number in range(3):
        write_partitions(number, range(20 * number, 20 * number + 20), 20)
    assert {f["bucket"] for f in table.files().to_pylist()} == {0}
    # A partition that gets many rows is filled by several tasks, once that is known.
    write_partitions(3, range(100, 101), 400)
    write_partitions(4, range(101, 102), 400)
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    counts = Counter(e.partition for e in handle_of(table).manifests.read_index(newest.index_manifest))
    assert table.to_arrow().num_rows == 60 * 20 + 800 and 8 <= max(counts.values()) <= 16


def test_a_key_index_that_cannot_be_backed_up_stops_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a copy of a cache: the next backup may do, and without any the index is built from the table."""
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), {"bucket": "-1"})
    job = TableSink(table.path, {"local-directory": str(tmp_path / "local")}, decode=as_is)
    checkpoint, refused = tmp_path / "checkpoint", list[str]()
    original = LocalIO.overwrite

    def overwrite(self: LocalIO, path: str, data: bytes) -> None:
        if path.startswith(str(checkpoint)) and len(refused) < 2:
            refused.append(path)
            raise StorageError(f"{path}: the quota is used up", path=path, retryable=False, missing=False)
        original(self, path, data)

    monkeypatch.setattr(LocalIO, "overwrite", overwrite)
    for number in range(11):
        digest = f"digest {number}"
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", digest, checkpoint=str(checkpoint))
        data = pa.table({"id": range(50), "v": [number] * 50, "pt": pa.array([(number + i) % 3 for i in range(50)])})
        job.write(Cluster(random.Random(number), 2).frame(data.cast(COLUMNS), 2), identity)
    assert len(refused) == 2 and [r for r in caplog.records if "could not be backed up" in r.getMessage()]
    backups = list(checkpoint.rglob("current.json"))
    assert len(backups) == 2 and table.to_arrow().num_rows == 50
    for current in backups:
        named = {copy["stored"] for copy in json.loads(current.read_text())["files"]}
        assert {p.name for p in current.parent.iterdir()} == {"current.json", *named}


@pytest.mark.parametrize("compaction", ["inline", "none"])
def test_a_table_that_keeps_one_snapshot_builds_no_key_index_for_each_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, compaction: str
) -> None:
    """The snapshot that the index reflects has expired by the next batch: the note proves what came after it."""
    options = {"bucket": "-1", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1",
               "num-sorted-run.compaction-trigger": "2"}  # fmt: skip
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), options)
    caplog.set_level("INFO", "bucketline.state.store.key_index.ready")
    for number in range(6):
        write(table, number, 2, local_directory=str(tmp_path / "local"), compaction=compaction)
    kinds = set(table.snapshots()["commit_kind"].to_pylist())
    assert kinds == ({"COMPACT"} if compaction == "inline" else {"APPEND"})
    assert len([r for r in caplog.records if " loaded" in r.msg]) == 2
    assert {r["v"] for r in table.to_arrow().to_pylist()} == {5} and table.to_arrow().num_rows == 50


def test_rows_that_are_placed_nowhere_are_told_as_input_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """first-row drops what comes from another partition; the progress line says how many rows came."""
    options = {"bucket": "-1", "merge-engine": "first-row"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), options)
    with caplog.at_level("INFO", "bucketline.progress"):
        for number in range(2):
            write(table, number, local_directory=str(tmp_path / "local"))
    lines = [r.getMessage() for r in caplog.records if r.name == "bucketline.progress"]
    assert [": 50 rows in " in line for line in lines] == [True, True]
    assert "| stored 50 rows, " in lines[0] and "| stored nothing |" in lines[1]


@pytest.mark.parametrize("options", [{"bucket": "2"}, {"bucket": "-1"}, {"bucket": "-2"}])
def test_a_batch_whose_files_are_removed_while_the_driver_is_stopped_is_written_again(
    options: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped for more than a day at each look at its clock in turn, while orphans are removed."""
    repeated = 0
    for at in itertools.count(1):
        table = create_table(str(tmp_path / str(at) / "t"), COLUMNS, ("id",), options=options)
        clock = StoppingClock(at, 25 * HOUR_MS, age_and_clean(table.path, 25 * HOUR_MS))
        caplog.clear()
        local = {"local-directory": str(tmp_path / "local")}
        live_table.live_table(table.path, local, "query", table=handle_in(table, clock=clock))
        write(table, 0, 2, local_directory=str(tmp_path / "local"))
        repeated += any("its work is done again" in r.getMessage() for r in caplog.records)
        write(table, 1, 2, local_directory=str(tmp_path / "local"))
        table.compact()
        assert table.to_arrow()["v"].to_pylist() == [1] * 50 and table.doctor(rows=True) == []
        if clock.looks < at:
            break
    assert repeated >= 2


def test_a_misspelled_option_is_refused_before_a_query_can_start() -> None:
    with pytest.raises(OptionError, match="did you mean 'compaction'"):
        TableSink("t", options={"compactin": "none"})


def test_a_batch_whose_base_expired_while_its_tasks_ran_is_planned_again(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    write(table, 0)
    rows = pa.table({"id": [1000], "v": [7], "pt": pa.array([0])}).cast(COLUMNS)

    def expire_all_but_the_newest() -> None:
        cluster.after_action = lambda: None
        for _ in range(3):
            open_table(table.path).write(rows)
        open_table(table.path).expire_snapshots(retain_max=1, retain_min=1)

    cluster = Cluster(random.Random(1), 4, after_action=expire_all_but_the_newest)
    data = pa.table({"id": range(50), "v": [1] * 50, "pt": pa.array([i % 3 for i in range(50)])}).cast(COLUMNS)
    identity = BatchIdentity("query", 1, "[0]", "[1]", "digest 1")
    TableSink(table.path, {}, decode=as_is).write(cluster.frame(data, 2), identity)
    assert sorted(table.to_arrow()["v"].to_pylist()) == [1] * 50 + [7]
    assert table.doctor(rows=True) == []
