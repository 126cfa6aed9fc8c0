"""Chooses the sorted runs of a bucket that are compacted next, and the level of the result.

Source: Paimon 2.0 UniversalCompaction, EarlyFullCompaction, ForceUpLevel0Compaction, CompactStrategy,
MergeTreeCompactManager.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bucketline.conf.table.choices import LookupCompact
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.run import LevelSortedRun

__all__ = [
    "CompactOptions",
    "CompactUnit",
    "drops_deletes",
    "last_full_ms",
    "pick_compaction",
    "pick_full",
    "pick_level0",
]

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class CompactUnit:
    """Files that are compacted together, and the level of the result. If `file_rewrite` is true, each file is rewritten
    by itself.

    `drop_deletes` is true if the bucket has no rows that are older than these files. Then delete rows need not be kept.
    """

    files: tuple[DataFileMeta, ...]
    output_level: int
    file_rewrite: bool = False
    drop_deletes: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A possible compaction of the first `count` sorted runs, and the level of its result."""

    count: int
    output_level: int


@dataclass(frozen=True, slots=True)
class _Bucket:
    runs: Sequence[LevelSortedRun]
    max_level: int
    ratio_percent: int


def last_full_ms(levels: Levels) -> int | None:
    """Returns the time of the last full compaction of a bucket, in milliseconds. This is the newest creation time of
    the files on the last level; None if no file is there.
    """
    if levels.max_level == 0:
        return None
    created = [f.creation_time_ms for f in levels.run_of(levels.max_level).files if f.creation_time_ms is not None]
    return max(created, default=None)


def pick_compaction(levels: Levels, options: CompactOptions, local_ms: int) -> CompactUnit | None:
    """Returns the compaction that a bucket needs after new files were added, by the rules of universal compaction; None
    if the bucket needs no compaction.

    `local_ms` is local time, like the creation times of files.

    After the compaction there are at most `stop_trigger` sorted runs, including the output of the compaction. The
    compaction takes all files of level 0 and of the levels up to its output level. Or it takes only the newest files of
    level 0, if no sorted run is between these files and the output. In both cases, the sorted runs that are not taken
    are older.
    """
    bucket = _bucket_at(levels, options, local_ms)
    candidate = _early_full(bucket, options, local_ms, last_full_ms(levels)) or _universal(bucket, options)
    if candidate is None and (options.lookup_cause is not None or options.force_up_level0):
        gentle = options.lookup_cause is not None and options.lookup_compact is LookupCompact.GENTLE
        # If no trigger chooses files, the files stay on level 0.
        if gentle and len(levels.level0) < options.lookup_compact_max_interval:
            return None
        candidate = _level0_up(bucket)
    unit = _unit(levels, options, bucket, candidate)
    if unit is not None and len(unit.files) == 1 and unit.files[0].level == unit.output_level:
        return None
    return unit


def pick_full(levels: Levels, options: CompactOptions, *, must_rewrite: Collection[str] = ()) -> CompactUnit | None:
    """Returns a full compaction: all files, compacted to the last level. Returns None if a full compaction would change
    nothing.

    `must_rewrite` has the names of files with rows that are to be removed (by deletion vectors, or because they have
    expired). If all files are already on the last level, only these files are rewritten, or all files if the option
    `compaction.force-rewrite-all-files` is true.
    """
    runs = levels.runs()
    if not runs:
        return None
    drop_deletes = drops_deletes(levels, levels.max_level, options)
    if len(runs) > 1 or runs[0].level != levels.max_level:
        return CompactUnit(levels.files, levels.max_level, drop_deletes=drop_deletes)
    chosen = tuple(f for f in levels.files if options.force_rewrite_all_files or f.file_name in must_rewrite)
    return CompactUnit(chosen, levels.max_level, file_rewrite=True, drop_deletes=drop_deletes) if chosen else None


def drops_deletes(levels: Levels, output_level: int, options: CompactOptions) -> bool:
    """Returns True if a compaction to the level `output_level` may drop delete rows, because there are no older rows
    that the delete rows must hide.
    """
    return output_level != 0 and (output_level >= levels.highest_level or options.deletion_vectors)


