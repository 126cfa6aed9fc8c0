"""Checks that each key of a dynamic table is in the bucket that the HASH index gives for it, and in no other bucket.
Reads key columns and index files.

If the index did not have the hash of a key, the next change of the key would go to another bucket, and the key would
exist twice.

Source: the rules of Paimon 2.0 DynamicBucketIndexMaintainer, HashBucketAssigner.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.bucket.allocation import Int32s
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.format.entries import IndexManifestEntry, Snapshot
from bucketline.state.format.index.hash_index import decode_hash_index
from bucketline.state.store.catalog.kept_files import index_path, located, reach
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor.problem import Problem
from bucketline.state.store.index.hash_index_store import hash_entries
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import BucketFiles, group_by_bucket
from bucketline.state.types.binary_row import hash_rows


def hash_problems(table: TableHandle, snapshot: Snapshot) -> Iterator[Problem]:
    """Yields the problems of a snapshot's HASH index; none for tables without such an index.

    In memory are the hashes of one partition (4 bytes for each key) and a record batch of keys. Raises
    CorruptFileError, and StorageError if the snapshot's manifests cannot be read.
    """
    if not bucket_mode(table.table_schema).has_hash_index:
        return
    index = hash_entries(table.manifests.read_index(snapshot.index_manifest))
    buckets = group_by_bucket(table.manifests.live_entries(snapshot))
    for partition in sorted({*index, *(b.partition for b in buckets)}):
        name = f"partition {partition.hex()}"
        by_bucket: dict[int, Int32s] = {}
        for entry in index.get(partition, ()):
            if entry.bucket in by_bucket:
                yield Problem(
                    "hash-index", name, f"bucket {entry.bucket} has two HASH index files, which writers refuse"
                )
            try:
                by_bucket[entry.bucket] = _hashes(table, entry)
            except BucketlineError as e:
                yield Problem("hash-index", entry.file_name, e.message)
        yield from _in_several_buckets(name, by_bucket)
        for bucket in buckets:
            if bucket.partition == partition:
                yield from _unknown_keys(table, bucket, by_bucket.get(bucket.bucket, np.empty(0, np.int32)))


def _hashes(table: TableHandle, entry: IndexManifestEntry) -> Int32s:
    """Returns the hashes in one file, in ascending order."""
    schema = table.table_schema
    io, path = reach(table.io, schema, located(table.path, index_path(schema, entry)))
    hashes = decode_hash_index(io.read(path))
    hashes.sort()
    return hashes


def _in_several_buckets(name: str, index: Mapping[int, Int32s]) -> Iterator[Problem]:
    if len(index) < 2:
        return
    hashes = np.concatenate(list(index.values()))
    buckets = np.repeat(np.array(list(index), np.int32), [len(h) for h in index.values()])
    order = np.lexsort((buckets, hashes))
    hashes, buckets = hashes[order], buckets[order]
    again = (hashes[1:] == hashes[:-1]) & (buckets[1:] != buckets[:-1])
    if again.any():
        first = int(np.flatnonzero(again)[0])
        low, high = buckets[first], buckets[first + 1]
        yield Problem(
            "hash-index",
            name,
            f"{counted(int(again.sum()), 'hash', 'hashes')} in several buckets, the first in the buckets {low} and "
            f"{high}: two jobs wrote at the same time, and the keys may be in both buckets",
        )


def _unknown_keys(table: TableHandle, bucket: BucketFiles, known: Int32s) -> Iterator[Problem]:
    schema = table.table_schema
    access = FileAccess(table.io, table.path, schema, table.schema_store.read_under(schema))
    fields = schema.select(schema.trimmed_primary_key)
    names: Sequence[str] = [f.name for f in fields]
    for file in bucket.files:
        unknown = 0
        try:
            for batch in access.rows(bucket, file, names):
                columns = [batch.column(name) for name in names]
                hashes = np.asarray(hash_rows(columns, [f.type for f in fields]))
                unknown += int((~_is_in(hashes, known)).sum())
        except BucketlineError as e:
            yield Problem("data-file", file.file_name, e.message)
        if unknown:
            yield Problem(
                "hash-index",
                file.file_name,
                f"the HASH index of bucket {bucket.bucket} does not have {counted(unknown, 'key')} of the bucket: "
                "the next change of such a key would go to another bucket, and the key would exist twice",
            )


def _is_in(hashes: Int32s, known: Int32s) -> np.ndarray:
    if not len(known):
        return np.zeros(len(hashes), np.bool_)
    at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    is_known: np.ndarray = known[at] == hashes
    return is_known
