"""What newer versions of Spark do otherwise: the offsets log of version 2, planning anew within streams, and what
PySpark does not document: jobs of bytes between tasks."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.state.store.write.sealed_runs import SealedRun, seal, unseal
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.batch.recover import END_OFFSETS, START_OFFSETS
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.tasks.bytes_job import bytes_job, rdd_job
from bucketline.streaming.tasks.frame_job import frame_job
from bucketline.streaming.tasks.frame_messages import frame_messages
from bucketline.streaming.tasks.read_task import drain, joined_messages, task_number
from bucketline.streaming.tasks.wire import RUN, Routed, Sent, TaskResult
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
DDL = "id long, n long"


@contextmanager
def settings(spark: Any, **texts: str) -> Iterator[None]:
    """Settings of the session, for as long as it lasts; `__` stands for a dot."""
    keys = {key.replace("__", "."): text for key, text in texts.items()}
    before = {key: spark.conf.get(key, None) for key in keys}
    for key, text in keys.items():
        spark.conf.set(key, text)
    try:
        yield
    finally:
        for key, text in before.items():
            if text is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, text)


def release(spark: Any) -> tuple[int, int]:
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)


def rows(number: int, count: int = 40) -> pa.Table:
    return pa.table({"id": list(range(count)), "n": [number] * count}, schema=COLUMNS)


def run(spark: Any, sources: list[FileStream], sink: Any, checkpoint: Path) -> None:
    frames = [source.frame(spark) for source in sources]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    writer = whole.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_batches_of_several_sources_are_known_by_an_offsets_log_of_version_2(spark: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "log"), COLUMNS)
    sources = [FileStream(tmp_path / name, DDL) for name in ("first", "second", "third")]
    checkpoint, sink = tmp_path / "checkpoint", TableSink(table.path)
    with settings(spark, spark__sql__streaming__offsetLog__formatVersion="2"):
        for turn in range(3):
            for i, source in enumerate(sources):
                source.add(rows(10 * i + turn, count=5))
            run(spark, sources, sink, checkpoint)
        for name in ("2", ".2.crc"):
            (checkpoint / "commits" / name).unlink()  # as if the job had died before Spark's own commit
        run(spark, sources, sink, checkpoint)

    log = (checkpoint / "offsets" / "2").read_text().splitlines()
    assert log[0] == ("v2" if release(spark) >= (4, 2) else "v1")
    table = open_table(table.path)
    assert table.snapshots()["commit_identifier"].to_pylist() == [0, 1, 2]
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    assert json.loads(newest.properties[START_OFFSETS]) == [{"logOffset": 1}] * 3
    assert json.loads(newest.properties[END_OFFSETS]) == [{"logOffset": 2}] * 3
    assert sorted(table.to_arrow()["n"].to_pylist()) == sorted(5 * [10 * i + t for i in range(3) for t in range(3)])


def test_sources_with_names_are_known_by_them(spark: Any, tmp_path: Path) -> None:
    if release(spark) < (4, 2):
        assert not hasattr(spark.readStream, "name")
        return
    table = create_table(str(tmp_path / "shop.db" / "log"), COLUMNS)
    sources = {name: FileStream(tmp_path / name, DDL) for name in ("zebra", "apple")}
    sink, checkpoint = TableSink(table.path), tmp_path / "checkpoint"
    more = {"spark__sql__streaming__queryEvolution__enableSourceEvolution": "true"}
    with settings(spark, spark__sql__streaming__offsetLog__formatVersion="2", **more):
        for turn in range(2):
            for i, source in enumerate(sources.values()):
                source.add(rows(10 * i + turn, count=3))
            frames = [
                spark.readStream.name(name).schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source.folder))
                for name, source in sources.items()
            ]
            writer = frames[0].union(frames[1]).writeStream.foreachBatch(sink)
            writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            writer.start().awaitTermination()

    table = open_table(table.path)
    assert table.snapshots()["commit_identifier"].to_pylist() == [0, 1]
    digests = {s.properties["bucketline.batch-digest"] for i in (1, 2) if (s := handle_of(table).snapshot_store.get(i))}
    assert len(digests) == 2
    assert sorted(table.to_arrow()["n"].to_pylist()) == sorted(3 * [0, 1, 10, 11])


@pytest.mark.parametrize("bucket", ["4", "-1"])
def test_the_order_of_rows_holds_where_spark_plans_anew_within_streams(spark: Any, tmp_path: Path, bucket: str) -> None:
    """Every key comes once from each of four input partitions; the last partition holds the newest row."""
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": bucket})
    stream = FileStream(tmp_path, DDL)
    many = 5000
    stream.add(pa.concat_tables([rows(n, many) for n in range(4)]))  # four row groups
    stream.add(pa.concat_tables([rows(n, many) for n in range(10, 14)]))
    known = spark.createDataFrame([(i,) for i in range(many)], "known long")
    partitions: list[int] = []

    def write(frame: Any, batch_id: int) -> None:
        before = frame.sparkSession.conf.get("spark.sql.adaptive.enabled")
        joined = frame.join(known.hint("broadcast"), frame["id"] == known["known"]).drop("known")
        partitions.append(joined.rdd.getNumPartitions())
        TableSink(table.path, {"write-parallelism": "3"})(joined, batch_id)
        assert frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == before
        found = {r["id"]: r["n"] for r in open_table(table.path).to_arrow().to_pylist()}
        assert found == dict.fromkeys(range(many), 3 + 10 * batch_id)

    with settings(
        spark,
        spark__sql__adaptive__enabled="true",
        spark__sql__adaptive__streaming__stateless__enabled="true",
        spark__sql__adaptive__forceApply="true",
        spark__sql__adaptive__coalescePartitions__minPartitionSize="1g",
        spark__sql__adaptive__advisoryPartitionSizeInBytes="1g",
        spark__sql__adaptive__coalescePartitions__parallelismFirst="false",
        spark__sql__files__maxPartitionBytes="8k",
    ):
        stream.run(spark, write)
    assert len(partitions) == 2 and min(partitions) >= 4


@dataclass(frozen=True)
class Parents:
    """Says which process the worker was forked from, and which task of how many bytes it was. What it carries makes it
    larger than what Spark sends with each task."""

    carried: bytes = b""

    def __call__(self, *given: Any) -> Iterator[TaskResult]:
        size = sum(len(run.blob) for sent in given for _, run in sent)
        yield TaskResult(str(os.getppid()), b"%d %d" % (task_number(), size))


@dataclass(frozen=True)
class SendLarge:
    """Sends the task before it bytes that are no Arrow, more than the buffers on the way hold."""

    size: int

    def __call__(self, *given: Any) -> Iterator[Routed]:
        for batches in given:
            drain(batches)
        for part in range(3):
            run = SealedRun(b"", 0, task_number(), part, 1, 1, 1, bytes(self.size))
            yield Routed((task_number() + 2) % 3, RUN, run)


@dataclass(frozen=True)
class SayRows:
    """Says all that it reads, of messages or of record batches, as one stream of Arrow."""

    of_messages: pa.Schema | None = None

    def __call__(self, given: Iterator[Any]) -> Iterator[TaskResult]:
        if self.of_messages is None:
            yield TaskResult("rows", seal(pa.Table.from_batches(given)))
        else:
            yield TaskResult("rows", seal(pa.concat_tables(joined_messages(given, self.of_messages))))


def test_the_messages_of_a_frame_are_what_a_query_hands_out(spark: Any) -> None:
    """All columns of Spark's Kafka source, in partitions of which one is empty."""
    frame = spark.range(0, 400, 1, 4).where("id < 100 or id >= 200").selectExpr(
        "encode(string(id), 'utf-8') as key",
        "if(id % 7 = 0, null, encode(repeat('v', int(id % 40)), 'utf-8')) as value",
        "concat('t', id % 2) as topic", "cast(id % 3 as int) as partition", "id as offset",
        "timestamp_millis(1700000000123 + id) as timestamp", "0 as timestampType",
        "if(id % 5 = 0, null, array(named_struct('key', 'h', 'value', encode(string(id), 'utf-8')), null)) as headers",
    )  # fmt: skip
    for large in ("false", " True "):
        with settings(spark, spark__sql__execution__arrow__useLargeVarTypes=large, spark__sql__session__timeZone="UTC"):
            messages = frame_messages(spark, frame)
            assert messages is not None
            (found,) = rdd_job(spark, messages.rdd, 1, SayRows(messages.schema))
            (asked,) = frame_job(spark, frame.coalesce(1), SayRows())
        tables = [unseal(pa.py_buffer(said.payload)).read_all() for said in (found, asked)]
        assert tables[0].num_rows == 300
        if release(spark) < (4, 0):
            assert "large" not in str(tables[0].schema), "messages of 3.5 have no large offsets, whatever is set"
            assert tables[0].to_pylist() == tables[1].to_pylist()
        else:
            assert tables[0] == tables[1]


