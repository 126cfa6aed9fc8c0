"""The routes of docs/kafka.md, by its own commands, against a real broker: every record is in the table once.

A record adds 1 to the sum of its id, so that one that is lost or written twice shows.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import open_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.job.kafka.kafka_checkpoint import OtherClusterError, OtherTopicError
from bucketline.streaming.job.run import run_job
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaDataLostError
from tests.support.pages.page import commands
from tests.support.servers.broker import KafkaBroker, KafkaRecord
from tests.support.spark.orders import Orders

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PAGE = "kafka.md"


def test_a_job_moves_to_another_topic(spark: Any, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    orders = Orders(tmp_path, kafka_broker, "move-topic")
    drain, start, _ = commands(PAGE, "Move a job to another topic or cluster")
    orders.feed(spark, range(10))
    orders.put(range(10, 16))
    kafka_broker.create_topic("move-topic-v2", partitions=1)
    kafka_broker.produce("move-topic-v2", [KafkaRecord(b'{"id": 100, "n": 1}')])
    before = orders.checkpoint_files()
    with pytest.raises(OtherTopicError, match=r"belongs to topic move-topic, .* new checkpoint .*docs/kafka\.md") as e:
        run_job(orders.job("source.options.subscribe=move-topic-v2"), spark)
    assert e.value.code == "KAFKA_OTHER_TOPIC" and orders.checkpoint_files() == before

    orders.run(drain)
    orders.run(start)
    run_job(orders.job("source.options.subscribe=move-topic-v2", f"checkpoint=file:{tmp_path}/checkpoint-v2"), spark)

    assert orders.sums() == dict.fromkeys([*range(16), 100], 1)


def test_a_job_moves_to_another_cluster_with_the_same_topic(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "move-cluster")
    orders.feed(spark, range(10))
    with KafkaBroker() as other:
        other.create_topic("move-cluster", partitions=2)
        orders.put(range(20, 60), broker=other)
        servers = f"source.options.kafka.bootstrap.servers={other.bootstrap_servers}"
        with pytest.raises(OtherClusterError, match=r"belongs to Kafka cluster \S+, but the brokers belong to") as e:
            run_job(orders.job(servers), spark)
        assert e.value.code == "KAFKA_OTHER_CLUSTER" and len(orders.sums()) == 10
        # Another name of the same brokers is no other cluster.
        same = kafka_broker.bootstrap_servers.replace("127.0.0.1", "localhost")
        orders.put([10])
        run_job(orders.job(f"source.options.kafka.bootstrap.servers={same}"), spark)

        start = commands(PAGE, "Move a job to another topic or cluster")[2]
        orders.run(start, **{"other:9092": other.bootstrap_servers})
        run_job(orders.job(servers, f"checkpoint=file:{tmp_path}/checkpoint-v2"), spark)

    assert orders.sums() == dict.fromkeys([*range(11), *range(20, 60)], 1)


def test_a_table_is_rolled_back_and_the_job_goes_on_at_the_offsets_it_holds(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "roll-back")
    roll_back, go_on = commands(PAGE, "Roll the table back, and go on from there")
    orders.put(range(12))
    run_job(orders.job("source.options.maxOffsetsPerTrigger=4"), spark)
    assert open_table(orders.table).snapshots().num_rows == 3

    orders.run(roll_back)
    with pytest.raises(CheckpointMismatchError, match="the table was rolled back"):
        run_job(orders.job(), spark)  # that there are no new records says nothing of those that are gone
    orders.put(range(12, 15))
    assert len(orders.sums()) == 4 and set(orders.sums().values()) == {1}
    with pytest.raises(CheckpointMismatchError, match="the table was rolled back"):
        run_job(orders.job(), spark)
    # Spark wants an offset for every partition; the table knows none of the new one.
    kafka_broker.grow_topic("roll-back", partitions=3)
    kafka_broker.produce("roll-back", [KafkaRecord(b'{"id": 15, "n": 1}', partition=2)])
    printed = orders.run(go_on)
    run_job(orders.job(), spark)

    assert '{"roll-back":{"0":2,"1":2}}' in printed
    assert orders.sums() == dict.fromkeys(range(16), 1)
    assert (tmp_path / "checkpoint.before-reset-1").is_dir()


def test_history_is_loaded_by_a_bounded_job_and_handed_over_at_named_offsets(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "hand-over")
    load, stream = commands(PAGE, "Load history first, then stream")
    orders.put(range(30))

    orders.run(load)
    assert {f["level"] for f in open_table(orders.table).files().to_pylist()} == {5}
    orders.put(range(30, 40))
    with pytest.raises(CheckpointMismatchError, match="has already written topic 'hand-over'"):
        run_job(orders.job(f"checkpoint=file:{tmp_path}/from-the-first-record"), spark)
    orders.run(stream)
    orders.feed(spark, range(40, 45))

    assert orders.sums() == dict.fromkeys(range(45), 1)


def test_a_topic_is_left_out_and_read_again_from_where_the_table_is(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders, both = Orders(tmp_path, kafka_broker, "kept"), "source.options.subscribe=kept,left-out"
    kafka_broker.create_topic("left-out", partitions=2)
    orders.put(range(6))
    orders.put(range(10, 16), "left-out")
    run_job(orders.job(both), spark)
    orders.put([6])
    orders.begins_again(
        spark, error=OtherTopicError, match="to leave topics out, run the job once with --reset-identity"
    )
    assert orders.sums() == dict.fromkeys([*range(7), *range(10, 16)], 1)

    orders.put([7])
    orders.put([16], "left-out")
    orders.begins_again(spark, both, match="begins to read topic 'left-out', but query")
    assert orders.sums() == dict.fromkeys([*range(8), *range(10, 17)], 1)


def test_jobs_of_one_table_begin_again_after_a_rollback_each_at_its_own_offsets(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """The rollback has removed the tag of the job that wrote before the other."""
    orders = Orders(tmp_path, kafka_broker, "first-job")
    kafka_broker.create_topic("second-job", partitions=2)
    second = ("source.options.subscribe=second-job", f"checkpoint=file:{tmp_path}/checkpoint-second")
    for i in range(3):
        orders.put([i])
        orders.put([100 + i], "second-job")
        run_job(orders.job(*second), spark)
        run_job(orders.job(), spark)
    open_table(orders.table).rollback_to(4)
    run_job(orders.job(), spark, reset_identity=True)
    run_job(orders.job(*second), spark, reset_identity=True)
    assert orders.sums() == dict.fromkeys([0, 1, 2, 100, 101, 102], 1)


def test_a_lost_checkpoint_is_told_though_the_snapshots_of_its_query_have_expired(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "expired")
    orders.feed(spark, range(4))
    table = open_table(orders.table)
    table.write(pa.table({"id": [50], "n": [1]}))
    table.expire_snapshots(retain_min=1, retain_max=1)
    orders.lose_checkpoint()
    orders.put([4])
    orders.begins_again(spark, match="has already written topic 'expired'")
    assert orders.sums() == dict.fromkeys([*range(5), 50], 1)


def test_a_pattern_begins_again_with_the_topics_that_are_there(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders, pattern = Orders(tmp_path, kafka_broker, "pattern-1"), "source.options.subscribePattern=^pattern-.$"
    orders.drop_option("subscribe: pattern-1, ")
    kafka_broker.create_topic("pattern-2", partitions=2)
    orders.put(range(4))
    orders.put(range(10, 14), "pattern-2")
    run_job(orders.job(pattern), spark)
    kafka_broker.delete_topic("pattern-2")
    kafka_broker.create_topic("pattern-3", partitions=2)
    orders.put([4])
    orders.put([20, 21], "pattern-3")
    orders.begins_again(spark, pattern, error=KafkaDataLostError, match="--reset-identity")
    orders.put([22], "pattern-3")
    run_job(orders.job(pattern), spark)
    assert orders.sums() == dict.fromkeys([*range(5), *range(10, 14), 20, 21, 22], 1)


def test_a_batch_that_was_not_finished_is_repeated_though_a_topic_has_come_since(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """Spark refuses such a batch in a query that reads what is available."""
    orders, pattern = Orders(tmp_path, kafka_broker, "appear-1"), "source.options.subscribePattern=^appear-.$"
    orders.drop_option("subscribe: appear-1, ")
    orders.put(range(4))
    run_job(orders.job(pattern), spark)
    orders.put(range(4, 6))
    run_job(orders.job(pattern), spark)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    kafka_broker.create_topic("appear-2", partitions=2)
    orders.put([20, 21], "appear-2")
    run_job(orders.job(pattern), spark)
    assert orders.sums() == dict.fromkeys([*range(6), 20, 21], 1)


def test_jobs_that_share_the_partitions_of_a_topic_begin_again_each_at_its_own(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "shared-out")
    orders.drop_option("subscribe: shared-out, ")
    jobs = [(f'source.options.assign={{"shared-out":[{i}]}}', f"checkpoint=file:{tmp_path}/{i}") for i in range(2)]
    orders.put(range(6))
    for job in jobs:
        run_job(orders.job(*job), spark)
    orders.put(range(6, 10))
    for job in jobs:
        run_job(orders.job(*job), spark, reset_identity=True)
    assert orders.sums() == dict.fromkeys(range(10), 1)


def test_a_lost_checkpoint_of_a_job_that_begins_at_the_newest_record_loses_nothing(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """Without startingOffsets Spark begins a new query at the newest record."""
    orders = Orders(tmp_path, kafka_broker, "latest")
    orders.feed(spark, range(4))
    orders.drop_option(", startingOffsets: earliest")
    orders.lose_checkpoint()
    orders.put([4])
    refusal = r"begin at the newest records .* written topic 'latest'"
    with pytest.raises(CheckpointMismatchError, match=refusal):
        run_job(orders.job("source.options.startingOffsets=latest"), spark)
    orders.begins_again(spark, match=refusal)
    orders.feed(spark, [5])
    assert orders.sums() == dict.fromkeys(range(6), 1)


def test_a_branch_that_is_made_the_table_brings_along_what_its_job_has_read(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "forwarded")
    orders.feed(spark, range(4))
    table = open_table(orders.table)
    table.create_tag("now")
    table.create_branch("trial", "now")
    orders.put(range(4, 8))
    on_branch = ("options.branch=trial", f"checkpoint=file:{tmp_path}/trial")
    run_job(orders.job(*on_branch), spark, reset_identity=True)
    table.fast_forward("trial")
    assert orders.sums() == dict.fromkeys(range(8), 1)

    orders.put([8])
    orders.begins_again(spark, match="has written the same records meanwhile")
    assert orders.sums() == dict.fromkeys(range(9), 1)
