"""A set of hashes. A small set stores the hashes themselves; a large one is a bitmap of their first bits, which always
takes 8 MiB.

A bitmap also reports some hashes that are not in the set: one in sixteen if the set has four million hashes, and one in
two if it has fifty million.
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
    """A set of hashes. Either `exact` holds the hashes in ascending order, or `exact` is None and `bits` is the bitmap
    of the hashes.
    """

    exact: NDArray[np.int32] | None
    bits: NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, ascending: NDArray[np.int32], most: int) -> Self:
        """Returns the set of the given hashes, which must ascend. The set stores the hashes themselves if there are at
        most `most`, and a bitmap otherwise.
        """
        return cls(ascending) if len(ascending) <= most else cls(None, _bitmap(ascending))

    def union(self, other: Self, most: int) -> Self:
        """Returns the set of the hashes of both sets. The result stores the hashes themselves if both sets do and if it
        has at most `most` hashes, and a bitmap otherwise.
        """
        if self.exact is not None and other.exact is not None:
            return self.of(distinct(self.exact, other.exact), most)
        return type(self)(None, self._as_bits() | other._as_bits())

    def has(self, hashes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Returns a mask of the hashes that may be in the set. The mask marks every hash of the set; if the set is a
        bitmap, the mask may also mark other hashes.
        """
        if self.exact is not None:
            return are_among(hashes, self.exact)
        byte, bit = _places(hashes)
        is_set: NDArray[np.bool_] = (self._as_bits()[byte] & bit) != 0
        return is_set

    def _as_bits(self) -> NDArray[np.uint8]:
        if self.bits is not None:
            return self.bits
        assert self.exact is not None, "a set has either hashes or a bitmap"
        return _bitmap(self.exact)


def are_among(hashes: NDArray[np.int32], ascending: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Returns a mask of the hashes that are in `ascending`. `ascending` may be much longer than `hashes`: numpy's
    `isin` would sort all of `ascending` at each call.
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
        # The hashes ascend, so the hashes that fall into the same byte of the bitmap follow each other.
        starts = np.flatnonzero(np.concatenate([[True], byte[1:] != byte[:-1]]))
        bits[byte[starts]] |= np.bitwise_or.reduceat(bit, starts)
    return bits


def _places(hashes: NDArray[np.int32]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Returns for each hash the index of the byte in a bitmap that has the bit of this hash, and a byte in which only
    this bit is set.
    """
    number = np.ascontiguousarray(hashes, np.int32).view(np.uint32) >> np.uint32(_DROPPED_BITS)
    bit: NDArray[np.uint8] = np.left_shift(np.uint8(1), (number & np.uint32(7)).astype(np.uint8))
    return number >> np.uint32(3), bit
