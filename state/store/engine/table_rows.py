"""Sources of rows that are in the table already: rows in the postpone bucket, and rows of buckets that are rescaled.
An engine writes these rows to new buckets.

Files are read in order. The rows are sealed (sorted and packed) for the new buckets, as in a write.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.fold import drop_deletes
from bucketline.state.lsm.merge.fold_choice import reading_fold
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.watch import Watch, unwatched, watched
from bucketline.state.store.read.bucket_deletions import VectorFiles, load_deletions
from bucketline.state.store.read.merge_read import merge_columns, merge_section
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan
from bucketline.state.types.arrow import VALUE_KIND
from bucketline.state.types.row_kind import RowKind


@dataclass(frozen=True, slots=True)
class PostponedFile:
    """The rows of a file in the postpone bucket, as a source of rows for a write. The rows have their row kinds, and
    keep the order in which they were written.

    `origin` orders the files: a file with a lower number is older. `watch` is called before each record batch, and
    can end the work by raising an exception.
    """

    access: BucketAccess
    bucket_id: BucketId
    file: DataFileMeta
    origin: int
    watch: Watch = unwatched

    def runs(self, seal: SealPlan) -> Iterator[SealedRun]:
        bucket = BucketFiles(*self.bucket_id, total_buckets=self.bucket_id[1], files=(self.file,))
        columns = [f.name for f in seal.schema.fields]
        batches = self.access.files.rows(bucket, self.file, [*columns, VALUE_KIND])
        return _sealed(watched(batches, self.watch), columns, RunSealer(seal, origin=self.origin))


@dataclass(frozen=True, slots=True)
class CurrentRows:
    """The current rows of a bucket, as a source of rows for a write. For a table with a primary key, the rows of each
    key are merged into one row; the merge uses at most `memory_bytes`.

    `origin` is the position of this bucket among all parts of the source. `vector_files` are the index files with the
    bucket's deletion vectors.
    """

    access: BucketAccess
    bucket_id: BucketId
    files: tuple[DataFileMeta, ...]
    origin: int
    vector_files: VectorFiles
    memory_bytes: int

    def runs(self, seal: SealPlan) -> Iterator[SealedRun]:
        schema, access = seal.schema, self.access
        bucket = BucketFiles(*self.bucket_id, total_buckets=0, files=self.files)
        columns = [f.name for f in schema.fields]
        files = replace(access.files, deletions=load_deletions(access.files, self.vector_files))
        if not schema.primary_keys:
            in_order = sorted(self.files, key=lambda f: (f.min_sequence_number, f.file_name))
            rows = (batch for file in in_order for batch in files.rows(bucket, file, columns))
            return _sealed(map(_inserted, rows), columns, RunSealer(seal, origin=self.origin))
        fold, needed = reading_fold(schema), merge_columns(schema, columns)
        merged = (
            batch
            for section in sections(list(self.files), access.key_order)
            for batch in drop_deletes(
                merge_section(files, bucket, section, needed, fold=fold, memory_bytes=self.memory_bytes)
            )
        )
        return _sealed(merged, columns, RunSealer(seal, origin=self.origin))


def _inserted(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(VALUE_KIND, pa.repeat(pa.scalar(RowKind.INSERT, pa.int8()), batch.num_rows))


def _sealed(batches: Iterable[pa.RecordBatch], columns: Sequence[str], sealer: RunSealer) -> Iterator[SealedRun]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        yield from sealer.add(AcceptedRows(rows.select(list(columns)), rows[VALUE_KIND].combine_chunks()))
    yield from sealer.finish()
