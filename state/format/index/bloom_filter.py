"""Bloom filters for columns of data files. A filter tells whether a file may hold a value. A filter never misses a
value that the file holds, but for a few other values the filter wrongly says that the file may hold the value.

Source: Paimon 2.0 BloomFilterFileIndex, BloomFilter64, FastHash; docs/concepts/spec/fileindex.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.types.buffers import BYTE_ROOTS, TIMESTAMP_ROOTS, byte_column, fixed_values, physical_array
from bucketline.state.types.hashes.xx_hash import xx_hashes
from bucketline.state.types.logical import DataType, TypeRoot

BLOOM_FILTER = "bloom-filter"
"""The name of this index in options and index files."""

Hashes = NDArray[np.int64]

_WIDTHS = {
    TypeRoot.TINYINT: "<i1",
    TypeRoot.SMALLINT: "<i2",
    TypeRoot.INT: "<i4",
    TypeRoot.BIGINT: "<i8",
    TypeRoot.DATE: "<i4",
    TypeRoot.TIME: "<i4",
}
_COUNT_BYTES = 4
_MOST_MILLIS_DIGITS = 3
_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class BloomSize:
    """The size of a filter: its number of bits, and how many bits each value sets."""

    bit_count: int
    hash_count: int

    @staticmethod
    def of(items: int, wrong_share: float) -> "BloomSize":
        """Returns the size of a filter for `items` different values. `wrong_share` is the rate of false positives, from
        0 to 1: the fraction of values outside the filter that the filter wrongly reports as possible.
        """
        bits = int(-items * math.log(wrong_share) / (math.log(2) * math.log(2)))
        bits += 8 - bits % 8
        return BloomSize(bits, max(1, math.floor(bits / items * math.log(2) + 0.5)))


class BloomFilter:
    """A bloom filter under construction: values are added, then the filter is encoded."""

    def __init__(self, size: BloomSize) -> None:
        self._size = size
        # While values are added, each bit takes a byte, because setting bytes is several times as fast.
        self._flags = np.zeros(size.bit_count, dtype=np.bool_)

    def add(self, hashes: Hashes) -> None:
        for bits in _bits(hashes, self._size):
            self._flags[bits] = True

    def to_bytes(self) -> bytes:
        """Returns the filter in the format of index files."""
        packed = np.packbits(self._flags, bitorder="little")
        return self._size.hash_count.to_bytes(_COUNT_BYTES, "big") + packed.tobytes()


def may_hold(stored: bytes, hashes: Hashes) -> NDArray[np.bool_]:
    """Returns a mask of `hashes`: true if the file may hold a value with this hash, according to its bloom filter
    `stored`. Raises CorruptFileError if the filter is damaged.
    """
    bits = np.frombuffer(stored, dtype=np.uint8, offset=min(_COUNT_BYTES, len(stored)))
    hash_count = int.from_bytes(stored[:_COUNT_BYTES], "big")
    if not len(bits) or not 1 <= hash_count <= 8 * len(bits):
        raise CorruptFileError(
            f"a bloom filter of {counted(len(stored), 'byte')} cannot have {counted(hash_count, 'bit')} for each value"
        )
    found = np.ones(len(hashes), dtype=np.bool_)
    for places in _bits(hashes, BloomSize(8 * len(bits), hash_count)):
        found &= (bits[places >> 3] >> (places & 7).astype(np.uint8)) & 1 == 1
    return found


def bloom_hashes(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> Hashes:
    """Returns the hashes of a column's values without its nulls.

    Timestamps with a precision of at most 3 are hashed as milliseconds, and others as microseconds, rounded down.
    """
    array = physical_array(column.drop_null(), data_type)
    if data_type.root in BYTE_ROOTS:
        if pa.types.is_large_string(array.type):
            array = array.view(pa.large_binary())
        return xx_hashes(byte_column(array))
    if data_type.root in TIMESTAMP_ROOTS:
        values = fixed_values(array, "<i8")
        per_milli = _PER_MILLI[array.type.unit]
        unit = 1 if (data_type.precision or 0) <= _MOST_MILLIS_DIGITS else 1_000
        return _of_numbers(values // (per_milli // unit) if per_milli > unit else values * (unit // per_milli))
    if data_type.root is TypeRoot.DOUBLE:
        return _of_numbers(_one_nan(fixed_values(array, "<f8")).view(np.int64))
    if data_type.root is TypeRoot.FLOAT:
        return _of_numbers(_one_nan(fixed_values(array, "<f4")).view(np.int32).astype(np.int64))
    return _of_numbers(fixed_values(array, _WIDTHS[data_type.root]).astype(np.int64))


def _one_nan(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Returns the values, with every NaN replaced by the NaN that Java uses."""
    return np.where(np.isnan(values), np.array(np.nan, dtype=values.dtype), values)


def _of_numbers(key: Hashes) -> Hashes:
    """Returns Thomas Wang's hash of 64-bit numbers."""
    key = ~key + (key << 21)
    key = key ^ (key >> 24)
    key = (key + (key << 3)) + (key << 8)
    key = key ^ (key >> 14)
    key = (key + (key << 2)) + (key << 4)
    key = key ^ (key >> 28)
    hashes: Hashes = key + (key << 31)
    return hashes


def _bits(hashes: Hashes, size: BloomSize) -> Sequence[NDArray[np.int64]]:
    """Returns an array for each hash function. The array has for each value the position of the bit that the value sets
    in the filter.
    """
    low, high = hashes.astype(np.int32), (hashes >> 32).astype(np.int32)
    found = []
    for number in range(1, size.hash_count + 1):
        combined = low + np.int32(number) * high
        found.append(np.where(combined < 0, ~combined, combined).astype(np.int64) % size.bit_count)
    return found
