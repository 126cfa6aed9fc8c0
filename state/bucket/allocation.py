"""Chooses the bucket of a new key in one partition, among the buckets that an assigner owns, by the room left in them.

The format only requires that a known key keeps its bucket; how new keys are spread is free. Two assigners must never
open the same bucket, so each owns every n-th bucket number.

Source: Paimon 2.0 HashBucketAssigner, PartitionIndex, crosspartition BucketAssigner. Stricter here: the limit on
buckets counts per partition, and a bucket is chosen by the row's hash, not by chance, once the limit is reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bucketline.conf.errors import OptionError
from bucketline.conf.table.bucket_options import TARGET_ROW_NUM

Int32s = NDArray[np.int32]

MAX_DYNAMIC_BUCKETS = 32767
"""Bucket ids of dynamic tables are kept in 16 bits."""

ROWS_PER_ASSIGNER = 100_000
"""Rows a partition must have for each further assigner that opens buckets in it."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Assigner number `assigner` of `assigners`: it alone opens the buckets b with b % assigners == assigner."""

    assigner: int = 0
    assigners: int = 1

    def __post_init__(self) -> None:
        assert 0 <= self.assigner < self.assigners, (self.assigner, self.assigners)

    def owns(self, bucket: int) -> bool:
        return bucket % self.assigners == self.assigner


@dataclass(frozen=True, slots=True)
class AllocationRule:
    """A bucket is full at `target_rows`; a partition has at most `max_buckets`, None for the format's limit."""

    target_rows: int
    max_buckets: int | None = None

    @property
    def bucket_limit(self) -> int:
        return MAX_DYNAMIC_BUCKETS if self.max_buckets is None else min(self.max_buckets, MAX_DYNAMIC_BUCKETS)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The number of rows in each bucket of one partition, owned by this assigner or not."""

    rows: Mapping[int, int]
    own: Ownership
    rule: AllocationRule

    def allocate(self, hashes: Int32s) -> tuple[Int32s, "Allocation"]:
        """Returns a bucket for each of n new rows in arrival order, and the allocation after them.

        Owned buckets below the target are filled in ascending order. Then the smallest unused owned numbers are opened.
        At the limit, rows go to owned buckets by their hash, above the target. Raises OptionError when a table without
        limit has no bucket left.
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
        """Returns (bucket, room) of the owned buckets that new rows may go to, in order. As many are opened as `wanted`
        rows need, up to the limit on buckets.
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
        assert len(owned), "no more assigners than buckets may exist: see assigner_count"
        return owned[hash_share(hashes, len(owned))]


@dataclass(frozen=True, slots=True)
class Assigners:
    """How many assigners share the keys of each partition: `counts` by partition, and `first` for all other partitions.

    If `counts` is empty and `first` is None, the table has no assigners, and each bucket may be written by another
    task. With `across_partitions` the n-th assigner is the same task in all partitions.
    """

    counts: Mapping[bytes, int] = field(default_factory=dict)
    first: int | None = None
    across_partitions: bool = False

    def count(self, partition: bytes) -> int:
        """Returns the number of assigners of a partition."""
        count = self.counts.get(partition, self.first)
        assert count is not None, "there are no assigners"
        return count

    def writer(self, partition: bytes, bucket: int) -> int:
        """Returns the number of the task that writes a bucket: buckets of a partition with equal numbers are written by
        one task.
        """
        count = self.counts.get(partition, self.first)
        return bucket if count is None else bucket % count

    def ownership(self, partition: bytes, assigner: int) -> Ownership:
        """Returns the buckets and hashes of a partition that belong to an assigner."""
        return Ownership(assigner, self.count(partition))


def hash_share(hashes: Int32s, count: int | Int32s) -> Int32s:
    """Returns for each hash a number in [0, count): the absolute value of Java's remainder. `count` is one number for
    all hashes, or has a number for each hash.
    """
    return np.abs(np.fmod(hashes, np.int32(count) if isinstance(count, int) else count))


def assigner_count(
    rows: int, *, parallelism: int, rule: AllocationRule, initial_buckets: int | None = None, expected_rows: int = 0
) -> int:
    """Returns how many assigners open buckets in a partition that has `rows` rows and will get `expected_rows`.

    `initial_buckets` is the number of assigners, if given, as in Paimon. Otherwise the number grows with the rows, so
    that a small partition has one bucket however many tasks write. It is at most `parallelism`, and at most the limit
    on buckets.
    """
    limit = max(1, min(parallelism, rule.bucket_limit))
    if initial_buckets is not None:
        return max(1, min(initial_buckets, limit))
    needed = -(-(rows + expected_rows) // min(rule.target_rows, ROWS_PER_ASSIGNER))
    return max(1, min(needed, limit))
