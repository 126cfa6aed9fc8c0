"""A topic that has gained partitions, against a real broker: where records of a key lie in two partitions, the job says
so instead of applying old changes over new ones."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import open_table
from bucketline.streaming.batch.key_order import KeyOrderError
from bucketline.streaming.job.run import run_job
from tests.support.broker import KafkaBroker, KafkaRecord

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
