"""Counts rows without reading them, for reads that ask for no column. The metadata of a file often says how many of its
rows a reader sees.

The count in the metadata is used only for a file that is not merged with other files, that has no deletes, and whose
rows all meet the filter.

Source: Paimon 2.0 DataSplit.mergedRowCount, which Paimon's Spark uses for counts; it allows only filters on partitions.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.overflow_risk import long_decimals
from bucketline.state.store.index.deletion_vectors import Deletions
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import parts_of
from bucketline.state.store.read.projection import Projection
from bucketline.state.store.read.prune import BucketFiles, passing_whole

_MOST_AT_ONCE = 1 << 30
"""The largest number of rows in a batch without columns, which takes no memory."""


def counted_apart(
    access: FileAccess, buckets: Sequence[BucketFiles], projection: Projection
) -> tuple[int, Sequence[BucketFiles]]:
    """Counts rows of the buckets from metadata. Returns the count, and the buckets with only those files that must be
    read to count the other rows.

    If the read asks for columns, no rows are counted. `buckets` are the buckets that `prune` has returned.
    """
    schema = access.schema
    if projection.columns or projection.condition.test is not None or schema.settings.reading.data_evolution:
        return 0, buckets
    expression = projection.expression
    if expression is not None and long_decimals(schema):
        # A decimal with too many digits is shown as null, and the bounds of a file do not say whether it has such
        # decimals.
        return 0, buckets
    parts = [part for bucket in buckets for part in parts_of(schema, bucket)]
    candidates = [part for part in parts if len(part.files) == 1]
    if expression is not None:
        candidates = passing_whole(schema, candidates, expression, access.schema_of)
    known = {id(part): count for part in candidates if (count := _shown_rows(access, part, part.files[0])) is not None}
    return sum(known.values()), [part for part in parts if id(part) not in known]


def rows_without_columns(count: int) -> Iterator[pa.RecordBatch]:
    """Yields batches without columns that have `count` rows in all. No batch is empty."""
    while count:
        step = min(count, _MOST_AT_ONCE)
        yield pa.record_batch([pa.nulls(step)], names=[""]).select([])
        count -= step


def _shown_rows(access: FileAccess, bucket: BucketFiles, file: DataFileMeta) -> int | None:
    """Returns how many rows a reader sees of a file that is not merged with other files; None if the file's metadata
    does not say how many.
    """
    if access.schema.primary_keys and file.may_hold_deletes:
        return None
    if access.deletions is None:
        return file.row_count
    if not isinstance(access.deletions, Deletions):
        return None
    deleted = access.deletions.count_of_file(bucket.partition, bucket.bucket, file.file_name)
    return None if deleted is None else file.row_count - deleted
