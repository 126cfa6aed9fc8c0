"""Reads the newest record of each key with its row kind, deletes included: the rows of a log of a snapshot. Source:
Paimon 2.0 MergeFileSplitRead.forceKeepDelete.
"""

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.lsm.merge.fold_choice import reading_fold
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.sql.compute.conditions import ALL_ROWS
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.datafile.data_files import BATCH_ROWS
from bucketline.state.store.read.fallback import own_view
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import is_merged, merge_columns, merge_section, read_stored_rows
from bucketline.state.store.read.projection import plan_projection, refuse_unreadable
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.read.table_read import ReadRows, file_access, index_entries, plan_views
from bucketline.state.types.arrow import VALUE_KIND, arrow_schema
from bucketline.state.types.order import key_order


def read_kept(table: TableHandle) -> ReadRows:
    """Returns the rows of the table, with `_row_kind` (int8) as the last column. Raises the errors of `read_table`.
    Rows in the postpone bucket do not count.
    """
    view = own_view(table, None)
    refuse_unreadable(view.schema)
    schema = view.schema
    out = arrow_schema(schema.fields).append(pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False))
    (planned,) = plan_views([view], read_optimized=False)
    access = file_access(table, schema, index_entries(view))
    if not schema.primary_keys:
        rows = read_stored_rows(access, planned.buckets, plan_projection(schema, None, ALL_ROWS))
    else:
        rows = chain.from_iterable(_kept(access, bucket) for bucket in planned.buckets)
    return out, (pa.RecordBatch.from_arrays(batch.columns, schema=out) for batch in rows)


def _kept(access: FileAccess, bucket: BucketFiles) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a bucket that has keys: one row for each key, the row kind in the last column."""
    schema = access.schema
    columns = [*(f.name for f in schema.fields), VALUE_KIND]
    order = key_order([f.type for f in schema.select(schema.trimmed_primary_key)])
    for runs in sections(bucket.files, order):
        if not is_merged(schema, runs):
            for file in chain.from_iterable(run.files for run in runs):
                yield from access.rows(bucket, file, columns, batch_rows=BATCH_ROWS)
            continue
        with_system = merge_columns(schema, columns[:-1])
        for batch in merge_section(access, bucket, runs, with_system, fold=reading_fold(schema)):
            yield batch.select(columns)
