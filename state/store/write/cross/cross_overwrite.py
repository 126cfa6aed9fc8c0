"""Where keys go when partitions of a cross-partition table are replaced.

What the replaced partitions hold does not count. A key that gets a row and lives in a partition that stays is taken out
of it, as in any write; else the table would hold it twice. Which partitions stay is known only when all rows were read.
So the overwrite builds a key index of its own, of the partitions that stay, and removes it afterwards. The index of
other writes must know the keys of all partitions, and is not used.
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
    """As `CrossWrite`, for the rows that take the place of partitions."""

    replaced: ReplacedPartitions

    def place(
        self, share: int, runs: Sequence[tuple[SealedRun, Blob]]
    ) -> Iterator[SealedRun | SnapshotNote | MixedKey]:
        """The rows as runs of the buckets they go to. Nothing is noted for the next write: it builds its index anew."""
        with scratch_folder("bucketline-overwrite-") as scratch:
            # @dataclass(slots=True) makes the class anew, and super() without arguments would mean the first one.
            for placed in CrossWrite.place(replace(self, local_directory=scratch, backup=None), share, runs):
                if not isinstance(placed, SnapshotNote):
                    yield placed

    def manifests(self, io: FileIO, path: str, partition_types: Sequence[DataType]) -> Manifests:
        """Those of the table without the partitions that are replaced."""
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
