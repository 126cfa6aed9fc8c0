"""Checks that the deletion vectors of a bucket can be read, and that the rows they name exist.

Source: Paimon 2.0 DeletionVectorsIndexFile, ApplyDeletionVectorReader.
"""

from collections.abc import Iterator

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.store.doctor.problem import Problem, State
from bucketline.state.store.index.deletion_vectors import DeletedRows
from bucketline.state.store.read.prune import BucketFiles


def vector_problems(deletions: DeletedRows, bucket: BucketFiles, state: State) -> Iterator[Problem]:
    """Yields problems in the vectors of a bucket's files. Memory: one vector."""
    for file in bucket.files:
        try:
            deleted = deletions.of_file(bucket.partition, bucket.bucket, file.file_name)
        except BucketlineError as e:
            yield Problem("deletion-vector", file.file_name, e.message, state.needed)
            continue
        if deleted is not None and len(deleted) and deleted[-1] >= file.row_count:
            message = f"its deletion vector names row {deleted[-1]}, it has {counted(file.row_count, 'row')}"
            yield Problem("deletion-vector", file.file_name, message)
