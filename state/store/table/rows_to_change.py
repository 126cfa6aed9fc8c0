"""Reads the rows that a change needs, at one snapshot, bucket by bucket. Buckets in which no row can meet the condition
are not read.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.table.read_options import DV_MERGE_ON_READ
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.sql.compute.condition import Condition
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.engine.changed_rows import ChangedRows, RowChange, StoredBucket
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.read.postponed import read_with_postponed
from bucketline.state.store.read.projection import Projection, plan_projection, refuse_unreadable
from bucketline.state.store.read.prune import BucketFiles, group_by_bucket, prune, visible_files
from bucketline.state.store.write.table_at import TableAt


def changed_parts(at: TableAt, expression: pc.Expression | None, change: RowChange) -> Parts:
    """Returns a source for an engine. The source reads the rows that meet the expression, and yields the rows that
    `change` writes in their place.

    Raises SchemaMismatchError for an expression that does not fit the table.
    """
    source = _source(at, expression)
    if source.waiting:
        return Parts([GivenRows(_changed(source, change))])
    return Parts([ChangedRows(b, change, origin) for origin, b in enumerate(_buckets(at, source, expression))])


def buckets_to_change(
    at: TableAt, expression: pc.Expression | None, partitions: Collection[bytes] | None
) -> Sequence[StoredBucket]:
    """Returns one object for each bucket of the partitions. The object yields the rows of the bucket that meet the
    expression. `partitions` are the partitions to look at; None stands for all partitions. Must not be called if
    readers of the table also see postponed rows.
    """
    source = _source(at, expression, partitions)
    assert not source.waiting, "an engine that reads elsewhere does not merge postponed rows"
    return list(_buckets(at, source, expression))


def current_rows(
    at: TableAt, expression: pc.Expression | None, partitions: Collection[bytes] | None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that meet the expression, in the table's columns. `partitions` are the partitions to look at;
    None stands for all.
    """
    source = _source(at, expression, partitions)
    if source.waiting:
        yield from read_with_postponed(source.access.files, [*source.buckets, *source.waiting], source.projection)
        return
    for bucket in _buckets(at, source, expression):
        yield from bucket.batches()


@dataclass(frozen=True, slots=True)
class _Source:
    """The rows to read for a change: the rows in `buckets`, and the rows in the postpone buckets (`waiting`). There are
    `waiting` buckets only if readers of the table see postponed rows.
    """

    access: BucketAccess
    projection: Projection
    buckets: Sequence[BucketFiles]
    waiting: Sequence[BucketFiles]


def _source(at: TableAt, expression: pc.Expression | None, partitions: Collection[bytes] | None = None) -> _Source:
    schema = _seeing_all(at.plan.schema)
    refuse_unreadable(schema)
    projection = plan_projection(schema, None, Condition(expression))
    stored = group_by_bucket(at.view.live_entries())
    if partitions is not None:
        stored = [b for b in stored if b.partition in partitions]
    seen = visible_files(schema, stored, read_optimized=False)
    sees_postponed = schema.settings.reading.sees_postponed
    waiting = [b for b in stored if b.bucket == POSTPONE_BUCKET] if sees_postponed else []
    return _Source(BucketAccess(at.table.uri, schema, at.table.world), projection, seen, waiting)


def _buckets(at: TableAt, source: _Source, expression: pc.Expression | None) -> Iterator[StoredBucket]:
    """Yields the buckets that may hold rows that meet the expression."""
    access, vectors = source.access, at.deletion_entries()
    for bucket in prune(access.schema, source.buckets, expression, access.files.schema_of):
        vector_files = vectors.get((bucket.partition, bucket.bucket), ())
        yield StoredBucket(source.access, bucket, source.projection, vector_files)


def _seeing_all(schema: TableSchema) -> TableSchema:
    """Returns the schema with an option that makes reads include level 0, even in tables with deletion vectors.

    Without this option a change could be computed from an old row although level 0 has a newer version of the row, and
    the change would replace the newer version.
    """
    return replace(schema, options={**schema.options, DV_MERGE_ON_READ.key: "true"})


def _changed(source: _Source, change: RowChange) -> Iterator[pa.Table]:
    for batch in read_with_postponed(source.access.files, [*source.buckets, *source.waiting], source.projection):
        changed = change.rows(batch)
        if changed is not None:
            yield changed
