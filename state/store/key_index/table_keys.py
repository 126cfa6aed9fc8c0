"""Reads the keys of a table's files, for the key index. Only the key columns are read, and only the keys of one share
(the keys that one task owns, by their hash).

The keys of a bucket need merging only if rows may have been deleted; otherwise every key of every file is a key of the
bucket. With merge engines that merge rows, a deleted key counts as present: an aggregate may still contain it, and its
next row may always go to its old partition.

Source: Paimon 2.0 IndexBootstrap. This module differs in one point: it leaves out single files that are too old, and
not whole buckets.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from bucketline.conf.table.read_options import BRANCH
from bucketline.state.bucket.allocation import hash_share
from bucketline.state.bucket.cross_partition import OldPlaceRule, old_place_rule
from bucketline.state.bucket.key_entries import HashedKeys, hashed_keys
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import IndexManifestEntry, ManifestEntry
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.sql.compute.condition import ALL_ROWS
from bucketline.state.store.index.deletion_vectors import find_deletions
from bucketline.state.store.key_index.build import KeyBlock
from bucketline.state.store.key_index.index_scope import IndexScope
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import read_buckets
from bucketline.state.store.read.projection import Projection
from bucketline.state.store.read.prune import BucketFiles, group_by_bucket
from bucketline.state.store.storage.parallel import read_at_once
from bucketline.state.types.logical import DataType
from bucketline.state.types.order import normalized_keys

BATCH_ROWS = 65536

READER_BYTES = 16 << 20
"""The memory for reading the keys of one file, in bytes: some record batches of its key columns."""


@dataclass(frozen=True, slots=True)
class KeyShare:
    """One share of a table's keys (the keys that one task handles), and how the keys are read and compared. There are
    `shares` shares, numbered from 0; the hash of a key decides to which share the key belongs.
    """

    schema: TableSchema
    share: int = 0
    shares: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the columns of the full primary key."""
        return self.schema.primary_keys

    @property
    def types(self) -> list[DataType]:
        return [f.type for f in self.schema.select(self.names)]

    def scope(self, table: str) -> IndexScope:
        """Returns what identifies the key index for these keys: the table or branch, the key and partition columns, and
        the share of the keys. `table` is the table's URI. Each branch has its own index.
        """
        branch = self.schema.settings.reading.branch
        columns = [f"{f.name} {f.type}" for f in self.schema.select(self.names)]
        partitions = [f"{f.name} {f.type}" for f in self.schema.select(self.schema.partition_keys)]
        named = table if branch == BRANCH.default else f"{table}$branch_{branch}"
        return IndexScope(named, f"{', '.join(columns)} in {', '.join(partitions)}", self.share, self.shares)

    def keys(self, rows: pa.RecordBatch | pa.Table) -> HashedKeys:
        """Returns the keys of all rows. Keys of other shares (groups of keys that other tasks handle) are included."""
        return hashed_keys([rows.column(name) for name in self.names], self.types)

    def normalized(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns the keys of some rows as `normalized_keys` makes them. Only rows whose key belongs to this share
        (group of keys) are taken.
        """
        if self.shares == 1:
            return normalized_keys([rows.column(name) for name in self.names], self.types)
        keys = self.keys(rows)
        return keys.normalized.filter(pa.array(self.mine(keys)))

    def mine(self, keys: HashedKeys) -> np.ndarray | None:
        """Returns a boolean mask of the keys that belong to this share (group of keys); None if there is only one
        share, which has all keys.
        """
        if self.shares == 1:
            return None
        mask: np.ndarray = hash_share(keys.hashes, self.shares) == self.share
        return mask


def live_keys(
    access: FileAccess,
    entries: Iterable[ManifestEntry],
    index: Iterable[IndexManifestEntry],
    wanted: KeyShare,
    *,
    alive_since: int = 0,
    readers: int = 1,
) -> Generator[KeyBlock, None, None]:
    """Yields the keys of the share `wanted` (a group of keys) that exist in a snapshot, in any order. `entries` and
    `index` are the live files and index files of the snapshot.

    A key may be returned several times. Files that were written before `alive_since` (in seconds of local time) are
    left out. First the buckets that need merging are read, one after the other, with the memory of one merge; then all
    other buckets, with `READER_BYTES` of memory for each of `readers` threads.
    """
    access = replace(access, deletions=find_deletions(access.io, access.table_path, access.schema, index))
    files: list[Callable[[], Iterator[KeyBlock]]] = []
    for bucket in group_by_bucket(entries):
        if bucket.bucket < 0 or all(written_at(f) < alive_since for f in bucket.files):
            continue
        if _has_dead_keys(access.schema, bucket):
            yield from _merged_keys(access, bucket, wanted)
        else:
            young = (f for f in bucket.files if written_at(f) >= alive_since)
            files += [partial(_stored_keys, access, bucket, file, wanted) for file in young]
    yield from read_at_once(files, readers)


def written_at(file: DataFileMeta) -> int:
    """Returns the time at which a file was made, in seconds of local time; 0 if the file does not record it, which
    counts as long ago.
    """
    return (file.creation_time_ms or 0) // 1000


def _has_dead_keys(schema: TableSchema, bucket: BucketFiles) -> bool:
    """Returns True if the files of a bucket may contain keys that the bucket does not hold any more, because later
    deletes or deletion vectors have removed the keys. The files must then be merged to find the keys of the bucket.
    """
    if old_place_rule(schema) is not OldPlaceRule.DELETE_OLD:
        return False
    return schema.settings.changelog.deletion_vectors or any(f.may_hold_deletes for f in bucket.files)


def _merged_keys(access: FileAccess, bucket: BucketFiles, wanted: KeyShare) -> Iterator[KeyBlock]:
    seconds = max(written_at(f) for f in bucket.files)
    projection = Projection(wanted.names, ALL_ROWS, wanted.names)
    for batch in read_buckets(access, [bucket], projection, batch_rows=BATCH_ROWS):
        yield _block(batch, bucket, seconds, wanted)


def _stored_keys(access: FileAccess, bucket: BucketFiles, file: DataFileMeta, wanted: KeyShare) -> Iterator[KeyBlock]:
    for batch in access.rows(bucket, file, wanted.names, batch_rows=BATCH_ROWS):
        yield _block(batch, bucket, written_at(file), wanted)


def _block(batch: pa.RecordBatch, bucket: BucketFiles, seconds: int, wanted: KeyShare) -> KeyBlock:
    return KeyBlock(wanted.normalized(batch), bucket.partition, bucket.bucket, seconds)
