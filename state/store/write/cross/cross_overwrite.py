"""Decides where keys go when partitions of a cross-partition table are replaced.

Rows in the replaced partitions do not count. If a key gets a row and lives in a partition that stays, the key is
removed from that partition, as in any write; else the table would hold it twice. Which partitions stay is known only
when all rows were read. So the overwrite builds its own key index of the partitions that stay, and removes the index
afterwards. The index of other writes must know the keys of all partitions, and is not used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bucketline.state.format.entries import ManifestEntry, Snapshot
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.catalog.manifests import EVERYTHING, EntryFilter, Manifests
from bucketline.state.store.storage.errors import scratch_folder
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.write.cross.cross_write import CrossWrite
from bucketline.state.store.write.placing import SnapshotNote
from bucketline.state.store.write.run_buffer import Blob
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.state.store.write.write_plan import ReplacedPartitions
from bucketline.state.types.logical import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossOverwriteKeys(CrossWrite):
    """Finds where keys go as `CrossWrite` does, for rows that replace partitions."""

    replaced: ReplacedPartitions

    def place(
        self, share: int, runs: Sequence[tuple[SealedRun, Blob]]
    ) -> Iterator[SealedRun | SnapshotNote | MixedKey]:
        """Yields the rows as runs of the buckets that they go to. No note is written for the next write, which builds
        its index again.
        """
        with scratch_folder("bucketline-overwrite-") as scratch:
            # @dataclass(slots=True) creates the class anew, and super() without arguments would mean the first class.
            for placed in CrossWrite.place(replace(self, local_directory=scratch, backup=None), share, runs):
                if not isinstance(placed, SnapshotNote):
                    yield placed

    def manifests(self, io: FileIO, path: str, partition_types: Sequence[DataType]) -> Manifests:
        """Returns the manifests of the table without the replaced partitions."""
        return _KeptManifests(io, path, partition_types, self.replaced)


class _KeptManifests(Manifests):
    """The manifests of a table as if the replaced partitions were empty."""

    def __init__(
        self, io: FileIO, path: str, partition_types: Sequence[DataType], replaced: ReplacedPartitions
    ) -> None:
        super().__init__(io, path, partition_types)
        self._replaced = replaced

    def live_entries(self, snapshot: Snapshot, wanted: EntryFilter = EVERYTHING) -> list[ManifestEntry]:
        return [e for e in super().live_entries(snapshot, wanted) if not self._replaced.is_replaced(e.partition)]