def _early_full(bucket: _Bucket, options: CompactOptions, local_ms: int, full_ms: int | None) -> _Candidate | None:
    if len(bucket.runs) <= 1:
        return None
    interval = options.optimization_interval_ms
    if interval is not None and (full_ms is None or local_ms - full_ms > interval):
        return _all(bucket)
    total, increment = options.total_size_threshold_bytes, options.incremental_size_threshold_bytes
    if total is not None and _size(bucket.runs) < total:
        return _all(bucket)
    if increment is not None and _size([r for r in bucket.runs if r.level != bucket.max_level]) > increment:
        return _all(bucket)
    return None


def _universal(bucket: _Bucket, options: CompactOptions) -> _Candidate | None:
    count, trigger = len(bucket.runs), options.compaction_trigger
    if count < trigger or count == 0:
        return None
    newer_bytes, oldest_bytes = _size(bucket.runs[:-1]), bucket.runs[-1].size_bytes
    if newer_bytes * 100 > options.max_size_amplification_percent * oldest_bytes:
        return _all(bucket)
    unit_count = _similar(bucket, 1)
    if unit_count == 1 and count > trigger:
        unit_count = _similar(bucket, count - trigger + 1)
    if unit_count > 1 and count - unit_count + 1 > options.stop_trigger:
        # In this situation Paimon's writers wait. A writer of this library compacts more files instead.
        unit_count = _similar(bucket, count - trigger + 1)
    return _up_to(bucket, unit_count) if unit_count > 1 else None


def pick_level0(levels: Levels, options: CompactOptions, local_ms: int) -> CompactUnit | None:
    """Returns a compaction of all files of level 0, together with the sorted runs of the next levels. A sorted run is
    taken only if it is not much larger than all files before it together. Returns None if level 0 is empty.
    """
    bucket = _bucket_at(levels, options, local_ms)
    return _unit(levels, options, bucket, _level0_up(bucket))


def _bucket_at(levels: Levels, options: CompactOptions, local_ms: int) -> _Bucket:
    return _Bucket(levels.runs(), levels.max_level, options.size_ratio_at(local_ms // _HOUR_MS % 24))


def _unit(levels: Levels, options: CompactOptions, bucket: _Bucket, candidate: _Candidate | None) -> CompactUnit | None:
    if candidate is None:
        return None
    files = tuple(f for r in bucket.runs[: candidate.count] for f in r.run.files)
    drop = drops_deletes(levels, candidate.output_level, options)
    return CompactUnit(files, candidate.output_level, drop_deletes=drop)


def _level0_up(bucket: _Bucket) -> _Candidate | None:
    count = sum(r.level == 0 for r in bucket.runs)
    if count == 0:
        return None
    if count < len(bucket.runs) and bucket.runs[count].level == 1:
        count += 1
    return _up_to(bucket, _similar(bucket, count))


def _similar(bucket: _Bucket, count: int) -> int:
    """Returns how many sorted runs to take: the first `count`, and then each next run as long as it is not much larger
    than all runs before it together.
    """
    unit_bytes = _size(bucket.runs[:count])
    for r in bucket.runs[count:]:
        # Floats that are multiplied before they are divided: the comparison must round as Java's does.
        if unit_bytes * (100.0 + bucket.ratio_percent) / 100.0 < float(r.size_bytes):
            break
        unit_bytes += r.size_bytes
        count += 1
    return count


def _up_to(bucket: _Bucket, count: int) -> _Candidate:
    runs = bucket.runs
    output_level = bucket.max_level if count == len(runs) else max(0, runs[count].level - 1)
    while output_level == 0 and count < len(runs):
        # The output level is never 0. So runs are added until one of them is on a higher level.
        output_level = runs[count].level
        count += 1
    return _all(bucket) if count == len(runs) else _Candidate(count, output_level)


def _all(bucket: _Bucket) -> _Candidate:
    return _Candidate(len(bucket.runs), bucket.max_level)


def _size(runs: Sequence[LevelSortedRun]) -> int:
    return sum(r.size_bytes for r in runs)
