"""Both readers of Kafka, Spark's source and tasks themselves, give the same rows and the same errors."""

import json
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from bucketline.conf.resolve import read_assignments, read_settings, resolve_job, resolve_jobs
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.state.store.table.table import handle_of, open_table
from bucketline.streaming.batch.batch_counts import INPUT_ROWS
from bucketline.streaming.cli.job_status import job_status
from bucketline.streaming.job.many.lag import ask_kafka
from bucketline.streaming.job.many.run import run_routed
from bucketline.streaming.job.run import run_job
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaDataLostError
from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

READERS = ("spark", "native")
COLUMNS = (
    "id BIGINT, text STRING, _kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT, _kafka_key BYTES, "
    "_kafka_timestamp TIMESTAMP(3), _kafka_timestamp_type INT, _kafka_headers ARRAY<ROW<key STRING, value BYTES>>"
)
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}


class Pair:
    """The same job twice, each with its own reader, table and checkpoint."""

    def __init__(self, spark: Any, broker: KafkaBroker, root: Path, *settings: str) -> None:
        self._spark, self._broker, self._root, self._settings = spark, broker, root, settings

    def run(self, reader: str, *more: str) -> None:
        folder = self._root / reader
        config = read_assignments(
            (
                f"table={folder / 'k.db' / 't'}",
                "source.format=kafka",
                f"source.reader={reader}",
                f"source.options.kafka.bootstrap.servers={self._broker.bootstrap_servers}",
                "source.options.startingOffsets=earliest",
                "source.decode=json",
                f"checkpoint={folder / 'checkpoint'}",
                "trigger=availableNow",
                f"create.schema={COLUMNS}",
                "create.options.bucket=-1",
                *self._settings,
                *more,
            )
        )
        run_job(resolve_job({}, config), self._spark)

    def both(self, *more: str) -> pa.Table:
        """The rows, in Kafka's order, after both have run; they and the counts of the batches are the same."""
        for reader in READERS:
            self.run(reader, *more)
        ours, theirs = (self._rows(reader) for reader in reversed(READERS))
        assert ours.equals(theirs)
        assert self._counts("native") == self._counts("spark")
        return ours

    def forget_the_last_commit(self) -> None:
        """Leaves both checkpoints as a driver does that dies after its commit to the table."""
        for reader in READERS:
            commits = self._root / reader / "checkpoint" / "commits"
            last = max(int(f.name) for f in commits.iterdir() if f.name.isdigit())
            for name in (str(last), f".{last}.crc"):
                (commits / name).unlink(missing_ok=True)

    def _rows(self, reader: str) -> pa.Table:
        order = [(f"_kafka_{name}", "ascending") for name in ("topic", "partition", "offset")]
        return open_table(str(self._root / reader / "k.db" / "t")).to_arrow().sort_by(order)

    def _counts(self, reader: str) -> list[str]:
        table = open_table(str(self._root / reader / "k.db" / "t"))
        latest = handle_of(table).snapshot_store.latest_id()
        assert latest is not None
        return [s.properties[INPUT_ROWS] for s in handle_of(table).snapshot_store.newest_first(latest)]


def record(number: int, partition: int = 0, **more: Any) -> KafkaRecord:
    text = more.pop("text", "x" * (number % 5))
    return KafkaRecord(
        json.dumps({"id": number, "text": text}).encode(),
        more.pop("key", str(number).encode()),
        partition,
        1_700_000_000_000 + number,
        **more,
    )


