"""Cross-partition batches: the task that places a share of the keys writes its buckets, where nobody else does."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.bucket.allocation import Assigners
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.state.store.write.cross.cross_write import CrossWrite
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.plan import plan_batch
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.batch.target import StreamState, Target
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import Frame
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
_AGAIN = "one more stage"


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


class Stream:
    """A stream into a cross-partition table, and what the table has to hold."""

    def __init__(self, path: Path, *, unrest: float = 0.0, **options: str) -> None:
        options = {"bucket": "-1", "dynamic-bucket.target-row-num": "20", **options}
        self.table = create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), options)
        self.local, self.unrest, self.batches = path / "local", unrest, 0
        self.of_query = Counter[str]()
        self.expected: dict[int, tuple[int, int]] = {}

    def write(self, shares: int | None = None, query: str = "query", **options: str) -> int:
        """Writes a batch; says how many attempts of tasks there were."""
        number, self.batches = self.batches, self.batches + 1
        draw = random.Random(number)
        rows = [(draw.randrange(200), number * 1000 + i, draw.randrange(3)) for i in range(80)]
        self.expected |= {i: (v, pt) for i, v, pt in rows}
        data = pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], schema=COLUMNS)
        cluster = Cluster(draw, 2, self.unrest)
        asked = {} if shares is None else {"assigner-parallelism": str(shares)}
        sink = TableSink(self.table.path, {"local-directory": str(self.local), **asked, **options}, decode=as_is)
        batch, self.of_query[query] = self.of_query[query], self.of_query[query] + 1
        identity = BatchIdentity(query, batch, f"[{batch - 1}]", f"[{batch}]", f"digest {number}")
        sink.write(cluster.frame(data, 1), identity)
        return cluster.tasks_run

    def is_right(self) -> bool:
        found = open_table(self.table.path).to_arrow().to_pylist()
        assert len(found) == len(self.expected)
        return {r["id"]: (r["v"], r["pt"]) for r in found} == self.expected


def data_files(table: Table) -> set[str]:
    return {p.name for p in Path(table.path).rglob("data-*")}


def test_a_batch_takes_one_shuffle_and_as_many_tasks_as_there_are_shares(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    assert [stream.write() for _ in range(4)] == [3] * 4
    assert stream.is_right()


def test_where_a_bucket_has_keys_of_other_shares_batches_take_one_stage_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bucketline.streaming.batch.write_batch")
    stream = Stream(tmp_path)
    none = {"compaction": "none"}
    assert [stream.write(2, **none), stream.write(2, **none)] == [3, 3]
    # Another query: written by share in vain, then with a stage between: one reads, three place, four write.
    assert stream.write(3, "other", **none) == 4 + 8
    assert stream.write(3, "other", **none) == 8
    forget_table(stream.table.path, BatchIdentity("other", 0, None, None, None).commit_user(None))
    assert stream.write(3, "other", **none) == 8, "the table says it when the query starts again"
    assert [_AGAIN in r.getMessage() for r in caplog.records].count(True) == 1
    assert stream.is_right()
    live = {f["file_path"].rpartition("/")[2] for f in stream.table.files().to_pylist()}
    assert data_files(stream.table) == live, "what was written in vain is removed"


def test_a_query_that_changes_the_number_of_its_shares_writes_nothing_in_vain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bucketline.streaming.batch.write_batch")
    stream, none = Stream(tmp_path), {"compaction": "none"}
    assert [stream.write(shares, **none) for shares in (2, 3, 3, 1, 2)] == [3, 8, 8, 6, 7]
    assert [_AGAIN in r.getMessage() for r in caplog.records].count(True) == 1
    assert stream.is_right()


def test_shares_that_are_joined_leave_each_bucket_to_one_task(tmp_path: Path) -> None:
    stream, none = Stream(tmp_path), {"compaction": "none"}
    assert [stream.write(shares, **none) for shares in (4, 2, 2, 4)] == [5, 3, 3, 9]
    assert stream.is_right()


def test_keys_move_among_tasks_that_start_again_and_shares_that_change(tmp_path: Path) -> None:
    stream = Stream(tmp_path, unrest=0.3, **{"num-sorted-run.compaction-trigger": "3"})
    for shares in (2, 2, 2, 2, 3, 3, 2):
        stream.write(shares)
        assert stream.is_right()
    stream.write(3, "other")
    assert stream.is_right(), "written in vain, then again"
    assert {s["commit_kind"] for s in stream.table.snapshots().to_pylist()} == {"APPEND", "COMPACT"}


@pytest.mark.parametrize(
    ("options", "parallelism", "by_share"),
    [
        ({}, 2, True),
        ({"write-parallelism": "2"}, 2, True),
        ({"assigner-parallelism": "2", "write-parallelism": "3"}, 2, False),
        ({"assigner-parallelism": "2"}, 3, False),
        ({"assigner-parallelism": "4"}, 3, True),
    ],
)
def test_more_tasks_write_than_place_where_that_is_asked_for_or_spark_runs_more(
    tmp_path: Path, options: dict[str, str], parallelism: int, by_share: bool
) -> None:
    session = table_at(open_handle(Stream(tmp_path).table.path), options).refreshed()
    source, workers = Frame(None), Workers(parallelism, 100)
    target, identity = Target(session, "q"), BatchIdentity("q", 1, None, None, None)
    stages = plan_batch(target, identity, source, workers)
    assert (stages.place is None, stages.write.groups is not None) == (by_share, by_share)
    other = plan_batch(target.with_state(StreamState(shares_buckets=True)), identity, source, workers)
    assert other.place is not None and other.write.groups is None


def test_a_share_and_its_buckets_of_all_partitions_are_one_task_s() -> None:
    among = Destination(3, Assigners(first=3, across_partitions=True))
    partitions = [EMPTY_ROW, *(bytes([0, 0, 0, 1]) + bytes([n] * 12) for n in range(9))]
    for share in range(3):
        own = {among.task(p, bucket) for p in partitions for bucket in range(share, 60, 3)}
        assert own == {among.task(EMPTY_ROW, -1 - share)} == {share}


@pytest.mark.parametrize("shares", ["2", "3"])
def test_one_task_that_reads_all_writes_all_shares(tmp_path: Path, shares: str) -> None:
    stream, none = Stream(tmp_path), {"compaction": "none"}
    stream.write(2, **none)
    session = table_at(
        open_handle(stream.table.path), {"assigner-parallelism": shares, "local-directory": str(stream.local)}
    ).refreshed()
    cluster = Cluster(random.Random(1), 2)
    data = pa.table({"id": range(200), "v": range(200), "pt": [7] * 200}).cast(COLUMNS)
    source, rows = Frame(None, is_alone=True), Parts([GivenRows([data])])
    target, identity = Target(session, "q"), BatchIdentity("q", 1, None, None, None)
    engine = SparkEngine(cluster)
    outcome = engine.run(replace(plan_batch(target, identity, source, engine.workers), source=rows))
    known = len(stream.expected)
    assert (cluster.tasks_run, outcome.accepted_rows) == (1, 200)
    # The rows, and a retract in the partition that each known key has left.
    assert sum(f.row_count for m in outcome.messages for f in m.new_files) == 200 + known
    assert sum(f.delete_row_count or 0 for m in outcome.messages for f in m.new_files) == known
    assert len(outcome.messages) == len({(m.partition, m.bucket) for m in outcome.messages})
    # One that compacts much takes several tasks, where each has its share.
    other = plan_batch(target, identity, source, engine.workers, most_bytes=-1)
    assert (other.tasks.write, other.place) == (int(shares), None)
    mixed = target.with_state(StreamState(shares_buckets=True))
    assert plan_batch(mixed, identity, source, engine.workers).tasks.write == 1
    assert plan_batch(mixed, identity, source, engine.workers, most_bytes=-1).place is not None


def test_rows_of_a_large_share_are_held_compressed(tmp_path: Path) -> None:
    session = table_at(
        open_handle(Stream(tmp_path).table.path), {"local-directory": str(tmp_path / "local")}
    ).refreshed()
    stages = plan_batch(Target(session, "q"), BatchIdentity("q", 1, None, None, None), Frame(None), Workers(2, 100))
    place = stages.write.groups
    assert isinstance(place, CrossWrite)
    data = pa.table({"id": range(200), "v": range(200), "pt": [7] * 200}).cast(COLUMNS)
    (run, *_) = (run for run in GivenRows([data]).runs(stages.seal) if share_of_group(run.bucket) == 0)

    def held(budget_bytes: int) -> set[type]:
        runs = replace(place, budget_bytes=budget_bytes).place(0, [(run, pa.py_buffer(run.blob))])
        return {type(r.blob) for r in runs if isinstance(r, SealedRun)}

    assert (held(1 << 20), held(100)) == ({pa.Table}, {bytes})
