"""Determines the bucket mode of a table, and the columns that decide the bucket of a row.

Source: Paimon 2.0 BucketMode, TableSchema (bucketKeys, crossPartitionUpdate), SchemaValidation.
"""

from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_options import BUCKET, BUCKET_KEY
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema

# Values of the option `bucket` that are no counts. Manifest entries of such tables have them as the number of buckets.
UNFIXED_BUCKETS = -1
POSTPONE_BUCKETS = -2


class BucketMode(Enum):
    """How a row gets its bucket.

    FIXED: a hash of the bucket key decides.
    DYNAMIC: a known key keeps the bucket that the HASH index of its partition has for it. A new key goes to a bucket
    with free space.
    CROSS_PARTITION: like DYNAMIC, but a key may move to another partition. So the index has the full primary keys of
    the whole table, and is not stored in the table.
    POSTPONE: rows are stored unsorted in bucket -2 until a compaction moves them to real buckets.
    UNAWARE: an append table without buckets. All its files are in bucket 0.
    """

    FIXED = "fixed"
    DYNAMIC = "dynamic"
    CROSS_PARTITION = "cross-partition"
    POSTPONE = "postpone"
    UNAWARE = "unaware"

    @property
    def hashes_keys(self) -> bool:
        """Returns True if a hash of the bucket key alone decides the bucket. Then a filter on the key can skip buckets,
        and it can be checked whether a row is in the right bucket.
        """
        return self is BucketMode.FIXED

    @property
    def opens_buckets(self) -> bool:
        """Returns True if new keys go to buckets with free space, and a new bucket is created when all are full."""
        return self in (BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION)

    @property
    def has_hash_index(self) -> bool:
        """Returns True if the table stores the hashes of the keys in each bucket."""
        return self is BucketMode.DYNAMIC

    @property
    def moves_keys(self) -> bool:
        """Returns True if a key may move to another partition. Then a change that replaces one partition may also
        change other partitions.
        """
        return self is BucketMode.CROSS_PARTITION

    @property
    def postpones(self) -> bool:
        """Returns True if new rows are stored in bucket -2 until a compaction moves them to real buckets."""
        return self is BucketMode.POSTPONE

    @property
    def has_buckets(self) -> bool:
        """Returns True if rows belong to a bucket. In tables without buckets, deletion vectors are found by the names
        of data files.
        """
        return self is not BucketMode.UNAWARE


def bucket_mode(schema: TableSchema) -> BucketMode:
    """Returns the table's bucket mode. Raises OptionError if the option `bucket` is no integer, or has a value that
    this table cannot have.
    """
    total = total_buckets(schema)
    if total > 0:
        return BucketMode.FIXED
    if total == POSTPONE_BUCKETS:
        return BucketMode.POSTPONE
    if not schema.primary_keys:
        return BucketMode.UNAWARE
    # If the primary key contains all partition columns, a key always stays in its partition.
    if set(schema.partition_keys) <= set(schema.primary_keys):
        return BucketMode.DYNAMIC
    return BucketMode.CROSS_PARTITION


def total_buckets(schema: TableSchema) -> int:
    """Returns the value of the option `bucket`: the number of buckets of a fixed table, -2 for a postpone table, and -1
    for other tables. Manifest entries of new files store this value as their number of buckets.

    A partition that has files keeps the number of buckets of these files until a rescale.

    Raises OptionError for the same reasons as `bucket_mode`.
    """
    total = schema.settings.bucket.count
    allowed = (UNFIXED_BUCKETS, POSTPONE_BUCKETS) if schema.primary_keys else (UNFIXED_BUCKETS,)
    if total > 0 or total in allowed:
        return total
    kind = "with" if schema.primary_keys else "without"
    raise OptionError(
        f"bucket is {total}, but a table {kind} a primary key needs a number above 0, or "
        f"{' or '.join(map(str, allowed))}",
        key=BUCKET.key,
        value=total,
    )


def bucket_keys(schema: TableSchema) -> tuple[str, ...]:
    """Returns the columns that decide a row's bucket inside its partition, in the order in which they are hashed. These
    are the columns in the option `bucket-key`, or else the trimmed primary key. For an UNAWARE table the result is
    empty.

    The index of a CROSS_PARTITION table uses `schema.primary_keys` instead.
    Raises OptionError if `bucket-key` is missing, not allowed, or names a column that cannot be part of the bucket key,
    and UnsupportedTableError if the primary key has only partition columns.
    """
    mode = bucket_mode(schema)
    if schema.primary_keys and not schema.trimmed_primary_key:
        raise UnsupportedTableError(
            "the primary key has only partition columns; create a table whose primary key has another column, too",
            primary_key=schema.primary_keys,
        )
    names = schema.settings.bucket.key
    if names is None:
        if mode is BucketMode.FIXED and not schema.primary_keys:
            raise OptionError(
                "a bucketed table without a primary key needs bucket-key: the columns that decide a row's bucket",
                key=BUCKET_KEY.key,
            )
        return schema.trimmed_primary_key
    if mode not in (BucketMode.FIXED, BucketMode.POSTPONE):
        raise OptionError(
            "bucket-key needs a fixed number of buckets; set bucket to a number above 0, or remove bucket-key",
            key=BUCKET_KEY.key,
            value=",".join(names),
        )
    # Java does not remove spaces, so " b" means a column whose name starts with a space.
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
