"""Finds the bucket mode of a table, and the columns that decide the bucket of a row.

Source: Paimon 2.0 BucketMode, TableSchema (bucketKeys, crossPartitionUpdate), SchemaValidation.
"""

from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_options import BUCKET, BUCKET_KEY
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema

# Values of the `bucket` option that are no counts; also what manifest entries hold as the total.
UNFIXED_BUCKETS = -1
POSTPONE_BUCKETS = -2


class BucketMode(Enum):
    """How a row gets its bucket.

    FIXED: bucket function over the bucket key. DYNAMIC: a known key keeps the bucket in the HASH index of its
    partition; new keys fill buckets. CROSS_PARTITION: the same, but a key may move to another partition, so the index
    is over the full primary key of the whole table, and is not stored in the table. POSTPONE: rows are stored unsorted
    in bucket -2 until a compaction moves them to real buckets. UNAWARE: an append table without buckets; everything is
    in bucket 0.
    """

    FIXED = "fixed"
    DYNAMIC = "dynamic"
    CROSS_PARTITION = "cross-partition"
    POSTPONE = "postpone"
    UNAWARE = "unaware"

    @property
    def hashes_keys(self) -> bool:
        """Whether a hash of the bucket key alone decides the bucket. Then a filter on the key can skip buckets, and a
        row can be checked to be in the right bucket.
        """
        return self is BucketMode.FIXED

    @property
    def opens_buckets(self) -> bool:
        """Whether new keys fill buckets, and open a new one when all are full."""
        return self in (BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION)

    @property
    def has_hash_index(self) -> bool:
        """Whether the table stores, for each bucket, the hashes of the keys in it."""
        return self is BucketMode.DYNAMIC

    @property
    def moves_keys(self) -> bool:
        """Whether a key may move to another partition. Then a change that replaces one partition may also change
        others.
        """
        return self is BucketMode.CROSS_PARTITION

    @property
    def postpones(self) -> bool:
        """Whether rows wait in bucket -2 until a compaction moves them to real buckets."""
        return self is BucketMode.POSTPONE

    @property
    def has_buckets(self) -> bool:
        """Whether rows belong to a bucket. Otherwise deletion vectors are found by the names of data files."""
        return self is not BucketMode.UNAWARE


def bucket_mode(schema: TableSchema) -> BucketMode:
    """Returns the table's bucket mode. Raises OptionError when `bucket` is not a number, or one that this table cannot
    have.
    """
    total = total_buckets(schema)
    if total > 0:
        return BucketMode.FIXED
    if total == POSTPONE_BUCKETS:
        return BucketMode.POSTPONE
    if not schema.primary_keys:
        return BucketMode.UNAWARE
    # A primary key that holds all partition columns pins a key to its partition.
    if set(schema.partition_keys) <= set(schema.primary_keys):
        return BucketMode.DYNAMIC
    return BucketMode.CROSS_PARTITION


def total_buckets(schema: TableSchema) -> int:
    """Returns the `bucket` option: the count of a fixed table, else -1 or -2. Entries of new files record it as their
    total.

    A partition that has files keeps the total of these files until a rescale.

    Raises OptionError as `bucket_mode` does.
    """
    total = schema.settings.bucket.count
    allowed = (UNFIXED_BUCKETS, POSTPONE_BUCKETS) if schema.primary_keys else (UNFIXED_BUCKETS,)
    if total > 0 or total in allowed:
        return total
    kind = "with" if schema.primary_keys else "without"
    raise OptionError(
        f"bucket is {total}; a table {kind} a primary key takes a count above 0 or {' or '.join(map(str, allowed))}",
        key=BUCKET.key,
        value=total,
    )


def bucket_keys(schema: TableSchema) -> tuple[str, ...]:
    """Returns the columns that decide a row's bucket inside its partition, in hashing order: `bucket-key`, else the
    trimmed primary key; empty for an UNAWARE table.

    The index of a CROSS_PARTITION table is over `schema.primary_keys` instead.
    Raises OptionError when `bucket-key` is missing, forbidden, or names a column that cannot be one, and
    UnsupportedTableError when the primary key has only partition columns.
    """
    mode = bucket_mode(schema)
    if schema.primary_keys and not schema.trimmed_primary_key:
        raise UnsupportedTableError("the primary key has only partition columns", primary_key=schema.primary_keys)
    names = schema.settings.bucket.key
    if names is None:
        if mode is BucketMode.FIXED and not schema.primary_keys:
            raise OptionError("a bucketed table without a primary key needs bucket-key", key=BUCKET_KEY.key)
        return schema.trimmed_primary_key
    if mode not in (BucketMode.FIXED, BucketMode.POSTPONE):
        raise OptionError("bucket-key needs bucket to be a count, not -1", key=BUCKET_KEY.key, value=",".join(names))
    # Java does not trim, so " b" names a column that starts with a blank.
    for name in names:
        problem = _refusal(schema, name)
        if problem is not None:
            raise OptionError(f"bucket-key {name!r} {problem}", key=BUCKET_KEY.key, value=",".join(names), column=name)
    return names


def _refusal(schema: TableSchema, name: str) -> str | None:
    if all(f.name != name for f in schema.fields):
        return "is not a column of the table"
    if not schema.field(name).type.is_atomic:
        return f"has the nested type {schema.field(name).type}"
    if name in schema.partition_keys:
        return "is a partition column"
    if schema.primary_keys and name not in schema.primary_keys:
        return "is not part of the primary key"
    return None
