"""A topic that has gained partitions, against a real broker: where records of a key lie in two partitions, the job says
so instead of applying old changes over new ones."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import open_table
from bucketline.streaming.batch.key_order import KeyOrderError
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.job.run import run_job
from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

READERS = ("spark", "native")


class Shop:
    """A job on change events of a topic with two partitions at first; the key of a record is its id."""

    def __init__(self, spark: Any, broker: KafkaBroker, root: Path, topic: str, *settings: str) -> None:
        self.spark, self.broker, self.root, self.topic, self.settings = spark, broker, root, topic, settings
        self.table = str(root / "k.db" / "t")
        self.partitions = 2
        broker.create_topic(topic, partitions=2)

    def grow(self) -> None:
        self.partitions = 4
        self.broker.grow_topic(self.topic, partitions=4)

    def put(self, ids: Iterable[int], n: int) -> None:
        """A change of each id, which sets n; the record's partition follows from the id, as Kafka's clients do it."""
        events = ((i, {"op": "c" if n == 0 else "u", "after": {"id": i, "n": n}}) for i in ids)
        records = [KafkaRecord(json.dumps(e).encode(), b"%d" % i, i % self.partitions) for i, e in events]
        self.broker.produce(self.topic, records)

    def job(self, *more: str) -> JobConfig:
        return resolve_job(
            {},
            read_assignments(
                (
                    f"table={self.table}",
                    "source.format=kafka",
                    f"source.options.kafka.bootstrap.servers={self.broker.bootstrap_servers}",
                    f"source.options.subscribe={self.topic}",
                    "source.options.startingOffsets=earliest",
                    "source.decode=debezium-json",
                    f"checkpoint={self.root / 'checkpoint'}",
                    "trigger=availableNow",
                    "create.schema=id BIGINT NOT NULL, n BIGINT",
                    "create.primary-key=id",
                    "create.options.bucket=1",
                    *self.settings,
                    *more,
                )
            ),
        )

    def run(self, *more: str, reset_identity: bool = False) -> None:
        run_job(self.job(*more), self.spark, reset_identity=reset_identity)

    def rows(self) -> dict[int, int]:
        return {r["id"]: r["n"] for r in open_table(self.table).to_arrow().to_pylist()}

    def snapshots(self) -> int:
        return int(open_table(self.table).snapshots().num_rows)


@pytest.mark.parametrize("reader", READERS)
def test_a_backlog_of_a_topic_that_has_grown_stops_before_an_old_change_counts_as_new(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, reader: str
) -> None:
    shop = Shop(spark, kafka_broker, tmp_path, f"grown-{reader}", f"source.reader={reader}")
    shop.put(range(60), 0)
    shop.grow()
    shop.put(range(60), 1)
    bounded = "source.options.maxOffsetsPerTrigger=40"

    with pytest.raises(
        KeyOrderError, match=r"batch 0: partitions \d and \d of topic .* both hold records of the key id"
    ):
        shop.run(bounded)

    assert shop.snapshots() == 0
    with pytest.raises(KeyOrderError, match="Nothing of the batch is committed"):
        shop.run(bounded)  # a replay finds the same
    if reader == "spark":
        shop.run(bounded, "key-order=warn")
        assert shop.snapshots() >= 3 and len(shop.rows()) == 60
    else:
        open_table(shop.table).set_options({"sequence.field": "n"})
        shop.run(bounded)
        assert shop.snapshots() >= 3 and shop.rows() == dict.fromkeys(range(60), 1)


def test_a_job_that_keeps_up_goes_on_while_its_topic_grows(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    shop = Shop(spark, kafka_broker, tmp_path, "grown-live")
    for n in range(2):
        shop.put(range(30), n)
        shop.run()
    shop.grow()
    for n in (2, 3):
        shop.put(range(30), n)
        shop.run()
    assert shop.snapshots() == 4 and shop.rows() == dict.fromkeys(range(30), 3)


def test_partitions_that_a_topic_has_gained_wait_until_the_older_ones_are_read(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """No key is in two partitions of one batch, and still a key may be in two partitions of two batches."""
    shop = Shop(spark, kafka_broker, tmp_path, "grown-gained")
    shop.put(range(20), 0)
    shop.run()
    shop.put(range(40), 1)
    shop.grow()
    shop.put(range(100, 140), 2)
    bounded, whole = (f"source.options.maxOffsetsPerTrigger={n}" for n in (20, 1000))

    for limit in (bounded, bounded, whole):
        # Spark repeats the batch as it was planned with the first limit.
        with pytest.raises(KeyOrderError, match=r"takes the first records of 2 partitions that were added to topic"):
            shop.run(limit)
    assert shop.snapshots() == 1
    shop.run(bounded, "key-order=warn")

    assert shop.rows() == dict.fromkeys(range(40), 1) | dict.fromkeys(range(100, 140), 2)
    open_table(shop.table).rollback_to(1)
    with pytest.raises(KeyOrderError, match="were added to topic"):
        shop.run(bounded, reset_identity=True)
    shop.run(whole, reset_identity=True)
    assert shop.rows() == dict.fromkeys(range(40), 1) | dict.fromkeys(range(100, 140), 2)
    assert shop.snapshots() == 2


def test_a_sink_of_ones_own_looks_at_keys_if_rows_say_where_they_came_from(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    shop = Shop(spark, kafka_broker, tmp_path, "grown-own", "source.decode=none", "create.schema=key BYTES NOT NULL")
    settings = ("create.primary-key=key", "key-order=fail")
    shop.put(range(10), 0)
    shop.run(*settings)  # a job that decodes nothing can say it as well
    shop.put([4], 1)
    shop.grow()
    shop.put([6], 1)
    shop.broker.produce(shop.topic, [KafkaRecord(b"", b"4", 3)])
    with pytest.raises(KeyOrderError, match="partitions 0 and 3 of topic 'grown-own'"):
        shop.run(*settings)

    servers = {"kafka.bootstrap.servers": shop.broker.bootstrap_servers, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**servers).option("subscribe", shop.topic).load()
    places = [F.col("topic").alias("_kafka_topic"), F.col("partition").alias("_kafka_partition")]
    sink = TableSink(shop.table, {"key-order": "fail"}, allow_reprocess=True)
    for columns, said in (([], "the rows have no column '_kafka_topic'"), (places, "both hold records of the key key")):
        query = records.select("key", *columns).writeStream.foreachBatch(sink).trigger(availableNow=True)
        with pytest.raises(StreamingQueryException, match=said):
            query.option("checkpointLocation", str(tmp_path / f"own-{len(columns)}")).start().awaitTermination()
    assert shop.snapshots() == 1
