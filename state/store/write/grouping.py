"""Decides which rows of a map task are sent together: the rows of one bucket, or, if the buckets are not known yet, the
rows of one share (the keys that one task owns, by their hash).

A grouping is a plain value. On the task that has the rows, `open` turns the grouping into a function that gives each
row a group number. A number n >= 0 is a bucket. A number n < 0 stands for the share -1 - n of a partition's new keys:
the task that owns the share decides about their buckets (`new_keys`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from bucketline.conf.table.choices import BucketFunction
from bucketline.state.bucket.allocation import Assigners, hash_share
from bucketline.state.bucket.dynamic import UNKNOWN
from bucketline.state.bucket.fixed import assign_fixed_buckets
from bucketline.state.bucket.mode import bucket_keys
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import index_folder
from bucketline.state.store.index.hash_index_store import HashIndexStore, shared_hash_cache
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.types.binary_row import hash_rows

HashEntries = Mapping[bytes, tuple[IndexManifestEntry, ...]]
"""The files of the HASH index, by partition. Partitions without such files are left out."""

GroupRows = Callable[[pa.Table, Sequence[bytes], np.ndarray], np.ndarray]
"""A function that takes rows, the list of their partitions, and for each row its position in this list. It returns the
group number of each row as int64.
"""


class Grouping(Protocol):
    """A rule that decides which rows a task sends together: the rows of one bucket, or the rows of one share (the keys
    that one task handles, by their hash). A Grouping is a plain value that can be sent to tasks.
    """

    def open(self, schema: TableSchema) -> GroupRows:
        """Returns a function that takes rows of a table with this schema, and returns a group number for each row. A
        number n >= 0 is a bucket. A number n < 0 stands for the share -1 - n (the keys that one task handles).
        """
        ...


@dataclass(frozen=True, slots=True)
class OneBucket:
    """Puts all rows into bucket 0, for append tables without buckets."""

    def open(self, schema: TableSchema) -> GroupRows:
        del schema
        return lambda rows, partitions, codes: np.zeros(rows.num_rows, np.int64)


@dataclass(frozen=True, slots=True)
class FixedBuckets:
    """Groups rows by bucket. `function` computes the bucket from the bucket key and the bucket count of the partition.
    `counts` holds the counts of some partitions; `count` applies to all other partitions.
    """

    count: int
    function: BucketFunction
    counts: Mapping[bytes, int] = field(default_factory=dict)

    def open(self, schema: TableSchema) -> GroupRows:
        fields = schema.select(bucket_keys(schema))

        def group(rows: pa.Table, partitions: Sequence[bytes], codes: np.ndarray) -> np.ndarray:
            columns = [rows[f.name] for f in fields]
            types = [f.type for f in fields]
            count_of = np.array([self.counts.get(p, self.count) for p in partitions])
            buckets = np.empty(rows.num_rows, np.int64)
            for count in np.unique(count_of).tolist():
                assigned = assign_fixed_buckets(columns, types, count, function=self.function)
                members = count_of[codes] == count
                buckets[members] = np.asarray(assigned)[members]
            return buckets

        return group


@dataclass(frozen=True, slots=True)
class KeyShares:
    """Groups rows by share. A share is a group of keys that one task handles. The hash of the columns `columns` decides
    the share of a row. So all rows of a key are in one group, whatever bucket they will get.

    With `across_partitions` a group holds rows of all partitions, in order of arrival.
    """

    count: int
    columns: tuple[str, ...]
    across_partitions: bool = False

    def open(self, schema: TableSchema) -> GroupRows:
        fields = schema.select(self.columns)

        def group(rows: pa.Table, partitions: Sequence[bytes], codes: np.ndarray) -> np.ndarray:
            hashes = hash_rows([rows[f.name] for f in fields], [f.type for f in fields])
            return share_group(hash_share(np.asarray(hashes), self.count))

        return group


@dataclass(frozen=True, slots=True)
class HashShares:
    """Groups rows by share. A share is the keys of a partition that one task owns. The hash of the trimmed primary key
    decides, so keys in the HASH index and new keys are treated alike. A partition has as many shares as tasks that
    choose buckets (`assigners`).
    """

    assigners: Assigners

    def open(self, schema: TableSchema) -> GroupRows:
        fields = schema.select(schema.trimmed_primary_key)

        def group(rows: pa.Table, partitions: Sequence[bytes], codes: np.ndarray) -> np.ndarray:
            columns = [rows[f.name] for f in fields]
            hashes = np.asarray(hash_rows(columns, [f.type for f in fields]))
            counts = np.array([self.assigners.count(p) for p in partitions], np.int32)
            return share_group(hash_share(hashes, counts[codes]))

        return group


@dataclass(frozen=True, slots=True)
class GivenBuckets:
    """Groups rows by the buckets that an earlier step has written into the column `_bucket`. Sealed runs (sorted,
    packed rows) do not have this column.
    """

    column: ClassVar[str] = "_bucket"

    def open(self, schema: TableSchema) -> GroupRows:
        del schema
        return lambda rows, partitions, codes: np.asarray(rows[self.column].combine_chunks()).astype(np.int64)


@dataclass(frozen=True, slots=True)
class KnownBuckets:
    """Groups the rows of tables with dynamic buckets. A row whose key is in the HASH index goes to the group of its
    bucket. A row with a new key goes to the group of a share (a part of the keys, chosen by hash), because its bucket
    is not chosen yet.

    `entries` are the HASH files of each partition at the snapshot on which the batch is planned. `assigners` says how
    many shares the new keys of a partition have. HASH files are read for partitions that have rows, and cached in
    this process up to `cache_bytes`.
    """

    uri: str
    entries: HashEntries
    assigners: Assigners
    cache_bytes: int = 256 << 20

    def open(self, schema: TableSchema) -> GroupRows:
        store = hash_index_store(self.uri, schema, self.cache_bytes)
        fields = schema.select(schema.trimmed_primary_key)

        def group(rows: pa.Table, partitions: Sequence[bytes], codes: np.ndarray) -> np.ndarray:
            columns = [rows[f.name] for f in fields]
            hashes = np.asarray(hash_rows(columns, [f.type for f in fields]))
            groups = np.empty(rows.num_rows, np.int64)
            known_of_each = store.known_of_each([self.entries.get(p, ()) for p in partitions])
            for code, (partition, known) in enumerate(zip(partitions, known_of_each, strict=True)):
                members = np.flatnonzero(codes == code) if len(partitions) > 1 else slice(None)
                buckets = known.lookup(hashes[members])
                share = share_group(hash_share(hashes[members], self.assigners.count(partition)))
                groups[members] = np.where(buckets == UNKNOWN, share, buckets)
            return groups

        return group


def share_group(shares: np.ndarray) -> np.ndarray:
    """Returns the number by which sealed runs (sorted, packed rows) are grouped, for rows that have no bucket yet: -1
    stands for share 0, -2 for share 1, and so on. A share is the set of keys that one task handles.
    """
    return -1 - shares.astype(np.int64)


def share_of_group(group: int) -> int | None:
    """Takes a group number, which stands for a bucket (0 or more) or for a share (below 0). A share is the group of
    keys that one task owns. Returns the number of the share; None for a bucket.
    """
    return -1 - group if group < 0 else None


def hash_index_store(uri: str, schema: TableSchema, cache_bytes: int) -> HashIndexStore:
    """Returns access to the HASH files of a table, with this process's cache of `cache_bytes` bytes."""
    io, path = file_io_for(uri, schema.storage)
    cached, folder_of = shared_hash_cache(cache_bytes), partial(index_folder, schema)
    return HashIndexStore(io, path, cached=cached, storage=schema.storage, folder_of=folder_of)
