"""Errors between a job and Kafka. They are the same whether Spark's Kafka source or bucketline's tasks read."""

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.sources.known_options import SERVERS


class KafkaDataLostError(BucketlineError):
    """Kafka has removed records that the job has not read."""

    code = "KAFKA_DATA_LOST"


class KafkaTopicMissingError(OptionError):
    """A topic of the job does not exist."""

    code = "KAFKA_TOPIC_MISSING"


class KafkaOffsetsError(OptionError):
    """startingOffsets do not fit the partitions of the topics."""

    code = "KAFKA_STARTING_OFFSETS"


class KafkaUnreachableError(BucketlineError):
    """No broker answers."""

    code = "KAFKA_UNREACHABLE"


class KafkaRefusedError(BucketlineError):
    """Kafka refuses the job's login or its request."""

    code = "KAFKA_REFUSED"


class KafkaReaderError(BucketlineError):
    """Tasks cannot read Kafka themselves in this application."""

    code = "KAFKA_READER"


def records_removed(topics: str, where: str) -> KafkaDataLostError:
    """Returns the error for records that were removed before they were read. `topics` are the names of the topics,
    separated by commas; `where` says the offsets, if they are known.
    """
    return KafkaDataLostError(
        f"Kafka has removed records of {named(topics)} before they were read{f' ({where})' if where else ''}: the "
        "topic's retention is shorter than the time by which the job was behind. Nothing was skipped. To go on "
        "without these records, run the job once with --set source.options.failOnDataLoss=false (docs/kafka.md)",
        topics=topics,
    )


def topic_missing(topics: str, servers: str) -> KafkaTopicMissingError:
    """Returns the error for a topic that the brokers do not know."""
    return KafkaTopicMissingError(
        f"{named(topics)} does not exist at {servers}: create it, or correct source.options.subscribe; a topic "
        "that was deleted and created again needs a new checkpoint (docs/kafka.md)",
        topics=topics,
    )


def refused(servers: str, why: str, topics: str) -> KafkaRefusedError:
    """Returns the error for a login or a request that Kafka does not accept. `why` is Kafka's reason."""
    return KafkaRefusedError(
        f"Kafka at {servers} refuses the job ({why[:300]}): check the options "
        f"kafka.security.protocol and kafka.sasl.*, and whether this user may read {named(topics)}",
        topics=topics,
    )


def unreachable(servers: str) -> KafkaUnreachableError:
    """Returns the error for brokers that do not answer."""
    return KafkaUnreachableError(
        f"no broker answers at {servers}: check source.options.{SERVERS}, the network and "
        "kafka.security.protocol; nothing was lost; run the job again",
        servers=servers,
    )


def named(topics: str) -> str:
    """Returns a phrase for messages: `topic a` for one name, `one of the topics a,b` for names separated by commas."""
    return f"one of the topics {topics}" if "," in topics else f"topic {topics}"
