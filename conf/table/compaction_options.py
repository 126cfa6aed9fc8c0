"""Paimon's options for compaction: when a compaction starts, which files a compaction takes, and which of these files
it rewrites.

Source: Paimon 2.0 CoreOptions, OffPeakHours, LookupStrategy.
"""

from collections.abc import Mapping
from typing import Any

from bucketline.conf.option import (
    Option,
    parse_bool,
    parse_duration,
    parse_enum,
    parse_float,
    parse_hour,
    parse_int,
    parse_size,
)
from bucketline.conf.table.choices import LookupCompact

WRITE_ONLY = Option(
    "write-only", parse_bool, False, "a writer neither compacts nor expires", ("write.compaction-skip",)
)
COMPACTION_TRIGGER = Option(
    "num-sorted-run.compaction-trigger", parse_int, 5, "number of sorted runs in a bucket at which a compaction starts"
)
STOP_TRIGGER = Option("num-sorted-run.stop-trigger", parse_int, None, "largest number of sorted runs in a bucket")
NUM_LEVELS = Option("num-levels", parse_int, None, "number of levels, including level 0")
MAX_SIZE_AMPLIFICATION = Option(
    "compaction.max-size-amplification-percent",
    parse_int,
    200,
    "a full compaction starts when the newer runs reach this percentage of the last run",
)
SIZE_RATIO = Option("compaction.size-ratio", parse_int, 1, "tolerance in percent when the sizes of runs are compared")
OFFPEAK_START_HOUR = Option(
    "compaction.offpeak.start.hour", parse_hour, -1, "first hour of the day that is off peak; -1 for none"
)
OFFPEAK_END_HOUR = Option(
    "compaction.offpeak.end.hour", parse_hour, -1, "first hour of the day that is peak again; -1 for none"
)
OFFPEAK_RATIO = Option("compaction.offpeak-ratio", parse_int, 0, "compaction.size-ratio off peak")
OPTIMIZATION_INTERVAL = Option(
    "compaction.optimization-interval", parse_duration, None, "milliseconds between two full compactions"
)
TOTAL_SIZE_THRESHOLD = Option(
    "compaction.total-size-threshold", parse_size, None, "a bucket smaller than this is always compacted fully"
)
INCREMENTAL_SIZE_THRESHOLD = Option(
    "compaction.incremental-size-threshold",
    parse_size,
    None,
    "a full compaction starts when the newer runs exceed this many bytes",
)
COMPACTION_MIN_FILE_NUM = Option(
    "compaction.min.file-num", parse_int, 5, "number of small files of an append bucket that are joined"
)
SMALL_FILE_RATIO = Option(
    "compaction.small-file-ratio",
    parse_float,
    0.7,
    "a file is rewritten if it is smaller than this share of target-file-size",
)
LOOKUP_COMPACT = Option(
    "lookup-compact",
    parse_enum(LookupCompact),
    LookupCompact.RADICAL,
    "radical: a compaction that looks older values up always empties level 0; gentle: only now and then",
)
LOOKUP_COMPACT_MAX_INTERVAL = Option(
    "lookup-compact.max-interval",
    parse_int,
    None,
    "gentle: number of skipped compactions after which level 0 is emptied",
)
LOOKUP_WAIT = Option(
    "lookup-wait",
    parse_bool,
    True,
    "a commit whose compaction failed waits until readers see its rows",
    ("changelog-producer.lookup-wait",),
)
FORCE_UP_LEVEL_0 = Option("compaction.force-up-level-0", parse_bool, False, "each compaction empties level 0")
FORCE_REWRITE_ALL_FILES = Option(
    "compaction.force-rewrite-all-files", parse_bool, False, "a full compaction rewrites every file"
)
FORCE_COMPACT = Option("commit.force-compact", parse_bool, False, "a commit waits for its compaction")
FULL_COMPACTION_DELTA_COMMITS = Option(
    "full-compaction.delta-commits", parse_int, None, "number of commits between two full compactions"
)

COMPACTION_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""


def stop_trigger(options: Mapping[str, str]) -> int:
    """Returns the largest number of sorted runs that a writer with compaction leaves in a bucket. The default is the
    compaction trigger + 3. A number below the compaction trigger counts as the compaction trigger.

    Paimon's writers wait when a bucket has this number of runs. Here a batch compacts until no bucket has more runs.
    """
    trigger, stop = COMPACTION_TRIGGER.get(options), STOP_TRIGGER.find(options)
    return max(trigger, trigger + 3 if stop is None else stop)


def num_levels(options: Mapping[str, str]) -> int:
    """Returns the number of levels of a bucket, including level 0. The default is the compaction trigger + 1."""
    levels = NUM_LEVELS.find(options)
    return COMPACTION_TRIGGER.get(options) + 1 if levels is None else levels
