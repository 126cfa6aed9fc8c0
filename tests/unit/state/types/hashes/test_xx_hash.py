"""XXH64 of many rows against a row-at-a-time reading of its specification."""

import random

import numpy as np
import pyarrow as pa

from bucketline.state.types.buffers import byte_column
from bucketline.state.types.hashes.xx_hash import xx_hashes

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _xxh64(data: bytes) -> int:
    at = 0
    state = _P5
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= len(data):
            words = [int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4)]
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        state = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK
    state = (state + len(data)) & _MASK
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 8], "little")
        state = (_rotated(state ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        state = (_rotated(state ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        state = _rotated(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    state = (state ^ (state >> 33)) * _P2 & _MASK
    state = (state ^ (state >> 29)) * _P3 & _MASK
    return state ^ (state >> 32)


def test_the_reference_gives_the_hashes_of_the_specification() -> None:
    assert _xxh64(b"") == 0xEF46DB3751D8E999
    assert _xxh64(b"abc") == 0x44BC2CF5AD770999


def test_rows_of_every_length_hash_as_one_by_one() -> None:
    draw = random.Random(5)
    lengths = [*range(100), *(draw.choice((0, 3, 8, 31, 32, 33, 64, 200)) for _ in range(400))]
    draw.shuffle(lengths)
    values = [draw.randbytes(length) for length in lengths]
    whole = pa.array([b"before", *values], pa.large_binary())
    hashes = xx_hashes(byte_column(whole[1:]))
    assert hashes.view(np.uint64).tolist() == [_xxh64(v) for v in values]


def test_no_rows_have_no_hashes() -> None:
    assert len(xx_hashes(byte_column(pa.array([], pa.large_binary())))) == 0
