"""The parsed options of a table, grouped by topic. The attribute `settings` of a schema has these options.
Source: Paimon 2.0 CoreOptions, LookupStrategy.
"""

from collections.abc import Mapping
from functools import cached_property

from bucketline.conf.errors import OptionError
from bucketline.conf.table import bucket_options as bucket
from bucketline.conf.table import changelog_options as changelog
from bucketline.conf.table import compaction_options as compaction
from bucketline.conf.table import expiry_options as expiry
from bucketline.conf.table import external_options as external
from bucketline.conf.table import file_options as files
from bucketline.conf.table import index_options as indexes
from bucketline.conf.table import merge_options as merge
from bucketline.conf.table import read_options as reading
from bucketline.conf.table import table_options as table
from bucketline.conf.table import tag_options as tags
from bucketline.conf.table.choices import FileFormat, SortOrder
from bucketline.conf.table.field_options import ColumnSettings
from bucketline.conf.table.settings import OptionalValue, OptionValue, Settings

MAX_LEVELS = 1024
"""The largest number of levels in a bucket. It is needed because the default number of levels depends on the compaction
trigger, and users set a huge trigger to stop compaction.
"""


class PathSettings(Settings):
    """Options for the location of files and the names of folders."""

    default_partition = OptionValue(table.PARTITION_DEFAULT_NAME)
    legacy_names = OptionValue(table.PARTITION_LEGACY_NAME)
    data_directory = OptionValue(reading.DATA_FILE_DIRECTORY)
    index_in_data_directory = OptionValue(reading.INDEX_IN_DATA_DIRECTORY)
    external_strategy = OptionValue(external.EXTERNAL_STRATEGY)
    external_weights = OptionalValue(external.EXTERNAL_WEIGHTS)

    @cached_property
    def external_roots(self) -> tuple[str, ...]:
        """Returns the folders outside the table for new data files."""
        return external.external_roots(self.options)

    @cached_property
    def external_paths(self) -> tuple[str, ...]:
        """Returns all folders outside the table that the options name, even if new files do not go there."""
        return external.EXTERNAL_PATHS.get(self.options)


class BucketSettings(Settings):
    """Options for how the bucket of a row is chosen."""

    count = OptionValue(table.BUCKET)
    key = OptionalValue(table.BUCKET_KEY)
    function = OptionValue(table.BUCKET_FUNCTION)
    target_rows = OptionValue(bucket.TARGET_ROW_NUM)
    initial = OptionalValue(bucket.INITIAL_BUCKETS)
    assigners = OptionalValue(bucket.ASSIGNER_PARALLELISM)
    index_ttl_ms = OptionalValue(bucket.INDEX_TTL)
    bootstrap_parallelism = OptionValue(bucket.BOOTSTRAP_PARALLELISM)

    @cached_property
    def limit(self) -> int | None:
        """Returns the largest number of buckets in a partition of a dynamic table; None if only Paimon's format limits
        the number.
        """
        return bucket.bucket_limit(self.options)


class PostponeSettings(Settings):
    """Options for the buckets that postponed rows get."""

    batch_writes_to_buckets = OptionValue(bucket.BATCH_WRITE_FIXED_BUCKET)
    most_buckets_of_batch = OptionValue(bucket.FIXED_BUCKET_MAX_PARALLELISM)
    default_buckets = OptionValue(bucket.DEFAULT_BUCKET_NUM)
    rows_per_bucket = OptionalValue(bucket.TARGET_ROWS_PER_BUCKET)
    bytes_per_bucket = OptionValue(bucket.TARGET_SIZE_PER_BUCKET)

    @cached_property
    def has_default_buckets(self) -> bool:
        """Returns True if an option sets how many buckets a partition gets in its first compaction."""
        return bucket.DEFAULT_BUCKET_NUM.is_set(self.options)


