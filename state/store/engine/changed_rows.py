"""A source of the rows that a delete or an update changes: the rows of a bucket that meet the condition of the change.

Each task of an engine takes whole buckets, so several tasks can share a delete or an update of a large table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.read.bucket_deletions import VectorFiles, load_deletions
from bucketline.state.store.read.merge_read import read_buckets
from bucketline.state.store.read.projection import Projection
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan


class RowChange(Protocol):
    """What a delete or an update does with the rows of a table. The object can be sent to tasks."""

    def rows(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Returns the rows to write for the rows of the batch that the change affects; None if the change affects no
        row.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredBucket:
    """The current rows of a bucket. `vector_files` are the index files with the bucket's deletion vectors."""

    access: BucketAccess
    bucket: BucketFiles
    projection: Projection
    vector_files: VectorFiles = field(default=())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the merged rows of the bucket. No batch is empty."""
        files = self.access.files
        if self.vector_files:
            files = replace(files, deletions=load_deletions(files, self.vector_files))
        yield from read_buckets(files, [self.bucket], self.projection)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Reads the rows of one bucket, and makes the rows to write for those rows that a change affects. `origin` is the
    number of the bucket, counted from 0 among the buckets of the change.
    """

    stored: StoredBucket
    change: RowChange
    origin: int

    def runs(self, seal: SealPlan) -> Iterator[SealedRun]:
        """Yields the changed rows as sealed runs (sorted rows, packed for the tasks that write the buckets). Raises
        SchemaMismatchError for a row that the table cannot hold.
        """
        sealer, acceptance = RunSealer(seal, origin=self.origin), RowAcceptance(seal.schema)
        for batch in self.stored.batches():
            changed = self.change.rows(batch)
            if changed is not None:
                yield from sealer.add(acceptance.accept(changed))
        yield from sealer.finish()
