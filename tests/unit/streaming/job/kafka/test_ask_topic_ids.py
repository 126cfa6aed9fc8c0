"""Who is asked for the ids of topics, how often it warns, and what a client without an answer costs."""

import logging
from collections.abc import Collection, Mapping

import pytest

from bucketline.streaming.batch.inputs.kafka_batch import KafkaReader
from bucketline.streaming.job.kafka.ask_topic_ids import AskTopicIds
from bucketline.streaming.job.kafka.kafka_admin import Described
from bucketline.streaming.job.kafka.native_admin import NativeAdmin


class Says:
    """A client that says the same each time; each question takes so many seconds of `clock`."""

    def __init__(self, described: Described, seconds: float = 0.0) -> None:
        self.described, self.seconds = described, seconds
        self.asked, self.clock, self.is_closed = 0, 100.0, False

    def describe(self, topics: Collection[str]) -> Described:
        self.asked += 1
        self.clock += self.seconds
        return self.described

    def close(self) -> None:
        self.is_closed = True


def test_the_client_that_reads_is_asked_and_kept() -> None:
    spark, native, made = Says(Described({"t": "1"})), Says(Described({"t": "2"})), []

    def make(settings: Mapping[str, str]) -> Says:
        made.append(settings)
        return native

    reader = KafkaReader({"a": "b"}, is_required=False, keeps_split=False)
    assert AskTopicIds(spark, None, make)(["t"]) == AskTopicIds(spark, lambda: None, make)(["t"]) == {"t": "1"}
    ask = AskTopicIds(spark, lambda: reader, make)
    assert [ask(["t"]) for _ in range(3)] == [{"t": "2"}] * 3
    assert made == [{"a": "b"}] and (spark.asked, native.asked) == (2, 3)
    assert spark.is_closed and not native.is_closed  # What is not asked any more needs no connections.
    ask.close()
    assert native.is_closed


def test_it_warns_once_of_each_topic_without_an_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bucketline.job")
    client = Says(Described({"c": "1"}, {"a": "Broker: Topic authorization failed", "b": "other"}))
    ask = AskTopicIds(client, None)
    for _ in range(3):
        assert ask(["a", "b", "c"]) == {"c": "1"}
    [said] = caplog.messages
    assert said.startswith("topic a and 1 more: the id in Kafka is not known (Broker: Topic authorization")
    client.described = Described({}, {"d": "why", "a": "why"})
    ask(["a", "d"])
    assert caplog.messages[1].startswith("topic d: ") and len(caplog.messages) == 2


def test_brokers_that_do_not_answer_in_time_are_not_asked_again_at_once() -> None:
    client = Says(Described({}, {"t": "no answer"}), seconds=5.0)
    ask = AskTopicIds(client, None, now=lambda: client.clock)
    for _ in range(4):
        assert ask(["t"]) == {}
    assert client.asked == 1
    client.clock += 60
    ask(["t"])
    assert client.asked == 2
    client.clock, client.described = client.clock + 60, Described({"t": "1"})
    assert [ask(["t"]), ask(["t"])] == [{"t": "1"}] * 2


def test_a_client_that_cannot_be_made_says_so_and_raises_nothing() -> None:
    described = NativeAdmin({"no.such.setting": "1"}).describe(["t"])
    assert described.ids == {} and "no.such.setting" in described.unknown["t"]
