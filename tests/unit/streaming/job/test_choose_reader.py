"""Who reads Kafka: tasks themselves where every option has a counterpart and the client is there, else Spark."""

import logging
import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import ReaderChoice, RecordFormat, SourceConfig
from bucketline.streaming.batch.inputs.kafka_batch import KafkaReader
from bucketline.streaming.job.background import background_work
from bucketline.streaming.job.choose_reader import JobSink, choose_reader
from bucketline.streaming.tasks.first_tasks import client_error
from bucketline.streaming.tasks.wire import TaskResult, pack_result
from tests.support.spark.tasks import Cluster

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


@dataclass
class Session(Cluster):
    """A Spark session with settings of its application."""

    application: dict[str, str] = field(default_factory=dict)

    def getConf(self) -> Any:
        return self

    def getAll(self) -> Any:
        return list(self.application.items())

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.application.get(key, super().get(key, default))

    def addJobTag(self, tag: str) -> None: ...

    def cancelJobsWithTag(self, tag: str) -> None:
        raise AssertionError("all was done in time")


def started(session: Session) -> Any:
    return background_work(session, lambda: False)


def chosen(reader: ReaderChoice, **more: str) -> KafkaReader | None:
    options = OPTIONS | {key.replace("_", "."): text for key, text in more.items()}
    source = SourceConfig("kafka", options, RecordFormat.JSON, reader)
    session = Session(random.Random(1))
    with started(session) as in_thread:
        found = choose_reader(session, source, options, in_thread)
        return None if found is None else found()


def test_auto_lets_tasks_read_where_every_option_has_a_counterpart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = chosen(ReaderChoice.AUTO)
    assert found is not None and not found.is_required and not found.keeps_split
    assert found.settings["isolation.level"] == "read_uncommitted"
    assert "tasks read Kafka themselves (source.reader = auto)" in caplog.text


def test_auto_lets_spark_read_else_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert chosen(ReaderChoice.AUTO, kafka_max_poll_records="5") is None
    assert "Spark reads Kafka (source.reader = auto): kafka.max.poll.records has no counterpart" in caplog.text
    assert chosen(ReaderChoice.AUTO, kafka_fetch_min_bytes="-7") is None
    assert "librdkafka refuses the settings" in caplog.text
    source = SourceConfig("kafka", OPTIONS, RecordFormat.JSON, ReaderChoice.AUTO)
    tokens = Session(random.Random(1), application={"spark.kafka.clusters.a.auth.bootstrap.servers": "x"})
    with started(tokens) as in_thread:
        assert choose_reader(tokens, source, OPTIONS, in_thread) is None
    assert "delegation tokens" in caplog.text
    assert tokens.tasks_run == 2


def test_native_is_refused_where_tasks_cannot_read() -> None:
    with pytest.raises(OptionError, match=r"source\.reader = native: kafka\.max\.poll\.records has no counterpart"):
        chosen(ReaderChoice.NATIVE, kafka_max_poll_records="5")
    found = chosen(ReaderChoice.NATIVE, minPartitions="7")
    assert found is not None and found.is_required and found.keeps_split


@pytest.mark.parametrize("format_name", ["kafka", "parquet", "json"])
def test_where_nothing_is_asked_workers_are_started_beside_the_query(format_name: str) -> None:
    session = Session(random.Random(1), defaultParallelism=3)
    source = SourceConfig(format_name, OPTIONS, RecordFormat.JSON, ReaderChoice.SPARK)
    with started(session) as in_thread:
        assert choose_reader(session, source, OPTIONS, in_thread) is None
    assert session.tasks_run == 3


def test_the_first_batch_does_not_wait_for_more_tasks_than_run_at_a_time() -> None:
    session = Session(random.Random(1), defaultParallelism=400, application={"spark.default.parallelism": "400"})
    with started(session) as in_thread:
        choose_reader(session, SourceConfig("json", OPTIONS, RecordFormat.NONE, ReaderChoice.AUTO), OPTIONS, in_thread)
    assert session.tasks_run == 8


@dataclass
class NoClient(Session):
    """A session with a task that lacks the client; it says so once the test lets it."""

    may_say: threading.Event = field(default_factory=threading.Event)

    def _of_bytes(self, command: bytes, number: int, items: list[bytes]) -> list[bytes]:
        assert self.may_say.wait(60)
        why = b"this Python cannot import confluent-kafka" if number else b""
        return [pack_result(TaskResult("why", why)), b""]


@pytest.mark.parametrize("reader", [ReaderChoice.AUTO, ReaderChoice.NATIVE])
def test_what_tasks_lack_is_asked_beside_the_start_and_known_to_the_first_batch(
    reader: ReaderChoice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    session = NoClient(random.Random(1))
    with started(session) as in_thread:
        found = choose_reader(session, SourceConfig("kafka", OPTIONS, RecordFormat.JSON, reader), OPTIONS, in_thread)
        assert found is not None and not caplog.messages
        session.may_say.set()
    sink = JobSink("/tmp/k.db/t", kafka=found)
    for _ in range(2):
        if reader is ReaderChoice.NATIVE:
            with pytest.raises(OptionError, match=r"native: this Python cannot import confluent-kafka"):
                sink._job()
        else:
            assert sink._job().kafka is None
    said = "Spark reads Kafka (source.reader = auto): this Python cannot import confluent-kafka"
    assert caplog.messages == ([said] if reader is ReaderChoice.AUTO else [])


def test_the_sink_of_a_job_has_what_any_sink_has_and_the_reader() -> None:
    reader = KafkaReader({"a": "1"}, is_required=False, keeps_split=False)
    sink = JobSink("/tmp/k.db/t", checkpoint="/c", source="kafka://b", allow_reprocess=True, kafka=lambda: reader)
    job = sink._job()
    assert (job.checkpoint, job.source, job.allow_reprocess, job.kafka) == ("/c", "kafka://b", True, reader)


def test_a_client_says_why_it_cannot_be_made() -> None:
    assert client_error({"bootstrap.servers": "127.0.0.1:1"}) == ""
    assert "no.such" in client_error({"bootstrap.servers": "127.0.0.1:1", "no.such": "1"})
