"""The id and partitions of a Kafka cluster, asked once at the start with Kafka's client in Spark's JVM."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError

from bucketline.streaming.job.kafka_failure import is_about_login, kafka_failure
from bucketline.streaming.tasks.kafka_errors import KafkaUnreachableError

_LOG = logging.getLogger("bucketline.job")

_OF_KAFKA = "kafka."
_TIMEOUT_MS = 20_000


def cluster_id(spark: Any, options: Mapping[str, str]) -> str | None:
    """The id of the brokers' cluster; None if it is not known. Raises KafkaUnreachableError if no broker answers,
    KafkaRefusedError if they refuse the login; Spark would try for three minutes.
    """
    try:
        with _admin(spark, options) as admin:
            return str(admin.describeCluster().clusterId().get())
    except (Py4JError, TypeError) as e:
        failure = kafka_failure(str(e), options)
        if isinstance(failure, KafkaUnreachableError) or (failure is not None and is_about_login(str(e))):
            raise failure from e
        _LOG.debug("the id of the Kafka cluster is not known: %s", e)
        return None


def partitions_of(spark: Any, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, list[str]]:
    """The partitions of topics; topics that the cluster does not know are left out."""
    try:
        with _admin(spark, options) as admin:
            names = spark.sparkContext._jvm.java.util.ArrayList()
            for topic in topics:
                names.add(topic)
            topics_by_name = admin.describeTopics(names).allTopicNames().get()
            return {t: [str(p.partition()) for p in topics_by_name.get(t).partitions()] for t in topics}
    except (Py4JError, TypeError) as e:
        _LOG.debug("the partitions of %s are not known: %s", ", ".join(topics), e)
        return {}


@contextmanager
def _admin(spark: Any, options: Mapping[str, str]) -> Iterator[Any]:
    """Kafka's admin client with the `kafka.` options of a source."""
    jvm = spark.sparkContext._jvm
    settings = jvm.java.util.Properties()
    for key, text in options.items():
        if key.lower().startswith(_OF_KAFKA):
            settings.setProperty(key[len(_OF_KAFKA) :], text)
    settings.setProperty("default.api.timeout.ms", str(_TIMEOUT_MS))
    settings.setProperty("request.timeout.ms", str(_TIMEOUT_MS // 2))
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    try:
        yield admin
    finally:
        admin.close()
