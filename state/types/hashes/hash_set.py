"""A set of hashes, exact while there are few; beyond that a bitmap of their first bits, of 8 MiB for any number.

A bitmap says of some hashes that they are in the set though they are not: of one in sixteen with four million hashes,
of one in two with fifty million.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bucketline.state.types.hashes.distinct import distinct

_DROPPED_BITS = 6
_BYTES = 1 << (32 - _DROPPED_BITS - 3)


@dataclass(frozen=True, slots=True)
class HashSet:
    """A set of hashes: `exact` has them in ascending order, or else `bits` is their bitmap."""

    exact: NDArray[np.int32] | None
    bits: NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, ascending: NDArray[np.int32], most: int) -> Self:
        """Returns the set of the given hashes, exact if there are at most `most`."""
        return cls(ascending) if len(ascending) <= most else cls(None, _bitmap(ascending))

    def union(self, other: Self, most: int) -> Self:
        """Returns the hashes of both sets, exact if both are exact and have at most `most` together."""
        if self.exact is not None and other.exact is not None:
            return self.of(distinct(self.exact, other.exact), most)
        return type(self)(None, self._as_bits() | other._as_bits())

    def has(self, hashes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Returns a mask of the hashes that may be in the set. It marks every hash of the set; if the set is a bitmap,
        it may also mark other hashes.
        """
        if self.exact is not None:
            return are_among(hashes, self.exact)
        byte, bit = _places(hashes)
        is_set: NDArray[np.bool_] = (self._as_bits()[byte] & bit) != 0
        return is_set

    def _as_bits(self) -> NDArray[np.uint8]:
        if self.bits is not None:
            return self.bits
        assert self.exact is not None, "a set has one of both"
        return _bitmap(self.exact)


def are_among(hashes: NDArray[np.int32], ascending: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Returns a mask of the hashes that are among the ascending ones. There may be many more of those: numpy's `isin`
    would sort them at each call.
    """
    if not len(ascending):
        return np.zeros(len(hashes), np.bool_)
    places = np.searchsorted(ascending, hashes)
    places[places == len(ascending)] = 0
    among: NDArray[np.bool_] = ascending[places] == hashes
    return among


def _bitmap(ascending: NDArray[np.int32]) -> NDArray[np.uint8]:
    bits = np.zeros(_BYTES, np.uint8)
    if len(ascending):
        byte, bit = _places(ascending)
        # Hashes that ascend have their bytes side by side.
        starts = np.flatnonzero(np.concatenate([[True], byte[1:] != byte[:-1]]))
        bits[byte[starts]] |= np.bitwise_or.reduceat(bit, starts)
    return bits


def _places(hashes: NDArray[np.int32]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Returns the byte of each hash in a bitmap, and its bit there."""
    number = np.ascontiguousarray(hashes, np.int32).view(np.uint32) >> np.uint32(_DROPPED_BITS)
    bit: NDArray[np.uint8] = np.left_shift(np.uint8(1), (number & np.uint32(7)).astype(np.uint8))
    return number >> np.uint32(3), bit
