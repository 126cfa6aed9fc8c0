"""One share of a partition's keys in a dynamic table whose index is larger than memory: rows → rows with buckets.

Rows come by the hash of their key, known keys and new ones alike, so that a task holds its share of the index and no
more; from there they go to the tasks that own their buckets, and so do the hashes of keys that are new.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.dynamic import DynamicAssigner
from bucketline.state.bucket.fill import Int32s
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.grouping import hash_index_store
from bucketline.state.store.new_keys import DynamicWrite, split_by_bucket
from bucketline.state.store.sealed_runs import SealedRun, seal, unseal
from bucketline.state.types.binary_row import hash_rows

BYTES_PER_KEY = 6
"""What a key of the index takes in memory: its hash and its bucket."""


@dataclass(frozen=True, slots=True)
class AssignWrite:
    """What a task must know to give rows their buckets; plain values, so that it travels.

    `entries` are the HASH files of each partition at the snapshot the batch is planned on.
    """

    uri: str
    schema: TableSchema
    entries: Mapping[bytes, tuple[IndexManifestEntry, ...]]
    dynamic: DynamicWrite
    cache_bytes: int


def assign_runs(
    write: AssignWrite,
    share: int,
    runs: Sequence[tuple[SealedRun, pa.Buffer]],
    grown: Callable[[tuple[bytes, int, Int32s]], None],
) -> Iterator[SealedRun]:
    """The rows of one share of a partition's keys as runs of the buckets they go to, sorted as they were.

    `grown` is told, in the end, of each (partition, bucket) that has got new hashes, and which. Raises OptionError when
    no bucket is left to open, CorruptFileError for an index that cannot be read.
    """
    if not runs:
        return
    partition = runs[0][0].partition
    own = write.dynamic.ownership(partition, share)
    store = hash_index_store(write.uri, write.schema, write.cache_bytes)
    known = store.known(write.entries.get(partition, ()), hashes_of=own)
    rows = write.dynamic.rows.get(partition, {})
    assigner = DynamicAssigner.starting(known, own, write.dynamic.rule, rows=rows)
    new_hashes: dict[int, list[Int32s]] = {}
    fields = write.schema.select(write.schema.trimmed_primary_key)
    for run, blob in runs:
        table = unseal(blob).read_all()
        columns = [table[f.name].combine_chunks() for f in fields]
        hashes = np.asarray(hash_rows(columns, [f.type for f in fields]))
        assignment, assigner = assigner.assign(hashes)
        for bucket, found in assignment.new_by_bucket().items():
            new_hashes.setdefault(bucket, []).append(found)
        consumed = run.consumed_rows
        for bucket, part in split_by_bucket(table, assignment.buckets):
            yield replace(run, bucket=bucket, consumed_rows=consumed, row_count=part.num_rows, blob=seal(part))
            consumed = 0
    for bucket, parts in new_hashes.items():
        grown((partition, bucket, np.concatenate(parts)))
