"""The rows that a change looks at, at the snapshot of its session: bucket by bucket, pruned by its condition."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.table.read_options import DV_MERGE_ON_READ
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.engine.changed_rows import ChangedRows, RowChange
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.read.bucket_deletions import load_deletions
from bucketline.state.store.read.merge_read import Projection, plan_projection, read_buckets, refuse_unreadable
from bucketline.state.store.read.postponed import read_with_postponed
from bucketline.state.store.read.prune import BucketFiles, group_by_bucket, prune, visible_files
from bucketline.state.store.write.write_session import WriteSession


def found_parts(session: WriteSession, expression: pc.Expression | None, change: RowChange) -> Parts:
    """A source of what a change makes of the rows that pass the expression.

    Raises SchemaMismatchError for an expression that does not fit the table.
    """
    schema = _seeing_all(session.plan.schema)
    refuse_unreadable(schema)
    projection = plan_projection(schema, None, expression)
    access = BucketAccess(session.table.uri, schema)
    stored = group_by_bucket(session.view.live_entries())
    waiting = [b for b in stored if b.bucket == POSTPONE_BUCKET]
    seen = visible_files(schema, stored, read_optimized=False)
    if waiting and schema.settings.reading.sees_postponed:
        return Parts([GivenRows(_changed(access, [*seen, *waiting], projection, change))])
    vectors = session.deletion_entries()
    return Parts(
        [
            ChangedRows(access, bucket, projection, change, origin, vectors.get((bucket.partition, bucket.bucket), ()))
            for origin, bucket in enumerate(pruned(session, seen, expression))
        ]
    )


def current_rows(
    session: WriteSession, expression: pc.Expression | None, partitions: Collection[bytes] | None
) -> Iterator[pa.RecordBatch]:
    """The rows that pass the expression, in the table's columns; `partitions` are those to look at, None for all."""
    schema = _seeing_all(session.plan.schema)
    refuse_unreadable(schema)
    projection = plan_projection(schema, None, expression)
    files = BucketAccess(session.table.uri, schema).files
    stored = group_by_bucket(session.view.live_entries())
    if partitions is not None:
        stored = [b for b in stored if b.partition in partitions]
    waiting = [b for b in stored if b.bucket == POSTPONE_BUCKET]
    seen = visible_files(schema, stored, read_optimized=False)
    if waiting and schema.settings.reading.sees_postponed:
        yield from read_with_postponed(files, [*seen, *waiting], projection)
        return
    vectors = session.deletion_entries()
    for bucket in pruned(session, seen, expression):
        found = vectors.get((bucket.partition, bucket.bucket), ())
        access = replace(files, deletions=load_deletions(files, found)) if found else files
        yield from read_buckets(access, [bucket], projection)


def _seeing_all(schema: TableSchema) -> TableSchema:
    """The schema by which level 0 is read in tables with deletion vectors too: what is computed from a row that has a
    newer version there would replace that version."""
    return replace(schema, options={**schema.options, DV_MERGE_ON_READ.key: "true"})


def pruned(
    session: WriteSession, buckets: Sequence[BucketFiles], expression: pc.Expression | None
) -> Sequence[BucketFiles]:
    """The buckets and files that may hold rows passing the expression."""
    if expression is None:
        return buckets
    access = BucketAccess(session.table.uri, session.plan.schema)
    return prune(session.plan.schema, buckets, expression, access.files.schema_of)


def _changed(
    access: BucketAccess, buckets: Sequence[BucketFiles], projection: Projection, change: RowChange
) -> Iterator[pa.Table]:
    for batch in read_with_postponed(access.files, buckets, projection):
        found = change.rows(batch)
        if found is not None:
            yield found
