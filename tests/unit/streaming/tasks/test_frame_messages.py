"""Few rows of a frame reach one task as messages of Arrow, each of a few rows, and are read as from a query."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql.pandas.types import from_arrow_schema

from bucketline.streaming.tasks.bytes_job import rdd_job
from bucketline.streaming.tasks.frame_messages import ARROW_ROWS, MESSAGE_ROWS, frame_messages
from bucketline.streaming.tasks.read_task import joined_messages
from bucketline.streaming.tasks.wire import TaskResult
from tests.support.spark.task_jvm import FakeRdd
from tests.support.spark.tasks import Cluster

ROWS = pa.table({"offset": pa.array(range(700), pa.int64()), "value": [b"%d" % n * (n % 5) for n in range(700)]})


@dataclass
class MessageFrame:
    """A DataFrame of these partitions that Spark hands out as messages of Arrow."""

    sparkSession: Cluster
    parts: list[pa.Table]

    @property
    def _jdf(self) -> "MessageFrame":
        return self

    @property
    def schema(self) -> Any:
        return from_arrow_schema(ROWS.schema)

    def toArrowBatchRdd(self) -> FakeRdd:
        most = int(self.sparkSession.conf.get(ARROW_ROWS))
        return FakeRdd([[b.serialize().to_pybytes() for b in p.to_batches(max_chunksize=most)] for p in self.parts])


class OtherFrame(MessageFrame):
    """As of a Spark that has no such method."""

    def toArrowBatchRdd(self) -> FakeRdd:
        raise Py4JError("An error occurred while calling o7.toArrowBatchRdd. Trace:\nmethod does not exist")


@dataclass(frozen=True)
class SayRows:
    """Says how many messages came, and all that is in them as one stream of Arrow."""

    schema: pa.Schema

    def __call__(self, messages: Iterator[bytes]) -> Iterator[TaskResult]:
        found = list(messages)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            for table in joined_messages(iter(found), self.schema):
                stream.write_table(table)
        yield TaskResult(str(len(found)), sink.getvalue().to_pybytes())


def read(frame: MessageFrame) -> tuple[int, pa.Table]:
    found = frame_messages(frame.sparkSession, frame)
    assert found is not None
    (said,) = rdd_job(frame.sparkSession, found.rdd, 1, SayRows(found.schema))
    return int(said.kind), pa.ipc.open_stream(said.payload).read_all()


@pytest.mark.parametrize(("before", "messages"), [("10000", 7), ("0", 7), ("70", 11), (str(MESSAGE_ROWS), 7)])
def test_one_task_gets_all_rows_in_order_a_few_a_message_and_the_session_is_as_before(
    before: str, messages: int
) -> None:
    cluster = Cluster(random.Random(5), unrest=0.4, settings={ARROW_ROWS: before})
    parts = [ROWS.slice(0, 300), ROWS.slice(0, 0), ROWS.slice(300, 400)]
    assert read(MessageFrame(cluster, parts)) == (messages, ROWS)
    assert cluster.settings == {ARROW_ROWS: before}


@pytest.mark.parametrize("parts", [[], [ROWS.slice(0, 0)]])
def test_a_frame_without_rows_is_a_job_of_one_task(parts: list[pa.Table]) -> None:
    assert read(MessageFrame(Cluster(random.Random(5)), parts)) == (0, ROWS.slice(0, 0))


def test_a_spark_that_has_no_such_messages_is_asked_otherwise() -> None:
    cluster = Cluster(random.Random(5), settings={ARROW_ROWS: "10000"})
    assert frame_messages(cluster, OtherFrame(cluster, [ROWS])) is None
    assert cluster.settings == {ARROW_ROWS: "10000"}


def test_messages_are_joined_up_to_what_a_task_reads_at_a_time() -> None:
    schema = pa.schema([("value", pa.binary())])

    def tables(count: int, size: int) -> list[int]:
        batch = pa.record_batch([pa.array([b"x" * size] * count)], schema=schema)
        return [t.num_rows for t in joined_messages([batch.serialize().to_pybytes()] * 90, schema)]

    assert tables(MESSAGE_ROWS, 1) == [79 * MESSAGE_ROWS, 11 * MESSAGE_ROWS]
    assert tables(1, 1 << 20) == [64, 26]
