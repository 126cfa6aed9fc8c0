"""Spark's texts about Kafka, as 4.0.5 and 4.3.0 gave them, become errors with a code that name the remedy."""

import pytest

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.streaming.job.kafka.kafka_failure import kafka_failure, kafka_failures

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
STREAM = "[STREAM_FAILED] Query [id = 29a0, runId = 7990] terminated with exception: "
LOST = (
    "Some data may have been lost because they are not available in Kafka any more;\n"
    "either the data was aged out by Kafka or the topic may have been deleted before all the data in the\n"
    "topic was processed.\n"
    "If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.\n"
)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (
            f"Job aborted\norg.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position\n{LOST}",
            "KAFKA_DATA_LOST",
            "removed records of topic orders before they were read",
        ),
        (
            f"{LOST}Reason: Partition orders-0 offset was changed from 10 to 3. SQLSTATE: XXKST",
            "KAFKA_DATA_LOST",
            "(Partition orders-0 offset was changed from 10 to 3): it was deleted and created again",
        ),
        (
            f"{LOST}Reason: Partitions Set(orders-1, orders-2) have been deleted. SQLSTATE: XXKST",
            "KAFKA_DATA_LOST",
            "(Partitions Set(orders-1, orders-2) have been deleted)",
        ),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this "
            "topic-partition. SQLSTATE: XXKST",
            "KAFKA_TOPIC_MISSING",
            "topic orders does not exist at broker:9092",
        ),
        (
            "assertion failed: If startingOffsets contains specific offsets, you must specify all TopicPartitions.\n"
            "Use -1 for latest, -2 for earliest, if you don't care.\n"
            "Specified: Set(orders-0, orders-1) Assigned: Set(orders-0) SQLSTATE: XXKST",
            "KAFKA_STARTING_OFFSETS",
            "(Specified: Set(orders-0, orders-1) Assigned: Set(orders-0))",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
            "KAFKA_UNREACHABLE",
            "no broker answers at broker:9092",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Call(callName=listOffsets(api=METADATA), deadlineMs=1, "
            "tries=1, nextAllowedTryMs=2) timed out at 3 after 1 attempt(s)",
            "KAFKA_UNREACHABLE",
            "no broker answers at broker:9092",
        ),
        (
            "java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 milliseconds",
            "KAFKA_UNREACHABLE",
            "no broker answers at broker:9092",
        ),
        ("Failed to create new KafkaAdminClient SQLSTATE: XXKST", "KAFKA_UNREACHABLE", "kafka.bootstrap.servers"),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
            "KAFKA_REFUSED",
            "(TopicAuthorizationException: Not authorized to access topics: [orders])",
        ),
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid password",
            "KAFKA_REFUSED",
            "kafka.sasl.*",
        ),
    ],
)
def test_what_kafka_says_has_a_code_and_one_line(text: str, code: str, named: str) -> None:
    found = kafka_failure(STREAM + text + "\n=== Streaming Query ===\nIdentifier: [id = 29a0]", OPTIONS)
    assert found is not None
    assert (found.code, "\n" in found.message) == (code, False)
    assert named in found.message


def test_settings_that_are_wrong_count_as_configuration() -> None:
    missing = kafka_failure("UnknownTopicOrPartitionException: This server", OPTIONS)
    assert isinstance(missing, OptionError) and not isinstance(kafka_failure(LOST, OPTIONS), OptionError)


def test_several_topics_are_named_together() -> None:
    found = kafka_failure(LOST, OPTIONS | {"subscribe": "a,b"})
    assert found is not None and "one of the topics a,b" in found.message


@pytest.mark.parametrize(
    ("reads", "remedy"),
    [
        ({"subscribe": "a"}, "Start a new checkpoint at the first record of the topic with --allow-reprocess"),
        ({"subscribe": "a,b"}, "run the job once with --reset-identity: the other topics go on"),
        ({"subscribePattern": "a|b"}, "use the startingOffsets that `bucketline offsets` prints"),
        ({"assign": '{"a": [0], "b": [0]}'}, "with -2 for each partition of this topic"),
    ],
)
def test_where_one_of_several_topics_is_gone_the_others_are_not_read_again(reads: dict[str, str], remedy: str) -> None:
    text = f"{LOST}Reason: Partition a-0 have been deleted. SQLSTATE: XXKST"
    found = kafka_failure(text, {"kafka.bootstrap.servers": "broker:9092", **reads})
    assert found is not None and remedy in found.message


def test_other_failures_of_spark_are_none_of_kafkas() -> None:
    assert kafka_failure(f"{STREAM}java.lang.OutOfMemoryError: Java heap space", OPTIONS) is None
    with pytest.raises(ValueError, match="no number"), kafka_failures(OPTIONS):
        raise ValueError("no number")


def test_errors_of_ours_and_sources_that_are_not_kafka_pass_unchanged() -> None:
    class Ours(BucketlineError):
        code = "OURS"

    with pytest.raises(Ours), kafka_failures(OPTIONS):
        raise Ours(LOST)
    with pytest.raises(RuntimeError), kafka_failures(None):
        raise RuntimeError(LOST)


def test_an_error_that_says_only_that_spark_failed_is_looked_into() -> None:
    class SparkFailed(BucketlineError):
        code = "SPARK_FAILED"

    with pytest.raises(BucketlineError) as caught, kafka_failures(OPTIONS):
        raise SparkFailed("Spark ended the query") from RuntimeError(LOST)
    assert caught.value.code == "KAFKA_DATA_LOST"
