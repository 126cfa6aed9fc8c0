"""A topic that was deleted and created again stops the job, however many records it has, whoever reads Kafka; and the
ways to go on that the refusal names, with the start after each of them."""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.state.store.table.table import handle_of, open_table
from bucketline.streaming.batch.inputs.topic_ids import TOPIC_IDS
from bucketline.streaming.batch.recover import TopicCreatedAgainError
from bucketline.streaming.job.kafka.kafka_admin import jvm_admin
from bucketline.streaming.job.kafka.native_admin import NativeAdmin
from bucketline.streaming.job.run import run_job
from tests.support.pages.page import commands
from tests.support.servers.broker import KafkaBroker
from tests.support.spark.orders import Orders

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

READERS = ("spark", "native")


def create_again(orders: Orders, topic: str | None = None, partitions: int = 2) -> None:
    orders.broker.delete_topic(topic or orders.topic)
    orders.broker.create_topic(topic or orders.topic, partitions=partitions)


def newest_ids(orders: Orders) -> dict[str, str]:
    """The ids of topics that the newest snapshot has."""
    newest = handle_of(open_table(orders.table)).snapshot_store.latest()
    assert newest is not None
    found: dict[str, str] = json.loads(newest.properties.get(TOPIC_IDS, "{}"))
    return found


def refusal(topic: str) -> str:
    return f"topic '{topic}' was deleted and created again .*--reset-identity.*--allow-reprocess"


@pytest.mark.parametrize("reader", READERS)
def test_a_topic_that_has_more_records_than_before_stops_the_job_and_is_read_from_its_first_record(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, reader: str
) -> None:
    orders = Orders(tmp_path, kafka_broker, f"anew-{reader}")
    settings = f"source.reader={reader}"
    orders.put(range(20))
    run_job(orders.job(settings), spark)
    create_again(orders)
    orders.put(range(100, 150))
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(TopicCreatedAgainError, match=refusal(orders.topic)) as e:
        run_job(orders.job(settings), spark)
    assert e.value.code == "KAFKA_TOPIC_CREATED_AGAIN" and sorted(tmp_path.rglob("*")) == files

    orders.begins_again(spark, settings, error=TopicCreatedAgainError, match=refusal(orders.topic))
    orders.put([150])
    run_job(orders.job(settings), spark)
    assert orders.sums() == dict.fromkeys([*range(20), *range(100, 151)], 1)


