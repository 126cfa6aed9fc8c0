"""The job of docs/kafka.md on a topic of its own, as tests run it against a real broker."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import load_job
from bucketline.state.store.table.table import open_table
from bucketline.streaming.batch.inputs.topic_ids import TOPIC_IDS
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.job.run import run_job
from tests.support.pages.page import run_commands
from tests.support.servers.broker import KafkaBroker, KafkaRecord


class Orders:
    """The job file of the README, in a folder of its own, on a topic of its own that stands for `orders`."""

    def __init__(self, root: Path, broker: KafkaBroker, name: str) -> None:
        self.root, self.broker, self.topic = root, broker, name
        self.table = str(root / "shop.db" / "orders")
        self.file = root / "orders.yaml"
        self.file.write_text(
            f"""
table: file:{self.table}
source:
  format: kafka
  options: {{kafka.bootstrap.servers: "{broker.bootstrap_servers}", subscribe: {name}, startingOffsets: earliest}}
  decode: json
checkpoint: file:{root}/checkpoint
trigger: availableNow
create:
  schema: id BIGINT NOT NULL, n BIGINT
  primary-key: [id]
  options: {{bucket: "1", merge-engine: aggregation, fields.n.aggregate-function: sum}}
"""
        )
        broker.create_topic(name, partitions=2)

    def job(self, *settings: str) -> JobConfig:
        return load_job(str(self.file), settings)

    def put(self, ids: Iterable[int], topic: str | None = None, broker: KafkaBroker | None = None) -> None:
        records = [KafkaRecord(b'{"id": %d, "n": 1}' % i, str(i).encode(), i % 2) for i in ids]
        (broker or self.broker).produce(topic or self.topic, records)

    def feed(self, spark: SparkSession, ids: Iterable[int]) -> None:
        """Records, and a run of the job that reads them."""
        self.put(ids)
        run_job(self.job(), spark)

    def drop_option(self, text: str) -> None:
        """Takes an option of the source, as it is written above, out of the job file."""
        found = self.file.read_text()
        assert text in found
        self.file.write_text(found.replace(text, ""))

    def lose_checkpoint(self) -> None:
        (self.root / "checkpoint").rename(self.root / "lost")

    def forget_topic_ids(self) -> None:
        """Leaves the table as a release leaves it that knows no ids of topics, to a process that has not seen it."""
        for file in [*Path(self.table, "snapshot").glob("snapshot-*"), *Path(self.table, "tag").glob("tag-*")]:
            found = json.loads(file.read_text())
            found["properties"].pop(TOPIC_IDS, None)
            forget_table(f"file:{self.table}", found["commitUser"])
            file.write_text(json.dumps(found))

    def begins_again(
        self, spark: SparkSession, *settings: str, error: type[BucketlineError] = CheckpointMismatchError, match: str
    ) -> None:
        """The job is refused with this error, and goes on with --reset-identity."""
        with pytest.raises(error, match=match):
            run_job(self.job(*settings), spark)
        run_job(self.job(*settings), spark, reset_identity=True)

    def run(self, text: str, **replaced: str) -> str:
        return run_commands(text, self.root, {"orders-v2": f"{self.topic}-v2", **replaced})

    def sums(self) -> dict[int, int]:
        return {r["id"]: r["n"] for r in open_table(self.table).to_arrow().to_pylist()}

    def checkpoint_files(self) -> list[str]:
        return sorted(str(f) for f in (self.root / "checkpoint").rglob("*"))