def transactions(broker: KafkaBroker, topic: str, outcomes: Sequence[bool]) -> None:
    """Three records a transaction in partition 0; those whose outcome is False are aborted once they are in the log."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": str(uuid.uuid4())})
    producer.init_transactions(30)
    for number, is_kept in enumerate(outcomes):
        producer.begin_transaction()
        for i in range(3):
            found = record(10 * number + i)
            producer.produce(topic, found.value, found.key, partition=0)
        producer.flush(30)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(30)


def test_both_readers_give_the_same_rows_of_every_kind_of_record(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("same-mixed", partitions=3)
    kafka_broker.produce(
        "same-mixed",
        [
            *(record(i, i % 2) for i in range(9)),
            KafkaRecord(None, b"gone", 0),
            record(20, headers=(("a", b"1"), ("a", b""), ("b", b"\xff"))),
            record(21, key=None),
            record(22, 1, key=b""),
            record(23, 1, text="y" * 900_000),
            KafkaRecord(None, None, 1),
        ],
    )
    kafka_broker.create_topic("same-transactions")
    transactions(kafka_broker, "same-transactions", [True, False, True, False, False])
    pair = Pair(spark, kafka_broker, tmp_path / "committed", "source.options.subscribePattern=same-.*")
    # The ends of batches lie between records, and in what aborted transactions have left.
    found = pair.both("source.options.kafka.isolation.level=read_committed", "source.options.maxOffsetsPerTrigger=13")
    assert found.num_rows == 13 + 6

    kafka_broker.grow_topic("same-mixed", partitions=4)
    kafka_broker.produce("same-mixed", [record(30 + i, 3) for i in range(4)])
    transactions(kafka_broker, "same-transactions", [True, False])
    found = pair.both("source.options.kafka.isolation.level=read_committed", "source.options.minPartitions=7")
    assert found.num_rows == 19 + 4 + 3

    every = Pair(spark, kafka_broker, tmp_path / "every", "source.options.subscribe=same-mixed,same-transactions")
    assert every.both().num_rows == 17 + 7 * 3


def test_both_readers_pass_over_the_gaps_of_a_compacted_topic(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("same-compacted", settings=COMPACTED)
    for number in range(6):
        kafka_broker.produce("same-compacted", [record(10 * number + i, key=b"%d" % (i % 3)) for i in range(4)])
        kafka_broker.produce("same-compacted", [record(1000 + number, key=b"large", text="z" * 700_000)])
    # The newest record of each key, and one that is in the segment that is still written.
    kafka_broker.wait_until_compacted("same-compacted", records=5)
    found = Pair(spark, kafka_broker, tmp_path, "source.options.subscribe=same-compacted").both(
        "source.options.maxOffsetsPerTrigger=21"
    )
    assert found["id"].to_pylist() == [1004, 51, 52, 53, 1005]


def test_both_readers_say_that_records_are_gone_and_go_on_without_them_when_told(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("same-gone", partitions=2)
    kafka_broker.produce("same-gone", [record(i, i % 2) for i in range(8)])
    pair = Pair(spark, kafka_broker, tmp_path, "source.options.subscribe=same-gone")
    pair.both()
    pair.forget_the_last_commit()
    kafka_broker.produce("same-gone", [record(i, i % 2) for i in range(8, 20)])
    kafka_broker.delete_records("same-gone", {1: 7})
    said = []
    for reader in READERS:
        with pytest.raises(KafkaDataLostError, match="has removed records of topic same-gone before they were") as e:
            pair.run(reader)
        assert "offset" in e.value.message
        said.append(re.sub(r" \(.*\): ", ": ", e.value.message))
    assert said[0] == said[1]

    found = pair.both("source.options.failOnDataLoss=false")
    assert found["id"].to_pylist() == [*range(0, 20, 2), 1, 3, 5, 7, 15, 17, 19]


@pytest.mark.parametrize("reader", READERS)
def test_a_job_of_several_tables_writes_each_once_whoever_reads(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, reader: str
) -> None:
    topic = f"several-{reader}"
    kafka_broker.create_topic(topic, partitions=2)
    text = f"""
source:
  format: kafka
  reader: {reader}
  decode: debezium-json
  options: {{kafka.bootstrap.servers: "{kafka_broker.bootstrap_servers}", subscribe: {topic},
            startingOffsets: earliest, maxOffsetsPerTrigger: "150"}}
