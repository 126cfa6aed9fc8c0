"""Paimon's table options that bucketline supports. Each option is a constant with Paimon's key, type and
default.

If a default depends on other options, a function returns the default. `check_write_options` decides whether a table may
be written; a table with any options can be read. Paimon's other options are in `other_options`.
Source: Paimon 2.0 CoreOptions, SchemaValidation. Messages that Paimon's users know are the same as Paimon's.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from bucketline.conf.errors import OptionError
from bucketline.conf.option import (
    UNLIMITED,
    Option,
    nearest_key,
    parse_bool,
    parse_count,
    parse_duration,
    parse_enum,
    parse_int,
    parse_name_part,
    parse_names,
    parse_size,
)
from bucketline.conf.secrets import is_secret_key
from bucketline.conf.table.bucket_options import BUCKET_OPTIONS, MAX_BUCKETS, POSITIVE
from bucketline.conf.table.changelog_options import CHANGELOG_OPTIONS, check_changelog_options
from bucketline.conf.table.choices import CODECS, BucketFunction, FileFormat, ManifestCodec
from bucketline.conf.table.compaction_options import (
    COMPACTION_OPTIONS,
    COMPACTION_TRIGGER,
    FULL_COMPACTION_DELTA_COMMITS,
    NUM_LEVELS,
)
from bucketline.conf.table.expiry_options import EXPIRY_OPTIONS, check_expiry_options
from bucketline.conf.table.external_options import EXTERNAL_OPTIONS, check_external_options
from bucketline.conf.table.field_options import check_stats_modes
from bucketline.conf.table.file_options import FILE_OPTIONS, check_file_options
from bucketline.conf.table.index_options import INDEX_OPTIONS, bloom_columns
from bucketline.conf.table.memory_options import BOUNDED, MEMORY_OPTIONS
from bucketline.conf.table.merge_options import IGNORE_DELETE, MERGE_ENGINE, MERGE_OPTIONS, SEQUENCE_FIELD
from bucketline.conf.table.other_options import HARMLESS, HARMLESS_PREFIXES, RESTRICTED
from bucketline.conf.table.own_options import OWN_OPTIONS
from bucketline.conf.table.read_options import (
    BRANCH,
    DATA_FILE_DIRECTORY,
    INDEX_IN_DATA_DIRECTORY,
    ROW_TRACKING_ENABLED,
    check_data_folder,
)
from bucketline.conf.table.tag_options import TAG_OPTIONS, check_tag_options

MB = 1 << 20


MAX_BUCKET_COUNT = 2147483647
_BUCKET_COUNT = re.compile(r"[+-]?[0-9]{1,10}")


def _bucket_key(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _bucket_count(text: str) -> int:
    if _BUCKET_COUNT.fullmatch(text) is None or int(text) > MAX_BUCKET_COUNT:
        raise OptionError(f"must be a number up to {MAX_BUCKET_COUNT}", value=text)
    return int(text)


# Table shape and files
PRIMARY_KEY = Option(
    "primary-key", parse_names, None, "columns of the primary key; replaces the declaration in the schema"
)
PARTITION = Option("partition", parse_names, None, "partition columns; replaces the declaration in the schema")
BUCKET = Option("bucket", _bucket_count, -1, "buckets per partition: > 0 fixed, -1 dynamic, -2 postponed")
BUCKET_KEY = Option("bucket-key", _bucket_key, None, "bucket columns, split at commas without trimming")
BUCKET_FUNCTION = Option(
    "bucket-function.type",
    parse_enum(BucketFunction),
    BucketFunction.DEFAULT,
    "how the bucket of a row is computed from its bucket key",
)
PARTITION_DEFAULT_NAME = Option(
    "partition.default-name", str, "__DEFAULT_PARTITION__", "folder name for a null or blank partition value"
)
PARTITION_LEGACY_NAME = Option(
    "partition.legacy-name", parse_bool, True, "partition values in paths have the form of Paimon before 1.0"
)
TARGET_FILE_SIZE = Option("target-file-size", parse_size, None, "bytes after which a data file is closed")
TARGET_FILE_ROW_NUM = Option(
    "target-file-row-num", parse_count, UNLIMITED, "rows after which a data file of an append table is closed"
)

# Schema changes
NULL_TO_NOT_NULL_DISABLED = Option(
    "alter-column-null-to-not-null.disabled", parse_bool, True, "refuse to make a nullable column NOT NULL"
)

ADD_COLUMN_BEFORE_PARTITION = Option(
    "add-column-before-partition",
    parse_bool,
    False,
    "a new column without a position goes before the first partition column",
)

# Manifests and commit
MANIFEST_COMPRESSION = Option(
    "manifest.compression",
    parse_enum(ManifestCodec),
    ManifestCodec.ZSTD,
    "codec of manifests, their lists and index manifests",
)
MANIFEST_FORMAT = Option(
    "manifest.format", parse_enum(FileFormat), FileFormat.AVRO, "format of manifests, their lists and index manifests"
)
MANIFEST_TARGET_FILE_SIZE = Option(
    "manifest.target-file-size", parse_size, 8 * MB, "target size of a manifest in bytes"
)
MANIFEST_FULL_COMPACTION_SIZE = Option(
    "manifest.full-compaction-threshold-size",
    parse_size,
    16 * MB,
    "number of bytes of small or changed manifests at which all manifests are merged",
)
MANIFEST_MERGE_MIN_COUNT = Option(
    "manifest.merge-min-count", parse_int, 30, "number of small manifests at which they are merged"
)
COMMIT_MAX_RETRIES = Option("commit.max-retries", parse_count, 10, "number of times that a commit is tried again")
COMMIT_MIN_RETRY_WAIT = Option(
    "commit.min-retry-wait", parse_duration, 10, "waiting time before the second attempt, in milliseconds"
)
COMMIT_MAX_RETRY_WAIT = Option(
    "commit.max-retry-wait", parse_duration, 10_000, "longest waiting time between two attempts, in milliseconds"
)
COMMIT_TIMEOUT = Option("commit.timeout", parse_duration, UNLIMITED, "milliseconds after which a commit gives up")
COMMIT_USER_PREFIX = Option("commit.user-prefix", parse_name_part, None, "prefix of generated commit users")
FORCE_CREATE_SNAPSHOT = Option(
    "commit.force-create-snapshot", parse_bool, False, "commits without changes also create a snapshot"
)
IGNORE_EMPTY_COMMIT = Option(
    "snapshot.ignore-empty-commit", parse_bool, None, "commits without changes create no snapshot"
)
DYNAMIC_PARTITION_OVERWRITE = Option(
    "dynamic-partition-overwrite",
    parse_bool,
    True,
    "an overwrite that names no partition replaces only the partitions that occur in the data",
)

# Retention
SNAPSHOT_NUM_RETAINED_MIN = Option("snapshot.num-retained.min", parse_int, 10, "snapshots always kept")
SNAPSHOT_NUM_RETAINED_MAX = Option(
    "snapshot.num-retained.max", parse_count, UNLIMITED, "largest number of snapshots that are kept"
)
SNAPSHOT_TIME_RETAINED = Option(
    "snapshot.time-retained", parse_duration, 3_600_000, "how long a snapshot is kept, in ms"
)
CHANGELOG_NUM_RETAINED_MIN: Option[int] = Option(
    "changelog.num-retained.min",
    parse_count,
    None,
    "smallest number of changelogs that are kept; default: as for snapshots",
)
CHANGELOG_NUM_RETAINED_MAX: Option[int] = Option(
    "changelog.num-retained.max",
    parse_count,
    None,
    "largest number of changelogs that are kept; default: as for snapshots",
)
CHANGELOG_TIME_RETAINED: Option[int] = Option(
    "changelog.time-retained",
    parse_duration,
    None,
    "how long a changelog is kept, in ms; default: as long as snapshots",
)
CONSUMER_EXPIRATION_TIME: Option[int] = Option(
    "consumer.expiration-time", parse_duration, None, "milliseconds without progress after which a consumer is removed"
)
CONSUMER_CHANGELOG_ONLY = Option(
    "consumer.changelog-only",
    parse_bool,
    False,
    "consumers protect only the changelogs that outlive snapshots, and no snapshots",
)
SNAPSHOT_EXPIRE_LIMIT = Option(
    "snapshot.expire.limit", parse_int, 50, "largest number of snapshots that one expiry removes"
)

HONOURED: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
} | {
    **MERGE_OPTIONS,
    **COMPACTION_OPTIONS,
    **MEMORY_OPTIONS,
    **FILE_OPTIONS,
    **INDEX_OPTIONS,
    **BUCKET_OPTIONS,
    **CHANGELOG_OPTIONS,
    **OWN_OPTIONS,
    **EXPIRY_OPTIONS,
    **EXTERNAL_OPTIONS,
    **TAG_OPTIONS,
    BRANCH.key: BRANCH,
    DATA_FILE_DIRECTORY.key: DATA_FILE_DIRECTORY,
    INDEX_IN_DATA_DIRECTORY.key: INDEX_IN_DATA_DIRECTORY,
    ROW_TRACKING_ENABLED.key: ROW_TRACKING_ENABLED,
}
"""All supported options by key: the options above, and those of the other modules, including bucketline's own."""


