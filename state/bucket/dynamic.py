"""Dynamic buckets of one partition: a known key keeps the bucket that the HASH index has for its hash, and new keys go
to buckets with free space.

In memory, the HASH index of a partition is two sorted arrays, with 6 bytes for each hash. The hash is that of the
trimmed primary key, and keys with the same hash are in the same bucket. An assigner (a task that chooses the buckets of
a part of the keys) finds a key even if the number of assigners has changed, because it reads the HASH files of the
whole partition. The assigner reads only the HASH files of its own buckets if no other assigner can have written these
buckets.

Source: Paimon 2.0 HashBucketAssigner, PartitionIndex, DynamicBucketIndexMaintainer.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketline.state.bucket.allocation import Allocation, AllocationRule, Int32s, Ownership

UNKNOWN = -1
"""The result for a hash that is in no HASH file."""

_EMPTY_HASHES = np.empty(0, np.int32)
_EMPTY_BUCKETS = np.empty(0, np.int16)


@dataclass(frozen=True, slots=True, eq=False)
class KnownHashes:
    """The distinct hashes of a partition (int32) in ascending order, and the bucket of each hash (int16).

    `has_lost` is true if a hash was in several buckets. Only one of these buckets is kept.
    """

    hashes: Int32s
    buckets: NDArray[np.int16]
    has_lost: bool = False

    @property
    def size_bytes(self) -> int:
        return self.hashes.nbytes + self.buckets.nbytes

    def lookup(self, hashes: Int32s) -> Int32s:
        """Takes hashes of keys in any order. Returns the bucket of each hash, as int32; UNKNOWN for a hash that has no
        bucket yet.
        """
        if not len(self.hashes) or not len(hashes):
            return np.full(len(hashes), UNKNOWN, np.int32)
        # Searching for sorted hashes goes through memory in one direction, which is faster.
        order = np.argsort(hashes)
        probes = hashes[order]
        at = np.searchsorted(self.hashes, probes)
        at[at == len(self.hashes)] = 0
        buckets = np.empty(len(hashes), np.int32)
        buckets[order] = np.where(self.hashes[at] == probes, self.buckets[at], np.int16(UNKNOWN))
        return buckets

    def hashes_of(self, bucket: int) -> Int32s:
        """Returns the hashes of one bucket, ascending."""
        hashes: Int32s = self.hashes[self.buckets == bucket]
        return hashes

    def rows(self) -> dict[int, int]:
        """Returns how many hashes each bucket has."""
        numbers, counts = np.unique(self.buckets, return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def without(self, buckets: Collection[int]) -> "KnownHashes":
        """Returns the index without the hashes of these buckets."""
        kept = ~np.isin(self.buckets, np.array(sorted(buckets), np.int16))
        return KnownHashes(self.hashes[kept], self.buckets[kept], self.has_lost)

    def joined(self, hashes: Int32s, buckets: NDArray[Any]) -> "KnownHashes":
        """Returns this index together with more hashes and their buckets. A hash that is in several buckets counts for
        the lowest of these buckets.

        The hashes may have any order, and the buckets are in [0, 32767).
        """
        if not len(hashes):
            return self
        # Hash and bucket are packed into one number: sorting it is several times faster than sorting positions by hash.
        added = hashes.astype(np.int64)
        added <<= 16
        added |= buckets
        added.sort()
        ascending = (added >> 16).astype(np.int32)
        first = np.ones(len(ascending), np.bool_)
        first[1:] = ascending[1:] != ascending[:-1]
        chosen = added[first] & 0x7FFF
        again = not first.all() and bool((np.diff(added) > 0)[~first[1:]].any())
        more = KnownHashes(ascending[first], chosen.astype(np.int16), again or self.has_lost)
        return self._merged(more) if len(self.hashes) else more

    def _merged(self, other: "KnownHashes") -> "KnownHashes":
        places = np.searchsorted(self.hashes, other.hashes)
        both = self.hashes[np.minimum(places, len(self.hashes) - 1)] == other.hashes
        buckets, has_lost = self.buckets, other.has_lost
        if both.any():
            here, there = buckets[places[both]], other.buckets[both]
            has_lost = has_lost or bool((here != there).any())
            buckets = buckets.copy()
            buckets[places[both]] = np.minimum(here, there)
        at = places[~both]
        return KnownHashes(
            np.insert(self.hashes, at, other.hashes[~both]), np.insert(buckets, at, other.buckets[~both]), has_lost
        )


NOTHING_KNOWN = KnownHashes(_EMPTY_HASHES, _EMPTY_BUCKETS)


def known_hashes(index: Mapping[int, Int32s]) -> KnownHashes:
    """Takes the hashes in the HASH file of each bucket of a partition. Returns all these hashes in one structure, in
    which the bucket of a hash is found.
    """
    if not index:
        return NOTHING_KNOWN
    hashes = np.concatenate([index[b] for b in index])
    return NOTHING_KNOWN.joined(hashes, np.repeat(np.array(list(index), np.int16), [len(h) for h in index.values()]))


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The bucket of each row, and the hashes that are new in the index, in order of arrival, with their buckets."""

    buckets: Int32s
    new_hashes: Int32s
    new_buckets: Int32s

    def new_by_bucket(self) -> dict[int, Int32s]:
        """Returns the hashes of new keys by bucket, to be added to the HASH files. Buckets without new keys are left
        out.
        """
        if not len(self.new_hashes):
            return {}
        order = np.argsort(self.new_buckets, kind="stable")
        numbers, starts = np.unique(self.new_buckets[order], return_index=True)
        parts = np.split(self.new_hashes[order], starts[1:])
        return dict(zip(numbers.tolist(), parts, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class DynamicAssigner:
    """Chooses buckets for rows of one partition. The object is immutable: `assign` also returns a new assigner for the
    next rows.
    """

    known: KnownHashes
    allocation: Allocation

    @staticmethod
    def starting(
        known: KnownHashes, own: Ownership, rule: AllocationRule, *, rows: Mapping[int, int] | None = None
    ) -> "DynamicAssigner":
        """Returns an object that chooses buckets for rows of one partition. The partition's existing keys are in
        `known`, as hashes with their buckets. `rows` is the number of hashes in each bucket of the partition, from the
        index manifest. `rows` is required if `known` has only a part of the hashes.
        """
        return DynamicAssigner(known, Allocation(known.rows() if rows is None else dict(rows), own, rule))

    def assign(self, hashes: Int32s) -> tuple[Assignment, "DynamicAssigner"]:
        """Returns a bucket for each row, and the assigner for the next rows. A known hash keeps its bucket, even if
        this assigner does not own it; `Allocation.allocate` chooses the bucket of a new hash.

        `hashes` must be in the order of arrival. Equal hashes get equal buckets. Raises the errors of `allocate`.
        """
        buckets = self.known.lookup(hashes)
        unknown = np.flatnonzero(buckets == UNKNOWN)
        if not len(unknown):
            return Assignment(buckets, _EMPTY_HASHES, _EMPTY_HASHES), self
        fresh, first, which = np.unique(hashes[unknown], return_index=True, return_inverse=True)
        arrival = np.argsort(first)
        allocated, allocation = self.allocation.allocate(fresh[arrival])
        bucket_of = np.empty(len(fresh), np.int32)
        bucket_of[arrival] = allocated
        buckets[unknown] = bucket_of[which]
        after = DynamicAssigner(self.known.joined(fresh, bucket_of), allocation)
        return Assignment(buckets, fresh[arrival], allocated), after
