"""Paimon's table options that we honour: one named constant each, with Paimon's key, type and default.

Defaults that depend on other options are functions. `check_write_options` says whether a table may be written; reading
tolerates everything. What else Paimon knows is in `other_options`.
Source: Paimon 2.0 CoreOptions, SchemaValidation; texts that Paimon's users know are kept word for word.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from bucketline.conf.bucket_options import BUCKET_OPTIONS, MAX_BUCKETS, POSITIVE
from bucketline.conf.changelog_options import CHANGELOG_OPTIONS, check_changelog_options
from bucketline.conf.errors import OptionError
from bucketline.conf.file_options import FILE_OPTIONS, check_file_options
from bucketline.conf.memory_options import BOUNDED, MEMORY_OPTIONS
from bucketline.conf.option import (
    UNLIMITED,
    Option,
    did_you_mean,
    parse_bool,
    parse_choice,
    parse_count,
    parse_duration,
    parse_float,
    parse_int,
    parse_name_part,
    parse_names,
    parse_size,
    parse_text,
)
from bucketline.conf.other_options import HARMLESS, HARMLESS_PREFIXES, RESTRICTED

MB = 1 << 20


def _bucket_key(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


# Table shape and files
PRIMARY_KEY = Option("primary-key", parse_names, None, "primary-key columns, instead of a declaration in the schema")
PARTITION = Option("partition", parse_names, None, "partition columns, instead of a declaration in the schema")
BUCKET = Option("bucket", parse_int, -1, "buckets per partition: > 0 fixed, -1 dynamic, -2 postponed")
BUCKET_KEY = Option("bucket-key", _bucket_key, None, "bucket columns, split at commas without trimming")
BUCKET_FUNCTION = Option("bucket-function.type", parse_choice("default", "mod", "hive"), "default", "bucket of a row")
PARTITION_DEFAULT_NAME = Option(
    "partition.default-name", parse_text, "__DEFAULT_PARTITION__", "directory name of a null or blank partition value"
)
PARTITION_LEGACY_NAME = Option("partition.legacy-name", parse_bool, True, "partition values in paths as before 1.0")
TARGET_FILE_SIZE = Option("target-file-size", parse_size, None, "bytes after which a data file is closed")
TARGET_FILE_ROW_NUM = Option("target-file-row-num", parse_count, UNLIMITED, "rows after which an append file is closed")

# Rows of one key
SEQUENCE_FIELD: Option[tuple[str, ...]] = Option(
    "sequence.field", parse_names, (), "columns that order the rows of one key"
)
SEQUENCE_SORT_ORDER = Option(
    "sequence.field.sort-order", parse_choice("ascending", "descending"), "ascending", "direction of sequence.field"
)
ROWKIND_FIELD = Option("rowkind.field", parse_text, None, "column that holds the row kind as +I, -U, +U or -D")
IGNORE_DELETE = Option(
    "ignore-delete",
    parse_bool,
    False,
    "drop -D and -U rows",
    ("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
)
IGNORE_UPDATE_BEFORE = Option("ignore-update-before", parse_bool, False, "drop -U rows")
MERGE_ENGINE = Option(
    "merge-engine",
    parse_choice("deduplicate", "partial-update", "aggregation", "first-row"),
    "deduplicate",
    "what the rows of one key become",
)
PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE = Option(
    "partial-update.remove-record-on-delete", parse_bool, False, "a -D row removes the whole row"
)
RETRACTS_OF_PARTIAL_UPDATE = (
    "a table with merge-engine partial-update takes no -D and -U rows as it is; set 'ignore-delete' = 'true' to skip "
    "them, 'partial-update.remove-record-on-delete' = 'true' to let -D remove the row, or give the columns a "
    "'fields.<sequence column>.sequence-group' to take back values"
)
REMOVE_RECORD_ON_SEQUENCE_GROUP: Option[tuple[str, ...]] = Option(
    "partial-update.remove-record-on-sequence-group", parse_names, (), "sequence columns whose -D removes the whole row"
)
AGGREGATION_REMOVE_RECORD_ON_DELETE = Option(
    "aggregation.remove-record-on-delete", parse_bool, False, "a -D row removes the whole row"
)

# Compaction
WRITE_ONLY = Option("write-only", parse_bool, False, "neither compact nor expire", ("write.compaction-skip",))
COMPACTION_TRIGGER = Option("num-sorted-run.compaction-trigger", parse_int, 5, "sorted runs that start a compaction")
STOP_TRIGGER = Option("num-sorted-run.stop-trigger", parse_int, None, "sorted runs that no compaction leaves behind")
NUM_LEVELS = Option("num-levels", parse_int, None, "levels, level 0 included")
MAX_SIZE_AMPLIFICATION = Option(
    "compaction.max-size-amplification-percent", parse_int, 200, "percent of the last run the others may reach"
)
SIZE_RATIO = Option("compaction.size-ratio", parse_int, 1, "percent of slack when run sizes are compared")
OFFPEAK_START_HOUR = Option("compaction.offpeak.start.hour", parse_int, -1, "first hour of day off peak; -1 for never")
OFFPEAK_END_HOUR = Option("compaction.offpeak.end.hour", parse_int, -1, "first hour of day on peak again; -1 for never")
OFFPEAK_RATIO = Option("compaction.offpeak-ratio", parse_int, 0, "compaction.size-ratio off peak")
OPTIMIZATION_INTERVAL = Option("compaction.optimization-interval", parse_duration, None, "ms between full compactions")
TOTAL_SIZE_THRESHOLD = Option(
    "compaction.total-size-threshold", parse_size, None, "bytes below which a bucket is always compacted fully"
)
INCREMENTAL_SIZE_THRESHOLD = Option(
    "compaction.incremental-size-threshold", parse_size, None, "bytes above the last run that start a full compaction"
)
COMPACTION_MIN_FILE_NUM = Option("compaction.min.file-num", parse_int, 5, "small files of an append bucket to join")
SMALL_FILE_RATIO = Option(
    "compaction.small-file-ratio", parse_float, 0.7, "part of target-file-size below which a file is rewritten"
)
FORCE_UP_LEVEL_0 = Option("compaction.force-up-level-0", parse_bool, False, "each compaction empties level 0")
FORCE_REWRITE_ALL_FILES = Option(
    "compaction.force-rewrite-all-files", parse_bool, False, "a full compaction rewrites every file"
)
FORCE_COMPACT = Option("commit.force-compact", parse_bool, False, "a commit waits for its compaction")
FULL_COMPACTION_DELTA_COMMITS = Option(
    "full-compaction.delta-commits", parse_int, None, "commits between full compactions"
)

# Manifests and commit
MANIFEST_COMPRESSION = Option(
    "manifest.compression",
    parse_choice("zstd", "zstandard", "deflate", "snappy", "bzip2", "null"),
    "zstd",
    "codec of manifests, their lists and index manifests",
)
MANIFEST_TARGET_FILE_SIZE = Option("manifest.target-file-size", parse_size, 8 * MB, "bytes of a manifest")
MANIFEST_FULL_COMPACTION_SIZE = Option(
    "manifest.full-compaction-threshold-size", parse_size, 16 * MB, "bytes of changes that merge all manifests"
)
MANIFEST_MERGE_MIN_COUNT = Option("manifest.merge-min-count", parse_int, 30, "small manifests that are merged")
COMMIT_MAX_RETRIES = Option("commit.max-retries", parse_count, 10, "tries after the first")
COMMIT_MIN_RETRY_WAIT = Option("commit.min-retry-wait", parse_duration, 10, "first wait in ms")
COMMIT_MAX_RETRY_WAIT = Option("commit.max-retry-wait", parse_duration, 10_000, "longest wait in ms")
COMMIT_TIMEOUT = Option("commit.timeout", parse_duration, UNLIMITED, "ms after which a commit gives up")
COMMIT_USER_PREFIX = Option("commit.user-prefix", parse_name_part, None, "prefix of generated commit users")
FORCE_CREATE_SNAPSHOT = Option("commit.force-create-snapshot", parse_bool, False, "a snapshot even without changes")
IGNORE_EMPTY_COMMIT = Option("snapshot.ignore-empty-commit", parse_bool, None, "no snapshot without changes")
DYNAMIC_PARTITION_OVERWRITE = Option(
    "dynamic-partition-overwrite", parse_bool, True, "an overwrite without a partition replaces those in the data"
)

# Retention
SNAPSHOT_NUM_RETAINED_MIN = Option("snapshot.num-retained.min", parse_int, 10, "snapshots always kept")
SNAPSHOT_NUM_RETAINED_MAX = Option("snapshot.num-retained.max", parse_count, UNLIMITED, "snapshots kept at most")
SNAPSHOT_TIME_RETAINED = Option("snapshot.time-retained", parse_duration, 3_600_000, "ms a snapshot is kept")
SNAPSHOT_EXPIRE_LIMIT = Option("snapshot.expire.limit", parse_int, 50, "snapshots expired by one run")

HONOURED: Mapping[str, Option[Any]] = {
    found.key: found for found in tuple(globals().values()) if isinstance(found, Option)
} | {**MEMORY_OPTIONS, **FILE_OPTIONS, **BUCKET_OPTIONS, **CHANGELOG_OPTIONS}
"""Every option above by its key, then those of the other modules."""


def target_file_size(options: Mapping[str, str], *, has_primary_key: bool) -> int:
    """Bytes after which a data file is closed: 128 MB with a primary key, 256 MB without, unless set."""
    found = TARGET_FILE_SIZE.find(options)
    return found if found is not None else (128 if has_primary_key else 256) * MB


def manifest_codec(options: Mapping[str, str]) -> str:
    """The codec of manifests, as Avro calls it."""
    found = MANIFEST_COMPRESSION.get(options)
    return "zstandard" if found == "zstd" else found


def stop_trigger(options: Mapping[str, str]) -> int:
    """Most sorted runs of a bucket whose writers compact: the compaction trigger + 3 unless set, never below that.

    Paimon holds writers back there; a batch that compacts before it is done leaves no more than that.
    """
    trigger, found = COMPACTION_TRIGGER.get(options), STOP_TRIGGER.find(options)
    return max(trigger, trigger + 3 if found is None else found)


def num_levels(options: Mapping[str, str]) -> int:
    """Levels of a bucket, level 0 included: one more than the compaction trigger unless set."""
    found = NUM_LEVELS.find(options)
    return COMPACTION_TRIGGER.get(options) + 1 if found is None else found


_FALLBACKS = frozenset(key for option in HONOURED.values() for key in option.fallback_keys)
KNOWN_KEYS = frozenset(HONOURED) | frozenset(BOUNDED) | frozenset(HARMLESS) | frozenset(RESTRICTED) | _FALLBACKS
"""Every key that has a meaning for Paimon's tables, open-ended families left aside."""


