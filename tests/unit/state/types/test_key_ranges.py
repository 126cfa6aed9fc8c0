"""Ranges of a sort key: bounds from a sample, and the range of each key, against sorting all keys."""

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.types.curves import OrderStrategy, bounds_of, ranges_of, sort_key


def drawn(seed: int, rows: int, spread: int) -> list[pa.Array]:
    draw = np.random.default_rng(seed)
    numbers = [None if n == 0 else int(n) for n in draw.integers(0, spread, rows)]
    return [pa.array(numbers, pa.int64()), pa.array([f"t{n}" for n in draw.integers(0, spread, rows)])]


@pytest.mark.parametrize("strategy", OrderStrategy)
@pytest.mark.parametrize(("seed", "spread"), [(1, 2), (2, 9), (3, 10**6)])
def test_ranges_follow_the_order_and_equal_keys_are_in_one(strategy: OrderStrategy, seed: int, spread: int) -> None:
    key = sort_key(drawn(seed, 3000, spread), strategy)
    bounds = bounds_of(key.take(pa.array(np.arange(0, 3000, 7))), 8)
    found = ranges_of(key, bounds)
    order = [tuple(row.values()) for row in key.to_pylist()]
    by_key = sorted(zip(order, found.tolist(), strict=True))
    assert [r for _, r in by_key] == sorted(found.tolist())
    assert len({(k, r) for k, r in by_key}) == len(set(order))
    # A key at a bound begins the range above it.
    assert ranges_of(bounds, bounds).tolist() == list(range(1, bounds.num_rows + 1))
    if spread > 100:
        assert bounds.num_rows == 7 and np.bincount(found).max() < 2 * 3000 / 8


def test_few_distinct_keys_make_few_ranges() -> None:
    key = sort_key([pa.array([5] * 100)], OrderStrategy.ORDER)
    assert bounds_of(key, 4).num_rows == 1
    assert bounds_of(key.slice(0, 1), 4).num_rows == 0
    assert ranges_of(key, bounds_of(key, 1)).tolist() == [0] * 100
