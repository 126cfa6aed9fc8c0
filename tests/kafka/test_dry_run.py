"""`ingest --dry-run` over topics: the first records of each partition are read, and nothing is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from bucketline.conf.resolve import read_settings, resolve_jobs
from bucketline.streaming.batch.failure import SparkLog
from bucketline.streaming.job.ending import process_ending
from bucketline.streaming.job.many.dry_run import RECORDS_EACH, dry_run
from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_the_first_records_of_each_topic_are_shown_and_nothing_is_written(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    for topic, count in (("dry-a", RECORDS_EACH + 50), ("dry-b", 3)):
        kafka_broker.create_topic(topic, partitions=2)
        rows = [json.dumps({"id": number}).encode() for number in range(count)]
        kafka_broker.produce(topic, [KafkaRecord(row, None, 0) for row in rows])
    text = f"""
source:
  format: kafka
  options:
    kafka.bootstrap.servers: "{kafka_broker.bootstrap_servers}"
    subscribePattern: "dry-.*"
    startingOffsets: latest
  decode: json
checkpoint: {tmp_path}/checkpoint
tables:
  - topic: 'regex:dry-(.*)'
    table: {tmp_path}/{{1}}
    create: {{schema: id BIGINT NOT NULL}}
"""
    shown = dry_run(
        resolve_jobs(read_settings(text, name="j.yaml")), spark, process_ending(), SparkLog.OURS_ONCE
    ).to_pylist()
    found = {row["source"]: (row["records"], row["table"], row["is"], row["rows"]) for row in shown}
    assert found == {
        "topic dry-a": (RECORDS_EACH, f"{tmp_path}/a", "to be made", RECORDS_EACH),
        "topic dry-b": (3, f"{tmp_path}/b", "to be made", 3),
    }
    assert list(tmp_path.iterdir()) == []
