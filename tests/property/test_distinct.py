"""Distinct values against a set."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bucketline.state.types.hashes.distinct import distinct

NUMBERS = arrays(np.int32, st.integers(0, 30), elements=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3))


@given(NUMBERS)
def test_each_value_once_in_order(values: np.ndarray) -> None:
    before = values.copy()
    found = distinct(values)
    assert found.tolist() == sorted(set(values.tolist())) and found.dtype == np.int32
    assert (values == before).all()


@given(NUMBERS, NUMBERS)
def test_of_two_arrays(left: np.ndarray, right: np.ndarray) -> None:
    assert distinct(left, right).tolist() == sorted({*left.tolist(), *right.tolist()})
