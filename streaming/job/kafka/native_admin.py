"""Asks a Kafka cluster about its topics with librdkafka, for jobs whose tasks read Kafka themselves."""

import importlib
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any

from bucketline.streaming.batch.inputs.topic_ids import id_of_halves
from bucketline.streaming.job.kafka.kafka_admin import NO_IDS, TOPICS_TIMEOUT_MS, Described
from bucketline.streaming.tasks.kafka.kafka_tokens import client_settings

_LATE_SECONDS = 1.0
_LOOK_SECONDS = 0.05


class NativeAdmin:
    """An admin client of confluent-kafka with settings of librdkafka. The client is created at the first request, and
    kept for later requests.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._client: Any = None

    def describe(self, topics: Collection[str]) -> Described:
        """Returns the current ids of topics, with one request that ends after a few seconds at the latest."""
        try:
            asked = self._asked(topics)
        except Exception as e:  # noqa: BLE001 - a batch can do without ids, whatever the client says
            return Described(unknown=dict.fromkeys(topics, _reason(e)))
        ids, unknown = {}, {}
        for topic in topics:
            found, why = _answer(asked[topic])
            if found is None:
                unknown[topic] = why
            else:
                ids[topic] = found
        return Described(ids, unknown)

    def missing(self, topics: Collection[str]) -> list[str]:
        """Returns the topics that the brokers report as missing. A topic without an answer is not among them."""
        try:
            kafka = importlib.import_module("confluent_kafka")
            asked = self._asked(topics)
        except Exception:  # noqa: BLE001 - whoever reads the topics will say why
            return []
        return [topic for topic in topics if _is_unknown(asked[topic], kafka)]

    def close(self) -> None:
        """Closes the client, which has threads and connections."""
        self._client = None

    def _asked(self, topics: Collection[str]) -> Mapping[str, "Future[Any]"]:
        """Asks Kafka to describe the topics, and waits for the answers, at most for the timeout. Returns a future for
        each topic; the future has no result if no answer came in time.
        """
        kafka, admin = (importlib.import_module(name) for name in ("confluent_kafka", "confluent_kafka.admin"))
        if self._client is None:
            self._client = admin.AdminClient(client_settings(self._settings))
        seconds = TOPICS_TIMEOUT_MS / 1000
        asked: Mapping[str, Future[Any]] = self._client.describe_topics(
            kafka.TopicCollection(list(topics)), request_timeout=seconds
        )
        self._await(asked, seconds + _LATE_SECONDS)
        return asked

    def _await(self, asked: Mapping[str, "Future[Any]"], seconds: float) -> None:
        """Waits until all requests are answered or the time is over. While the function waits, it polls the client, so
        that the client fetches tokens for its login.
        """
        deadline = time.monotonic() + seconds
        self._client.poll(0)
        while wait(asked.values(), _LOOK_SECONDS).not_done and time.monotonic() < deadline:
            self._client.poll(0)


def _answer(future: "Future[Any]") -> tuple[str | None, str]:
    """Returns the id of one topic, or None and the reason why it is not known."""
    if not future.done():
        return None, "no answer"
    error = future.exception()
    if error is not None:
        return None, _reason(error)
    found = future.result().topic_id
    return id_of_halves(found.get_most_significant_bits(), found.get_least_significant_bits()), NO_IDS


def _is_unknown(future: "Future[Any]", kafka: Any) -> bool:
    """Returns True if the brokers report that there is no such topic."""
    error = future.exception() if future.done() else None
    code = getattr(error.args[0], "code", None) if error is not None and error.args else None
    return callable(code) and code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def _reason(error: BaseException) -> str:
    said = getattr(error.args[0], "str", None) if error.args else None
    return " ".join((said() if callable(said) else str(error)).split())[:200]