def check_write_options(
    schema_options: Mapping[str, str], primary_key: Sequence[str], partition_keys: Sequence[str]
) -> None:
    """Returns when a table with these options can be written correctly by this release.

    Raises OptionError with `key`: unknown (the nearest is named), unreadable, a value we do not write, or a
    combination Paimon forbids. Nothing has been written then.
    """
    for key, text in schema_options.items():
        _check_known(key)
        _check_restricted(key, text)
        option = HONOURED.get(key) or (BOUNDED[key].option if key in BOUNDED else None)
        if option is not None:
            option.find(schema_options)
    check_file_options(schema_options)
    check_changelog_options(schema_options, primary_key)
    _check_bucket(schema_options, primary_key, partition_keys)
    _check_numbers(schema_options)


def _check_known(key: str) -> None:
    if key not in KNOWN_KEYS and not key.startswith(tuple(HARMLESS_PREFIXES)):
        refuse(key, f"unknown table option '{key}'{did_you_mean(key, KNOWN_KEYS)}")


def _check_restricted(key: str, text: str) -> None:
    found = RESTRICTED.get(key)
    if found is not None and text.strip().lower().replace("_", "-") not in found.accepted:
        refuse(key, f"table option '{key}' = {text!r} is not supported: {found.reason}; {found.remedy}")


