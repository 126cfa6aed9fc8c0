"""The entries of the key index, as columns and as bytes. The key index is a RocksDB database on local disk that has the
partition and bucket of each key. Its keys and values are (BE, LE: big- and little-endian):

    00 "label"                 JSON: the table, which part of its keys the index has, and the snapshot of the index
    00 "p" u32 BE code         a partition, as the bytes of a BinaryRow
    00 "q" partition           u32 BE: its code
    00 "r" u32 BE code u16 BE  u64 LE: number of keys in this bucket of the partition
    01 key                     u32 LE partition code, u16 LE bucket, u32 LE seconds when the key was last written

A key is the full primary key, encoded so that its bytes have the order of the keys. Seconds are local time, like the
creation times of data files. A code is a number for a partition; each index has its own codes, and never uses a code
for a second partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.bucket.allocation import Int32s
from bucketline.state.bucket.cross_partition import NOWHERE, KeyPlaces
from bucketline.state.errors import IndexStateError
from bucketline.state.types.binary_row import hash_rows
from bucketline.state.types.logical import DataType
from bucketline.state.types.order import normalized_keys

NOTE_PROPERTY = "bucketline.key-index-notes"
"""The name of a snapshot property. Before a commit, each task notes the pending changes in its part of the key index,
with a token. The property lists the tokens of the notes that become valid with the snapshot, joined by commas.
"""

META_PREFIX = b"\x00"
KEY_PREFIX = b"\x01"
LABEL_KEY = META_PREFIX + b"label"

UInt32s = NDArray[np.uint32]

_VALUE = np.dtype([("partition", "<u4"), ("bucket", "<u2"), ("seconds", "<u4")])


@dataclass(frozen=True, slots=True, eq=False)
class HashedKeys:
    """Keys in any order: the full primary key as one comparable value (int64 or large_binary, from `normalized_keys`),
    and the hash of each key.
    """

    normalized: pa.Array
    hashes: Int32s

    def __len__(self) -> int:
        return len(self.normalized)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "HashedKeys":
        """Returns some of the keys. `rows` has their row numbers, or is a mask."""
        normalized = self.normalized.filter(pa.array(rows)) if rows.dtype == np.bool_ else self.normalized.take(rows)
        return HashedKeys(normalized, self.hashes[rows])


@dataclass(frozen=True, slots=True, eq=False)
class KeyEntries:
    """Entries of the key index: for each key the code of its partition, its bucket, and the time in seconds at which
    the key was last written.
    """

    keys: pa.Array
    partitions: Int32s
    buckets: Int32s
    seconds: UInt32s

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: NDArray[np.int64]) -> "KeyEntries":
        return KeyEntries(self.keys.take(rows), self.partitions[rows], self.buckets[rows], self.seconds[rows])


def hashed_keys(columns: Sequence[pa.Array], types: Sequence[DataType]) -> HashedKeys:
    """Returns the keys of some rows. `columns` are the columns of the full primary key, in the order of the key."""
    return HashedKeys(normalized_keys(columns, types), np.asarray(hash_rows(columns, types)))


def key_order(keys: pa.Array) -> NDArray[np.int64]:
    """Returns the row numbers in ascending order of the keys. Rows with equal keys keep their order."""
    if pa.types.is_integer(keys.type):
        return np.argsort(keys.to_numpy(), kind="stable")
    return np.asarray(pc.array_sort_indices(keys)).astype(np.int64)


def key_borders(sorted_keys: pa.Array) -> NDArray[np.bool_]:
    """Returns a mask that is true at the first key, and at each key that differs from the key before it."""
    borders = np.ones(len(sorted_keys), np.bool_)
    if len(borders) < 2:
        return borders
    if pa.types.is_integer(sorted_keys.type):
        values = sorted_keys.to_numpy()
        borders[1:] = values[1:] != values[:-1]
    else:
        borders[1:] = np.asarray(pc.not_equal(sorted_keys.slice(1), sorted_keys.slice(0, len(borders) - 1)))
    return borders


def number_keys(keys: HashedKeys) -> tuple[HashedKeys, NDArray[np.int64]]:
    """Returns the distinct keys, ascending, and for each row the position of its key among the distinct keys."""
    order = key_order(keys.normalized)
    borders = key_borders(keys.normalized.take(order))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(borders) - 1
    return keys.take(order[borders]), numbers


def stored_keys(keys: pa.Array) -> list[bytes]:
    """Returns a bytes object for each key, as RocksDB needs it."""
    if pa.types.is_integer(keys.type):
        octets = np.empty((len(keys), 9), np.uint8)
        octets[:, 0] = KEY_PREFIX[0]
        octets[:, 1:] = keys.to_numpy().astype(">i8").view(np.uint8).reshape(-1, 8)
        octets[:, 1] ^= 0x80
        return _bytes_list(octets)
    prefix, nothing = (pa.scalar(b, pa.large_binary()) for b in (KEY_PREFIX, b""))
    prefixed: list[bytes] = pc.binary_join_element_wise(prefix, keys, nothing).to_pylist()
    return prefixed


def stored_places(entries: KeyEntries) -> list[bytes]:
    """Returns for each key the bytes that the index stores as its value: the partition, the bucket and the time of
    writing.
    """
    records = np.empty(len(entries), _VALUE)
    records["partition"], records["bucket"], records["seconds"] = entries.partitions, entries.buckets, entries.seconds
    return _bytes_list(records.view(np.uint8).reshape(-1, _VALUE.itemsize))


def read_places(values: Sequence[bytes | None], *, alive_since: int = 0) -> KeyPlaces:
    """Decodes values of the key index, which say where a key is stored. Returns the partition code and the bucket of
    each value, in order. The partition code is NOWHERE if the value is None, or if the key was last written before
    `alive_since` (in seconds).

    Raises IndexStateError if a value has another format.
    """
    cells = pa.array(values, pa.large_binary())
    known = np.asarray(cells.is_valid()) if cells.null_count else np.ones(len(cells), np.bool_)
    octets = np.frombuffer(cells.buffers()[2] or b"", np.uint8)
    if len(octets) != int(known.sum()) * _VALUE.itemsize:
        raise IndexStateError("the key index has values of another format than this release writes", found=len(octets))
    stored = octets.view(_VALUE)
    partitions, buckets = np.full(len(cells), NOWHERE, np.int32), np.zeros(len(cells), np.int32)
    partitions[known] = np.where(stored["seconds"] >= alive_since, stored["partition"].astype(np.int32), NOWHERE)
    buckets[known] = stored["bucket"]
    return KeyPlaces(partitions, buckets)


def partition_key(code: int) -> bytes:
    return META_PREFIX + b"p" + code.to_bytes(4, "big")


def partition_code_key(partition: bytes) -> bytes:
    return META_PREFIX + b"q" + partition


def rows_prefix(code: int) -> bytes:
    return META_PREFIX + b"r" + code.to_bytes(4, "big")


def rows_key(code: int, bucket: int) -> bytes:
    return rows_prefix(code) + bucket.to_bytes(2, "big")


def _bytes_list(octets: NDArray[np.uint8]) -> list[bytes]:
    """Returns each row of a matrix of bytes as a bytes object."""
    pieces: list[bytes] = np.ascontiguousarray(octets).view(f"V{octets.shape[1]}").ravel().tolist()
    return pieces
