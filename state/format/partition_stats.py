"""Bounds of the partition values of a manifest, and the check whether a manifest can contain a partition.

Unlike the bounds of string columns in data files, bounds of partitions are never shortened.

Source: Paimon 2.0 SimpleStatsCollector as used by ManifestFile, PartitionPredicate.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from bucketline.state.format.data_file import EMPTY_STATS, SimpleStats
from bucketline.state.types.binary_row import decode_row, encode_row
from bucketline.state.types.logical import DataType

PartitionRow = tuple[object, ...]


def collect_partition_stats(counts: Mapping[bytes, int], types: Sequence[DataType]) -> SimpleStats:
    """Returns the minimum, the maximum and the null count of each partition column. `counts` maps each partition (the
    bytes of a BinaryRow) to its number of manifest entries.

    A column that is null in every partition has null bounds. Raises CorruptFileError if a partition cannot be decoded.
    """
    if not types:
        return EMPTY_STATS
    rows = [decode_row(partition, types) for partition in counts]
    lows, highs = partition_bounds(rows)
    null_counts = tuple(
        sum(count for row, count in zip(rows, counts.values(), strict=True) if row[i] is None)
        for i in range(len(types))
    )
    bounds = [t.as_nullable() for t in types]
    return SimpleStats(encode_row(lows, bounds), encode_row(highs, bounds), null_counts)


def partition_bounds(rows: Sequence[PartitionRow]) -> tuple[list[object], list[object]]:
    """Returns the minimum and the maximum of each partition column. `rows` are the decoded values of at least one
    partition. A column that is null in every partition has null bounds.
    """
    lows: list[object] = []
    highs: list[object] = []
    for column in zip(*rows, strict=True):
        values = [value for value in column if value is not None]
        lows.append(min(values, key=_rank, default=None))
        highs.append(max(values, key=_rank, default=None))
    return lows, highs


def sorted_partitions(partitions: Collection[bytes], types: Sequence[DataType]) -> list[tuple[PartitionRow, bytes]]:
    """Returns a pair for each partition: its decoded values, and its bytes. The pairs are ordered by the first column,
    then by the second, and so on. Nulls come first. Raises CorruptFileError if a partition cannot be decoded.
    """
    rows = [(decode_row(partition, types), partition) for partition in partitions]
    return sorted(rows, key=lambda found: [(v is not None, () if v is None else _rank(v)) for v in found[0]])


def may_hold_any(stats: SimpleStats, rows: Collection[PartitionRow], types: Sequence[DataType]) -> bool:
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
