"""Asks a Kafka cluster about itself and its topics, with Kafka's admin client in Spark's JVM."""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError

from bucketline.conf.sources.source_options import kafka_source
from bucketline.streaming.batch.inputs.topic_ids import id_of_text
from bucketline.streaming.job.kafka.kafka_failure import is_about_login, kafka_failure
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaUnreachableError, topic_missing

_LOG = logging.getLogger("bucketline.job")

_OF_KAFKA, _CLIENT_ID = "kafka.", "client.id"
_TIMEOUT_MS = 20_000
TOPICS_TIMEOUT_MS = 5_000
"""How long, in milliseconds, a batch waits for the ids of its topics; the batch can be written without them."""

NO_IDS = "the brokers have no ids for topics"

_MANY = 20
"""Up to this number, topics are described one by one."""

_RETENTION = "retention.ms"
_LISTED = re.compile(r"\(name=([\w.-]+), topicId=([\w-]{22}),")
_LATE, _STOPPED = "java.util.concurrent.TimeoutException", "java.lang.InterruptedException"
_NO_TOPIC = "UnknownTopicOrPartitionException"
_CAUSE = re.compile(r"errors\.(\w+Exception)(?:: ([^\n]*))?")


_Answer = tuple[str | None, str]
"""The UUID of a topic as text, or the reason why it is not known."""


@dataclass(frozen=True, slots=True)
class Described:
    """What is known about the ids of topics. `ids` has the ids that are known, and `unknown` has the reason for each
    topic whose id is not known.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The id of a cluster (None if not known), and the ids of the source's topics in this cluster."""

    id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def jvm_admin(spark: Any, options: Mapping[str, str]) -> Iterator["JvmAdmin"]:
    """Yields an admin client with the `kafka.` options of a source. The client sends no request until it is used."""
    admin = JvmAdmin(spark, options)
    try:
        yield admin
    finally:
        admin.close()


