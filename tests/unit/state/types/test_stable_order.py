"""Rows of one integer key stay in the order they came in, few or many of them."""

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.types.order import sort_indices

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("distinct", [1, 2, 40, 500, 3_000, 20_000, 2**62])
@pytest.mark.parametrize("count", [0, 1, 2, 4_000])
def test_equal_keys_stay_in_the_order_they_came_in(distinct: int, count: int) -> None:
    keys = RANDOM.integers(-distinct, distinct, count)
    found = sort_indices(pa.table({"k": keys}), ["k"])
    assert found.type == pa.uint64()
    assert found.to_pylist() == sorted(range(count), key=lambda i: keys[i])
