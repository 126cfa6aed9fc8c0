"""What a small batch from Kafka costs: one stage of one task, and few calls into Spark's JVM, whoever reads."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.inputs.kafka_batch import KafkaReader
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.choose_reader import ChosenReader, JobSink
from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("batch", pa.int32()), ("part", pa.int32())])
PARTITIONS, BATCHES, KEYS = 4, 4, 5
TOPIC = "small-batches"
MOST_CALLS = {"spark": 65, "native": 80}
"""Calls of the sink into the JVM for a batch that is not the first."""


@pytest.fixture(scope="module")
def topic(kafka_broker: KafkaBroker) -> dict[str, str]:
    """The options of a source that gives batches in which each key is once in each partition."""
    kafka_broker.create_topic(TOPIC, partitions=PARTITIONS)
    places = ((b, k, p) for b in range(BATCHES) for k in range(KEYS) for p in reversed(range(PARTITIONS)))
    kafka_broker.produce(
        TOPIC, (KafkaRecord(json.dumps({"id": k, "batch": b, "part": p}).encode(), b"k", p) for b, k, p in places)
    )
    return {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "subscribe": TOPIC}


class Calls(logging.Handler):
    """Counts the calls that the thread which made it makes into the JVM."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.thread, self.count = threading.get_ident(), 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread and str(record.msg).startswith("Command to send"):
            self.count += 1


@contextmanager
def counted() -> Iterator[Calls]:
    log, found = logging.getLogger("py4j"), Calls()
    before = log.level, log.propagate
    log.addHandler(found)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield found
    finally:
        log.setLevel(before[0])
        log.propagate = before[1]
        log.removeHandler(found)


@dataclass
class Stream:
    """A job's stream of the topic: stages and calls of each batch, and the rows of its table."""

    spark: Any
    options: dict[str, str]
    root: Path
    stages: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def run(self, chosen: ChosenReader | None, *, joins: bool) -> list[dict[str, Any]]:
        table = create_table(str(self.root / "k.db" / "t"), COLUMNS, ("id",), options={"bucket": "4"})
        step = decode_step(RecordFormat.JSON, handle_of(table).table_schema, BadRecords(None, 0))
        sink = JobSink(table.path, {"compaction": "none"}, decode=step, kafka=chosen, joins_partitions=joins)

        def write(frame: Any, batch_id: int) -> None:
            context = frame.sparkSession.sparkContext
            tracker, group = context.statusTracker(), context.getLocalProperty("spark.jobGroup.id")
            before = set(tracker.getJobIdsForGroup(group))
            with counted() as found:
                sink(frame, batch_id)
            self.calls.append(found.count)
            jobs = set(tracker.getJobIdsForGroup(group)) - before
            self.stages.append(sum(len(tracker.getJobInfo(job).stageIds) for job in jobs))

        source = self.spark.readStream.format("kafka").options(**self.options, startingOffsets="earliest")
        frame = source.option("maxOffsetsPerTrigger", PARTITIONS * KEYS).load().select(*step.input_columns)
        query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(self.root / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        found: list[dict[str, Any]] = open_table(table.path).to_arrow().sort_by("id").to_pylist()
        return found


def test_spark_reads_a_small_batch_in_one_stage_and_in_the_order_of_its_own_split(
    spark: Any, topic: dict[str, str], tmp_path: Path
) -> None:
    joined, split = Stream(spark, topic, tmp_path / "joined"), Stream(spark, topic, tmp_path / "split")
    assert joined.run(None, joins=True) == split.run(None, joins=False)
    assert (joined.stages, split.stages) == ([1] * BATCHES, [2] * BATCHES)
    assert all(0 < count <= MOST_CALLS["spark"] for count in joined.calls[1:]), joined.calls


def test_a_task_reads_a_small_batch_itself_in_one_stage_and_in_the_order_of_partitions(
    spark: Any, topic: dict[str, str], tmp_path: Path
) -> None:
    stream = Stream(spark, topic, tmp_path)
    reader = KafkaReader(kafka_client(topic).settings, is_required=True, keeps_split=False)
    found = stream.run(lambda: reader, joins=True)
    assert found == [{"id": k, "batch": BATCHES - 1, "part": PARTITIONS - 1} for k in range(KEYS)]
    assert stream.stages == [1] * BATCHES
    assert all(0 < count <= MOST_CALLS["native"] for count in stream.calls[1:]), stream.calls
