"""Paimon's options for tags that writers create, and for how long tags are kept.
Source: Paimon 2.0 CoreOptions, TagAutoCreation, TagPeriodHandler, TagBatchCreation.
"""

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_bool, parse_duration, parse_enum, parse_int, parse_name_part
from bucketline.conf.table.choices import TagCreation, TagFormat, TagPeriod


def _zone(text: str) -> str:
    try:
        ZoneInfo(text.strip())
    except (ValueError, OSError, LookupError) as e:
        raise OptionError("must be the name of a time zone, for example 'Europe/Berlin' or 'UTC'", value=text) from e
    return text.strip()


TAG_AUTOMATIC_CREATION = Option(
    "tag.automatic-creation", parse_enum(TagCreation), TagCreation.NONE, "which writers create tags, and by which clock"
)
TAG_CREATION_PERIOD = Option("tag.creation-period", parse_enum(TagPeriod), TagPeriod.DAILY, "time between two tags")
TAG_PERIOD_DURATION: Option[int] = Option(
    "tag.creation-period-duration", parse_duration, None, "milliseconds between two tags; replaces tag.creation-period"
)
TAG_CREATION_DELAY = Option(
    "tag.creation-delay", parse_duration, 0, "milliseconds to wait for late rows after a period"
)
TAG_PERIOD_FORMATTER = Option(
    "tag.period-formatter", parse_enum(TagFormat), TagFormat.WITH_DASHES, "how the time in the name of a tag is written"
)
TAG_NUM_RETAINED_MAX: Option[int] = Option(
    "tag.num-retained-max", parse_int, None, "largest number of automatic tags that are kept; the oldest are removed"
)
TAG_DEFAULT_TIME_RETAINED: Option[int] = Option(
    "tag.default-time-retained", parse_duration, None, "how long a tag is kept by default, in milliseconds"
)
TAG_TIME_EXPIRE_ENABLED = Option(
    "tag.time-expire-enabled", parse_bool, True, "tags are removed when their lifetime has ended"
)
TAG_AUTOMATIC_COMPLETION = Option(
    "tag.automatic-completion", parse_bool, False, "periods without a snapshot also get a tag"
)
TAG_BATCH_NAME: Option[str] = Option(
    "tag.batch.customized-name",
    parse_name_part,
    None,
    "name of the tag that each batch write creates for its snapshot, or moves to it",
)
TAG_SUCCESS_FILE = Option(
    "tag.create-success-file", parse_bool, False, "a _SUCCESS file is written for each created tag"
)
PROCESS_TIME_ZONE: Option[str] = Option(
    "sink.process-time-zone", _zone, None, "time zone of tags by process time; default: the time zone of the machine"
)
WATERMARK_TIME_ZONE = Option("sink.watermark-time-zone", _zone, "UTC", "time zone of tags by watermark")

TAG_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""

PERIOD_MS: Mapping[TagPeriod, int] = {
    TagPeriod.DAILY: 86_400_000,
    TagPeriod.HOURLY: 3_600_000,
    TagPeriod.TWO_HOURS: 7_200_000,
}


def tag_period_ms(options: Mapping[str, str]) -> int:
    """Returns the time between two tags that writers create, in milliseconds."""
    period_ms = TAG_PERIOD_DURATION.find(options)
    return PERIOD_MS[TAG_CREATION_PERIOD.get(options)] if period_ms is None else period_ms


def check_tag_options(options: Mapping[str, str]) -> None:
    """Raises OptionError, which names one of the options, if the options for tags contradict each other."""
    period = tag_period_ms(options)
    if period < 1:
        raise OptionError(f"'{TAG_PERIOD_DURATION.key}' must be greater than 0", key=TAG_PERIOD_DURATION.key)
    if TAG_CREATION_DELAY.get(options) >= period:
        raise OptionError(
            f"'{TAG_CREATION_DELAY.key}' must be less than the time between two tags", key=TAG_CREATION_DELAY.key
        )
    most = TAG_NUM_RETAINED_MAX.find(options)
    if most is not None and most < 1:
        raise OptionError(f"'{TAG_NUM_RETAINED_MAX.key}' should be at least 1", key=TAG_NUM_RETAINED_MAX.key)
