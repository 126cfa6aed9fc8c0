"""Durations in options. A duration from a user must have a unit; a duration in a table is read as Paimon reads it.

Paimon reads a bare number as milliseconds, so a `1` that was meant as a day would be a millisecond. Options that are
stored in a table stay readable. New tables, changes of options, jobs and the command line must give the unit. Source:
Paimon 2.0 TimeUtils.parseDuration; CoreOptions, CatalogOptions, FlinkConnectorOptions for the keys.
"""

from collections.abc import Mapping
from datetime import timedelta

from bucketline.conf.errors import OptionError
from bucketline.conf.option import with_units

DURATION_KEYS = frozenset(
    {
        "changelog-producer.compaction-interval",
        "changelog.time-retained",
        "clustering.history-partition.idle-to-full-sort",
        "commit.max-retry-wait",
        "commit.min-retry-wait",
        "commit.timeout",
        "compaction.optimization-interval",
        "consumer.expiration-time",
        "continuous.discovery-interval",
        "cross-partition-upsert.index-ttl",
        "lock-acquire-timeout",
        "lock-check-max-sleep",
        "lookup.cache-file-retention",
        "lookup.continuous.discovery-interval",
        "lookup.dynamic-partition.refresh-interval",
        "partition.expiration-check-interval",
        "partition.expiration-time",
        "partition.idle-time-to-done",
        "partition.idle-time-to-report-statistic",
        "partition.time-interval",
        "record-level.expire-time",
        "scan.plan-auto-tag-for-read.time-retained",
        "scan.watermark.alignment.max-drift",
        "scan.watermark.alignment.update-interval",
        "scan.watermark.idle-timeout",
        "snapshot.time-retained",
        "snapshot.watermark-idle-timeout",
        "source.checkpoint-align.timeout",
        "streaming.read.snapshot.delay",
        "tag.creation-delay",
        "tag.creation-period-duration",
        "tag.default-time-retained",
        "visibility-callback.check-interval",
        "visibility-callback.timeout",
    }
)
"""The table options of Paimon that are durations, whether bucketline honours them or not."""


def check_given_durations(options: Mapping[str, str], *, origin: str = "the given options") -> None:
    """Checks that each duration among the table options that a user gives has a unit. Raises OptionError if a duration
    has no unit.
    """
    for key in sorted(DURATION_KEYS & options.keys()):
        text = options[key]
        if text.strip().isdigit():
            raise OptionError(
                f"option '{key}' = {text!r} in {origin} has no unit; write {with_units(text)}", key=key, value=text
            )


def timedelta_of(duration_ms: int) -> timedelta:
    """The duration as a Python timedelta. Raises OptionError where it is longer than Python can count."""
    try:
        return timedelta(milliseconds=duration_ms)
    except OverflowError as e:
        raise OptionError(f"{duration_ms} ms is longer than {timedelta.max.days:,} days", value=duration_ms) from e