class JvmAdmin:
    """Kafka's admin client in Spark's JVM. It is created at the first request, and then kept."""

    def __init__(self, spark: Any, options: Mapping[str, str]) -> None:
        self._jvm, self._options = spark.sparkContext._jvm, options
        self._client: Any = None
        self._milliseconds: Any = None

    def close(self) -> None:
        """Closes the client, and cancels its open requests. The JVM may have ended before."""
        with suppress(Py4JError, ConnectionError):
            if self._client is not None:
                self._client.close(self._jvm.java.time.Duration.ZERO)
        self._client = None

    def cluster_id(self) -> str | None:
        """Returns the id of the brokers' cluster; None if it is not known. Raises KafkaUnreachableError if no broker
        answers, and KafkaRefusedError if the brokers refuse the login. (Spark itself would try for three minutes.)
        """
        try:
            return str(self._admin().describeCluster().clusterId().get())
        except (Py4JError, TypeError) as e:
            failure = kafka_failure(str(e), self._options)
            if isinstance(failure, KafkaUnreachableError) or (failure is not None and is_about_login(str(e))):
                raise failure from e
            _LOG.debug("the id of the Kafka cluster is not known: %s", e)
            return None

    def cluster(self) -> ClusterNow:
        """Returns the cluster and its topics at the start of a job. Raises the errors of `cluster_id`, and
        KafkaTopicMissingError for a topic that the brokers do not have.
        """
        found = self.cluster_id()
        topics = [] if found is None else self.topics()
        if not topics:
            pattern = kafka_source(self._options).pattern
            if found is not None and pattern is not None:
                _LOG.warning("no topic matches source.options.subscribePattern = %s yet", pattern)
            return ClusterNow(found)
        described = self.describe(topics)
        missing = [topic for topic, why in described.unknown.items() if why.startswith(_NO_TOPIC)]
        if missing:
            raise topic_missing(missing[0], kafka_source(self._options).servers or "")
        return ClusterNow(found, described.ids)

    def topics(self) -> list[str]:
        """Returns the topics that the source reads: the topics in its options, or the topics in the cluster that match
        its pattern.

        The result is empty if the topics are not known.
        """
        source = kafka_source(self._options)
        named = [*source.topics, *source.assigned]
        if named or source.pattern is None:
            return named
        try:
            return [str(topic) for topic in self._admin().listTopics().names().get() if source.reads(str(topic))]
        except (Py4JError, TypeError) as e:
            _LOG.debug("the topics of %s are not known: %s", source.topics_text, e)
            return []

    def partitions(self) -> dict[str, list[str]]:
        """Returns the partitions that the source reads, by topic, for topics that the cluster has; empty if the
        partitions are not known.
        """
        source = kafka_source(self._options)
        try:
            existing = [str(topic) for topic in self._admin().listTopics().names().get()]
            names = [topic for topic in existing if source.reads(topic)]
            found = self._admin().describeTopics(self._list_of(names)).allTopicNames().get()
            partitions = {t: [p.partition() for p in found.get(t).partitions()] for t in names}
        except (Py4JError, TypeError) as e:
            _LOG.debug("the partitions of %s are not known: %s", source.topics_text, e)
            return {}
        return {t: [str(p) for p in numbers if source.reads_partition(t, p)] for t, numbers in partitions.items()}

    def offsets(self, *, of_first: bool) -> dict[str, dict[str, int]]:
        """Returns the first offset of each partition that the source reads if `of_first` is true. Otherwise returns the
        offset after the last record of each partition.

        Raises Py4JError if the brokers do not answer.
        """
        kinds, kafka = self._jvm.org.apache.kafka.clients.admin.OffsetSpec, self._jvm.org.apache.kafka.common
        spec = kinds.earliest() if of_first else kinds.latest()
        names = {(t, p): kafka.TopicPartition(t, int(p)) for t, of in self.partitions().items() for p in of}
        asked = self._jvm.java.util.HashMap()
        for name in names.values():
            asked.put(name, spec)
        found = self._admin().listOffsets(asked).all().get(TOPICS_TIMEOUT_MS, self._milliseconds)
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), name in names.items():
            offsets.setdefault(topic, {})[partition] = int(found.get(name).offset())
        return offsets

    def retention_ms(self, topics: Collection[str]) -> dict[str, int]:
        """Returns how long each topic keeps records, in milliseconds; below 0 if it keeps them for ever. The result
        lacks topics about which the brokers do not answer.

        Raises Py4JError if the query of this thread is stopped before the answer comes.
        """
        kinds = self._jvm.org.apache.kafka.common.config
        try:
            asked = {topic: kinds.ConfigResource(kinds.ConfigResource.Type.TOPIC, topic) for topic in topics}
            answers = self._admin().describeConfigs(self._list_of(asked.values())).values()
            kept = {topic: self._kept_ms(answers.get(asked[topic])) for topic in topics}
            return {topic: kept_ms for topic, kept_ms in kept.items() if kept_ms is not None}
        except (Py4JError, TypeError) as e:
            if _STOPPED in str(e):
                raise
            _LOG.debug("it is not known how long topics keep records: %s", _reason(e))
            return {}

    def _kept_ms(self, future: Any) -> int | None:
        """Returns how long a topic keeps records, in milliseconds; None for a topic that does not exist or that this
        user may not ask for.
        """
        try:
            return int(future.get(TOPICS_TIMEOUT_MS, self._milliseconds).get(_RETENTION).value())
        except Py4JError as e:
            if _LATE in str(e) or _STOPPED in str(e):
                raise
            return None

    def describe(self, topics: Collection[str]) -> Described:
        """Returns the current ids of topics, with one request. Waits at most a few seconds for the answer.

        Raises Py4JError if the query of this thread is stopped before the answer comes.
        """
        try:
            listed = self._listed() if len(topics) > _MANY else {}
            found = {topic: (listed[topic], "") for topic in topics if topic in listed}
            left = [topic for topic in topics if topic not in found]
            return _described(found | (self._each(left) if left else {}))
        except (Py4JError, TypeError) as e:
            if _STOPPED in str(e):
                raise
            return _described(dict.fromkeys(topics, (None, _reason(e))))

    def _listed(self) -> dict[str, str]:
        """Returns the UUIDs of all topics, as text. This takes as few calls into the JVM as describing one topic."""
        listings = self._admin().listTopics().listings().get(TOPICS_TIMEOUT_MS, self._milliseconds)
        return dict(_LISTED.findall(listings.toString()))

    def _each(self, topics: Collection[str]) -> dict[str, _Answer]:
        """Returns the UUID of each topic as text, or the reason why it is not known. Raises Py4JError if no broker
        answers in time.
        """
        asked = self._admin().describeTopics(self._list_of(topics))
        try:
            found = asked.allTopicNames().get(TOPICS_TIMEOUT_MS, self._milliseconds)
            return {topic: (found.get(topic).topicId().toString(), "") for topic in topics}
        except Py4JError as e:
            if _LATE in str(e) or _STOPPED in str(e):
                raise
        answers = asked.topicNameValues()  # the request for one of the topics has failed
        return {topic: self._answer(answers.get(topic)) for topic in topics}

    def _answer(self, future: Any) -> _Answer:
        try:
            return future.get(TOPICS_TIMEOUT_MS, self._milliseconds).topicId().toString(), ""
        except Py4JError as e:
            if _STOPPED in str(e):
                raise
            return None, _reason(e)

    def _list_of(self, values: Collection[Any]) -> Any:
        listed = self._jvm.java.util.ArrayList()
        for value in values:
            listed.add(value)
        return listed

    def _admin(self) -> Any:
        if self._client is None:
            settings = self._jvm.java.util.Properties()
            for key, text in self._options.items():
                if key.lower().startswith(_OF_KAFKA):
                    settings.setProperty(key[len(_OF_KAFKA) :], text)
            own_id = settings.getProperty(_CLIENT_ID)
            if own_id is not None:  # Spark's clients use this id, and two clients with one id would share their
                # metrics.
                settings.setProperty(_CLIENT_ID, f"{own_id}-bucketline")
            settings.setProperty("default.api.timeout.ms", str(_TIMEOUT_MS))
            settings.setProperty("request.timeout.ms", str(_TIMEOUT_MS // 2))
            self._client = self._jvm.org.apache.kafka.clients.admin.Admin.create(settings)
            self._milliseconds = self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        return self._client


def _described(answers: Mapping[str, _Answer]) -> Described:
    ids, unknown = {}, {}
    for topic, (text, why) in answers.items():
        found = None if text is None else id_of_text(text)
        if found is None:
            unknown[topic] = why or NO_IDS
        else:
            ids[topic] = found
    return Described(ids, unknown)


def _reason(error: Exception) -> str:
    """Returns the message of an error of Kafka's client, without the stack trace."""
    cause = _CAUSE.search(str(error))
    text = str(error) if cause is None else ": ".join(filter(None, cause.groups()))
    return " ".join(text.split())[:200]
