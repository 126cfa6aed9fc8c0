"""The job of a job file, reading a real Kafka: events become rows, and offsets decide what is read again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.job import JobConfig
from bucketline.conf.metrics_options import MetricsOptions
from bucketline.conf.resolve import read_assignments, read_settings, resolve_job, resolve_jobs
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.conf.sources.message_options import UNAVAILABLE
from bucketline.conf.sources.source_options import source_options
from bucketline.state.store.table.table import open_table
from bucketline.streaming.bad_records.replays import Replayed
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.job.ending import process_ending
from bucketline.streaming.job.kafka.kafka_admin import jvm_admin
from bucketline.streaming.job.kafka.partition_lag import PartitionLag
from bucketline.streaming.job.many.replay import replay_routed
from bucketline.streaming.job.many.run import run_routed
from bucketline.streaming.job.replay import replay_bad_records
from bucketline.streaming.job.run import run_job
from bucketline.streaming.job.stored_places import read_bad_records
from bucketline.streaming.metrics.registry import Registry
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaTopicMissingError
from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SCHEMA = (
    "id BIGINT NOT NULL, name STRING, amount DECIMAL(12,2), _kafka_topic STRING, _kafka_partition INT, "
    "_kafka_offset BIGINT, _kafka_key STRING, _kafka_timestamp TIMESTAMP(3)"
)


def job(root: Path, broker: KafkaBroker, topic: str, *more: str) -> JobConfig:
    return resolve_job(
        read_assignments(
            (
                f"table={root / 'shop.db' / 'orders'}",
                "source.format=kafka",
                f"source.options.kafka.bootstrap.servers={broker.bootstrap_servers}",
                f"source.options.subscribe={topic}",
                "source.options.startingOffsets=earliest",
                "source.decode=debezium-json",
                f"checkpoint={root / 'checkpoint'}",
                "trigger=availableNow",
                f"create.schema={SCHEMA}",
                "create.primary-key=id",
                "create.options.bucket=2",
                *more,
            )
        )
    )


def change(op: str, key: int, before: str | None = None, after: str | None = None) -> KafkaRecord:
    """An event of one order, in the partition of its key."""
    images = [None if name is None else {"id": key, "name": name, "amount": "1.50"} for name in (before, after)]
    value = json.dumps({"before": images[0], "after": images[1], "op": op}).encode()
    return KafkaRecord(value, str(key).encode(), key % 2, 1_700_000_000_123)


def rows(config: JobConfig) -> list[dict[str, Any]]:
    return sorted(open_table(config.table).to_arrow().to_pylist(), key=lambda row: row["id"])


def test_metrics_say_how_far_each_partition_is_behind_from_the_start_of_a_job(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("behind", partitions=2)
    kafka_broker.produce("behind", [change("c", n, after="a") for n in (1, 2, 3)])
    metrics = tmp_path / "metrics.prom"
    config = job(tmp_path, kafka_broker, "behind", f"options.metrics.prometheus.file={metrics}")
    with jvm_admin(spark, source_options(config.source).options) as admin:
        assert admin.offsets(of_first=True) == {"behind": {"0": 0, "1": 0}}
        assert admin.offsets(of_first=False) == {"behind": {"0": 1, "1": 2}}
        registry = Registry()
        lag = PartitionLag({"name": "x"}, MetricsOptions(prometheus_file=str(metrics)), registry)
        lag.begin(admin, source_options(config.source).options, {})
    behind = 'bucketline_partition_behind_records{name="x",partition="%s",topic="behind"} %s'
    assert all(behind % pair in metrics.read_text() for pair in (("0", "1.0"), ("1", "2.0")))
    run_job(config, spark)
    told = metrics.read_text()
    assert f'bucketline_up{{name="bucketline orders",table="{config.table}"}} 0.0' in told
    assert 'bucketline_partition_behind_records{name="bucketline orders",partition="1",' in told


def test_debezium_events_of_a_topic_become_the_rows_of_a_table(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("shop.orders", partitions=2)
    config = job(tmp_path, kafka_broker, "shop.orders")
    kafka_broker.produce(
        "shop.orders",
        [
            change("c", 1, None, "a"),
            change("c", 2, None, "b"),
            change("u", 1, "a", "A"),
            change("c", 3, None, "c"),
            change("d", 2, "b", None),
            KafkaRecord(None, b"2", 0, 1_700_000_000_123),
        ],
    )
    run_job(config, spark)
    kafka_broker.produce("shop.orders", [change("c", 2, None, "again"), change("d", 3, "c", None)])
    run_job(config, spark)

    found = rows(config)
    assert [(r["id"], r["name"], str(r["amount"])) for r in found] == [(1, "A", "1.50"), (2, "again", "1.50")]
    assert [(r["_kafka_topic"], r["_kafka_partition"], r["_kafka_offset"], r["_kafka_key"]) for r in found] == [
        ("shop.orders", 1, 1, "1"),
        ("shop.orders", 0, 3, "2"),
    ]
    assert {r["_kafka_timestamp"].isoformat() for r in found} == {"2023-11-14T22:13:20.123000"}


@pytest.mark.parametrize("reader", ["spark", "native"])
def test_a_truncate_empties_the_table_and_values_follow_their_rows_to_new_keys_whoever_reads(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, reader: str
) -> None:
    topic = f"emptied.{reader}"
    kafka_broker.create_topic(topic)
    config = job(tmp_path, kafka_broker, topic, "truncate=apply", "unavailable=keep", f"source.reader={reader}")

    def send(*records: KafkaRecord) -> None:
        kafka_broker.produce(topic, [replace(record, partition=0) for record in records])
        run_job(config, spark)

    images = {"before": {"id": 1}, "after": {"id": 3, "name": UNAVAILABLE, "amount": "2.50"}}
    moved = KafkaRecord(json.dumps({**images, "op": "u"}).encode(), b"3", 0, 1_700_000_000_123)
    send(change("c", 1, None, "a"), change("c", 2, None, "b"))
    assert [row["id"] for row in rows(config)] == [1, 2]
    send(moved)
    assert [(r["id"], r["name"], str(r["amount"])) for r in rows(config)] == [(2, "b", "1.50"), (3, "a", "2.50")]
    send(change("c", 4, None, "d"), change("t", 0), change("c", 6, None, "f"), change("u", 6, "f", "g"))
    assert [row["id"] for row in rows(config)] == [6]
    assert "OVERWRITE" in open_table(config.table).snapshots()["commit_kind"].to_pylist()


def test_canal_messages_of_a_topic_become_the_rows_of_a_table_that_grows(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    def message(kind: str, rows: list[dict[str, Any]], old: list[dict[str, Any]] | None = None) -> KafkaRecord:
        types = {"id": "bigint", "name": "varchar(9)", "amount": "decimal(12,2)", "size": "enum('s','m')"}
        value = {"data": rows, "isDdl": False, "mysqlType": types, "old": old, "table": "orders", "type": kind}
        return KafkaRecord(json.dumps(value).encode(), None, 0, 1_700_000_000_123)

    def order(key: int, name: str) -> dict[str, Any]:
        return {"id": str(key), "name": name, "amount": "1.50", "size": "2"}

    kafka_broker.create_topic("canal.orders", partitions=1)
    more = ("source.decode=canal-json", "options.schema-evolution=evolve", "source.reader=native")
    config = job(tmp_path, kafka_broker, "canal.orders", *more)
    kafka_broker.produce(
        "canal.orders",
        [
            message("INSERT", [order(1, "a"), order(2, "b"), order(3, "c")]),
            message("UPDATE", [order(1, "A"), order(4, "b")], [{"name": "a"}, {"id": "2"}]),
            message("DELETE", [order(3, "c")]),
        ],
    )
    run_job(config, spark)

    found = rows(config)
    assert [(r["id"], r["name"], str(r["amount"]), r["size"]) for r in found] == [
        (1, "A", "1.50", "m"),
        (4, "b", "1.50", "m"),
    ]


def test_bad_records_are_kept_with_topic_partition_offset_and_reason(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("bad.orders", partitions=2)
    broken = KafkaRecord(b"{broken", b"9", 1)
    kafka_broker.produce("bad.orders", [change("c", 1, None, "a"), broken, change("t", 2), change("c", 3, None, "c")])

    with pytest.raises(
        RejectedRecordsError, match=r"topic bad\.orders partition 0 offset 0: a truncate of the source table \(op t"
    ):
        run_job(job(tmp_path, kafka_broker, "bad.orders"), spark)

    rejects = tmp_path / "rejects"
    config = job(tmp_path, kafka_broker, "bad.orders", f"bad-records.path={rejects}", "bad-records.max=2")
    run_job(config, spark)

    assert [r["id"] for r in rows(config)] == [1, 3]
    kept = pa.concat_tables([pq.read_table(f) for f in rejects.rglob("*.parquet")]).to_pylist()
    assert [(r["topic"], r["partition"], r["offset"]) for r in kept] == [("bad.orders", 0, 0), ("bad.orders", 1, 1)]
    assert kept[1]["value"] == b"{broken" and kept[1]["reason"].startswith("no JSON: ")


def routed(root: Path, broker: KafkaBroker, topic: str, sources: str, select: str) -> RoutedJob:
    """A job of one table for each table of the source, whose bad records go to a topic."""
    text = f"""
