"""Filters for manifest entries: by partition, and by bucket."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from bucketline.state.format.entries import ManifestEntry, ManifestFileMeta
from bucketline.state.format.manifest import PartitionChoice


class PartitionCondition(Protocol):
    """A condition on the values of partition columns, for example `part < 9`."""

    def may_hold(self, manifests: Sequence[ManifestFileMeta]) -> Sequence[bool]:
        """Returns for each manifest False if its bounds show that no partition in it meets the condition, otherwise
        True.
        """
        ...

    def passing(self, partitions: Collection[bytes]) -> Collection[bytes]:
        """Returns those of the given partitions that meet the condition. Partitions are serialized rows."""
        ...


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """A filter for manifest entries. An entry passes if its partition is in `partitions` and meets `condition`, and if
    its bucket is in `buckets`. Each of the three may be None, and then restricts nothing.

    `buckets` are (partition, bucket) pairs. Partitions are serialized rows, compared byte by byte.
    """

    partitions: frozenset[bytes] | None = None
    buckets: frozenset[tuple[bytes, int]] | None = None
    condition: PartitionCondition | None = None

    @property
    def wanted_partitions(self) -> frozenset[bytes] | None:
        """Returns the partitions to which `partitions` and `buckets` restrict entries; None if both are None."""
        if self.buckets is None:
            return self.partitions
        named = frozenset(partition for partition, _ in self.buckets)
        return named if self.partitions is None else named & self.partitions

    def may_hold_bucket(self, low: int | None, high: int | None) -> bool:
        """Returns False if all bucket numbers of the filter are below `low`, or all are above `high`; otherwise True.
        `low` and `high` are the bounds of a manifest, or None if they are not known.
        """
        if not self.buckets or low is None or high is None:
            return True
        numbers = [bucket for _, bucket in self.buckets]
        return min(numbers) <= high and low <= max(numbers)

    def wants_bucket(self, entry: ManifestEntry) -> bool:
        """Returns True if the filter lets the bucket of the entry pass."""
        return self.buckets is None or (entry.partition, entry.bucket) in self.buckets

    def choice(self) -> PartitionChoice | None:
        """Returns a function that takes partitions, and returns those of them that the filter lets pass; None if the
        filter lets all partitions pass. The function remembers which partitions meet `condition`, because many
        manifests have the same partitions.
        """
        wanted, condition = self.wanted_partitions, self.condition
        if condition is None:
            return None if wanted is None else wanted.intersection
        known: dict[bytes, bool] = {}

        def choose(partitions: Collection[bytes]) -> Collection[bytes]:
            asked = partitions if wanted is None else wanted.intersection(partitions)
            unknown = [p for p in asked if p not in known]
            passing = frozenset(condition.passing(unknown))
            known.update((p, p in passing) for p in unknown)
            return [p for p in asked if known[p]]

        return choose


EVERYTHING = EntryFilter()
