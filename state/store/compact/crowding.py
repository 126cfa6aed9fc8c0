"""Measures how full level 0 and the levels of a table's buckets are: sorted runs, and bytes on level 0, from live files
alone.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.run import run_count


@dataclass(frozen=True, slots=True)
class Crowding:
    """How full the buckets of a table are. `buckets` are pairs: a number of sorted runs, ascending, and how many
    buckets have so many. `crowded` are the buckets with more runs than the stop trigger.

    `since_ms` is the local time at which the oldest file of level 0 was written; None if level 0 is empty.
    """

    buckets: tuple[tuple[int, int], ...] = ()
    crowded: tuple[BucketId, ...] = ()
    level0_bytes: int = 0
    since_ms: int | None = None

    @property
    def most_runs(self) -> int:
        """Returns the largest number of sorted runs in a bucket."""
        return self.buckets[-1][0] if self.buckets else 0

    def age_seconds(self, local_ms: int) -> int:
        """Returns for how long the oldest file has been on level 0."""
        return 0 if self.since_ms is None else max(0, (local_ms - self.since_ms) // 1000)


def crowding(view: LiveFiles, stop_trigger: int, partitions: Collection[bytes] | None = None) -> Crowding:
    """Returns how many sorted runs wait in the buckets of these partitions (all partitions, if None is given) of a
    table with a primary key; postponed rows are not counted.
    """
    size, counts = 0, Counter[int]()
    crowded: list[BucketId] = []
    since: list[int] = []
    for place in view.buckets():
        if place[1] < 0 or (partitions is not None and place[0] not in partitions):
            continue
        files = view.files(place)
        runs = run_count(files)
        level0 = [f for f in files if f.level == 0]
        counts[runs] += bool(runs)
        size += sum(f.file_size for f in level0)
        since += [_written_ms(f) for f in level0]
        if runs > stop_trigger:
            crowded.append(place)
    return Crowding(tuple(sorted(counts.items())), tuple(crowded), size, min(since, default=None))


def _written_ms(file: DataFileMeta) -> int:
    return file.creation_time_ms or 0