def target_file_size(options: Mapping[str, str], *, has_primary_key: bool) -> int:
    """Returns the size in bytes at which a data file is closed. The default is 128 MB for a table with a primary key,
    and 256 MB for other tables.
    """
    size_bytes = TARGET_FILE_SIZE.find(options)
    return size_bytes if size_bytes is not None else (128 if has_primary_key else 256) * MB


def manifest_codec(options: Mapping[str, str]) -> str:
    """Returns the compression codec of manifests, under the name that the library for their format uses.

    Raises OptionError for a codec that the format does not have.
    """
    form, codec = MANIFEST_FORMAT.get(options), MANIFEST_COMPRESSION.get(options)
    if form is FileFormat.AVRO:
        known = {ManifestCodec.ZSTD.value: "zstandard"} | {name: name for name in _AVRO_MANIFEST_CODECS}
        name = str(codec.value)
    else:
        known = dict(CODECS[form])
        name = {ManifestCodec.ZSTANDARD: "zstd", ManifestCodec.NULL: "none"}.get(codec, str(codec.value))
    if name not in known:
        key, words = MANIFEST_COMPRESSION.key, ", ".join(c.value for c in ManifestCodec if c.value in known)
        refuse(key, f"'{key}' = '{codec.value}': manifests in {form.value} support only {words}")
    return known[name]