def test_tasks_that_get_nothing_share_the_workers_of_queries(spark: Any) -> None:
    """Else a job that runs both would keep twice as many workers. Nothing is left of what was broadcast for it."""
    size, folder = (5 << 20) + 1, Path(spark.sparkContext._temp_dir)
    before = set(folder.iterdir())
    of_bytes = bytes_job(spark, 3, SendLarge(size), [(3, Parents(bytes(2 << 20)))])
    assert set(folder.iterdir()) <= before
    of_rows = frame_job(spark, spark.range(0, 2, 1, 2), SendLarge(size), [(3, Parents())])
    assert [result.payload for result in of_bytes] == [b"%d %d" % (task, 3 * size) for task in range(3)]
    assert [result.payload for result in of_rows] == [b"0 %d" % (3 * size), b"1 0", b"2 %d" % (3 * size)]
    assert len({result.kind for result in (*of_bytes, *of_rows)}) == 1


@dataclass(frozen=True)
class Refuse:
    """A task that fails."""

    def __call__(self, sent: Iterator[Sent]) -> Iterator[TaskResult]:
        raise SchemaMismatchError("no such column", column="x")
        yield


def test_an_error_of_a_task_that_gets_nothing_from_spark_is_found_in_what_spark_says(spark: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=r"^no such column$"), explained_in_one_line():
        bytes_job(spark, 2, SendLarge(1), [(3, Refuse())])
