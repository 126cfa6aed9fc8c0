"""Sets of hashes: nothing that is in one is missed, and few others are taken for one, however many there are."""

import numpy as np
import pytest

from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.hashes.hash_set import HashSet

EDGES = np.array([-(2**31), -1, 0, 1, 63, 64, 2**31 - 1], np.int32)


def drawn(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, count, np.int32)


@pytest.mark.parametrize("most", [0, 40_000, 10**9])
def test_a_union_has_all_of_both_and_is_exact_while_it_is_small(most: int) -> None:
    one, two = distinct(drawn(1, 20_000), EDGES), distinct(drawn(2, 30_000))
    found = HashSet.of(one, most).union(HashSet.of(two, most), most)
    assert found.has(one).all() and found.has(two).all()
    assert (found.exact is not None) == (most > 50_007) and (found.bits is None) == (most > 50_007)
    others = drawn(3, 100_000)
    true = np.isin(others, one) | np.isin(others, two)
    taken = found.has(others)
    assert (taken[true]).all()
    if most > 50_007:
        assert (taken == true).all()
    else:
        assert taken[~true].mean() < 0.002


def test_a_bitmap_takes_a_sixteenth_of_others_with_four_million_hashes() -> None:
    found = HashSet.of(distinct(drawn(4, 4 << 20)), 0)
    assert found.bits is not None and found.bits.nbytes == 8 << 20
    assert found.has(drawn(5, 100_000)).mean() == pytest.approx(1 / 16, rel=0.1)


@pytest.mark.parametrize("most", [0, 1])
def test_nothing_is_in_an_empty_set(most: int) -> None:
    empty = HashSet.of(np.empty(0, np.int32), most)
    assert not empty.has(EDGES).any() and len(empty.has(EDGES[:0])) == 0
    one = HashSet.of(EDGES[:1], 0)
    assert empty.union(one, most).has(EDGES[:1]).all()