_AVRO_MANIFEST_CODECS = ("zstandard", "deflate", "snappy", "bzip2", "null")
_FALLBACKS = frozenset(key for option in HONOURED.values() for key in option.fallback_keys)
KNOWN_KEYS = frozenset(HONOURED) | frozenset(BOUNDED) | frozenset(HARMLESS) | frozenset(RESTRICTED) | _FALLBACKS
"""All keys that a table may have, except keys with a prefix that allows any name."""


def check_write_options(
    schema_options: Mapping[str, str], primary_key: Sequence[str], partition_keys: Sequence[str]
) -> None:
    """Checks that a table with these options can be written correctly.

    Raises OptionError, which names the option, for an option that is unknown, not valid or not supported, and for a
    combination that Paimon forbids. For an unknown option, the message names the most similar known option.
    """
    for check in write_checks(schema_options, primary_key, partition_keys):
        check()


def write_checks(
    options: Mapping[str, str], primary_key: Sequence[str], partition_keys: Sequence[str]
) -> Iterator[Callable[[], object]]:
    """Yields the checks of `check_write_options` as functions. Each function raises OptionError if the check fails."""
    for key, text in options.items():
        yield partial(_check_known, key)
        yield partial(_check_restricted, key, text)
        option = HONOURED.get(key) or (BOUNDED[key].option if key in BOUNDED else None)
        if option is not None:
            yield partial(option.find, options)
    yield partial(check_file_options, options)
    yield partial(bloom_columns, options)
    yield partial(manifest_codec, options)
    yield partial(check_stats_modes, options)
    yield partial(check_changelog_options, options, primary_key)
    yield partial(check_expiry_options, options, partition_keys, has_primary_key=bool(primary_key))
    yield partial(check_tag_options, options)
    yield partial(check_external_options, options)
    yield partial(check_data_folder, options)
    yield partial(_check_bucket, options, primary_key, partition_keys)
    yield partial(_check_numbers, options)


