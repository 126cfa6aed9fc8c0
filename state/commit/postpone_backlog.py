"""The backlog of a postpone table: the rows in its postpone buckets, which no compaction has moved to real buckets
yet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.paths import POSTPONE_BUCKET


@dataclass(frozen=True, slots=True)
class PostponeBacklog:
    """The number of rows in the postpone buckets (rows that wait for a move to a real bucket), and the size of their
    files in bytes. Several rows of one key count separately. `since_ms` is the local time of the oldest file, or None
    if there are no rows.
    """

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    partitions: int = 0
    since_ms: int | None = None

    def age_seconds(self, local_ms: int) -> int:
        """Returns the age of the oldest file in the postpone buckets, in seconds. `local_ms` is the present local
        time.
        """
        return 0 if self.since_ms is None else max(0, (local_ms - self.since_ms) // 1000)


def find_waiting(buckets: Iterable[tuple[BucketId, Sequence[DataFileMeta]]]) -> PostponeBacklog:
    """Returns the backlog. `buckets` are the live files of the postpone buckets."""
    waiting = [(bucket_id[0], files) for bucket_id, files in buckets if bucket_id[1] == POSTPONE_BUCKET]
    postponed = [f for _, files in waiting for f in files]
    return PostponeBacklog(
        rows=sum(f.row_count for f in postponed),
        files=len(postponed),
        size_bytes=sum(f.file_size for f in postponed),
        partitions=len({partition for partition, files in waiting if files}),
        since_ms=min((f.creation_time_ms or 0 for f in postponed), default=None),
    )
