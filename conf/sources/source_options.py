"""The options that Spark gets for the source of a job. Some defaults differ from Spark's, because Spark's defaults
would lose records or read too many.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketline.conf.errors import OptionError
from bucketline.conf.job import RecordFormat, SourceConfig
from bucketline.conf.option import nearest, parse_bool
from bucketline.conf.secrets import mask_text
from bucketline.conf.sources.kafka_values import check_kafka_values
from bucketline.conf.sources.known_options import (
    KAFKA_OPTIONS,
    SERVERS,
    refuse_mistyped_kafka,
    refuse_mistyped_listing,
)
from bucketline.conf.wording import shortened

KAFKA = "kafka"
PARQUET = "parquet"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
MAX_OFFSETS = "maxOffsetsPerTrigger"
STARTING_OFFSETS = "startingOffsets"
INCLUDE_HEADERS = "includeHeaders"
SCHEMA = "schema"
"""An option of bucketline, not of Spark: the columns of files in Spark's DDL. The default is the columns of the
table.
"""

_PATTERN, _ASSIGN = "subscribePattern", "assign"
TOPIC_OPTIONS = ("subscribe", _PATTERN, _ASSIGN)

MAX_OFFSETS_DEFAULT = "1000000"
"""The default of the largest number of records in a batch. Without a limit, the first batch of a job would read the
whole topic.
"""

_MODE = "mode"
_FAIL_FAST = "FAILFAST"
_STARTS = (STARTING_OFFSETS, "startingTimestamp", "startingOffsetsByTimestamp")
_STREAM_ONLY = frozenset(("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "endingoffsets"))
"""Options of a Kafka source, in lower case, that only streams may have, and not a read of a fixed range of records."""
EARLIEST, LATEST = "earliest", "latest"
_LATEST_IN_JSON = "-1"
PARSED_FORMATS = ("json", "csv", PARQUET, "orc", "xml", "avro")
"""Source formats that Spark itself reads into columns. They need a schema."""

_MAY_BE_MALFORMED = ("json", "csv", "xml")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options that Spark's source gets, and a sentence of advice about each option that needs advice."""

    options: Mapping[str, str]
    advice: tuple[str, ...] = ()


def source_options(source: SourceConfig) -> SourceOptions:
    """Returns the options that Spark gets for a source, including defaults. Raises OptionError for missing or invalid
    options.
    """
    if source.decode is not RecordFormat.NONE and source.format in PARSED_FORMATS:
        raise OptionError(
            f"source.decode = {source.decode.value} reads a column 'value', but Spark reads format {source.format!r} "
            "into columns itself; remove source.decode, or use format text",
            key="source.decode",
        )
    if source.format == KAFKA:
        return _kafka(source.options)
    if source.format in (*PARSED_FORMATS, "text"):
        refuse_mistyped_listing(source.options, (SCHEMA,))
    if source.format in _MAY_BE_MALFORMED and find_option(source.options, _MODE) is None:
        return SourceOptions({**source.options, _MODE: _FAIL_FAST})
    return SourceOptions(source.options)


def find_option(options: Mapping[str, str], name: str) -> str | None:
    """Returns the text of one of Spark's options; None if it is not set. The case of names does not matter."""
    return next((text for key, text in options.items() if key.lower() == name.lower()), None)