source: {{format: kafka, decode: debezium-json, options: {{
  kafka.bootstrap.servers: "{broker.bootstrap_servers}", subscribe: {topic}.orders, startingOffsets: earliest}}}}
checkpoint: {root}/checkpoint
trigger: availableNow
unmatched: bad-record
create: {{schema: "id BIGINT NOT NULL, n BIGINT", primary-key: [id], options: {{bucket: "1"}}}}
select: "{select}"
bad-records: {{topic: {topic}.rejects, max: 3}}
tables: [{{source-table: "regex:{sources}", table: "{root}/w/{{table}}"}}]
"""
    config = resolve_jobs(read_settings(text, name="job.yaml"))
    assert isinstance(config, RoutedJob)
    return config


def test_bad_records_of_many_tables_go_to_a_topic_as_they_were_and_are_replayed_each_once(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    def inserted(database: str, table: str, text: str) -> KafkaRecord:
        event = {"op": "c", "after": {"id": 1, "text": text}, "source": {"db": database, "table": table}}
        return KafkaRecord(json.dumps(event).encode(), b'{"id": 1}', 0)

    kafka_broker.create_topic("sent.orders", partitions=2)
    kafka_broker.create_topic("sent.rejects", partitions=1)
    broken = KafkaRecord(b"{broken", b"\xff", 1, headers=(("h", b"\x00"), ("h", b""), ("bucketline.code", b"old")))
    events = [inserted("shop", "a", "x"), inserted("shop", "b", "7"), inserted("away", "c", "8")]
    kafka_broker.produce("sent.orders", [*events, broken])
    run_routed(routed(tmp_path, kafka_broker, "sent", "shop[.].*", "id, CAST(text AS BIGINT) AS n"), spark)

    found = {record.value: record for record in kafka_broker.consume("sent.rejects", 3)}
    assert found.keys() == {b"{broken", events[0].value, events[2].value}
    sent = found[b"{broken"]
    assert sent.key == b"\xff" and sent.headers[:2] == (("h", b"\x00"), ("h", b""))
    told = dict(sent.headers[2:])
    assert told["bucketline.code"] == b"MESSAGE" and told["bucketline.reason"].startswith(b"no JSON: ")
    place = [told[f"bucketline.{name}"] for name in ("topic", "partition", "offset", "batch")]
    assert place == [b"sent.orders", b"1", b"0", b"0"]

    mended = routed(tmp_path, kafka_broker, "sent", ".*", "id, coalesce(try_cast(text AS BIGINT), 0) AS n")
    assert replay_routed(mended, process_ending(), spark) == Replayed(3, 1, 0)
    tables = {name: open_table(f"{tmp_path}/w/{name}") for name in "abc"}
    written = [table.snapshots().num_rows for table in tables.values()]
    assert replay_routed(mended, process_ending(), spark) == Replayed(1, 1, 0)
    assert {name: table.to_arrow().to_pylist() for name, table in tables.items()} == {
        name: [{"id": 1, "n": n}] for name, n in (("a", 0), ("b", 7), ("c", 8))
    }
    assert [table.snapshots().num_rows for table in tables.values()] == written


def test_bad_records_of_a_topic_are_shown_and_replayed_each_once(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("again.orders", partitions=2)
    settings = ("bad-records.topic=again.rejects", "bad-records.max=3")
    config = job(tmp_path, kafka_broker, "again.orders", *settings)
    with pytest.raises(KafkaTopicMissingError, match=r"again\.rejects"):
        read_bad_records([config], process_ending(), spark)
    kafka_broker.create_topic("again.rejects", partitions=2)
    wrong = replace(change("c", 2, None, "b"), value=b'{"op": "c", "after": {"id": 2, "name": "b", "amount": "many"}}')
    kafka_broker.produce("again.orders", [change("c", 1, None, "a"), wrong, KafkaRecord(b"{broken", b"9", 1)])
    run_job(config, spark)
    # The producer has sent one of them twice, and another program a message of its own.
    kafka_broker.produce("again.rejects", [*kafka_broker.consume("again.rejects", 2)[:1], KafkaRecord(b"own", b"k", 0)])

    assert read_bad_records([config], process_ending(), spark)["replay"].to_pylist() == [None, None]
    mended = job(tmp_path, kafka_broker, "again.orders", *settings, "select=* EXCEPT (amount)")
    assert replay_bad_records(mended, process_ending(), spark) == Replayed(2, 1, 0)
    assert [(r["id"], r["_kafka_topic"], r["_kafka_partition"], r["_kafka_offset"]) for r in rows(config)] == [
        (1, "again.orders", 1, 0),
        (2, "again.orders", 0, 0),
    ]
    found = read_bad_records([config], process_ending(), spark)
    assert sorted(found["replay"].to_pylist(), key=str) == [0, 0, None]
    assert replay_bad_records(mended, process_ending(), spark) == Replayed(1, 1, 0)
    users = open_table(config.table).snapshots()["commit_user"].to_pylist()
    assert len(set(users)) == 2
    assert len(kafka_broker.consume("again.rejects", 6)) == 6


def test_a_lost_checkpoint_is_told_and_begins_again_at_the_tables_offsets(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("lost.orders", partitions=2)
    config = job(tmp_path, kafka_broker, "lost.orders")
    kafka_broker.produce("lost.orders", [change("c", i, None, "old") for i in range(4)])
    run_job(config, spark)
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    kafka_broker.produce("lost.orders", [change("u", 1, "old", "new")])

    with pytest.raises(CheckpointMismatchError, match="the checkpoint was lost"):
        run_job(config, spark)
    run_job(config, spark, reset_identity=True)

    assert (tmp_path / "checkpoint.before-reset-1").is_dir()
    table = open_table(config.table)
    assert [r["name"] for r in rows(config)] == ["old", "new", "old", "old"]
    assert table.snapshots()["commit_identifier"].to_pylist() == [0, 0]
    assert len(set(table.snapshots()["commit_user"].to_pylist())) == 2
    run_job(config, spark)
    assert table.snapshots().num_rows == 2


def test_kafkas_own_columns_need_no_decode(spark: Any, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    kafka_broker.create_topic("raw")
    kafka_broker.produce("raw", [KafkaRecord(b"v", b"k", 0, 1_700_000_000_123, (("h", b"1"),))])
    columns = (
        "value BYTES, _kafka_key BYTES, offset BIGINT, timestamp TIMESTAMP_LTZ(6), "
        "_kafka_headers ARRAY<ROW<key STRING, value BYTES>>"
    )
    more = ("source.decode=none", f"create.schema={columns}", "create.primary-key=", "create.options.bucket=-1")
    config = job(tmp_path, kafka_broker, "raw", *more)
    run_job(config, spark)
    [row] = open_table(config.table).to_arrow().to_pylist()
    assert (row["value"], row["_kafka_key"], row["offset"]) == (b"v", b"k", 0)
    assert row["_kafka_headers"] == [{"key": "h", "value": b"1"}]