class MergeSettings(Settings):
    """Options for merging rows with the same key."""

    engine = OptionValue(merge.MERGE_ENGINE)
    sequence_fields = OptionValue(merge.SEQUENCE_FIELD)
    sequence_order = OptionValue(merge.SEQUENCE_SORT_ORDER)
    row_kind_field = OptionalValue(merge.ROWKIND_FIELD)
    ignore_delete = OptionValue(merge.IGNORE_DELETE)
    ignore_update_before = OptionValue(merge.IGNORE_UPDATE_BEFORE)
    partial_update_removes = OptionValue(merge.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE)
    removing_sequences = OptionValue(merge.REMOVE_RECORD_ON_SEQUENCE_GROUP)
    aggregation_removes = OptionValue(merge.AGGREGATION_REMOVE_RECORD_ON_DELETE)

    @property
    def newest_is_smallest(self) -> bool:
        """Returns True if, of two rows with the same key, the row with the smaller sequence fields is the newer one."""
        return self.sequence_order is SortOrder.DESCENDING


class ChangelogSettings(Settings):
    """Options for changelogs and for deletion vectors."""

    producer = OptionValue(changelog.CHANGELOG_PRODUCER)
    row_deduplicate = OptionValue(changelog.ROW_DEDUPLICATE)
    ignored_columns = OptionValue(changelog.ROW_DEDUPLICATE_IGNORE_FIELDS)
    deletion_vectors = OptionValue(changelog.DELETION_VECTORS)
    vectors_of_64_bits = OptionValue(changelog.DELETION_VECTORS_BITMAP64)
    vectors_target_bytes = OptionValue(changelog.DELETION_VECTOR_INDEX_TARGET)
    vectors_modifiable = OptionValue(changelog.DELETION_VECTORS_MODIFIABLE)
    force_lookup = OptionValue(changelog.FORCE_LOOKUP)

    @cached_property
    def file_options(self) -> Mapping[str, str]:
        """Returns the table's options for writing changelog files. If an option for changelog files is set, the result
        has its value under the key of the option for data files.
        """
        return changelog.changelog_file_options(self.options)


class DataFileSettings(Settings):
    """Options for writing data files."""

    format = OptionValue(files.FILE_FORMAT)
    format_per_level = OptionValue(files.FILE_FORMAT_PER_LEVEL)
    codec = OptionValue(files.FILE_COMPRESSION)
    codec_per_level = OptionValue(files.FILE_COMPRESSION_PER_LEVEL)
    block_bytes = OptionalValue(files.FILE_BLOCK_SIZE)
    prefix = OptionValue(files.DATA_FILE_PREFIX)
    is_thin = OptionValue(files.DATA_FILE_THIN_MODE)
    legacy_instants = OptionValue(files.ORC_LEGACY_LTZ)
    target_rows = OptionValue(table.TARGET_FILE_ROW_NUM)
    stats_mode = OptionValue(files.METADATA_STATS_MODE)
    stats_mode_per_level = OptionValue(files.METADATA_STATS_MODE_PER_LEVEL)
    dense_stats = OptionValue(files.STATS_DENSE_STORE)
    columns_with_stats = OptionValue(files.STATS_KEEP_FIRST_N_COLUMNS)

    index_in_manifest_bytes = OptionValue(indexes.IN_MANIFEST_THRESHOLD)

    @cached_property
    def bloom_columns(self) -> tuple[indexes.BloomColumn, ...]:
        """Returns the columns that get bloom filters. Raises OptionError for a parameter that cannot be read."""
        return indexes.bloom_columns(self.options)

    def format_of(self, level: int) -> FileFormat:
        """Returns the format of files on a level."""
        return self.format_per_level.get(level, self.format)

    def codec_of(self, level: int, form: FileFormat) -> tuple[str, int | None]:
        """Returns the codec of files on a level, under the name that the library for the format uses, and the
        compression level or None.
        """
        return files.file_codec(self.options, level, form)

    @cached_property
    def postponed_codec(self) -> tuple[str, int | None]:
        """Returns the compression codec and the compression level of the Avro files of the postpone bucket."""
        return files.postponed_codec(self.options)

    def target_bytes(self, *, has_primary_key: bool) -> int:
        """Returns the number of bytes after which a data file is closed."""
        return table.target_file_size(self.options, has_primary_key=has_primary_key)


