"""Measures how full the buckets of a table are, from the list of live files alone: the number of sorted runs, and the
bytes on level 0.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.run import run_count


@dataclass(frozen=True, slots=True)
class Crowding:
    """How full the buckets of a table are.

    - `buckets` are pairs in ascending order: a number of sorted runs, and how many buckets have this number of runs.
    - `crowded` are the buckets with more runs than the stop trigger.
    - `since_ms` is the local time at which the oldest file of level 0 was written; None if level 0 is empty.
    """

    buckets: tuple[tuple[int, int], ...] = ()
    crowded: tuple[BucketId, ...] = ()
    level0_bytes: int = 0
    since_ms: int | None = None

    @property
    def most_runs(self) -> int:
        """Returns the largest number of sorted runs in a bucket; 0 if there are no buckets."""
        return self.buckets[-1][0] if self.buckets else 0

    def age_seconds(self, local_ms: int) -> int:
        """Returns for how many seconds the oldest file has been on level 0; 0 if level 0 is empty."""
        return 0 if self.since_ms is None else max(0, (local_ms - self.since_ms) // 1000)


def crowding(view: LiveFiles, stop_trigger: int, partitions: Collection[bytes] | None = None) -> Crowding:
    """Counts the sorted runs of each bucket in these partitions (None: all partitions) of a table with a primary key.
    Returns these counts, the buckets with more than `stop_trigger` sorted runs, and the size and age of the files on
    level 0. Files in the postpone bucket are not counted.
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
