"""Chooses which files of an append bucket a compaction joins: small files that follow each other, so that rows keep
their order.

Source: Paimon 2.0 BucketedAppendCompactManager, AppendCompactCoordinator. Simpler here: files are grouped in one pass,
oldest first, instead of with a sliding window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bucketline.state.format.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class AppendCompactOptions:
    """The limits for joining files. A file smaller than `small_bytes` is joined with its neighbours until the joined
    files have `target_bytes`.

    A group that has fewer than `min_files` files and does not reach the target size is not joined, unless everything is
    to be compacted.
    """

    target_bytes: int
    small_bytes: int
    min_files: int = 5


def pick_append(
    files: Sequence[DataFileMeta], options: AppendCompactOptions, *, full: bool
) -> list[tuple[DataFileMeta, ...]]:
    """Returns groups of two or more files. Each group is to be rewritten into one file, or into a few files of the
    target size. If `full` is true, `min_files` is ignored.
    """
    groups = []
    for run in _small_runs(sorted(files, key=_age), options.small_bytes):
        for group in _packed(run, options.target_bytes):
            reaches = sum(f.file_size for f in group) >= options.target_bytes
            if len(group) > 1 and (full or reaches or len(group) >= options.min_files):
                groups.append(group)
    return groups


def _small_runs(files: Sequence[DataFileMeta], small_bytes: int) -> Iterator[list[DataFileMeta]]:
    run: list[DataFileMeta] = []
    for file in files:
        if file.file_size < small_bytes:
            run.append(file)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _packed(run: Sequence[DataFileMeta], target_bytes: int) -> Iterator[tuple[DataFileMeta, ...]]:
    group: list[DataFileMeta] = []
    size = 0
    for file in run:
        group.append(file)
        size += file.file_size
        if size >= target_bytes:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)


def _age(file: DataFileMeta) -> tuple[int, int, str]:
    # In a table without buckets, the sequence numbers of each file start at 0.
    return file.min_sequence_number, file.creation_time_ms or 0, file.file_name