class CompactionSettings(Settings):
    """Options for when buckets are compacted, and which files a compaction takes."""

    write_only = OptionValue(compaction.WRITE_ONLY)
    trigger = OptionValue(compaction.COMPACTION_TRIGGER)
    max_size_amplification_percent = OptionValue(compaction.MAX_SIZE_AMPLIFICATION)
    size_ratio = OptionValue(compaction.SIZE_RATIO)
    offpeak_start_hour = OptionValue(compaction.OFFPEAK_START_HOUR)
    offpeak_end_hour = OptionValue(compaction.OFFPEAK_END_HOUR)
    offpeak_ratio = OptionValue(compaction.OFFPEAK_RATIO)
    optimization_interval_ms = OptionalValue(compaction.OPTIMIZATION_INTERVAL)
    total_size_threshold_bytes = OptionalValue(compaction.TOTAL_SIZE_THRESHOLD)
    incremental_size_threshold_bytes = OptionalValue(compaction.INCREMENTAL_SIZE_THRESHOLD)
    min_files = OptionValue(compaction.COMPACTION_MIN_FILE_NUM)
    small_file_ratio = OptionValue(compaction.SMALL_FILE_RATIO)
    lookup = OptionValue(compaction.LOOKUP_COMPACT)
    lookup_max_interval = OptionalValue(compaction.LOOKUP_COMPACT_MAX_INTERVAL)
    waits_for_lookup = OptionValue(compaction.LOOKUP_WAIT)
    force_up_level0 = OptionValue(compaction.FORCE_UP_LEVEL_0)
    force_rewrite_all_files = OptionValue(compaction.FORCE_REWRITE_ALL_FILES)
    force_compact = OptionValue(compaction.FORCE_COMPACT)
    full_every_commits = OptionalValue(compaction.FULL_COMPACTION_DELTA_COMMITS)

    @cached_property
    def stop_trigger(self) -> int:
        """Returns the largest number of sorted runs that a writer with compaction leaves in a bucket."""
        return compaction.stop_trigger(self.options)

    @cached_property
    def num_levels(self) -> int:
        """Returns the number of levels in a bucket, including level 0. Raises OptionError for a number that is not
        possible.
        """
        levels = self.top_level + 1
        if not 2 <= levels <= MAX_LEVELS:
            key = compaction.NUM_LEVELS.key
            raise OptionError(f"'{key}' = {levels} must be between 2 and {MAX_LEVELS}", key=key, value=levels)
        return levels

    @cached_property
    def top_level(self) -> int:
        """Returns the level to which full compactions write, which is the highest."""
        levels = compaction.num_levels(self.options)
        return (levels if compaction.NUM_LEVELS.is_set(self.options) else min(levels, MAX_LEVELS)) - 1


class CommitSettings(Settings):
    """Options for publishing commits and for writing their metadata."""

    manifest_target_bytes = OptionValue(table.MANIFEST_TARGET_FILE_SIZE)
    manifest_full_threshold_bytes = OptionValue(table.MANIFEST_FULL_COMPACTION_SIZE)
    manifest_merge_min_count = OptionValue(table.MANIFEST_MERGE_MIN_COUNT)
    max_retries = OptionValue(table.COMMIT_MAX_RETRIES)
    min_wait_ms = OptionValue(table.COMMIT_MIN_RETRY_WAIT)
    max_wait_ms = OptionValue(table.COMMIT_MAX_RETRY_WAIT)
    timeout_ms = OptionValue(table.COMMIT_TIMEOUT)
    user_prefix = OptionalValue(table.COMMIT_USER_PREFIX)
    force_snapshot = OptionValue(table.FORCE_CREATE_SNAPSHOT)
    ignore_empty = OptionalValue(table.IGNORE_EMPTY_COMMIT)
    overwrites_dynamic_partitions = OptionValue(table.DYNAMIC_PARTITION_OVERWRITE)
    refuses_null_to_not_null = OptionValue(table.NULL_TO_NOT_NULL_DISABLED)
    adds_before_partition = OptionValue(table.ADD_COLUMN_BEFORE_PARTITION)

    manifest_format = OptionValue(table.MANIFEST_FORMAT)

    @cached_property
    def manifest_codec(self) -> str:
        """Returns the compression codec of manifests, under the name that the library for their format uses."""
        return table.manifest_codec(self.options)


