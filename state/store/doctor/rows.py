"""Checks the rows of live files: that they can be read, that there are as many as recorded, and that they are sorted,
in the right bucket, and within the recorded bounds. Also checks that the rows exist that deletion vectors mark.

Source: Paimon 2.0 ConflictDetection, MergeTreeWriter, DataFileMeta, DeletionVectorsIndexFile,
ApplyDeletionVectorReader.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.bucket.fixed import assign_fixed_buckets
from bucketline.state.bucket.mode import bucket_keys, bucket_mode
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.row_ranges import is_blob_file
from bucketline.state.store.doctor.problem import Problem, State
from bucketline.state.store.doctor.stats import StatsCheck
from bucketline.state.store.index.deletion_vectors import DeletedRows
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.types.arrow import SEQUENCE
from bucketline.state.types.order import key_changes, sort_indices


def row_problems(access: FileAccess, bucket: BucketFiles, state: State) -> Iterator[Problem]:
    """Yields the problems in the rows of a bucket's files, each problem of a file once. The files are read one record
    batch at a time.
    """
    for file in bucket.files:
        if is_blob_file(file):
            continue
        reported: set[tuple[str, str]] = set()
        try:
            for rule, message in _in_file(access, bucket, file):
                if (rule, message) not in reported:
                    reported.add((rule, message))
                    yield Problem(rule, file.file_name, message)
        except BucketlineError as e:
            yield Problem("data-file", file.file_name, e.message, state.needed)


def _in_file(access: FileAccess, bucket: BucketFiles, file: DataFileMeta) -> Iterator[tuple[str, str]]:
    schema = access.schema
    keys = list(schema.trimmed_primary_key)
    is_fixed = bucket_mode(schema).hashes_keys and bucket.total_buckets > 0 and bucket.bucket >= 0
    hashed = list(bucket_keys(schema)) if is_fixed else []
    system = [SEQUENCE] if schema.primary_keys else []
    stats = StatsCheck(schema, access.schema_of(file.schema_id), file)
    columns = [*dict.fromkeys((*keys, *hashed, *stats.columns)), *system]
    last: pa.RecordBatch | None = None
    for batch in access.rows(bucket, file, columns):
        stats.add(batch)
        if is_fixed and not _is_in_bucket(access, batch, hashed, bucket):
            yield "bucket-of-row", f"bucket {bucket.bucket} has rows that belong to other buckets"
        if not schema.primary_keys:
            continue
        low, high = pc.min_max(batch.column(SEQUENCE)).as_py().values()
        if low < file.min_sequence_number or high > file.max_sequence_number:
            yield "sequence", f"it has sequence numbers {low} to {high}, which are outside its recorded range"
        # Postponed rows are stored in the order in which they came.
        joined = batch if last is None else pa.concat_batches([last, batch])
        if bucket.bucket >= 0 and not _is_strictly_sorted(joined.select(keys), keys):
            yield "key-order", "its keys are not in ascending order, so merges give wrong results"
        last = batch.slice(batch.num_rows - 1)
    yield from stats.problems()


def _is_in_bucket(access: FileAccess, batch: pa.RecordBatch, hashed: Sequence[str], bucket: BucketFiles) -> bool:
    types = [f.type for f in access.schema.select(tuple(hashed))]
    columns = [batch.column(name) for name in hashed]
    buckets = assign_fixed_buckets(columns, types, bucket.total_buckets, access.schema.settings.bucket.function)
    return bool(np.all(buckets.to_numpy() == bucket.bucket))


def _is_strictly_sorted(rows: pa.RecordBatch, keys: Sequence[str]) -> bool:
    if not bool(np.all(sort_indices(rows, keys).to_numpy() == np.arange(rows.num_rows))):
        return False
    return bool(np.all(key_changes(rows, keys)))


def vector_problems(deletions: DeletedRows, bucket: BucketFiles, state: State) -> Iterator[Problem]:
    """Yields a problem for each deletion vector of the bucket's files that cannot be read, or that marks a row beyond
    the end of its file. Only one vector at a time is held in memory.
    """
    for file in bucket.files:
        try:
            deleted = deletions.of_file(bucket.partition, bucket.bucket, file.file_name)
        except BucketlineError as e:
            yield Problem("deletion-vector", file.file_name, e.message, state.needed)
            continue
        if deleted is not None and len(deleted) and deleted[-1] >= file.row_count:
            message = f"its deletion vector marks row {deleted[-1]}, but it has {counted(file.row_count, 'row')}"
            yield Problem("deletion-vector", file.file_name, message)