class AfterFirstBatch(logging.Handler):
    """Does something when the first batch of a job has been written."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__(logging.INFO)
        self._step, self._is_done = step, False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_done:
            self._is_done = True
            self._step()


@contextmanager
def after_first_batch(step: Callable[[], None]) -> Iterator[None]:
    logger, handler = logging.getLogger("bucketline.progress"), AfterFirstBatch(step)
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@pytest.mark.parametrize("reader", READERS)
def test_a_topic_that_comes_back_with_the_same_offsets_stops_the_query_that_runs(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, reader: str
) -> None:
    orders = Orders(tmp_path, kafka_broker, f"back-{reader}")

    def come_back() -> None:
        create_again(orders)
        orders.put(range(100, 110))
        orders.put([110])  # Spark plans no batch before there are more records than it has seen.

    orders.put(range(10))
    with after_first_batch(come_back), pytest.raises(TopicCreatedAgainError, match=refusal(orders.topic)):
        run_job(orders.job("trigger=0 s", f"source.reader={reader}"), spark)
    assert orders.sums() == dict.fromkeys(range(10), 1)
    run_job(orders.job(), spark, reset_identity=True)
    assert orders.sums() == dict.fromkeys([*range(10), *range(100, 111)], 1)


def test_a_start_notices_it_although_there_is_nothing_new_to_read(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """The job goes on by the command of docs/kafka.md."""
    orders = Orders(tmp_path, kafka_broker, "as-many")
    orders.feed(spark, range(10))
    create_again(orders)
    orders.put(range(100, 110))
    with pytest.raises(TopicCreatedAgainError, match=refusal("as-many")):
        run_job(orders.job(), spark)
    [go_on] = commands("kafka.md", "A topic that was deleted and created again")
    assert '{"as-many":{"0":-2,"1":-2}}' in orders.run(go_on)
    orders.feed(spark, [110])
    assert orders.sums() == dict.fromkeys([*range(10), *range(100, 111)], 1)


def test_a_copy_with_the_same_records_at_the_same_offsets_goes_on(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "restored")
    orders.feed(spark, range(10))
    create_again(orders)
    orders.put(range(12))
    with pytest.raises(TopicCreatedAgainError, match=refusal("restored")):
        run_job(orders.job(), spark)
    run_job(orders.job(), spark, allow_reprocess=True)
    orders.feed(spark, [12])
    assert orders.sums() == dict.fromkeys(range(13), 1)


@pytest.mark.parametrize(
    "option", ["subscribe={0},{0}-2", "subscribePattern={0}.*", 'assign={{"{0}":[0,1],"{0}-2":[0,1]}}']
)
def test_one_of_several_topics_is_read_from_its_first_record_and_the_others_go_on(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, option: str
) -> None:
    orders = Orders(tmp_path, kafka_broker, f"several-{option.partition('=')[0].lower()}")
    orders.drop_option(f"subscribe: {orders.topic}, ")
    second, both = f"{orders.topic}-2", f"source.options.{option.format(orders.topic)}"
    kafka_broker.create_topic(second, partitions=2)
    orders.put(range(4))
    orders.put(range(10, 14), second)
    run_job(orders.job(both), spark)
    assert newest_ids(orders).keys() == {orders.topic, second}
    create_again(orders, second)
    orders.put([4])
    orders.put(range(20, 30), second)
    orders.begins_again(spark, both, error=TopicCreatedAgainError, match=refusal(second))
    orders.put([5])
    orders.put([30], second)
    run_job(orders.job(both), spark)
    assert orders.sums() == dict.fromkeys([*range(6), *range(10, 14), *range(20, 31)], 1)


def test_a_table_that_is_rolled_back_to_the_old_topic_reads_the_new_one_from_its_first_record(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "turned-back")
    orders.feed(spark, range(8))
    create_again(orders)
    orders.put(range(100, 120))
    run_job(orders.job(), spark, reset_identity=True)
    orders.feed(spark, [120])
    open_table(orders.table).rollback_to(1)
    # There are no new records, and nothing is left of the query that has read the new topic.
    orders.begins_again(spark, match="the table was rolled back")
    orders.feed(spark, [121])
    assert orders.sums() == dict.fromkeys([*range(8), *range(100, 122)], 1)


def test_offsets_of_the_old_topic_are_no_start_in_the_new_one(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """As where one job has loaded what there was, and another goes on at the offsets that the table holds."""
    orders = Orders(tmp_path, kafka_broker, "handed-over")
    orders.feed(spark, range(8))
    create_again(orders)
    orders.put(range(100, 120))
    start = 'source.options.startingOffsets={"handed-over":{"0":4,"1":4}}'
    second = ("checkpoint=file:" + str(tmp_path / "checkpoint-2"), start)
    orders.begins_again(spark, *second, error=TopicCreatedAgainError, match=refusal("handed-over"))
    assert orders.sums() == dict.fromkeys([*range(8), *range(100, 120)], 1)


def test_a_table_of_an_earlier_release_learns_ids_with_its_next_batch(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path, kafka_broker, "learnt")
    orders.feed(spark, range(4))
    orders.forget_topic_ids()
    run_job(orders.job(), spark)
    assert newest_ids(orders) == {}
    # The batch that was just committed when the job was upgraded is repeated, and is found.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    orders.feed(spark, range(4, 8))
    assert newest_ids(orders).keys() == {"learnt"} and orders.sums() == dict.fromkeys(range(8), 1)
    create_again(orders)
    orders.put(range(100, 120))
    orders.begins_again(spark, error=TopicCreatedAgainError, match=refusal("learnt"))
    assert orders.sums() == dict.fromkeys([*range(8), *range(100, 120)], 1)


def test_both_clients_say_the_same_of_topics_in_one_request(
    spark: Any, kafka_broker: KafkaBroker, guarded_broker: KafkaBroker
) -> None:
    topics = [f"described-{i}" for i in range(3)]
    for topic in topics:
        kafka_broker.create_topic(topic)
    options = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "subscribe": ",".join(topics)}
    native = NativeAdmin(kafka_client(options).settings)
    with jvm_admin(spark, options) as admin:
        first, again = admin.describe(topics), native.describe(topics)
        assert first == again and first.ids.keys() == {*topics} and first.unknown == {}
        assert all(re.fullmatch("[0-9a-f]{32}", text) for text in first.ids.values())
        assert admin.cluster().topic_ids == first.ids
        for client in (admin, native):
            found = client.describe([*topics, "not-there"])
            assert found.ids == first.ids and "nknown" in found.unknown["not-there"]
        more = [f"described-{i}" for i in range(3, 40)]
        for topic in more:
            kafka_broker.create_topic(topic)
        kafka_broker.delete_topic(topics[0])
        kafka_broker.create_topic(topics[0])
        time.sleep(0.5)  # A broker learns of new topics a moment later.
        found = admin.describe([*topics, *more, "not-there"])
        assert found.unknown.keys() == {"not-there"} and found.ids == native.describe([*topics, *more]).ids
        assert found.ids[topics[0]] != first.ids[topics[0]] and found.ids[topics[1]] == first.ids[topics[1]]
    guarded_broker.create_topic("kept-secret")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    for password, says in (("the-password", "Topic ?[Aa]uthorization"), ("another", "")):
        options = {
            "kafka.bootstrap.servers": guarded_broker.sasl_servers or "",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{module} required username="reader" password="{password}";',
        }
        with jvm_admin(spark, options) as admin:
            for client in (admin, NativeAdmin(kafka_client(options).settings)):
                started = time.monotonic()
                found = client.describe(["kept-secret"])
                assert found.ids == {} and re.search(says, found.unknown["kept-secret"]), found
                assert password not in str(found) and time.monotonic() - started < 7


def test_brokers_that_do_not_answer_keep_nobody_waiting_for_long(spark: Any) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with jvm_admin(spark, options) as admin:
        for client in (admin, NativeAdmin(kafka_client(options).settings)):
            started = time.monotonic()
            assert client.describe(["t"]).unknown.keys() == {"t"}
            assert time.monotonic() - started < 8
