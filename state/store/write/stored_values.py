"""Fills in values that the source left out, from the rows that the bucket has stored.

The stored rows are read at the snapshot on which the write was planned. The commit fails if another writer has written
the same keys since (`AppendCheck.ROWS_READ`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.left_out import unpack_left_out
from bucketline.state.sql.compute.condition import Condition
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.read.bucket_deletions import VectorFiles, load_deletions
from bucketline.state.store.read.merge_read import read_buckets
from bucketline.state.store.read.projection import plan_projection
from bucketline.state.store.read.prune import BucketFiles, prune
from bucketline.state.types.arrow import UNAVAILABLE, VALUE_KIND, arrow_schema
from bucketline.state.types.binary_row import encode_rows
from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import DataField
from bucketline.state.types.row_kind import RowKind

WITHOUT_VALUES = (
    "the source left out values that the update did not change, and the table has no row with this key to take them "
    "from; set REPLICA IDENTITY FULL on the source table, or let the connector take a snapshot of it"
)

Refuse = Callable[[pa.Table], None]
"""A function that is called with rows (in the table's columns) that are refused because they lack values: the reason is
WITHOUT_VALUES.
"""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of one bucket before a write. `vector_files` are the index files with the bucket's deletion vectors."""

    access: BucketAccess
    bucket_id: BucketId
    files: Sequence[DataFileMeta]
    vector_files: VectorFiles

    def of_keys(self, keys: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        """Returns the stored rows that may have one of the keys, with the given columns. The result includes every row
        that has one of the keys, and may include a few others. The keys must be distinct. Only the returned rows are
        held in memory.
        """
        access = self.access
        schema, files = access.schema, replace(access.files, age=access.age())
        if self.vector_files:
            files = replace(files, deletions=load_deletions(files, self.vector_files))
        wanted = [pc.field(name).isin(one_array(keys[name]).unique()) for name in keys.column_names]
        projection = plan_projection(schema, columns, Condition(reduce(and_, wanted)))
        bucket = BucketFiles(*self.bucket_id, total_buckets=0, files=tuple(self.files))
        found = prune(schema, [bucket], projection.condition.expression, files.schema_of)
        batches = list(read_buckets(files, found, projection))
        return pa.Table.from_batches(batches, arrow_schema(schema.select(columns)))


def with_stored_values(batch: pa.RecordBatch, stored: StoredRows, refuse: Refuse) -> pa.RecordBatch:
    """Completes rows that lack values, and drops their column UNAVAILABLE, which says which values are missing.

    A value that the source left out is taken from the stored row with the same key. A row is refused if no stored row
    has its key, or if an earlier row of the batch has deleted the key. In the second case, a delete of the key is
    written instead of the row.
    """
    rows = batch.drop_columns([UNAVAILABLE])
    column = batch.column(UNAVAILABLE)
    if column.null_count == len(column):
        return rows
    schema = stored.access.schema
    names = [f.name for f in schema.fields]
    open_rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    bits = unpack_left_out(column.take(pa.array(open_rows)), len(names))
    gone = bits[:, -1]
    key = schema.trimmed_primary_key
    needed = [name for at, name in enumerate(names) if name not in key and bits[:, at].any()]
    asked = pa.Table.from_batches([rows.take(pa.array(open_rows))])
    older = stored.of_keys(asked.select(key).filter(pa.array(~gone)), (*key, *needed))
    places = pc.index_in(_encoded(asked, schema.select(key)), value_set=_encoded(older, schema.select(key)))
    found = places.is_valid().to_numpy(zero_copy_only=False) & ~gone
    at_older = places.fill_null(0).to_numpy(zero_copy_only=False)
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name in needed:
        takes = bits[:, names.index(name)] & found
        take = np.arange(len(batch), dtype=np.int64)
        take[open_rows[takes]] = len(batch) + at_older[takes]
        both = pa.concat_arrays([columns[name], one_array(older[name]).cast(columns[name].type)])
        columns[name] = both.take(pa.array(take))
    if found.all():
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)
    refuse(asked.filter(pa.array(~found)).select(names))
    kinds = columns[VALUE_KIND].to_numpy().copy()
    kinds[open_rows[gone]] = int(RowKind.DELETE)
    columns[VALUE_KIND] = pa.array(kinds, pa.int8())
    kept = np.ones(len(batch), dtype=bool)
    kept[open_rows[~found & ~gone]] = False
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema).filter(pa.array(kept))


def _encoded(rows: pa.Table, fields: Sequence[DataField]) -> pa.Array:
    """Returns the key of each row as bytes. The key consists of the columns `fields`. Equal keys have equal bytes."""
    return encode_rows([one_array(rows[f.name]) for f in fields], [f.type for f in fields], with_arity=True)
