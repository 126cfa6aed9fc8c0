"""The facts that `status` shows about a table: levels and runs of each bucket, and whether another number of buckets
would fit better.

This module is pure: it makes values from live files and options and opens no files, so it also works for a damaged
table. Source: Paimon's documentation on buckets ("the recommended data size in each bucket is about 200MB - 1GB").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from bucketline.conf.table.table_settings import CompactionSettings
from bucketline.conf.wording import counted
from bucketline.state.bucket.mode import BucketMode
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.store.read.prune import BucketFiles

SMALL_BUCKET_BYTES = 200 << 20
LARGE_BUCKET_BYTES = 1 << 30
_FITTING_BUCKET_BYTES = 512 << 20
_TARGET_FILE_BYTES = 128 << 20
_MANY_BUCKETS = 4
"""A message is shown if there are at least this many small dynamic buckets. (Each task that assigns buckets has one
bucket that is not full.)
"""
_SMALL_TABLE_ROWS = 1_000_000
_SMALL_TABLE_BUCKETS = 64
_SKEWED = 3.0
"""A message is shown if a bucket is this many times larger than the mean."""


class Backlog(Enum):
    """Whether a compaction is due in a bucket: NONE, DUE, or WRITERS_WAIT if the bucket has so many runs that Paimon's
    writers wait for a compaction.
    """

    NONE = "none"
    DUE = "due"
    WRITERS_WAIT = "writers wait"


@dataclass(frozen=True, slots=True)
class LevelSurvey:
    """The runs of one level, newest first. On level 0 every file is a sorted run; on higher levels all files
    together are one run.
    """

    level: int
    runs: tuple[tuple[DataFileMeta, ...], ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(f for run in self.runs for f in run)

    @property
    def size_bytes(self) -> int:
        return sum(f.file_size for f in self.files)


@dataclass(frozen=True, slots=True)
class BucketSurvey:
    """One bucket. `row_count` counts the rows in its files, including old versions of a key and deletes."""

    partition: str
    bucket: int
    total_buckets: int
    levels: tuple[LevelSurvey, ...]
    backlog: Backlog

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(f for level in self.levels for f in level.files)

    @property
    def run_count(self) -> int:
        return sum(len(level.runs) for level in self.levels)

    @property
    def file_count(self) -> int:
        return sum(len(level.files) for level in self.levels)

    @property
    def size_bytes(self) -> int:
        return sum(level.size_bytes for level in self.levels)

    @property
    def row_count(self) -> int:
        return sum(f.row_count for level in self.levels for f in level.files)

    @property
    def delete_row_count(self) -> int:
        return sum(f.delete_row_count or 0 for level in self.levels for f in level.files)


@dataclass(frozen=True, slots=True)
class PartitionSurvey:
    """One partition. `skew` is the size of the partition's largest bucket divided by the mean size of its buckets,
    including empty buckets.
    """

    partition: str
    buckets: tuple[BucketSurvey, ...]
    skew: float
    advice: str | None

    @property
    def size_bytes(self) -> int:
        return sum(b.size_bytes for b in self.buckets)

    @property
    def row_count(self) -> int:
        return sum(b.row_count for b in self.buckets)


def survey_bucket(
    bucket_files: BucketFiles, partition: str, settings: CompactionSettings, *, keyed: bool
) -> BucketSurvey:
    """Returns the levels of one bucket. `keyed` is True if the table has a primary key; without a primary key the files
    form no runs.
    """
    levels = []
    for level in sorted({f.level for f in bucket_files.files}):
        level_files = [f for f in bucket_files.files if f.level == level]
        level_files.sort(key=lambda f: -f.max_sequence_number)
        levels.append(LevelSurvey(level, tuple((f,) for f in level_files) if level == 0 else (tuple(level_files),)))
    runs = sum(len(level.runs) for level in levels)
    backlog = Backlog.NONE
    if keyed and bucket_files.bucket >= 0 and runs >= settings.trigger:
        backlog = Backlog.WRITERS_WAIT if runs >= settings.stop_trigger else Backlog.DUE
    return BucketSurvey(partition, bucket_files.bucket, bucket_files.total_buckets, tuple(levels), backlog)


def survey_partitions(buckets: Sequence[BucketSurvey], mode: BucketMode) -> tuple[PartitionSurvey, ...]:
    """Returns the partitions in the order of their buckets, each with its skew and advice on the number of buckets."""
    by_partition: dict[str, list[BucketSurvey]] = {}
    for bucket in buckets:
        by_partition.setdefault(bucket.partition, []).append(bucket)
    surveys = []
    is_small = _is_small(buckets)
    for name, members in by_partition.items():
        skew = _skew(members)
        surveys.append(PartitionSurvey(name, tuple(members), skew, _advice(members, mode, skew, is_small)))
    return tuple(surveys)


def survey_table(buckets: Sequence[BucketSurvey]) -> pa.Table:
    """Returns a table with one row for each bucket, for programs."""
    rows = [
        {
            "partition": b.partition,
            "bucket": b.bucket,
            "total_buckets": b.total_buckets,
            "row_count": b.row_count,
            "delete_row_count": b.delete_row_count,
            "file_count": b.file_count,
            "size_bytes": b.size_bytes,
            "run_count": b.run_count,
            "compaction": b.backlog.value,
            "levels": [
                {
                    "level": level.level,
                    "run_count": len(level.runs),
                    "file_count": len(level.files),
                    "row_count": sum(f.row_count for f in level.files),
                    "size_bytes": level.size_bytes,
                }
                for level in b.levels
            ],
        }
        for b in buckets
    ]
    return pa.Table.from_pylist(rows, schema=SURVEY_SCHEMA)


SURVEY_SCHEMA = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("total_buckets", pa.int32()),
        ("row_count", pa.int64()),
        ("delete_row_count", pa.int64()),
        ("file_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("run_count", pa.int64()),
        ("compaction", pa.string()),
        (
            "levels",
            pa.list_(
                pa.struct(
                    [
                        ("level", pa.int32()),
                        ("run_count", pa.int64()),
                        ("file_count", pa.int64()),
                        ("row_count", pa.int64()),
                        ("size_bytes", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)


def advise_table(partitions: Sequence[PartitionSurvey], mode: BucketMode) -> str | None:
    """Returns advice for a table whose partitions need different numbers of buckets; None if one number fits all
    partitions.
    """
    if not mode.hashes_keys:
        return None
    sizes = [(_bucket_count(p.buckets), p.size_bytes) for p in partitions]
    large = sum(size > count * LARGE_BUCKET_BYTES for count, size in sizes)
    small = sum(size < count * SMALL_BUCKET_BYTES and _fitting(size) < count for count, size in sizes)
    if not large or not small:
        return None
    return (
        f"more than 1 GB a bucket in {counted(large, 'partition')} and less than 200 MB in {small:,}: no single "
        "number of buckets fits both. Rescale only the large ones if nothing writes to them; else use postpone "
        "('bucket' = '-2') or, with one writer, dynamic buckets ('bucket' = '-1'), where each partition has its own "
        "number"
    )


def _is_small(buckets: Sequence[BucketSurvey]) -> bool:
    """Returns True if the table is too small for advice about fewer buckets, because a new table may still grow."""
    return (
        len(buckets) <= _SMALL_TABLE_BUCKETS
        and sum(b.row_count for b in buckets) < _SMALL_TABLE_ROWS
        and all(b.size_bytes < _TARGET_FILE_BYTES for b in buckets)
    )


def _fitting(size: int) -> int:
    return max(1, -(-size // _FITTING_BUCKET_BYTES))


def _dynamic_advice(count: int, total: int, fitting: int, is_small: bool) -> str | None:
    if total > count * LARGE_BUCKET_BYTES:
        return (
            "more than 1 GB a bucket: set a smaller 'dynamic-bucket.target-row-num', which opens new buckets for new "
            "keys; existing keys stay in their buckets"
        )
    if not is_small and count >= _MANY_BUCKETS and total < count * SMALL_BUCKET_BYTES and fitting < count:
        word = "bucket" if fitting == 1 else "buckets"
        return (
            "less than 200 MB a bucket: with a larger 'dynamic-bucket.target-row-num' new buckets are opened later; "
            f"if few new keys will come, {fitting} fixed {word} would be enough, would need no index and would allow "
            "several writers"
        )
    return None


def _bucket_count(members: Sequence[BucketSurvey]) -> int:
    return max(len(members), *(b.total_buckets for b in members))


def _skew(members: Sequence[BucketSurvey]) -> float:
    total = sum(b.size_bytes for b in members)
    return max(b.size_bytes for b in members) * _bucket_count(members) / total if total else 1.0


def _advice(members: Sequence[BucketSurvey], mode: BucketMode, skew: float, is_small: bool) -> str | None:
    if mode.postpones and any(b.bucket < 0 for b in members):
        return "readers do not see rows in the postpone bucket: compact the table to move them to buckets"
    count, total = _bucket_count(members), sum(b.size_bytes for b in members)
    fitting = _fitting(total)
    if mode.opens_buckets:
        return _dynamic_advice(count, total, fitting, is_small)
    if not mode.has_buckets:
        return None
    if total > count * LARGE_BUCKET_BYTES:
        return f"more than 1 GB a bucket: about {fitting} buckets instead of {count} would fit better"
    if not is_small and count > 1 and total < count * SMALL_BUCKET_BYTES and fitting < count:
        word = "bucket" if fitting == 1 else "buckets"
        return (
            f"less than 200 MB a bucket: {fitting} {word} instead of {count} would be enough, "
            "unless the table still grows"
        )
    if skew >= _SKEWED and total >= SMALL_BUCKET_BYTES:
        return (
            f"the largest bucket is {skew:.1f} times the mean: few values of the bucket key have many rows, and more "
            "buckets alone will not separate them"
        )
    return None
