"""A job that reads Kafka is killed and started again, whoever reads: every record is in the table once.

A record adds 1 to the sum of its id, so that one that is lost or written twice shows.
"""

import os
import random
from pathlib import Path

import pyspark
import pytest

from tests.support.peers.jars import spark_kafka_jars
from tests.support.processes.job_process import JobFolder, started
from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KILLS = int(os.environ.get("BUCKETLINE_CRASH_KILLS", "1"))
"""Deaths of each job; in `crash-long` many, and with both readers."""
READERS = ("native",) if KILLS == 1 else ("native", "spark")
RECORDS, BATCH = 240, 30


def parts(broker: KafkaBroker, topic: str, reader: str) -> dict[str, object]:
    """What of the job file is about Kafka, and a table that adds up."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH),
    }
    sums = {"bucket": "2", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    return {
        "source": {"format": "kafka", "reader": reader, "decode": "json", "options": options},
        "trigger": "availableNow",
        "create": {"schema": "id BIGINT NOT NULL, n BIGINT", "primary-key": "id", "options": sums},
    }


@pytest.mark.timeout(240 + 120 * KILLS)
@pytest.mark.parametrize("reader", READERS)
def test_a_job_that_is_killed_reads_every_record_once(reader: str, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topic, folder, draw = f"killed-{reader}", JobFolder(tmp_path), random.Random(7)
    kafka_broker.create_topic(topic, partitions=3)
    command, jars = folder.command(parts=parts(kafka_broker, topic, reader)), spark_kafka_jars(pyspark.__version__)
    written = 0

    def put(count: int) -> None:
        nonlocal written
        new = range(written, written + count)
        kafka_broker.produce(topic, [KafkaRecord(b'{"id": %d, "n": 1}' % (i % 50), b"%d" % i, i % 3) for i in new])
        written += count

    def sums() -> dict[int, int]:
        return {r["id"]: r["n"] for r in folder.table().to_arrow().to_pylist()}

    for _ in range(KILLS):
        put(RECORDS)
        with started(folder, command, jars) as job:
            for _ in range(draw.randint(1, 3)):
                job.read_until("bucketline.progress: batch")
            job.kill()
        assert 0 < sum(sums().values()) < written, "it died before the end"
    with started(folder, command, jars) as job:
        assert job.end() == 0, job.output
    assert sums() == {i: len(range(i, written, 50)) for i in range(50)}
    batches = folder.table().snapshots().to_pylist()
    appended = [s["commit_identifier"] for s in batches if s["commit_kind"] == "APPEND"]
    assert appended == list(range(len(appended)))
