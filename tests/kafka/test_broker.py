"""The broker that tests start is a Kafka that keeps what it acknowledged."""

import pytest
from confluent_kafka import KafkaException

from tests.support.servers.broker import KafkaBroker, KafkaRecord

pytestmark = pytest.mark.kafka


def test_a_thousand_records_come_back_in_the_order_of_their_partition(kafka_broker: KafkaBroker) -> None:
    topic = "a-thousand-records"
    kafka_broker.create_topic(topic, partitions=3)
    sent = [KafkaRecord(f"value-{i}".encode(), f"key-{i}".encode(), i % 3, 1_700_000_000_000 + i) for i in range(1000)]

    assert kafka_broker.produce(topic, sent) == 1000
    found = kafka_broker.consume(topic, 1000)

    for partition in range(3):
        assert [record for record in found if record.partition == partition] == sent[partition::3]


def test_tombstones_and_headers_survive(kafka_broker: KafkaBroker) -> None:
    topic = "tombstones-and-headers"
    kafka_broker.create_topic(topic)
    sent = KafkaRecord(None, b"gone", 0, 1_700_000_000_000, (("source", b"unit"), ("empty", b"")))

    kafka_broker.produce(topic, [sent])

    assert kafka_broker.consume(topic, 1) == [sent]


def test_a_topic_must_be_made_before_it_is_read(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        kafka_broker.consume("never-made", 1)
