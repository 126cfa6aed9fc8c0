"""Paimon's options for tables whose buckets are not fixed: dynamic, cross-partition upsert and postponed.

Source: Paimon 2.0 CoreOptions.
"""

from collections.abc import Mapping
from typing import Any

from bucketline.conf.option import Option, parse_bool, parse_duration, parse_int, parse_size

GB = 1 << 30

# Dynamic buckets and cross-partition upsert
TARGET_ROW_NUM = Option("dynamic-bucket.target-row-num", parse_int, 2_000_000, "keys that fill a bucket")
INITIAL_BUCKETS = Option("dynamic-bucket.initial-buckets", parse_int, None, "buckets a partition starts with")
MAX_BUCKETS = Option("dynamic-bucket.max-buckets", parse_int, -1, "buckets of a partition at most; -1 for no limit")
ASSIGNER_PARALLELISM = Option("dynamic-bucket.assigner-parallelism", parse_int, None, "tasks that give out buckets")
INDEX_TTL = Option("cross-partition-upsert.index-ttl", parse_duration, None, "ms after which a key may be forgotten")
BOOTSTRAP_PARALLELISM = Option(
    "cross-partition-upsert.bootstrap-parallelism", parse_int, 10, "files read at once while the key index is built"
)

# Postponed buckets
BATCH_WRITE_FIXED_BUCKET = Option(
    "postpone.batch-write-fixed-bucket", parse_bool, True, "batch writes go to real buckets at once"
)
FIXED_BUCKET_MAX_PARALLELISM = Option(
    "postpone.batch-write-fixed-bucket.max-parallelism", parse_int, 2048, "most buckets a batch write may choose"
)
DEFAULT_BUCKET_NUM = Option("postpone.default-bucket-num", parse_int, 1, "buckets of a partition compacted first")
TARGET_ROWS_PER_BUCKET = Option(
    "postpone.target-row-num-per-bucket", parse_int, None, "postponed rows that ask for one bucket"
)
TARGET_SIZE_PER_BUCKET = Option(
    "postpone.target-size-per-bucket", parse_size, GB, "bytes of a batch write that ask for one bucket"
)

BUCKET_OPTIONS: Mapping[str, Option[Any]] = {
    found.key: found for found in tuple(globals().values()) if isinstance(found, Option)
}
"""Every option above by its key, in the order of this file."""

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
"""Numbers that make no sense below one."""


def bucket_limit(options: Mapping[str, str]) -> int | None:
    """How many buckets a partition of a dynamic table may have; None for as many as the format can hold."""
    found = MAX_BUCKETS.get(options)
    return None if found == -1 else found