def most_records(options: Mapping[str, str]) -> int | None:
    """Returns the largest number of records in a batch of a Kafka source. Returns None if no limit is set, or if the
    limit is no valid number; Spark refuses such a limit.
    """
    text = (find_option(options, MAX_OFFSETS) or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def source_identity(source: SourceConfig) -> str | None:
    """Returns the name by which the job's snapshots identify the source; None for sources that have no name. The name
    contains no secrets.
    """
    servers = find_option(source.options, SERVERS) if source.format == KAFKA else None
    if servers is None:
        return None
    return mask_text("kafka://" + ",".join(sorted(part.strip() for part in servers.split(",") if part.strip())))


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """What a Kafka source reads: its servers, and its topics by name, by pattern, or with their partitions.

    `topics_text` is the text that sets the topics; None if there is none.
    """

    servers: str | None
    topics: tuple[str, ...]
    pattern: str | None
    assigned: Mapping[str, Sequence[int]]
    topics_text: str | None

    def reads(self, topic: str) -> bool:
        """Returns True if the source reads a topic. With a pattern, Spark reads each topic whose name contains a match.

        Raises OptionError for a pattern that Python cannot read, although Spark may read it.
        Source: Spark 3.5 to 4.2 SubscribePatternStrategy.assignedTopicPartitions.
        """
        if self.topics:
            return topic in self.topics
        if self.pattern is not None:
            try:
                return re.search(self.pattern, topic) is not None
            except re.error as e:
                key = f"source.options.{_PATTERN}"
                raise OptionError(
                    f"{key} = {self.pattern!r} cannot be read as a regular expression of Python: {e}; write it in a "
                    "way that Java and Python both read, as [A-Za-z] for \\p{Alpha}",
                    key=key,
                ) from e
        return topic in self.assigned

    def reads_partition(self, topic: str, partition: int) -> bool:
        """Returns True if the source reads a partition of a topic."""
        return self.reads(topic) and (topic not in self.assigned or partition in self.assigned[topic])


def kafka_source(options: Mapping[str, str]) -> KafkaSource:
    """Returns the servers and topics that a Kafka source with these options reads."""
    names, pattern, assigned = (find_option(options, name) for name in TOPIC_OPTIONS)
    return KafkaSource(
        servers=find_option(options, SERVERS),
        topics=tuple(name.strip() for name in (names or "").split(",") if name.strip()),
        pattern=None if pattern is None else pattern.strip(),
        assigned=json.loads(assigned or "{}"),
        topics_text=next((text for text in (names, pattern, assigned) if text is not None), None),
    )


def with_headers(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options with one more option, which asks Spark for the headers of records. If the options already say
    whether headers are included, they are returned unchanged.
    """
    extended = dict(options)
    if find_option(options, INCLUDE_HEADERS) is None:
        extended[INCLUDE_HEADERS] = "true"
    return extended


def gives_headers(options: Mapping[str, str]) -> bool:
    """Returns True if a Kafka source with these options reads headers."""
    return (find_option(options, INCLUDE_HEADERS) or "false").lower() == "true"


def start_at(options: Mapping[str, str], offsets: str) -> dict[str, str]:
    """Returns the options with another start position. `offsets` has the offset of each topic partition in Spark's JSON
    format.
    """
    others = {key: text for key, text in options.items() if key.lower() not in [s.lower() for s in _STARTS]}
    return {**others, STARTING_OFFSETS: offsets}


def begins_at_latest(options: Mapping[str, str]) -> bool:
    """Returns True if a new query with these options begins after the newest record, as Spark does by default.

    If both a time and `latest` are set, Spark uses the time.
    """
    starts = [text for text in (find_option(options, name) for name in _STARTS) if text is not None]
    return all(text.strip().lower() == LATEST for text in starts)


def starts_at(options: Mapping[str, str]) -> object:
    """Returns where a new query begins: `earliest`, `latest`, or Spark's JSON of topic, partition and offset.

    Returns None if the options set a start time.
    """
    if begins_at_latest(options):
        return LATEST
    start = find_option(options, STARTING_OFFSETS)
    if start is None or any(find_option(options, name) is not None for name in _STARTS if name != STARTING_OFFSETS):
        return None
    return EARLIEST if start.strip().lower() == EARLIEST else json.loads(start)


def first_records(source_format: str, options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options for a batch read of Spark that returns the first records of the source: the records that a
    stream with `options` would read first.

    If a stream would begin after the newest record in Kafka, the batch read begins at the oldest record instead.
    """
    if source_format != KAFKA:
        return dict(options)
    kept = {key: text for key, text in options.items() if key.lower() not in _STREAM_ONLY}
    start = find_option(options, STARTING_OFFSETS) or ""
    if begins_at_latest(options) or _LATEST_IN_JSON in start:
        kept = start_at(kept, EARLIEST)
    return {**kept, FAIL_ON_DATA_LOSS: "false"}


def fails_on_data_loss(options: Mapping[str, str]) -> bool:
    """Returns True if a query stops when Kafka has deleted records before the query read them. By default, queries
    stop.
    """
    text = find_option(options, FAIL_ON_DATA_LOSS)
    return text is None or _read_bool(FAIL_ON_DATA_LOSS, text)


def _kafka(options: Mapping[str, str]) -> SourceOptions:
    if find_option(options, SERVERS) is None:
        raise OptionError(
            f"source.options.{SERVERS} is required and not set: set it to the brokers, as host:port,host:port"
            f"{_mistyped(options, (SERVERS,))}",
            key=SERVERS,
        )
    topic_options = [name for name in TOPIC_OPTIONS if find_option(options, name) is not None]
    if len(topic_options) != 1:
        raise OptionError(
            f"a Kafka source needs exactly one of {', '.join(TOPIC_OPTIONS)} in source.options, and has "
            f"{', '.join(topic_options) or 'none' + _mistyped(options, TOPIC_OPTIONS)}",
            key="source.options.subscribe",
        )
    _check_assigned(find_option(options, _ASSIGN))
    check_kafka_values(options)
    completed, advice = dict(options), list(refuse_mistyped_kafka(options))
    loss = find_option(options, FAIL_ON_DATA_LOSS)
    if loss is None:
        completed[FAIL_ON_DATA_LOSS] = "true"
    elif not _read_bool(FAIL_ON_DATA_LOSS, loss):
        advice.append(
            f"{FAIL_ON_DATA_LOSS} = {loss}: records that Kafka deleted before they were read are skipped without an "
            "error, and the table will not have them"
        )
    if find_option(options, MAX_OFFSETS) is None:
        completed[MAX_OFFSETS] = MAX_OFFSETS_DEFAULT
    return SourceOptions(completed, tuple(advice))


def _mistyped(options: Mapping[str, str], missing: Sequence[str]) -> str:
    """Returns the end of an error message about missing options: it names an unknown option that is spelled like a
    missing option, and suggests the missing option. Returns an empty string if there is no such option.
    """
    names = {name.lower(): name for name in missing}
    known = {name.lower() for name in KAFKA_OPTIONS}
    for key in options:
        near = None if key.lower() in known else nearest(key.lower(), names, cutoff=0.8)
        if near is not None:
            return f"; 'source.options.{key}' is unknown; did you mean '{names[near]}'?"
    return ""


def _check_assigned(text: str | None) -> None:
    try:
        topics = json.loads(text or "{}")
    except (ValueError, RecursionError):
        topics = None
    if not isinstance(topics, dict) or not all(
        isinstance(numbers, list) and all(isinstance(n, int) and 0 <= n < 2**31 for n in numbers)
        for numbers in topics.values()
    ):
        raise OptionError(
            f"source.options.{_ASSIGN} = {shortened(text or '')!r} is no JSON object of topics and their partitions, "
            'as {"orders": [0, 1]}',
            key=f"source.options.{_ASSIGN}",
        )


def _read_bool(key: str, text: str) -> bool:
    try:
        return parse_bool(text)
    except OptionError as e:
        raise OptionError(f"source.options.{key} = {text!r}: {e.message}", key=key) from e