def _check_bucket(options: Mapping[str, str], primary_key: Sequence[str], partition_keys: Sequence[str]) -> None:
    bucket = BUCKET.get(options)
    bucket_key = BUCKET_KEY.find(options)
    if bucket == -1:
        if bucket_key is not None:
            refuse(
                BUCKET_KEY.key,
                "Cannot define 'bucket-key' with bucket = -1, please remove the 'bucket-key' setting "
                "or specify a bucket number.",
            )
        if not primary_key and FULL_COMPACTION_DELTA_COMMITS.is_set(options):
            refuse(
                FULL_COMPACTION_DELTA_COMMITS.key,
                "AppendOnlyTable of unaware or dynamic bucket does not support 'full-compaction.delta-commits'",
            )
        if primary_key and SEQUENCE_FIELD.get(options) and not set(partition_keys) <= set(primary_key):
            refuse(
                SEQUENCE_FIELD.key,
                "You can not use sequence.field in cross partition update case (Primary key constraint "
                f"'{listed(primary_key)}' not include all partition fields '{listed(partition_keys)}').",
            )
        if primary_key and not set(partition_keys) <= set(primary_key):
            _check_moves(options)
    elif bucket < 1 and not (bucket == -2 and primary_key):
        refuse(BUCKET.key, "The number of buckets needs to be greater than 0.")
    if bucket > 0 and not primary_key and bucket_key is None:
        refuse(BUCKET_KEY.key, "You should define a 'bucket-key' for bucketed append mode.")


