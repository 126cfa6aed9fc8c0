"""MurmurHash3 x86 32-bit over little-endian words, seed 42: the hash behind buckets and HASH indexes.

Source: Paimon 2.0 MurmurHashUtils (hashBytesByWords). All lengths are multiples of 4, so no bytes are left after the
last word.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

UInt32s = NDArray[np.uint32]

_SEED = 42
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_M5 = np.uint32(5)
_N5 = np.uint32(0xE6546B64)
_F1 = np.uint32(0x85EBCA6B)
_F2 = np.uint32(0xC2B2AE35)

# The number of rows that are hashed at a time. The hash state and two columns of words then fit into the CPU's cache.
_BLOCK_ROWS = 1 << 15


def murmur_words(words: UInt32s) -> NDArray[np.int32]:
    """Returns the hash of each row of a matrix of words."""
    row_count, width = words.shape
    hashes = np.empty(row_count, dtype=np.int32)
    for start in range(0, row_count, _BLOCK_ROWS):
        block = words[start : start + _BLOCK_ROWS]
        hashes[start : start + _BLOCK_ROWS] = murmur_columns((block[:, j] for j in range(width)), width)
    return hashes


def murmur_columns(columns: Iterable[UInt32s], width: int) -> NDArray[np.int32]:
    """Returns the hash of each row. Column i holds word i of every row, and there are `width` columns.

    A column may have a single word, which then counts for all rows. If every column has a single word, the result is
    one hash.
    """
    state = np.full(1, _SEED, dtype=np.uint32)
    for column in columns:
        state = _mix(state, column)
    return _finish(state, np.uint32(4 * width))


def murmur_ragged(words: UInt32s, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Returns the hash of rows of different lengths: row i is `words[starts[i] : starts[i] + counts[i]]`.

    The rows are hashed in blocks of many rows, and each block is sorted by length, longest row first. So the rows that
    have an i-th word are the first rows of the block, and numpy is called a few times for each word of the longest row.
    """
    hashes = np.empty(len(starts), dtype=np.int32)
    for begin in range(0, len(starts), _BLOCK_ROWS):
        end = begin + _BLOCK_ROWS
        hashes[begin:end] = _ragged_block(words, starts[begin:end], counts[begin:end])
    return hashes


def _ragged_block(words: UInt32s, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int32]:
    longest, shortest = int(counts.max()), int(counts.min())
    if longest == shortest:
        return np.broadcast_to(murmur_columns((words[starts + j] for j in range(longest)), longest), len(starts))
    order = np.argsort(-counts, kind="stable")
    starts, ascending = starts[order], counts[order[::-1]]
    # active[j] is the number of rows that have a word j.
    active = len(starts) - np.searchsorted(ascending, np.arange(longest), side="right")
    state = np.full(len(starts), _SEED, dtype=np.uint32)
    for j, rows in enumerate(active.tolist()):
        state[:rows] = _mix(state[:rows], words[starts[:rows] + j])
    hashes = np.empty(len(starts), dtype=np.int32)
    hashes[order] = _finish(state, (counts[order] * 4).astype(np.uint32))
    return hashes


def _mix(state: UInt32s, column: UInt32s) -> UInt32s:
    k = column * _C1
    high = k >> np.uint32(17)
    k <<= np.uint32(15)
    k |= high
    k *= _C2
    h: UInt32s = state ^ k
    high = h >> np.uint32(19)
    h <<= np.uint32(13)
    h |= high
    h *= _M5
    h += _N5
    return h


def _finish(state: UInt32s, length_bytes: UInt32s | np.uint32) -> NDArray[np.int32]:
    h: UInt32s = state ^ length_bytes
    h ^= h >> np.uint32(16)
    h *= _F1
    h ^= h >> np.uint32(13)
    h *= _F2
    h ^= h >> np.uint32(16)
    return h.view(np.int32)