def _check_known(key: str) -> None:
    if key not in KNOWN_KEYS and not key.startswith(tuple(HARMLESS_PREFIXES)) and not is_free_property(key):
        refuse(key, f"unknown table option '{key}'{nearest_key(key, KNOWN_KEYS)}")


def is_free_property(key: str) -> bool:
    """Returns True if a key is a property that the user has invented, and no misspelled option.

    A key of one word, such as `owner`, must not be similar to an option of one word. A key of several words, such as
    `team.name`, must not be similar to an option, and its first word must not be similar to the first word of an
    option.
    """
    if is_secret_key(key):
        return False
    if key.isidentifier():
        words = [known for known in KNOWN_KEYS if "." not in known and "-" not in known]
        return not get_close_matches(key.lower(), words, cutoff=0.7)
    first, *others = _PARTS.split(key.lower())
    if not others or not all(part.replace("_", "").isalnum() for part in (first, *others)):
        return False
    families = {_PARTS.split(known)[0] for known in (*KNOWN_KEYS, *HARMLESS_PREFIXES)}
    is_near = get_close_matches(first, families, cutoff=0.85) or get_close_matches(key.lower(), KNOWN_KEYS, cutoff=0.8)
    return not is_near


_PARTS = re.compile(r"[.\- ]")


def _check_restricted(key: str, text: str) -> None:
    restriction = RESTRICTED.get(key)
    if restriction is not None and text.strip().lower().replace("_", "-") not in restriction.accepted:
        refuse(key, f"table option '{key}' = {text!r} is not supported: {restriction.reason}; {restriction.remedy}")


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
    """Raises OptionError if a table whose keys can move to another partition ignores deletes.

    A key that moves is deleted in its old partition. With `ignore-delete`, Paimon would keep the key in both
    partitions.
    """
    if IGNORE_DELETE.get(options) and MERGE_ENGINE.get(options).keeps_newest:
        refuse(
            IGNORE_DELETE.key,
            f"'{IGNORE_DELETE.key}' = 'true' cannot be used when keys move between partitions: the delete in the old "
            "partition would be ignored, and the key would be in both; filter deletes out of the input instead",
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
    least, most = CHANGELOG_NUM_RETAINED_MIN.find(options), CHANGELOG_NUM_RETAINED_MAX.find(options)
    least = SNAPSHOT_NUM_RETAINED_MIN.get(options) if least is None else least
    if least < 1:
        refuse(CHANGELOG_NUM_RETAINED_MIN.key, f"{CHANGELOG_NUM_RETAINED_MIN.key} should be at least 1")
    if least > (SNAPSHOT_NUM_RETAINED_MAX.get(options) if most is None else most):
        refuse(
            CHANGELOG_NUM_RETAINED_MIN.key,
            f"{CHANGELOG_NUM_RETAINED_MIN.key} should not be larger than {CHANGELOG_NUM_RETAINED_MAX.key}",
        )
    for option in POSITIVE:
        number = option.find(options)
        if number is not None and number < 1:
            refuse(option.key, f"{option.key} should be at least 1")
    if MAX_BUCKETS.get(options) < 1 and MAX_BUCKETS.get(options) != -1:
        refuse(MAX_BUCKETS.key, f"{MAX_BUCKETS.key} should be at least 1, or -1 for no limit")
    commits = FULL_COMPACTION_DELTA_COMMITS.find(options)
    if commits is not None and commits < 1:
        refuse(FULL_COMPACTION_DELTA_COMMITS.key, f"{FULL_COMPACTION_DELTA_COMMITS.key} should be at least 1")


def listed(names: Iterable[str]) -> str:
    """Returns the names in the form in which Java prints a list: `[a, b]`."""
    return f"[{', '.join(names)}]"


def refuse(key: str, message: str) -> NoReturn:
    """Raises OptionError with this message and the key of an option."""
    raise OptionError(message, key=key)


def says_what_is_overwritten(options: Mapping[str, str]) -> bool:
    """Returns True if an option says which partitions are replaced by an overwrite that names no partitions."""
    return DYNAMIC_PARTITION_OVERWRITE.is_set(options)
