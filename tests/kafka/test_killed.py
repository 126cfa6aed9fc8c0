"""A job that reads Kafka is killed and started again, whoever reads: every record is in its tables once.

A record adds 1 to the sum of its id, so that one that is lost or written twice shows. Beside it rows of a source move
between the partitions of a table, by a key that is computed.
"""

import json
import os
import random
from pathlib import Path

import pyspark
import pytest

from bucketline.state.store.table.table import open_table
from tests.support.models.moving_rows import SELECT, MovingRows
from tests.support.peers.jars import spark_kafka_jars
from tests.support.processes.job_process import JobFolder, started
from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KILLS = int(os.environ.get("BUCKETLINE_CRASH_KILLS", "1"))
"""Deaths of each job; in `crash-long` many, and with both readers, and in jobs of one table, too."""
JOBS = (("native", True),) if KILLS == 1 else (("native", True), ("spark", True), ("native", False), ("spark", False))
RECORDS, BATCH = 240, 30
SUMS = {
    "schema": "id BIGINT NOT NULL, n BIGINT",
    "primary-key": "id",
    "options": {"bucket": "2", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
}
MOVES = {
    "schema": "id BIGINT NOT NULL, v INT, updated TIMESTAMP(3), dt STRING",
    "primary-key": ["id", "dt"],
    "partition-by": ["dt"],
    "options": {"bucket": "2"},
}


def parts(broker: KafkaBroker, folder: JobFolder, topic: str, reader: str, *, moves: bool) -> dict[str, object]:
    """What of the job file is about Kafka, and a table that adds up; with `moves` another one whose rows move."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": f"{topic},{topic}-moves" if moves else topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH),
    }
    source = {"format": "kafka", "reader": reader, "decode": "debezium-json", "options": options}
    one = {"source": source, "trigger": "availableNow", "create": SUMS}
    if not moves:
        return one
    moving = {"select": SELECT, "types": {"updated": "epoch-millis"}, "create": MOVES}
    routes = [
        {"topic": topic, "table": str(folder.root / "shop.db" / "orders"), "create": SUMS},
        {"topic": f"{topic}-moves", "table": str(folder.root / "shop.db" / "moves"), **moving},
    ]
    return {**one, "table": None, "create": None, "tables": routes}


def as_record(event: dict[str, object], key: int) -> KafkaRecord:
    return KafkaRecord(json.dumps(event).encode(), b'{"id": %d}' % key, key % 3)


@pytest.mark.timeout(240 + 120 * KILLS)
@pytest.mark.parametrize(("reader", "moves"), JOBS)
def test_a_job_that_is_killed_reads_every_record_once(
    reader: str, moves: bool, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, folder, draw = f"killed-{reader}-{moves}", JobFolder(tmp_path), random.Random(7)
    source = MovingRows(draw)
    for name in (topic, f"{topic}-moves"):
        kafka_broker.create_topic(name, partitions=3)
    command = folder.command(parts=parts(kafka_broker, folder, topic, reader, moves=moves))
    jars = spark_kafka_jars(pyspark.__version__)
    written = 0

    def put(count: int) -> None:
        nonlocal written
        new = range(written, written + count)
        added = [as_record({"op": "c", "before": None, "after": {"id": i % 50, "n": 1}}, i % 50) for i in new]
        kafka_broker.produce(topic, added)
        changes = [source.change() for _ in range(count if moves else 0)]
        kafka_broker.produce(f"{topic}-moves", [as_record(c, (c["after"] or c["before"])["id"]) for c in changes])
        written += count

    def sums() -> dict[int, int]:
        return {r["id"]: r["n"] for r in folder.table().to_arrow().to_pylist()}

    for _ in range(KILLS):
        put(RECORDS)
        with started(folder, command, jars) as job:
            for _ in range(draw.randint(1, 3)):
                job.read_until("bucketline.many: batch" if moves else "bucketline.progress: batch")
            job.kill()
        assert 0 < sum(sums().values()) < written, "it died before the end"
    with started(folder, command, jars) as job:
        assert job.end() == 0, job.output
    assert sums() == {i: len(range(i, written, 50)) for i in range(50)}
    batches = folder.table().snapshots().to_pylist()
    appended = [s["commit_identifier"] for s in batches if s["commit_kind"] == "APPEND"]
    assert appended == list(range(len(appended))) if not moves else sorted(set(appended)) == appended
    if moves:
        found = open_table(str(tmp_path / "shop.db" / "moves")).to_arrow().to_pylist()
        assert sorted((r["id"], r["v"], r["dt"]) for r in found) == sorted(
            (k, *row) for k, row in source.table().items()
        )