class RetentionSettings(Settings):
    """Options for how long snapshots, changelogs and consumers are kept."""

    snapshots_min = OptionValue(table.SNAPSHOT_NUM_RETAINED_MIN)
    snapshots_max = OptionValue(table.SNAPSHOT_NUM_RETAINED_MAX)
    snapshots_ms = OptionValue(table.SNAPSHOT_TIME_RETAINED)
    changelogs_min = OptionalValue(table.CHANGELOG_NUM_RETAINED_MIN)
    changelogs_max = OptionalValue(table.CHANGELOG_NUM_RETAINED_MAX)
    changelogs_ms = OptionalValue(table.CHANGELOG_TIME_RETAINED)
    consumers_ms = OptionalValue(table.CONSUMER_EXPIRATION_TIME)
    consumers_hold_changelogs = OptionValue(table.CONSUMER_CHANGELOG_ONLY)
    expire_limit = OptionValue(table.SNAPSHOT_EXPIRE_LIMIT)


class ExpirySettings(Settings):
    """Options for when rows and partitions expire, and when partitions are marked as done. Times are in
    milliseconds.
    """

    partitions_ms = OptionalValue(expiry.PARTITION_EXPIRATION_TIME)
    strategy = OptionValue(expiry.PARTITION_EXPIRATION_STRATEGY)
    interval_ms = OptionValue(expiry.PARTITION_EXPIRATION_CHECK_INTERVAL)
    most_partitions = OptionValue(expiry.PARTITION_EXPIRATION_MAX_NUM)
    at_once = OptionalValue(expiry.PARTITION_EXPIRATION_BATCH_SIZE)
    in_batch_writes = OptionValue(expiry.END_INPUT_CHECK_PARTITION_EXPIRE)
    time_formatter = OptionalValue(expiry.PARTITION_TIMESTAMP_FORMATTER)
    time_pattern = OptionalValue(expiry.PARTITION_TIMESTAMP_PATTERN)
    refuses_timeless = OptionValue(expiry.PARTITION_TIMESTAMP_STRICT)
    rows_ms = OptionalValue(expiry.RECORD_LEVEL_EXPIRE_TIME)
    row_time = OptionalValue(expiry.RECORD_LEVEL_TIME_FIELD)
    idle_to_done_ms = OptionalValue(expiry.IDLE_TIME_TO_DONE)
    partition_ms = OptionalValue(expiry.PARTITION_TIME_INTERVAL)
    done_at_end = OptionValue(expiry.END_INPUT_TO_DONE)
    done_actions = OptionValue(expiry.MARK_DONE_ACTION)
    done_url = OptionalValue(expiry.MARK_DONE_URL)
    done_params = OptionalValue(expiry.MARK_DONE_PARAMS)


class TagSettings(Settings):
    """Options for the tags that writers create, and for the lifetime of tags. Times are in milliseconds."""

    creation = OptionValue(tags.TAG_AUTOMATIC_CREATION)
    delay_ms = OptionValue(tags.TAG_CREATION_DELAY)
    period = OptionValue(tags.TAG_CREATION_PERIOD)
    form = OptionValue(tags.TAG_PERIOD_FORMATTER)
    most = OptionalValue(tags.TAG_NUM_RETAINED_MAX)
    retained_ms = OptionalValue(tags.TAG_DEFAULT_TIME_RETAINED)
    end_by_time = OptionValue(tags.TAG_TIME_EXPIRE_ENABLED)
    fills_gaps = OptionValue(tags.TAG_AUTOMATIC_COMPLETION)
    batch_name = OptionalValue(tags.TAG_BATCH_NAME)
    success_files = OptionValue(tags.TAG_SUCCESS_FILE)
    process_zone = OptionalValue(tags.PROCESS_TIME_ZONE)
    watermark_zone = OptionValue(tags.WATERMARK_TIME_ZONE)

    @cached_property
    def has_own_period(self) -> bool:
        """Returns True if the time between two tags is set as a duration, and not with a word such as `daily`."""
        return tags.TAG_PERIOD_DURATION.is_set(self.options)

    @cached_property
    def period_ms(self) -> int:
        """Returns the time between two tags, in milliseconds."""
        return tags.tag_period_ms(self.options)


