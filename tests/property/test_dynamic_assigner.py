"""Dynamic assignment against a row-at-a-time reference, and through restarts with another number of assigners."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.allocation import (
    MAX_DYNAMIC_BUCKETS,
    Allocation,
    AllocationRule,
    Ownership,
    assigner_count,
    hash_share,
)
from bucketline.state.bucket.dynamic import (
    NOTHING_KNOWN,
    UNKNOWN,
    DynamicAssigner,
    KnownHashes,
    known_hashes,
)
from tests.support.models.sweeps import draws

small = st.integers(-12, 12) | st.sampled_from([-(2**31), 2**31 - 1])
batches = st.lists(st.lists(small, max_size=25), min_size=1, max_size=5)


def int32s(values: list[int]) -> np.ndarray:
    return np.array(values, np.int32)


class RowAtATime:
    """Semantics 7.3, one hash after the other."""

    def __init__(self, own: Ownership, rule: AllocationRule, index: dict[int, set[int]]) -> None:
        self.own, self.rule = own, rule
        self.bucket_of = {h: b for b in sorted(index, reverse=True) for h in index[b]}
        self.rows = {b: len(hashes) for b, hashes in index.items()}

    def assign(self, h: int) -> int:
        if h in self.bucket_of:
            return self.bucket_of[h]
        bucket = self._open_bucket(h)
        self.rows[bucket] = self.rows.get(bucket, 0) + 1
        self.bucket_of[h] = bucket
        return bucket

    def _open_bucket(self, h: int) -> int:
        for b in sorted(self.rows):
            if self.own.owns(b) and self.rows[b] < self.rule.target_rows:
                return b
        for b in range(self.rule.bucket_limit):
            if self.own.owns(b) and b not in self.rows:
                return b
        owned = sorted(b for b in self.rows if self.own.owns(b))
        return owned[abs(int(np.fmod(np.int32(h), np.int32(len(owned)))))]


@given(
    batches=batches,
    index=st.dictionaries(st.integers(0, 5), st.sets(small, max_size=6), max_size=4),
    assigners=st.integers(1, 3),
    target=st.integers(1, 5),
    limit=st.none() | st.integers(3, 6),
    data=st.data(),
)
@draws(300)
def test_assigning_columns_equals_assigning_rows(batches, index, assigners, target, limit, data) -> None:
    unique: dict[int, list[int]] = {}
    for bucket, hashes in index.items():
        unique[bucket] = sorted(hashes.difference(*unique.values()))
    own = Ownership(data.draw(st.integers(0, assigners - 1)), assigners)
    rule = AllocationRule(target, limit if limit is None else max(limit, assigners))
    reference = RowAtATime(own, rule, {b: set(h) for b, h in unique.items() if h})
    assigner = DynamicAssigner.starting(known_hashes({b: int32s(h) for b, h in unique.items() if h}), own, rule)
    for batch in batches:
        result, assigner = assigner.assign(int32s(batch))
        assert result.buckets.tolist() == [reference.assign(h) for h in batch]
        assert dict(assigner.allocation.rows) == reference.rows
        assert dict(zip(assigner.known.hashes.tolist(), assigner.known.buckets.tolist(), strict=True)) == dict(
            sorted(reference.bucket_of.items())
        )


@given(
    batches=batches,
    parallelism=st.lists(st.sampled_from([1, 2, 4, 7]), min_size=5, max_size=5),
    target=st.integers(1, 4),
)
@draws(200)
def test_a_hash_never_gets_a_second_bucket_whatever_the_parallelism(batches, parallelism, target) -> None:
    """Each batch is a restart: the assigners know what the index of the partition says and nothing else."""
    rule = AllocationRule(target)
    index: dict[int, set[int]] = {}
    for batch, tasks in zip(batches, parallelism, strict=False):
        hashes = int32s(batch)
        known = known_hashes({b: int32s(sorted(h)) for b, h in index.items()})
        assigners = assigner_count(len(known.hashes), parallelism=tasks, rule=rule)
        buckets = known.lookup(hashes)
        # A known key belongs to the owner of its bucket, a new one to an assigner by its hash.
        owner = np.where(buckets == UNKNOWN, hash_share(hashes, assigners), buckets % assigners)
        writers: dict[int, int] = {}
        for number in range(assigners):
            start = DynamicAssigner.starting(known, Ownership(number, assigners), rule)
            result, _ = start.assign(hashes[owner == number])
            for bucket in set(result.buckets.tolist()):
                assert writers.setdefault(bucket, number) == number, "two tasks write one bucket"
            for bucket, new in result.new_by_bucket().items():
                index.setdefault(bucket, set()).update(new.tolist())
        everything = [h for hs in index.values() for h in hs]
        assert len(everything) == len(set(everything))
        assert {h for b in batches[: batches.index(batch) + 1] for h in b} <= set(everything)
        assert all(len(h) <= target for h in index.values())


def test_a_small_partition_has_one_bucket_however_many_tasks_write() -> None:
    rule = AllocationRule(2_000_000)
    assert assigner_count(0, parallelism=200, rule=rule) == 1
    assert assigner_count(1000, parallelism=200, rule=rule, expected_rows=1000) == 1
    assert assigner_count(350_000, parallelism=200, rule=rule) == 4
    assert assigner_count(10**9, parallelism=200, rule=rule) == 200


def test_initial_buckets_and_max_buckets_bound_the_assigners() -> None:
    assert assigner_count(0, parallelism=8, rule=AllocationRule(10), initial_buckets=3) == 3
    assert assigner_count(0, parallelism=2, rule=AllocationRule(10), initial_buckets=3) == 2
    assert assigner_count(10**6, parallelism=8, rule=AllocationRule(10, 2)) == 2
    assert assigner_count(10**6, parallelism=8, rule=AllocationRule(10, 2), initial_buckets=5) == 2


def test_the_limit_counts_for_each_partition_alone() -> None:
    """Paimon keeps one largest id for all partitions; the second partition then gets bucket 0 only."""
    rule = AllocationRule(1, 2)
    for _ in range(2):
        result, _ = DynamicAssigner.starting(NOTHING_KNOWN, Ownership(), rule).assign(int32s([1, 2, 3]))
        assert set(result.buckets.tolist()) == {0, 1}


def test_a_table_without_limit_that_has_no_bucket_left_names_the_option() -> None:
    full = Allocation({b: 1 for b in range(MAX_DYNAMIC_BUCKETS)}, Ownership(), AllocationRule(1))
    with pytest.raises(OptionError, match=r"Too more bucket 32767.*dynamic-bucket\.target-row-num"):
        full.allocate(int32s([5]))


def test_unknown_hashes_and_known_buckets_at_both_ends_of_the_range() -> None:
    known = known_hashes({32766: int32s([2**31 - 1]), 0: int32s([-(2**31)])})
    assert known.lookup(int32s([0, 2**31 - 1, -(2**31)])).tolist() == [UNKNOWN, 32766, 0]
    assert known.without([0]).lookup(int32s([-(2**31)])).tolist() == [UNKNOWN]
    assert known.hashes_of(32766).tolist() == [2**31 - 1]
    assert hash_share(int32s([-(2**31), -7, 7]), 4).tolist() == [0, 3, 3]


def test_a_hash_that_a_damaged_index_has_twice_goes_to_the_lowest_bucket() -> None:
    known = known_hashes({3: int32s([5]), 1: int32s([5, 6])})
    assert isinstance(known, KnownHashes)
    assert known.hashes.tolist() == [5, 6]
    assert known.lookup(int32s([5])).tolist() == [1]
