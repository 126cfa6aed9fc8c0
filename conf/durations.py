"""Durations in options. A duration from a user must have a unit; a duration in a table is read as Paimon reads it.

Paimon reads a number without a unit as milliseconds, so a `1` that was meant as a day would be a millisecond. Durations
without a unit are still read if they are stored in a table. But for new tables, changes of options, jobs and the
command line, durations must have a unit. Source: Paimon 2.0 TimeUtils.parseDuration; CoreOptions, CatalogOptions,
FlinkConnectorOptions for the keys.
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
"""Paimon's table options that are durations, including those that bucketline does not use."""


def check_given_durations(options: Mapping[str, str], *, origin: str = "the given options") -> None:
    """Raises OptionError if a user gives a duration without a unit. `options` are the table options of the user.
    `origin` is a phrase for the error, and says where these options come from.
    """
    for key in sorted(DURATION_KEYS & options.keys()):
        text = options[key]
        if text.strip().isdigit():
            raise OptionError(
                f"option '{key}' = {text!r} in {origin} has no unit; write {with_units(text)}", key=key, value=text
            )


def timedelta_of(duration_ms: int) -> timedelta:
    """Returns the duration as a Python timedelta. Raises OptionError if it is too long for a timedelta."""
    try:
        return timedelta(milliseconds=duration_ms)
    except OverflowError as e:
        raise OptionError(
            f"{duration_ms} ms is longer than {timedelta.max.days:,} days, the longest duration that is supported",
            value=duration_ms,
        ) from e
