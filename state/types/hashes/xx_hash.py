"""XXH64 with seed 0 of many byte strings at once: Paimon's bloom filters use it for strings and byte strings.

Source: the xxHash specification, XXH64; Paimon 2.0 FastHash.
"""

import numpy as np
from numpy.typing import NDArray

from bucketline.state.types.buffers import ByteColumn, UInt64s

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)

_STRIPE_BYTES = 32
_WORD_BYTES = 8
_HALF_BYTES = 4

_BLOCK_ROWS = 1 << 14
"""The number of rows that are hashed at a time. The state of their hashes then fits into the CPU's cache."""


def xx_hashes(column: ByteColumn) -> NDArray[np.int64]:
    """Returns the hash of each value. A null gets the hash of an empty string."""
    hashes = np.empty(len(column.starts), dtype=np.uint64)
    for first in range(0, len(hashes), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        hashes[rows] = _block(column, column.starts[rows], column.lengths[rows])
    return hashes.view(np.int64)


def _block(column: ByteColumn, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> UInt64s:
    # The longest rows come first, so the rows that have another stripe of 32 bytes are always the first rows.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    state = np.full(len(order), _P5, dtype=np.uint64)
    long = _prefix(lengths, _STRIPE_BYTES)
    if long:
        state[:long] = _stripes(column, starts[:long], lengths[:long])
    state += lengths.view(np.uint64)
    at, left = starts + lengths // _STRIPE_BYTES * _STRIPE_BYTES, lengths % _STRIPE_BYTES
    for _ in range(_STRIPE_BYTES // _WORD_BYTES - 1):
        some = np.flatnonzero(left >= _WORD_BYTES)
        state[some] = _rotated(state[some] ^ _mixed(column.load(at[some])), 27) * _P1 + _P4
        at[some] += _WORD_BYTES
        left[some] -= _WORD_BYTES
    some = np.flatnonzero(left >= _HALF_BYTES)
    half = column.load(at[some]) & np.uint64(0xFFFFFFFF)
    state[some] = _rotated(state[some] ^ (half * _P1), 23) * _P2 + _P3
    at[some] += _HALF_BYTES
    left[some] -= _HALF_BYTES
    for _ in range(_HALF_BYTES - 1):
        some = np.flatnonzero(left > 0)
        state[some] = _rotated(state[some] ^ (column.data[at[some]] * _P5), 11) * _P1
        at[some] += 1
        left[some] -= 1
    hashes = np.empty(len(order), dtype=np.uint64)
    hashes[order] = _finished(state)
    return hashes


def _stripes(column: ByteColumn, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> UInt64s:
    """Returns the state of each row's hash after all whole stripes (32 bytes) of the row.

    `starts` and `lengths` are the first byte and the length of each row. The rows are ordered by length, longest first,
    and each row has at least one stripe.
    """
    zero = np.uint64(0)
    with np.errstate(over="ignore"):
        seeds = (_P1 + _P2, _P2, zero, zero - _P1)
    lanes = [np.full(len(starts), seed, dtype=np.uint64) for seed in seeds]
    for stripe in range(int(lengths[0]) // _STRIPE_BYTES):
        rows = _prefix(lengths, (stripe + 1) * _STRIPE_BYTES)
        at = starts[:rows] + stripe * _STRIPE_BYTES
        for number, lane in enumerate(lanes):
            lane[:rows] = _rotated(lane[:rows] + column.load(at + number * _WORD_BYTES) * _P2, 31) * _P1
    whole = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        whole = (whole ^ _mixed(lane)) * _P1 + _P4
    return whole


def _prefix(descending: NDArray[np.int64], least: int) -> int:
    """Returns how many of the lengths, which descend, are at least `least`."""
    return int(np.searchsorted(-descending, -least, side="right"))


def _mixed(words: UInt64s) -> UInt64s:
    return _rotated(words * _P2, 31) * _P1


def _rotated(words: UInt64s, bits: int) -> UInt64s:
    rotated: UInt64s = (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
    return rotated


def _finished(words: UInt64s) -> UInt64s:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    finished: UInt64s = words ^ (words >> np.uint64(32))
    return finished