class ReadSettings(Settings):
    """Options that decide what a read returns."""

    branch = OptionValue(reading.BRANCH)
    snapshot_id = OptionalValue(reading.SCAN_SNAPSHOT_ID)
    tag = OptionalValue(reading.SCAN_TAG_NAME)
    time_ms = OptionalValue(reading.SCAN_TIMESTAMP_MILLIS)
    version = OptionalValue(reading.SCAN_VERSION)
    change_files = OptionValue(reading.INCREMENTAL_BETWEEN_SCAN_MODE)
    sees_level0 = OptionValue(reading.DV_MERGE_ON_READ)
    sees_postponed = OptionValue(reading.POSTPONE_MERGE_ON_READ)
    uses_indexes = OptionValue(indexes.READ_ENABLED)
    fallback_branch = OptionalValue(reading.SCAN_FALLBACK_BRANCH)
    primary_branch = OptionalValue(reading.SCAN_PRIMARY_BRANCH)
    row_tracking = OptionValue(reading.ROW_TRACKING_ENABLED)
    data_evolution = OptionValue(reading.DATA_EVOLUTION_ENABLED)

    @cached_property
    def named_versions(self) -> tuple[str, ...]:
        """Returns the options that are set and choose another snapshot than the newest."""
        return tuple(option.key for option in reading.VERSIONS if option.is_set(self.options))

    @cached_property
    def refused(self) -> tuple[str, str] | None:
        """Returns the first option, with its value, that would make a read return wrong rows; None if there is none."""
        return reading.refused_option(self.options)


class TableSettings(Settings):
    """All parsed options of a table, grouped by topic."""

    @cached_property
    def paths(self) -> PathSettings:
        return PathSettings(self.options)

    @cached_property
    def bucket(self) -> BucketSettings:
        return BucketSettings(self.options)

    @cached_property
    def postpone(self) -> PostponeSettings:
        return PostponeSettings(self.options)

    @cached_property
    def merge(self) -> MergeSettings:
        return MergeSettings(self.options)

    @cached_property
    def columns(self) -> ColumnSettings:
        return ColumnSettings(self.options)

    @cached_property
    def changelog(self) -> ChangelogSettings:
        return ChangelogSettings(self.options)

    @cached_property
    def files(self) -> DataFileSettings:
        return DataFileSettings(self.options)

    @cached_property
    def compaction(self) -> CompactionSettings:
        return CompactionSettings(self.options)

    @cached_property
    def commit(self) -> CommitSettings:
        return CommitSettings(self.options)

    @cached_property
    def retention(self) -> RetentionSettings:
        return RetentionSettings(self.options)

    @cached_property
    def expiry(self) -> ExpirySettings:
        return ExpirySettings(self.options)

    @cached_property
    def tags(self) -> TagSettings:
        return TagSettings(self.options)

    @cached_property
    def reading(self) -> ReadSettings:
        return ReadSettings(self.options)

    @cached_property
    def lookup_cause(self) -> str | None:
        """Returns the name of the option that makes compactions look up older values; None if no option does."""
        if self.merge.engine.keeps_first:
            return merge.MERGE_ENGINE.key
        if self.changelog.producer.logs_lookups:
            return changelog.CHANGELOG_PRODUCER.key
        if self.changelog.deletion_vectors:
            return changelog.DELETION_VECTORS.key
        return changelog.FORCE_LOOKUP.key if self.changelog.force_lookup else None
