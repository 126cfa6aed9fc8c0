"""Sorted runs: files whose key ranges do not overlap, in key order.

Source: Paimon 2.0 SortedRun, LevelSortedRun.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta

ToComparable = Callable[[bytes], Any]
"""A function that converts a key (the bytes of a BinaryRow) to a value that Python compares in Paimon's key order."""


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files in key order; the largest key of each file is below the smallest key of the next file."""

    files: tuple[DataFileMeta, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(f.file_size for f in self.files)

    @property
    def row_count(self) -> int:
        return sum(f.row_count for f in self.files)


@dataclass(frozen=True, slots=True)
class LevelSortedRun:
    """A sorted run and its level. The run is a single file of level 0, or all files of a higher level."""

    level: int
    run: SortedRun

    @property
    def size_bytes(self) -> int:
        return self.run.size_bytes


def run_count(files: Iterable[DataFileMeta]) -> int:
    """Returns the number of sorted runs in a bucket. Each file of level 0 is a sorted run. On a higher level, all files
    together are one sorted run.
    """
    levels = [f.level for f in files]
    level0 = levels.count(0)
    return level0 + len(set(levels)) - (level0 > 0)


def sorted_run(files: Iterable[DataFileMeta], key_order: ToComparable) -> SortedRun:
    """Returns the files of a level, which may have any order, as a sorted run.

    Raises CorruptFileError, which names the files, if two files overlap in their keys, because a reader could not tell
    which file is newer.
    """
    ordered = sorted(files, key=lambda f: key_order(f.min_key))
    for left, right in pairwise(ordered):
        if key_order(left.max_key) >= key_order(right.min_key):
            raise CorruptFileError(
                f"files {left.file_name} and {right.file_name} of level {right.level} overlap in their keys",
                level=right.level,
                files=(left.file_name, right.file_name),
            )
    return SortedRun(tuple(ordered))
