"""Bloom filters of columns, against a reading of Paimon's that adds and tests one value at a time."""

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.index.bloom_filter import BloomFilter, BloomSize, bloom_hashes, may_hold
from bucketline.state.types.logical import parse_type_text


def _int32(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _places(hashed: int, bit_count: int, hash_count: int) -> list[int]:
    low, high = _int32(hashed), _int32(hashed >> 32)
    found = []
    for number in range(1, hash_count + 1):
        combined = _int32(low + number * high)
        found.append((~combined if combined < 0 else combined) % bit_count)
    return found


def _stored(hashes: Sequence[int], size: BloomSize) -> bytes:
    bits = bytearray(size.bit_count // 8)
    for hashed in hashes:
        for place in _places(hashed, size.bit_count, size.hash_count):
            bits[place >> 3] |= 1 << (place & 7)
    return size.hash_count.to_bytes(4, "big") + bytes(bits)


@pytest.mark.parametrize(("items", "share"), [(1, 0.5), (10, 0.1), (3_000, 0.01)])
def test_filters_are_those_of_one_value_at_a_time(items: int, share: float) -> None:
    size = BloomSize.of(items, share)
    assert size.bit_count % 8 == 0
    assert size.bit_count > -items * math.log(share) / math.log(2) ** 2 - 1
    draw = random.Random(items)
    hashes = [draw.randrange(-(1 << 63), 1 << 63) for _ in range(items)]
    filled = BloomFilter(size)
    filled.add(np.array(hashes[: items // 2], np.int64))
    filled.add(np.array(hashes[items // 2 :], np.int64))
    assert filled.to_bytes() == _stored(hashes, size)


def test_values_that_were_added_are_found_and_few_others() -> None:
    kind = parse_type_text("STRING")
    filled = BloomFilter(BloomSize.of(2_000, 0.05))
    filled.add(bloom_hashes(pa.array([f"in {i}" for i in range(2_000)]), kind))
    stored = filled.to_bytes()
    assert may_hold(stored, bloom_hashes(pa.array([f"in {i}" for i in range(2_000)]), kind)).all()
    wrong = may_hold(stored, bloom_hashes(pa.array([f"out {i}" for i in range(4_000)]), kind)).mean()
    assert 0 < wrong < 0.1


def test_a_filter_of_no_values_holds_nothing() -> None:
    stored = BloomFilter(BloomSize.of(1, 0.1)).to_bytes()
    assert not may_hold(stored, np.array([0, -1, 7], np.int64)).any()


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("TINYINT", pa.array([-5, None], pa.int8()), pa.array([-5], pa.int64())),
        ("INT", pa.chunked_array([pa.array([1 << 30], pa.int32())]), pa.array([1 << 30], pa.int64())),
        ("TIMESTAMP(3)", pa.array([7], pa.timestamp("ms")), pa.array([7], pa.int64())),
        ("TIMESTAMP(6)", pa.array([-7], pa.timestamp("us")), pa.array([-7], pa.int64())),
        ("TIMESTAMP(9)", pa.array([-7_001], pa.timestamp("ns")), pa.array([-8], pa.int64())),
        ("DATE", pa.array([11], pa.date32()), pa.array([11], pa.int64())),
        ("TIME(0)", pa.array([12], pa.time32("ms")), pa.array([12], pa.int64())),
        ("DOUBLE", pa.array([1.5], pa.float64()), pa.array([0x3FF8 << 48], pa.int64())),
        ("FLOAT", pa.array([-1.5], pa.float32()), pa.array([-0x40400000], pa.int64())),
    ],
    ids=str,
)
def test_each_type_is_hashed_as_the_number_that_paimon_takes_it_for(kind: str, one: Any, other: pa.Array) -> None:
    hashes = bloom_hashes(one, parse_type_text(kind))
    assert hashes.tolist() == bloom_hashes(other, parse_type_text("BIGINT")).tolist()


def test_every_nan_is_one_value() -> None:
    others = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    kind = parse_type_text("DOUBLE")
    assert set(bloom_hashes(pa.array(others), kind).tolist()) == set(
        bloom_hashes(pa.array([math.nan], pa.float64()), kind).tolist()
    )


def test_moments_with_a_zone_hash_as_moments() -> None:
    moment = datetime(2024, 2, 29, 12, tzinfo=UTC)
    stored = bloom_hashes(pa.array([moment], pa.timestamp("us", "UTC")), parse_type_text("TIMESTAMP_LTZ(6)"))
    assert (
        stored.tolist()
        == bloom_hashes(pa.array([int(moment.timestamp()) * 1_000_000], pa.int64()), parse_type_text("BIGINT")).tolist()
    )


@pytest.mark.parametrize("stored", [b"", b"\0\0\0\2", b"\0\0\0\0\xff", b"\xff\xff\xff\xff\xff"])
def test_damaged_filters_are_refused(stored: bytes) -> None:
    with pytest.raises(CorruptFileError, match="bloom filter"):
        may_hold(stored, np.array([1], np.int64))
