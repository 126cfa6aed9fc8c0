"""The id and partitions of a Kafka cluster, asked once at the start with Kafka's client in Spark's JVM."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError

from bucketline.conf.source_options import kafka_source
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


def partitions_of(spark: Any, options: Mapping[str, str]) -> dict[str, list[str]]:
    """The topics that a source with these options reads, of those that the cluster has, with the partitions that it
    reads; empty where they are not known."""
    source = kafka_source(options)
    try:
        with _admin(spark, options) as admin:
            names = spark.sparkContext._jvm.java.util.ArrayList()
            for topic in admin.listTopics().names().get():
                if source.reads(str(topic)):
                    names.add(topic)
            found = admin.describeTopics(names).allTopicNames().get()
            partitions = {str(t): [p.partition() for p in found.get(t).partitions()] for t in names}
    except (Py4JError, TypeError) as e:
        _LOG.debug("the partitions of %s are not known: %s", source.topics_text, e)
        return {}
    return {t: [str(p) for p in numbers if source.reads_partition(t, p)] for t, numbers in partitions.items()}


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
