"""Reduce side of dynamic buckets: the rows of new keys get buckets, and buckets that got keys a longer HASH file.

A share of a partition's new keys is in one task, which alone opens and fills the buckets b with b % assigners == share.
Known keys of those buckets come to the same task, so each bucket has one writer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.allocation import AllocationRule, Int32s, Ownership
from bucketline.state.bucket.dynamic import NOTHING_KNOWN, DynamicAssigner
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.write.sealed_runs import SealedRun, seal, unseal
from bucketline.state.types.binary_row import hash_rows
from bucketline.state.types.distinct import distinct


@dataclass(frozen=True, slots=True)
class DynamicWrite:
    """What a task must know to give out buckets; plain values, so that it travels.

    `rows` are the keys of each bucket as the index counts them, by partition; `assigners` as in `KnownBuckets`.
    """

    rule: AllocationRule
    rows: Mapping[bytes, Mapping[int, int]]
    assigners: Mapping[bytes, int]
    first_assigners: int = 1

    def owner(self, partition: bytes, bucket: int) -> int:
        """The share whose task writes a bucket."""
        return bucket % self.assigners.get(partition, self.first_assigners)

    def ownership(self, partition: bytes, share: int) -> Ownership:
        """Which buckets and which hashes of a partition are those of a share."""
        return Ownership(share, self.assigners.get(partition, self.first_assigners))

    def assigner(self, partition: bytes, share: int) -> DynamicAssigner:
        """The assigner of a share; the keys it will be asked for are known to be new."""
        own = self.ownership(partition, share)
        return DynamicAssigner.starting(NOTHING_KNOWN, own, self.rule, rows=self.rows.get(partition, {}))


def allocate_new_keys(
    write: DynamicWrite,
    schema: TableSchema,
    share: int,
    runs: Sequence[tuple[SealedRun, pa.Buffer]],
    put: Callable[[SealedRun], None],
) -> dict[int, Int32s]:
    """Puts the runs of one share of new keys where they belong, as runs of buckets; returns each bucket's new hashes.

    Runs stay sorted and keep origin, flush and ranks. Raises OptionError when no bucket is left to open.
    """
    if not runs:
        return {}
    assigner = write.assigner(runs[0][0].partition, share)
    new_hashes: dict[int, list[Int32s]] = {}
    fields = schema.select(schema.trimmed_primary_key)
    for run, blob in runs:
        rows = unseal(blob).read_all()
        columns = [rows[f.name].combine_chunks() for f in fields]
        hashes = np.asarray(hash_rows(columns, [f.type for f in fields]))
        assignment, assigner = assigner.assign(hashes)
        for bucket, found in assignment.new_by_bucket().items():
            new_hashes.setdefault(bucket, []).append(found)
        for bucket, part in split_by_bucket(rows, assignment.buckets):
            put(replace(run, bucket=bucket, row_count=part.num_rows, blob=seal(part)))
    return {b: np.concatenate(found) for b, found in new_hashes.items()}


def split_by_bucket(rows: pa.Table, buckets: Int32s) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket, in their order; n rows and n buckets in."""
    found = distinct(buckets)
    for bucket in found.tolist():
        yield bucket, rows if len(found) == 1 else rows.take(np.flatnonzero(buckets == bucket))
