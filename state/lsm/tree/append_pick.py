"""Chooses the files of an append bucket to join: small files that follow each other, so that rows keep their order.

Source: Paimon 2.0 BucketedAppendCompactManager, AppendCompactCoordinator. One thing is simpler here: files are packed
in one pass, oldest first, instead of by a window that slides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bucketline.state.format.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class AppendCompactOptions:
    """A file below `small_bytes` is joined with its neighbours, until together they reach `target_bytes`.

    Fewer than `min_files` that do not reach the target are left alone, unless everything is to be compacted.
    """

    target_bytes: int
    small_bytes: int
    min_files: int = 5


def pick_append(
    files: Sequence[DataFileMeta], options: AppendCompactOptions, *, full: bool
) -> list[tuple[DataFileMeta, ...]]:
    """Returns groups of two or more files. Each group is rewritten into one file, or into a few of the target size."""
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
    # Sequence numbers start over in each file of a table without buckets.
    return file.min_sequence_number, file.creation_time_ms or 0, file.file_name
