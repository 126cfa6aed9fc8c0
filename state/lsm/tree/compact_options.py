"""The table options that decide what is compacted, parsed into one object.

Source: Paimon 2.0 CoreOptions, OffPeakHours, LookupStrategy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketline.conf.errors import OptionError
from bucketline.conf.table.changelog_options import ChangelogProducer
from bucketline.conf.table.choices import FileFormat, LookupCompact
from bucketline.conf.table.compaction_options import COMPACTION_TRIGGER
from bucketline.conf.table.merge_options import MergeEngine
from bucketline.conf.table.table_settings import TableSettings

_UNSET = TableSettings({})


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """The options of a table that decide which files are compacted: one attribute for each option. Sizes are in bytes,
    intervals in milliseconds, and hours from 0 to 23, or -1 if unset.

    `lookup_cause` is the name of the option that makes compactions look up older values; None if no option does.
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
    changelog_producer: ChangelogProducer = _UNSET.changelog.producer
    merge_engine: MergeEngine = _UNSET.merge.engine
    has_sequence_field: bool = False
    file_format: FileFormat = FileFormat.PARQUET
    file_format_per_level: Mapping[int, FileFormat] = field(default_factory=dict)
    target_file_bytes: int = 128 << 20
    small_file_ratio: float = 0.7

    @staticmethod
    def of(settings: TableSettings) -> "CompactOptions":
        """Returns the compaction options of a table with a primary key. Raises OptionError, which names the option, for
        a value that is not valid.
        """
        compaction, trigger = settings.compaction, settings.compaction.trigger
        if trigger < 1:
            key = COMPACTION_TRIGGER.key
            raise OptionError(f"'{key}' = {trigger} must be at least 1", key=key, value=trigger)
        interval = compaction.lookup_max_interval
        return CompactOptions(
            compaction_trigger=trigger,
            stop_trigger=compaction.stop_trigger,
            num_levels=compaction.num_levels,
            max_size_amplification_percent=compaction.max_size_amplification_percent,
            size_ratio=compaction.size_ratio,
            offpeak_start_hour=compaction.offpeak_start_hour,
            offpeak_end_hour=compaction.offpeak_end_hour,
            offpeak_ratio=compaction.offpeak_ratio,
            optimization_interval_ms=compaction.optimization_interval_ms,
            total_size_threshold_bytes=compaction.total_size_threshold_bytes,
            incremental_size_threshold_bytes=compaction.incremental_size_threshold_bytes,
            force_up_level0=compaction.force_up_level0,
            force_rewrite_all_files=compaction.force_rewrite_all_files,
            lookup_cause=settings.lookup_cause,
            lookup_compact=compaction.lookup,
            lookup_compact_max_interval=max(trigger, 2 * trigger if interval is None else interval),
            deletion_vectors=settings.changelog.deletion_vectors,
            changelog_producer=settings.changelog.producer,
            merge_engine=settings.merge.engine,
            has_sequence_field=bool(settings.merge.sequence_fields),
            file_format=settings.files.format,
            file_format_per_level=settings.files.format_per_level,
            target_file_bytes=settings.files.target_bytes(has_primary_key=True),
            small_file_ratio=compaction.small_file_ratio,
        )

    @property
    def waits_for_runs(self) -> bool:
        """Returns True if no files are chosen for compaction before the number of sorted runs reaches the trigger."""
        others = (self.optimization_interval_ms, self.total_size_threshold_bytes, self.incremental_size_threshold_bytes)
        return self.lookup_cause is None and not self.force_up_level0 and all(o is None for o in others)

    def format_of(self, level: int) -> FileFormat:
        """Returns the file format in which data files are written on a level."""
        return self.file_format_per_level.get(level, self.file_format)

    @property
    def logs_changes(self) -> bool:
        """Returns True if compactions write changelog files."""
        return self.changelog_producer.logs_compactions

    @property
    def small_file_bytes(self) -> int:
        """Returns the size in bytes below which a compaction merges a file with its neighbours, instead of moving it to
        a higher level unchanged.
        """
        return int(self.target_file_bytes * self.small_file_ratio)

    def size_ratio_at(self, hour: int) -> int:
        """Returns a percentage that decides whether a compaction also takes the next sorted run. Example: the
        percentage is 1, and the runs before the next run have 100 MB together. Then a next run of up to 101 MB is
        taken, and a larger one is not. `hour` is the hour of the day (0 to 23) in the time zone of the writer.
        """
        start, end = self.offpeak_start_hour, self.offpeak_end_hour
        if start == end or start < 0 or end < 0:
            return self.size_ratio
        offpeak = start <= hour < end if start < end else hour >= start or hour < end
        return self.size_ratio + (self.offpeak_ratio if offpeak else 0)
