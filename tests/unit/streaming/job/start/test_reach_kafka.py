"""A broker that does not answer is found before Spark starts, and so is a server without a port."""

import logging
import socket

import pytest

from bucketline.conf.errors import OptionError
from bucketline.streaming.job.kafka.native_admin import NativeAdmin
from bucketline.streaming.job.start.reach_kafka import connect, reach_kafka
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaTopicMissingError, KafkaUnreachableError

TOPIC = {"subscribe": "orders"}


class Net:
    """Servers, one of which may begin to listen at a time."""

    def __init__(self, listens: str | None = None, from_second: float = 0.0) -> None:
        self.now, self.listens, self.from_second = 0.0, listens, from_second
        self.tried: list[tuple[str, int]] = []

    def connect(self, server: tuple[str, int], seconds: float) -> None:
        assert 0 < seconds <= 3
        self.tried.append(server)
        if server[0] != self.listens or self.now < self.from_second:
            self.now += 0.05
            raise ConnectionRefusedError(111, "Connection refused")

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def reach(self, servers: str, **more: str) -> None:
        options = {"kafka.bootstrap.servers": servers, **more}
        reach_kafka(options, connect=self.connect, now=lambda: self.now, pause=self.pause)


def test_nobody_answers_for_ten_seconds_and_the_job_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    with (
        caplog.at_level(logging.INFO, "bucketline"),
        pytest.raises(KafkaUnreachableError, match="no broker answers at a:1, b:2"),
    ):
        net.reach("a:1, b:2", **TOPIC)
    assert 10 <= net.now < 11 and {*net.tried} == {("a", 1), ("b", 2)}
    assert "Kafka at a:1, b:2: Connection refused" in caplog.text


@pytest.mark.parametrize("servers", ["a:1,b:2", "PLAINTEXT://b:2", "user:word@b:2", "c:3 , b:65535"])
def test_one_server_that_answers_in_time_is_enough(servers: str) -> None:
    net = Net("b", from_second=6.0)
    net.reach(servers)
    assert 6 <= net.now < 7


@pytest.mark.parametrize("servers", ["localhost", "a:1,localhost", "a:0", "a:65536", "a:b", "a: 9092"])
def test_a_server_without_a_port_is_refused_at_once(servers: str) -> None:
    net = Net()
    with pytest.raises(OptionError, match="each broker must be written as host:port, for example localhost:9092") as e:
        net.reach(servers)
    assert not net.tried and e.value.key == "kafka.bootstrap.servers"


def test_an_address_in_brackets_is_one_of_ipv6() -> None:
    net = Net("::1")
    net.reach("[::1]:9092")
    assert net.tried == [("::1", 9092)]


def test_a_real_connection_is_tried_and_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect(("127.0.0.1", server.getsockname()[1]), 10)
        peer, _ = server.accept()
        with peer:
            peer.settimeout(60)
            assert peer.recv(1) == b""
    with pytest.raises(OSError):
        connect(("127.0.0.1", server.getsockname()[1]), 10)


class Answer:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return self._error


def test_topics_are_missing_where_the_brokers_say_so_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    unknown, refused = (
        kafka.KafkaException(kafka.KafkaError(code))
        for code in (kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    )
    answers = {"there": Answer(None), "gone": Answer(unknown), "hidden": Answer(refused)}
    monkeypatch.setattr(NativeAdmin, "_asked", lambda self, topics: answers)
    assert NativeAdmin({}).missing(["there", "gone", "hidden"]) == ["gone"]
    net = Net("a")
    net.reach("a:1", subscribe="there,hidden")
    with pytest.raises(KafkaTopicMissingError, match="topic gone does not exist at a:1"):
        net.reach("a:1", subscribe="there,gone")
    net.reach("a:1", subscribe="gone", **{"kafka.interceptor.classes": "x"})  # librdkafka does not take it
    monkeypatch.undo()
    assert NativeAdmin({"no.such.setting": "x"}).missing(["gone"]) == []
