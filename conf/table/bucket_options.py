"""Paimon's options for dynamic, cross-partition and postpone buckets.

Source: Paimon 2.0 CoreOptions.
"""

from collections.abc import Mapping
from typing import Any

from bucketline.conf.option import Option, parse_bool, parse_duration, parse_int, parse_size

GB = 1 << 30

# Dynamic buckets and cross-partition upsert
TARGET_ROW_NUM = Option(
    "dynamic-bucket.target-row-num",
    parse_int,
    2_000_000,
    "number of keys in a bucket after which a new bucket is created",
)
INITIAL_BUCKETS = Option(
    "dynamic-bucket.initial-buckets", parse_int, None, "number of buckets with which a new partition starts"
)
MAX_BUCKETS = Option(
    "dynamic-bucket.max-buckets", parse_int, -1, "largest number of buckets in a partition; -1 for no limit"
)
ASSIGNER_PARALLELISM = Option(
    "dynamic-bucket.assigner-parallelism", parse_int, None, "number of assigners: tasks that decide the buckets of keys"
)
INDEX_TTL = Option(
    "cross-partition-upsert.index-ttl",
    parse_duration,
    None,
    "milliseconds after which a key may be removed from the key index",
)
BOOTSTRAP_PARALLELISM = Option(
    "cross-partition-upsert.bootstrap-parallelism", parse_int, 10, "files read in parallel while the key index is built"
)

# Postpone bucket
BATCH_WRITE_FIXED_BUCKET = Option(
    "postpone.batch-write-fixed-bucket",
    parse_bool,
    True,
    "batch writes write to real buckets, not to the postpone bucket",
)
FIXED_BUCKET_MAX_PARALLELISM = Option(
    "postpone.batch-write-fixed-bucket.max-parallelism",
    parse_int,
    2048,
    "largest number of buckets that a batch write may choose",
)
DEFAULT_BUCKET_NUM = Option(
    "postpone.default-bucket-num", parse_int, 1, "number of buckets for a partition that has no real bucket yet"
)
TARGET_ROWS_PER_BUCKET = Option(
    "postpone.target-row-num-per-bucket", parse_int, None, "number of postponed rows for each bucket of a new partition"
)
TARGET_SIZE_PER_BUCKET = Option(
    "postpone.target-size-per-bucket",
    parse_size,
    GB,
    "number of bytes of a batch write for each bucket of a new partition",
)

BUCKET_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""

POSITIVE = (
    TARGET_ROW_NUM,
    INITIAL_BUCKETS,
    ASSIGNER_PARALLELISM,
    BOOTSTRAP_PARALLELISM,
    FIXED_BUCKET_MAX_PARALLELISM,
    DEFAULT_BUCKET_NUM,
    TARGET_ROWS_PER_BUCKET,
    TARGET_SIZE_PER_BUCKET,
)
"""Options whose value must be at least 1."""


def bucket_limit(options: Mapping[str, str]) -> int | None:
    """Returns the largest number of buckets in a partition of a dynamic table; None if only Paimon's format limits the
    number.
    """
    limit = MAX_BUCKETS.get(options)
    return None if limit == -1 else limit
