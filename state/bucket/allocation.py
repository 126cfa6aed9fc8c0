"""Chooses the bucket of a new key in a partition of a dynamic table.

Several tasks, called assigners, may choose buckets in one partition. Two assigners must never create the same bucket,
so each of n assigners owns every n-th bucket number, and puts new keys into its own buckets until these are full.
Paimon's format only requires that a known key keeps its bucket; a new key may go to any bucket.

Source: Paimon 2.0 HashBucketAssigner, PartitionIndex, crosspartition BucketAssigner. Different here: the limit on
buckets counts for each partition. Once the limit is reached, the hash of the row chooses the bucket, not a random
number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bucketline.conf.errors import OptionError
from bucketline.conf.table.bucket_options import TARGET_ROW_NUM

Int32s = NDArray[np.int32]

MAX_DYNAMIC_BUCKETS = 32767
"""The largest number of buckets in a partition of a dynamic table. Bucket numbers are stored in 16 bits."""

ROWS_PER_ASSIGNER = 100_000
"""The number of rows that a partition must have for each additional assigner."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Says which buckets an assigner owns: assigner number `assigner` of `assigners` may create the buckets b with b %
    assigners == assigner, and no other assigner may.
    """

    assigner: int = 0
    assigners: int = 1

    def __post_init__(self) -> None:
        assert 0 <= self.assigner < self.assigners, (self.assigner, self.assigners)

    def owns(self, bucket: int) -> bool:
        return bucket % self.assigners == self.assigner


@dataclass(frozen=True, slots=True)
class AllocationRule:
    """The limits for buckets: a bucket is full when it has `target_rows` rows, and a partition has at most
    `max_buckets` buckets. None means the limit of Paimon's format.
    """

    target_rows: int
    max_buckets: int | None = None

    @property
    def bucket_limit(self) -> int:
        return MAX_DYNAMIC_BUCKETS if self.max_buckets is None else min(self.max_buckets, MAX_DYNAMIC_BUCKETS)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The number of rows in each bucket of one partition, from which the buckets of new rows are chosen. `rows` also
    has the buckets in which other tasks put new keys; `own` says which buckets belong to this task.
    """

    rows: Mapping[int, int]
    own: Ownership
    rule: AllocationRule

    def allocate(self, hashes: Int32s) -> tuple[Int32s, "Allocation"]:
        """Returns a bucket for each new row, in order of arrival, and the allocation that includes these rows. `hashes`
        has the key hash of each row.

        First, the assigner (the task that chooses the buckets) fills its own buckets that are not full, in ascending
        order. Then it creates buckets with its smallest unused numbers. At the limit on buckets, the hash of a row
        chooses one of the assigner's buckets, which then gets more rows than the target. Raises OptionError if the
        table sets no limit and no bucket number is left.
        """
        left = len(hashes)
        rows = dict(self.rows)
        chosen: list[int] = []
        shares: list[int] = []
        for bucket, room in self._open(left):
            share = min(room, left)
            chosen.append(bucket)
            shares.append(share)
            rows[bucket] = rows.get(bucket, 0) + share
            left -= share
            if not left:
                break
        allocated = np.repeat(np.array(chosen, np.int32), shares)
        if left:
            spread = self._spread(hashes[len(allocated) :], rows)
            for bucket, share in zip(*np.unique(spread, return_counts=True), strict=True):
                rows[int(bucket)] += int(share)
            allocated = np.concatenate([allocated, spread])
        return allocated, Allocation(rows, self.own, self.rule)

    def _open(self, wanted: int) -> list[tuple[int, int]]:
        """Returns the buckets that can take new rows, each with the number of rows that it can still take. All of them
        belong to this assigner (the task that chooses buckets for a part of the new keys). First come existing buckets
        in ascending order, and then as many new buckets as `wanted` rows need, up to the limit on buckets.
        """
        target = self.rule.target_rows
        rooms = [(b, target - self.rows[b]) for b in sorted(self.rows) if self.own.owns(b) and self.rows[b] < target]
        room = sum(r for _, r in rooms)
        for bucket in range(self.own.assigner, self.rule.bucket_limit, self.own.assigners):
            if room >= wanted:
                break
            if bucket not in self.rows:
                rooms.append((bucket, target))
                room += target
        return rooms

    def _spread(self, hashes: Int32s, rows: Mapping[int, int]) -> Int32s:
        if self.rule.max_buckets is None:
            raise OptionError(
                f"Too more bucket {MAX_DYNAMIC_BUCKETS}, you should increase target bucket row number "
                f"{self.rule.target_rows} ('dynamic-bucket.target-row-num')",
                key=TARGET_ROW_NUM.key,
                buckets=len(rows),
            )
        owned = np.array(sorted(b for b in rows if self.own.owns(b)), np.int32)
        assert len(owned), "there must not be more assigners than buckets; assigner_count ensures this"
        return owned[hash_share(hashes, len(owned))]


@dataclass(frozen=True, slots=True)
class Assigners:
    """How many assigners (tasks that choose the buckets of keys) share the keys of each partition. `counts` maps a
    partition to its number of assigners. A partition that is not in `counts` has `first` assigners.

    If `counts` is empty and `first` is None, the table has no assigners, and any task may write a bucket. If
    `across_partitions` is true, the n-th assigner is the same task in all partitions.
    """

    counts: Mapping[bytes, int] = field(default_factory=dict)
    first: int | None = None
    across_partitions: bool = False

    def count(self, partition: bytes) -> int:
        """Returns the number of assigners of a partition."""
        count = self.counts.get(partition, self.first)
        assert count is not None, "the table has no assigners"
        return count

    def writer(self, partition: bytes, bucket: int) -> int:
        """Returns a number for the task that writes a bucket. Buckets of a partition with equal numbers are written by
        the same task.
        """
        count = self.counts.get(partition, self.first)
        return bucket if count is None else bucket % count

    def ownership(self, partition: bytes, assigner: int) -> Ownership:
        """Returns which buckets of a partition an assigner owns."""
        return Ownership(assigner, self.count(partition))


def hash_share(hashes: Int32s, count: int | Int32s) -> Int32s:
    """Returns for each hash the number of its share: the keys are divided into `count` shares by their hashes. The
    number is the absolute value of Java's `hash % count`. `count` is one number for all hashes, or an array with a
    number for each hash.
    """
    return np.abs(np.fmod(hashes, np.int32(count) if isinstance(count, int) else count))


def assigner_count(
    rows: int, *, parallelism: int, rule: AllocationRule, initial_buckets: int | None = None, expected_rows: int = 0
) -> int:
    """Returns how many assigners choose buckets in a partition that has `rows` rows and will get `expected_rows` more.

    If `initial_buckets` is set, it is the number of assigners, as in Paimon. Otherwise the number grows with the rows,
    so that a small partition has one bucket, even if many tasks write. The number is at most `parallelism`, and at most
    the limit on buckets.
    """
    limit = max(1, min(parallelism, rule.bucket_limit))
    if initial_buckets is not None:
        return max(1, min(initial_buckets, limit))
    needed = -(-(rows + expected_rows) // min(rule.target_rows, ROWS_PER_ASSIGNER))
    return max(1, min(needed, limit))
