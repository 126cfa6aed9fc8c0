"""The table options that decide what is compacted, read once.

Source: Paimon 2.0 CoreOptions, OffPeakHours, LookupStrategy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from bucketline.conf import file_options, table_options
from bucketline.conf.changelog_options import CHANGELOG_PRODUCER, DELETION_VECTORS, FORCE_LOOKUP
from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_int

MAX_LEVELS = 1024
"""Levels a bucket may have. A trigger set to a huge number, to stop compaction, would ask for as many levels."""


class LookupCompact(Enum):
    RADICAL = "radical"
    GENTLE = "gentle"


LOOKUP_COMPACT = Option(
    "lookup-compact", parse_enum(LookupCompact), LookupCompact.RADICAL, "empty level 0 always, or only now and then"
)
LOOKUP_COMPACT_MAX_INTERVAL = Option(
    "lookup-compact.max-interval", parse_int, None, "gentle: triggers without a pick until level 0 is emptied"
)


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """What picking and planning need to know of a table. Sizes in bytes, intervals in ms, hours in 0..23 or -1.

    `lookup_cause` is the option that makes compaction look up older values, None where none does.
    """

    compaction_trigger: int = 5
    stop_trigger: int = 8
    num_levels: int = 6
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    offpeak_start_hour: int = -1
    offpeak_end_hour: int = -1
    offpeak_ratio: int = 0
    optimization_interval_ms: int | None = None
    total_size_threshold_bytes: int | None = None
    incremental_size_threshold_bytes: int | None = None
    force_up_level0: bool = False
    force_rewrite_all_files: bool = False
    lookup_cause: str | None = None
    lookup_compact: LookupCompact = LookupCompact.RADICAL
    lookup_compact_max_interval: int = 10
    deletion_vectors: bool = False
    changelog_producer: str = "none"
    merge_engine: str = "deduplicate"
    has_sequence_field: bool = False
    file_format: str = "parquet"
    file_format_per_level: Mapping[str, str] = field(default_factory=dict)
    target_file_bytes: int = 128 << 20
    small_file_ratio: float = 0.7

    @staticmethod
    def from_options(options: Mapping[str, str]) -> "CompactOptions":
        """The settings that a primary-key table's options name. Raises OptionError, naming the key."""
        trigger = table_options.COMPACTION_TRIGGER.get(options)
        interval = LOOKUP_COMPACT_MAX_INTERVAL.find(options)
        if trigger < 1:
            raise OptionError(f"'num-sorted-run.compaction-trigger' = {trigger} must be at least 1", value=trigger)
        return CompactOptions(
            compaction_trigger=trigger,
            stop_trigger=table_options.stop_trigger(options),
            num_levels=_num_levels(options),
            max_size_amplification_percent=table_options.MAX_SIZE_AMPLIFICATION.get(options),
            size_ratio=table_options.SIZE_RATIO.get(options),
            offpeak_start_hour=_hour(table_options.OFFPEAK_START_HOUR, options),
            offpeak_end_hour=_hour(table_options.OFFPEAK_END_HOUR, options),
            offpeak_ratio=table_options.OFFPEAK_RATIO.get(options),
            optimization_interval_ms=table_options.OPTIMIZATION_INTERVAL.find(options),
            total_size_threshold_bytes=table_options.TOTAL_SIZE_THRESHOLD.find(options),
            incremental_size_threshold_bytes=table_options.INCREMENTAL_SIZE_THRESHOLD.find(options),
            force_up_level0=table_options.FORCE_UP_LEVEL_0.get(options),
            force_rewrite_all_files=table_options.FORCE_REWRITE_ALL_FILES.get(options),
            lookup_cause=_lookup_cause(options),
            lookup_compact=LOOKUP_COMPACT.get(options),
            lookup_compact_max_interval=max(trigger, 2 * trigger if interval is None else interval),
            deletion_vectors=DELETION_VECTORS.get(options),
            changelog_producer=CHANGELOG_PRODUCER.get(options),
            merge_engine=table_options.MERGE_ENGINE.get(options),
            has_sequence_field=bool(table_options.SEQUENCE_FIELD.get(options)),
            file_format=file_options.FILE_FORMAT.get(options),
            file_format_per_level=file_options.FILE_FORMAT_PER_LEVEL.get(options),
            target_file_bytes=table_options.target_file_size(options, has_primary_key=True),
            small_file_ratio=table_options.SMALL_FILE_RATIO.get(options),
        )

    @property
    def waits_for_runs(self) -> bool:
        """True when nothing is picked before the number of runs reaches the trigger."""
        others = (self.optimization_interval_ms, self.total_size_threshold_bytes, self.incremental_size_threshold_bytes)
        return self.lookup_cause is None and not self.force_up_level0 and all(o is None for o in others)

    def format_of(self, level: int) -> str:
        """The format of data files that are written on a level."""
        return self.file_format_per_level.get(str(level), self.file_format).lower()

    @property
    def logs_changes(self) -> bool:
        """Whether compactions write changelog files."""
        return self.changelog_producer in ("full-compaction", "lookup")

    @property
    def small_file_bytes(self) -> int:
        """Files below this are merged with their neighbours rather than moved up as they are."""
        return int(self.target_file_bytes * self.small_file_ratio)

    def size_ratio_at(self, hour: int) -> int:
        """Percent of slack when sizes are compared, at an hour of the day in 0..23 where the writer runs."""
        start, end = self.offpeak_start_hour, self.offpeak_end_hour
        if start == end or start < 0 or end < 0:
            return self.size_ratio
        offpeak = start <= hour < end if start < end else hour >= start or hour < end
        return self.size_ratio + (self.offpeak_ratio if offpeak else 0)


def _num_levels(options: Mapping[str, str]) -> int:
    found = table_options.num_levels(options)
    if not table_options.NUM_LEVELS.is_set(options):
        return min(found, MAX_LEVELS)
    if not 2 <= found <= MAX_LEVELS:
        raise OptionError(f"'num-levels' = {found} must be between 2 and {MAX_LEVELS}", key="num-levels", value=found)
    return found


def _hour(option: Option[int], options: Mapping[str, str]) -> int:
    found = option.get(options)
    if not -1 <= found <= 23:
        raise OptionError(f"'{option.key}' = {found} is no hour of the day (0 to 23, -1 for off)", key=option.key)
    return found


def _lookup_cause(options: Mapping[str, str]) -> str | None:
    if table_options.MERGE_ENGINE.get(options) == "first-row":
        return "merge-engine"
    if CHANGELOG_PRODUCER.get(options) == "lookup":
        return "changelog-producer"
    for option in (DELETION_VECTORS, FORCE_LOOKUP):
        if option.get(options):
            return option.key
    return None
