"""What goes wrong on Kafka's side stops a job with a code of its own, and nothing is written or skipped."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.store.table.table import open_table
from bucketline.streaming.job.run import run_job
from bucketline.streaming.tasks.kafka.kafka_errors import (
    KafkaDataLostError,
    KafkaOffsetsError,
    KafkaRefusedError,
    KafkaTopicMissingError,
    KafkaUnreachableError,
)
from tests.support.servers.broker import KafkaBroker
from tests.support.spark.orders import Orders

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_records_that_retention_removed_before_they_were_read_stop_the_job(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "lost-by-retention")
    orders.feed(spark, range(10))
    orders.put(range(10, 30))
    kafka_broker.delete_records("lost-by-retention", {0: 10})
    with pytest.raises(KafkaDataLostError, match=r"removed records of topic lost-by-retention .*failOnDataLoss=false"):
        run_job(orders.job(), spark)
    assert orders.sums() == dict.fromkeys(range(10), 1)

    run_job(orders.job("source.options.failOnDataLoss=false"), spark)
    orders.feed(spark, [30])
    left = [*range(10), *range(11, 30, 2), *range(20, 31, 2)]
    assert orders.sums() == dict.fromkeys(left, 1)


def test_a_topic_that_was_made_again_stops_the_job_and_is_read_from_its_first_record_on_demand(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """Without ids of topics Spark notices it, as the new one is shorter."""
    orders = Orders(tmp_path, kafka_broker, "made-again")
    orders.feed(spark, range(10))
    kafka_broker.delete_topic("made-again")
    with pytest.raises(KafkaTopicMissingError, match="topic made-again does not exist"):
        run_job(orders.job(), spark)
    kafka_broker.create_topic("made-again", partitions=2)
    orders.put(range(20, 24))
    orders.forget_topic_ids()
    with pytest.raises(KafkaDataLostError, match=r"made-again-\d.* was deleted and created again.*--allow-reprocess"):
        run_job(orders.job(), spark)
    assert len(orders.sums()) == 10

    again = f"checkpoint=file:{tmp_path}/checkpoint-2"
    run_job(orders.job(again), spark, allow_reprocess=True)
    orders.put([24])
    run_job(orders.job(again), spark)
    assert orders.sums() == dict.fromkeys([*range(10), *range(20, 25)], 1)


def test_one_of_several_topics_was_made_again_and_the_others_go_on(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders, both = Orders(tmp_path, kafka_broker, "stays"), "source.options.subscribe=stays,made-anew"
    kafka_broker.create_topic("made-anew", partitions=2)
    orders.put(range(4))
    orders.put(range(10, 14), "made-anew")
    run_job(orders.job(both), spark)
    kafka_broker.delete_topic("made-anew")
    kafka_broker.create_topic("made-anew", partitions=2)
    orders.put([4])
    orders.put([20, 21], "made-anew")
    orders.forget_topic_ids()
    with pytest.raises(KafkaDataLostError, match="with -2 for each partition of this topic"):
        run_job(orders.job(both), spark)

    offsets = json.loads(orders.run(f"bucketline offsets {orders.table} 2>/dev/null"))
    starting = json.dumps(offsets | {"made-anew": {"0": -2, "1": -2}})
    again = (both, f"source.options.startingOffsets={starting}", f"checkpoint=file:{tmp_path}/checkpoint-2")
    run_job(orders.job(*again), spark, allow_reprocess=True)
    assert orders.sums() == dict.fromkeys([*range(5), *range(10, 14), 20, 21], 1)


def test_a_topic_that_does_not_exist_is_named(spark: Any, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    orders = Orders(tmp_path, kafka_broker, "there")
    with pytest.raises(KafkaTopicMissingError, match=r"topic not-there does not exist at 127\.0\.0\.1") as e:
        run_job(orders.job("source.options.subscribe=not-there"), spark)
    assert e.value.code == "KAFKA_TOPIC_MISSING" and not Path(orders.table).exists()
    with pytest.raises(KafkaTopicMissingError, match="topic not-there does not exist"):
        run_job(orders.job("source.options.subscribe=there,not-there"), spark)


def test_starting_offsets_that_leave_a_partition_out_name_the_partitions(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "half")
    with pytest.raises(KafkaOffsetsError, match=r"Specified: Set\(half-0\) Assigned: Set\(half-0, half-1\)"):
        run_job(orders.job('source.options.startingOffsets={"half":{"0":0}}'), spark)


def test_brokers_that_do_not_answer_are_named(spark: Any, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    orders = Orders(tmp_path, kafka_broker, "unreachable")
    for servers in ("127.0.0.1:1", "no-such-host.invalid:9092"):
        with pytest.raises(KafkaUnreachableError, match=f"no broker answers at {servers}"):
            run_job(orders.job(f"source.options.kafka.bootstrap.servers={servers}"), spark)


@pytest.mark.parametrize(
    ("name", "kept"), [("metadata", 0), ("metadata", 9), ("offsets/1", 0), ("offsets/1", -9), ("commits/1", 0)]
)
def test_a_checkpoint_that_was_not_written_to_its_end_is_told_and_begins_again(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, name: str, kept: int
) -> None:
    """As a full disk, or a machine that went down, leaves it."""
    orders = Orders(tmp_path, kafka_broker, f"cut-{name.replace('/', '-')}{kept}")
    for i in range(2):
        orders.feed(spark, [i])
    file = tmp_path / "checkpoint" / name
    file.write_bytes(file.read_bytes()[:kept])
    (file.parent / f".{file.name}.crc").unlink()
    orders.put([2])
    refusal = f"checkpoint/{name} is empty or cut short: .* --reset-identity"
    orders.begins_again(spark, error=CorruptFileError, match=refusal)
    assert orders.sums() == dict.fromkeys(range(3), 1)


@pytest.mark.parametrize(
    ("topic", "password", "says"),
    [
        ("secret-1", "not-the-password", "SaslAuthenticationException: Authentication failed: Invalid username or"),
        ("secret-2", "the-password", "TopicAuthorizationException: .*whether this user may read topic secret-2"),
    ],
)
def test_a_cluster_that_refuses_the_login_or_the_topic_is_told_by_its_words(
    spark: Any, guarded_broker: KafkaBroker, tmp_path: Path, topic: str, password: str, says: str
) -> None:
    orders = Orders(tmp_path, guarded_broker, topic)
    orders.put(range(3))
    servers, module = guarded_broker.sasl_servers, "org.apache.kafka.common.security.plain.PlainLoginModule"
    options = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="reader" password="{password}";',
    }
    job = orders.job(*(f"source.options.kafka.{key}={text}" for key, text in options.items()))
    with pytest.raises(KafkaRefusedError, match=f"Kafka at {servers} refuses the job .{says}") as e:
        run_job(job, spark)
    assert password not in f"{e.value!r} {e.value.fields}"
    assert open_table(orders.table).snapshots().num_rows == 0


class StopsBroker(logging.Handler):
    """Stops a broker when the first batch has been written."""

    def __init__(self, broker: KafkaBroker) -> None:
        super().__init__(logging.INFO)
        self._broker = broker

    def emit(self, record: logging.LogRecord) -> None:
        self._broker.stop()


def test_brokers_that_are_lost_under_a_running_job_are_no_lost_spark(spark: Any, tmp_path: Path) -> None:
    quick = ("request.timeout.ms=3000", "default.api.timeout.ms=4000")
    with KafkaBroker() as broker:
        orders = Orders(tmp_path, broker, "going")
        orders.put(range(10))
        logger, handler = logging.getLogger("bucketline.progress"), StopsBroker(broker)
        before = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        try:
            with pytest.raises(KafkaUnreachableError, match="nothing was lost; run the job again"):
                run_job(orders.job("trigger=0 s", *(f"source.options.kafka.{q}" for q in quick)), spark)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
    assert orders.sums() == dict.fromkeys(range(10), 1)
