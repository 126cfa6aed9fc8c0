"""Turns an error of Kafka into a BucketlineError with a code, and a message that says what to do.

Spark passes errors on as text, and the classes of the errors differ across versions. So the errors are recognised by
their text. Source: Spark 4.0 to 4.3 KafkaExceptions, kafka-010 error conditions; seen on 3.5.9, 4.0.5 and 4.3.0 against
a broker of 4.1.1.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bucketline.conf.errors import BucketlineError
from bucketline.conf.sources.source_options import KafkaSource, kafka_source
from bucketline.streaming.batch.failure import said_by
from bucketline.streaming.tasks.kafka.kafka_errors import (
    KafkaDataLostError,
    KafkaOffsetsError,
    named,
    records_removed,
    refused,
    topic_missing,
    unreachable,
)

_OF_SPARK = "SPARK_FAILED"
"""The code of errors which only say that Spark ended the query."""

_MADE_ANEW = re.compile(
    r"Partitions? (?P<names>Set\([^)]*\)|\S+) (?:have been deleted|offset was changed from \d+ to \d+)"
    r"|(?P<more>Cannot find (?:initial|earliest) offset\S* (?:of|for) [^\n]*)"
)
_LOST = re.compile(
    r"Some data may have been lost because they are not available in Kafka|KAFKA_DATA_LOSS|OffsetOutOfRangeException"
)
_RANGE = re.compile(
    r"offset range \[[^\]\n]*[\])]|in (?:range|offset) \[[^\]\n]*[\])]|Cannot fetch record [^\n]*"
    r"|Cannot fetch offset \d+"
)
_MISSING = re.compile(r"UnknownTopicOrPartitionException|This server does not host this topic-partition")
_PARTIAL = re.compile(r"must specify all TopicPartitions.*?(Specified: Set\([^)]*\) Assigned: Set\([^)]*\))", re.DOTALL)
_UNREACHABLE = re.compile(
    r"Timed out waiting for a node assignment|Failed to create new KafkaAdminClient|No resolvable bootstrap urls"
    r"|Failed to construct kafka consumer|Timed out waiting to send the call|Call\(callName=\w+.*? timed out at"
    r"|Cannot fetch record for offset \S+ in \d+ milliseconds|errors\.(?:Disconnect|Network)Exception"
)
_REFUSED = re.compile(r"\b((?:\w*Authorization|SaslAuthentication|SslAuthentication)Exception): ([^\n]*)")


@contextmanager
def kafka_failures(options: Mapping[str, str] | None) -> Iterator[None]:
    """While the block runs, raises errors of Spark that come from Kafka as BucketlineErrors. `options` are the options
    of a Kafka source; None for other sources.
    """
    try:
        yield
    except Exception as e:
        if options is None or (isinstance(e, BucketlineError) and e.code != _OF_SPARK):
            raise
        failure = kafka_failure(said_by(e), options)
        if failure is None:
            raise
        raise failure from e


def kafka_failure(text: str, options: Mapping[str, str]) -> BucketlineError | None:
    """Returns the error to report for a failed query that reads Kafka with these options; None if Kafka is not the
    cause.
    """
    source = kafka_source(options)
    topics, servers = source.topics_text or "", source.servers or ""
    if _LOST.search(text):
        return _data_lost(text, topics, source)
    if _MISSING.search(text):
        return topic_missing(topics, servers)
    partial = _PARTIAL.search(text)
    if partial:
        return KafkaOffsetsError(
            f"source.options.startingOffsets does not have exactly the partitions of the topic ({partial[1]}): "
            "write an offset for each partition, with -2 for the earliest record of a new partition",
            key="source.options.startingOffsets",
        )
    denied = _REFUSED.search(text)
    if denied:
        return refused(servers, f"{denied[1]}: {denied[2].strip()[:200]}", topics)
    if _UNREACHABLE.search(text):
        return unreachable(servers)
    return None


def is_about_login(text: str) -> bool:
    """Returns True if the text of an error says that Kafka refuses the login, and False if Kafka refuses only one
    request.
    """
    refusal = _REFUSED.search(text)
    return refusal is not None and refusal[1] in ("SaslAuthenticationException", "SslAuthenticationException")


def _data_lost(text: str, topics: str, source: KafkaSource) -> KafkaDataLostError:
    anew = _MADE_ANEW.search(text)
    if anew:
        remedy = "Start a new checkpoint at the first record of the topic with --allow-reprocess"
        if source.pattern is not None or len({*source.topics, *source.assigned}) > 1:
            remedy = (
                "If the topic no longer exists, run the job once with --reset-identity: the other topics go on. If it "
                "was created again, start a new checkpoint with --allow-reprocess; use the startingOffsets that "
                "`bucketline offsets` prints, with -2 for each partition of this topic"
            )
        return KafkaDataLostError(
            f"{named(topics)} is not the topic that the checkpoint belongs to ({' '.join(anew[0].split())}): it was "
            f"deleted and created again, or lost partitions. {remedy} (docs/kafka.md)",
            topics=topics,
        )
    where = _RANGE.search(text)
    return records_removed(topics, "" if where is None else where[0])
