"""One share of a partition's keys in a dynamic table whose index is larger than memory: rows → rows with buckets.

Rows come by the hash of their key, known keys and new ones alike, so that a task holds its share of the index and no
more; from there they go to the tasks that own their buckets, and so do the hashes of keys that are new.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.allocation import Int32s, Ownership
from bucketline.state.bucket.dynamic import DynamicAssigner, KnownHashes
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.write.grouping import hash_index_store
from bucketline.state.store.write.new_keys import DynamicWrite, split_by_bucket
from bucketline.state.store.write.run_buffer import Blob, again
from bucketline.state.store.write.sealed_runs import SealedRun, seal, unseal
from bucketline.state.types.binary_row import hash_rows
from bucketline.state.types.distinct import distinct

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
    runs: Sequence[tuple[SealedRun, Blob]],
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
    rows = write.dynamic.rows.get(partition, {})
    assigner = DynamicAssigner.starting(_known(write, partition, own, runs), own, write.dynamic.rule, rows=rows)
    new_hashes: dict[int, list[Int32s]] = {}
    for run, blob in runs:
        table = unseal(again(blob)).read_all()
        hashes = _hashes(write.schema, table)
        assignment, assigner = assigner.assign(hashes)
        for bucket, found in assignment.new_by_bucket().items():
            new_hashes.setdefault(bucket, []).append(found)
        consumed = run.consumed_rows
        for bucket, part in split_by_bucket(table, assignment.buckets):
            yield replace(run, bucket=bucket, consumed_rows=consumed, row_count=part.num_rows, blob=seal(part))
            consumed = 0
    for bucket, parts in new_hashes.items():
        grown((partition, bucket, np.concatenate(parts)))


def _known(write: AssignWrite, partition: bytes, own: Ownership, runs: Sequence[tuple[SealedRun, Blob]]) -> KnownHashes:
    """What the index says of the share's hashes; only of those in the runs, where the whole share is too large."""
    store = hash_index_store(write.uri, write.schema, write.cache_bytes)
    entries = write.entries.get(partition, ())
    if BYTES_PER_KEY * sum(e.row_count for e in entries) <= write.cache_bytes * own.assigners:
        return store.known(entries, hashes_of=own)
    asked: Int32s = np.empty(0, np.int32)
    for _, blob in runs:
        for batch in unseal(again(blob)):
            asked = distinct(asked, _hashes(write.schema, pa.Table.from_batches([batch])))
    return store.known_among(entries, asked)


def _hashes(schema: TableSchema, rows: pa.Table) -> Int32s:
    """The hash of each row's trimmed primary key."""
    fields = schema.select(schema.trimmed_primary_key)
    return np.asarray(hash_rows([rows[f.name].combine_chunks() for f in fields], [f.type for f in fields]))