checkpoint: {tmp_path}/checkpoint
trigger: availableNow
create: {{schema: "id BIGINT NOT NULL, v STRING", primary-key: [id], options: {{bucket: "-1"}}}}
tables: [{{source-table: "regex:shop\\\\.(.*)", table: "{tmp_path}/k.db/{{1}}"}}]
"""
    job = resolve_jobs(read_settings(text, name="job.yaml"))
    assert isinstance(job, RoutedJob)

    def change(number: int, table: int) -> KafkaRecord:
        row = {"id": number % 50, "v": f"{number}"}
        event = {"op": "c", "before": None, "after": row, "source": {"db": "shop", "table": f"t{table}"}}
        return KafkaRecord(json.dumps(event).encode(), b"%d" % (number % 50), number % 2)

    kafka_broker.produce(topic, (change(n, n % 3) for n in range(400)))
    run_routed(job, spark)
    kafka_broker.produce(topic, (change(n, n % 4) for n in range(400, 420)))
    run_routed(job, spark)
    # As a driver that dies after all commits leaves it: the ledger knows the batch.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(f.name) for f in commits.iterdir() if f.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()
    run_routed(job, spark)
    expected: dict[int, dict[int, str]] = {}
    for number in range(420):
        table = number % 3 if number < 400 else number % 4
        expected.setdefault(table, {})[number % 50] = f"{number}"
    for table, rows in expected.items():
        found = open_table(str(tmp_path / "k.db" / f"t{table}"))
        assert dict(zip(*found.to_arrow().select(["id", "v"]).to_pydict().values(), strict=True)) == rows
        identifiers = [s["commit_identifier"] for s in found.snapshots().to_pylist() if s["commit_kind"] == "APPEND"]
        assert identifiers == sorted(set(identifiers))


def by_topics(broker: KafkaBroker, root: Path, reader: str, route: str, subscribed: str, more: str = "") -> RoutedJob:
    """A job that writes each topic whose name matches `route` into a table of its own."""
    text = f"""
source:
  format: kafka
  reader: {reader}
  decode: json
  options: {{kafka.bootstrap.servers: "{broker.bootstrap_servers}", subscribePattern: "{subscribed}",
            startingOffsets: earliest}}
checkpoint: {root}/checkpoint
trigger: availableNow
create: {{schema: "id BIGINT NOT NULL, text STRING", primary-key: [id], options: {{bucket: "1"}}}}
tables: [{{topic: "regex:{route}", table: "{root}/k.db/{{1}}"}}]
{more}"""
    job = resolve_jobs(read_settings(text, name="job.yaml"))
    assert isinstance(job, RoutedJob)
    return job


def test_topics_go_to_tables_of_their_own_and_others_are_bad_records(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    names = ("orders", "items", "others")
    for name in names:
        kafka_broker.create_topic(f"by-topic-{name}")
        kafka_broker.produce(f"by-topic-{name}", [record(n) for n in range(3)])
    bad = f'unmatched: bad-record\nbad-records: {{path: "{tmp_path}/bad", max: 3}}\n'
    job = by_topics(kafka_broker, tmp_path, "native", "by-topic-(orders|items)", "by-topic-.*", bad)
    run_routed(job, spark)
    for name in names[:2]:
        assert open_table(str(tmp_path / "k.db" / name)).to_arrow()["id"].to_pylist() == [0, 1, 2]
    found = [r for file in (tmp_path / "bad").rglob("*.parquet") for r in pq.read_table(file).to_pylist()]
    assert sorted((r["reason"], r["offset"]) for r in found) == [
        ("no route takes topic by-topic-others", n) for n in range(3)
    ]


def test_a_new_checkpoint_parks_the_tables_whose_records_kafka_has_removed(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("kept", "gone"):
        kafka_broker.create_topic(f"lacks-{name}", settings={"retention.ms": "3600000"})
        kafka_broker.produce(f"lacks-{name}", [record(n) for n in range(3)])
    job = by_topics(kafka_broker, tmp_path, "spark", "lacks-(.*)", "lacks-.*", "on-table-failure: park\n")
    run_routed(job, spark)
    for name in ("kept", "gone"):
        kafka_broker.produce(f"lacks-{name}", [record(n) for n in range(10, 13)])
    kafka_broker.delete_records("lacks-gone", {0: 5})
    run_routed(job, spark, reset_identity=True)
    found = {Path(row["table"]).name: row for row in job_status(job)[0].to_pylist()}
    assert (found["kept"]["state"], found["kept"]["rows"]) == ("ok", 6)
    assert found["gone"]["rows"] == 3 and found["gone"]["state"].startswith("parked")
    assert "offsets 3 up to 5" in found["gone"]["why"]
    now = ask_kafka(job.common.source.options, {("lacks-kept", 0): 3, ("lacks-none", 0): 1})
    assert now.why is not None and "topic 'lacks-none' is not known" in now.why
    assert now.removed_from_ms({("lacks-kept", 0): 3}) == 1_700_000_000_010 + 3_600_000
    kafka_broker.produce("lacks-kept", [KafkaRecord(b"no record", b"0", 0, 1_700_000_000_000)])
    caplog.set_level("INFO", "bucketline.many")
    run_routed(job, spark)
    said = caplog.messages[-1]
    assert said.endswith("2 tables parked (kept, Kafka keeps its missed records until 2023-11-14 23:13 UTC; gone)")
