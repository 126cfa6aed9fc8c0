"""Bounds of the partition values of a manifest, and the check whether a manifest can contain a partition.

Unlike the bounds of string columns in data files, bounds of partitions are never shortened.

Source: Paimon 2.0 SimpleStatsCollector as used by ManifestFile, PartitionPredicate.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from bucketline.state.format.data_file import EMPTY_STATS, SimpleStats
from bucketline.state.types.binary_row import decode_row, encode_row
from bucketline.state.types.logical import DataType


def collect_partition_stats(counts: Mapping[bytes, int], types: Sequence[DataType]) -> SimpleStats:
    """Returns the minimum, the maximum and the null count of each partition column. `counts` maps each partition (the
    bytes of a BinaryRow) to its number of manifest entries.

    A column that is null in every partition has null bounds. Raises CorruptFileError if a partition cannot be decoded.
    """
    if not types:
        return EMPTY_STATS
    rows = [(decode_row(partition, types), count) for partition, count in counts.items()]
    lows: list[object] = []
    highs: list[object] = []
    null_counts: list[int | None] = []
    for i in range(len(types)):
        values = sorted((row[i] for row, _ in rows if row[i] is not None), key=_rank)
        lows.append(values[0] if values else None)
        highs.append(values[-1] if values else None)
        null_counts.append(sum(count for row, count in rows if row[i] is None))
    bounds = [t.as_nullable() for t in types]
    return SimpleStats(encode_row(lows, bounds), encode_row(highs, bounds), tuple(null_counts))


def may_hold_any(stats: SimpleStats, rows: Collection[tuple[object, ...]], types: Sequence[DataType]) -> bool:
    """Returns True if a manifest with these bounds may have an entry of one of the partitions. `rows` are the decoded
    values of the partitions.

    If a bound is unknown, every value is possible. Raises CorruptFileError if the bounds cannot be decoded.
    """
    if not types or stats.null_counts is None or len(stats.null_counts) != len(types):
        return len(rows) > 0
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    bounds = list(zip(lows, highs, stats.null_counts, strict=True))
    return any(all(_within(v, *bound) for v, bound in zip(row, bounds, strict=True)) for row in rows)


def _within(value: object, low: object, high: object, null_count: int | None) -> bool:
    if value is None:
        return null_count is None or null_count > 0
    if low is None or high is None:
        # Either all values are null, or the bounds are unknown. Without the number of rows, both look the same.
        return True
    return bool(_rank(low) <= _rank(value) <= _rank(high))


def _rank(value: object) -> tuple[object, ...]:
    """Returns a sort key that orders values of one type as Paimon does: -0.0 before 0.0, and NaN last. Python orders
    strings by code point, which is the order of their bytes in UTF-8.
    """
    if isinstance(value, float):
        return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1.0, value))
    return (value,)
