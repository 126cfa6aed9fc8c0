"""Checks the values of options of a Kafka source. Without these checks Spark would refuse the values only after it has
started, and its errors do not name the option. `endingTimestamp` is refused too, which Spark ignores in a stream.

A value that contains a reference, such as `${env:START}`, is not checked before the reference is replaced.
Source: Spark 3.5 to 4.2 KafkaSourceProvider, JsonUtils.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from bucketline.conf.errors import OptionError
from bucketline.conf.job_file.references import has_reference
from bucketline.conf.option import parse_bool
from bucketline.conf.wording import shortened

_START: Final = "startingTimestamp"
_AT_LEAST_ONE: Final = ("maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition")
_NUMBERS: Final = (
    *_AT_LEAST_ONE,
    *("minOffsetsPerTrigger", _START),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"),
)
_HEADERS: Final = "includeHeaders"
_ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_OFFSETS, _TIMES = "startingOffsets", "startingOffsetsByTimestamp"
_WORDS: Final = ("earliest", "latest")
_STRATEGY, _STRATEGIES = "startingOffsetsByTimestampStrategy", ("error", "latest")
_WHOLE = re.compile(r"\d{1,19}")
_LARGEST: Final = (1 << 63) - 1


def check_kafka_values(options: Mapping[str, str]) -> None:
    """Raises OptionError, which names the option, for a value that Spark's Kafka source does not take in a stream."""
    names = {name.lower(): name for name in (*_NUMBERS, *_ENDINGS, _HEADERS, _OFFSETS, _TIMES, _STRATEGY)}
    for key, text in options.items():
        name = names.get(key.lower())
        if name is None or has_reference(text):
            continue
        if name in _ENDINGS:
            raise _wrong(key, text, "a stream has no end; remove the option, and set 'trigger' to availableNow")
        if name in _NUMBERS:
            # Spark removes blanks around the number of startingTimestamp, but not around other numbers.
            _check_number(key, text.strip() if name == _START else text, 1 if name in _AT_LEAST_ONE else 0)
        elif name == _HEADERS:
            _check_switch(key, text)
        elif name == _STRATEGY:
            if text.lower() not in _STRATEGIES:
                raise _wrong(key, text, f"must be one of {', '.join(_STRATEGIES)}")
        else:
            _check_positions(name, key, text)


def _check_number(key: str, text: str, least: int) -> None:
    if _WHOLE.fullmatch(text) is None or int(text) < least:
        raise _wrong(key, text, f"must be a whole number from {least} on")
    if int(text) > _LARGEST:
        raise _wrong(key, text, f"must be at most {_LARGEST}")


def _check_switch(key: str, text: str) -> None:
    try:
        parse_bool(text)
    except OptionError as e:
        raise _wrong(key, text, e.message) from e


def _check_positions(name: str, key: str, text: str) -> None:
    """Checks the text of an option that gives a number for each topic partition: an offset, or a time in milliseconds.
    The option `startingOffsets` also takes the words `earliest` and `latest`.
    """
    if name == _OFFSETS and text.strip().lower() in _WORDS:
        return
    words = f"must be {', '.join(_WORDS)}, or" if name == _OFFSETS else "must be"
    try:
        topics = json.loads(text)
    except (ValueError, RecursionError):
        topics = None
    if not isinstance(topics, dict) or not all(_are_numbers(partitions) for partitions in topics.values()):
        raise _wrong(
            key,
            text,
            f'{words} a JSON object of topics with a number for each partition, as {{"orders": {{"0": 120}}}}',
        )


def _are_numbers(partitions: object) -> bool:
    return isinstance(partitions, dict) and all(
        _WHOLE.fullmatch(partition) is not None and isinstance(number, int) and not isinstance(number, bool)
        for partition, number in partitions.items()
    )


def _wrong(key: str, text: str, what: str) -> OptionError:
    return OptionError(f"source.options.{key} = {shortened(text)!r}: {what}", key=f"source.options.{key}")