def _check_moves(options: Mapping[str, str]) -> None:
    """A key that moves to another partition is deleted where it was; Paimon leaves it in both."""
    if IGNORE_DELETE.get(options) and MERGE_ENGINE.get(options) == "deduplicate":
        refuse(
            IGNORE_DELETE.key,
            f"'{IGNORE_DELETE.key}' = 'true' does not go with keys that move between partitions: the delete in the old "
            "partition would be ignored too, and the key be in both; filter deletes out of the input instead",
        )


def _check_numbers(options: Mapping[str, str]) -> None:
    if NUM_LEVELS.is_set(options) and (NUM_LEVELS.find(options) or 0) < 2:
        refuse(NUM_LEVELS.key, "'num-levels' should be at least 2")
    for option in (TARGET_FILE_ROW_NUM, SNAPSHOT_NUM_RETAINED_MIN, COMPACTION_TRIGGER):
        if option.get(options) < 1:
            refuse(option.key, f"{option.key} should be at least 1")
    if SNAPSHOT_NUM_RETAINED_MIN.get(options) > SNAPSHOT_NUM_RETAINED_MAX.get(options):
        refuse(
            SNAPSHOT_NUM_RETAINED_MIN.key,
            f"{SNAPSHOT_NUM_RETAINED_MIN.key} should not be larger than {SNAPSHOT_NUM_RETAINED_MAX.key}",
        )
    for option in POSITIVE:
        found = option.find(options)
        if found is not None and found < 1:
            refuse(option.key, f"{option.key} should be at least 1")
    if MAX_BUCKETS.get(options) < 1 and MAX_BUCKETS.get(options) != -1:
        refuse(MAX_BUCKETS.key, f"{MAX_BUCKETS.key} should be at least 1, or -1 for no limit")
    commits = FULL_COMPACTION_DELTA_COMMITS.find(options)
    if commits is not None and commits < 1:
        refuse(FULL_COMPACTION_DELTA_COMMITS.key, f"{FULL_COMPACTION_DELTA_COMMITS.key} should be at least 1")


def listed(names: Sequence[str]) -> str:
    """The names as Paimon's messages show them: `[a, b]`."""
    return f"[{', '.join(names)}]"


def refuse(key: str, message: str) -> NoReturn:
    """Raises the OptionError that blames one setting."""
    raise OptionError(message, key=key)
