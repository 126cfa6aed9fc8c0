"""Builders of levels: a bucket written as `L0:1,1 L5:100`, sizes newest first, levels above 0 as one file each."""

from dataclasses import replace

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.levels import Levels
from tests.support.tables.commits import data_file, number_of


def sized_file(
    name: str,
    level: int,
    size: int,
    *,
    keys: tuple[int, int] = (0, 9),
    sequence: int = 0,
    delete_rows: int | None = 0,
    created_ms: int = 0,
) -> DataFileMeta:
    """A file of `size` bytes with the inclusive key range `keys` and one sequence number."""
    return replace(
        data_file(name, level=level, keys=keys),
        file_size=size,
        min_sequence_number=sequence,
        max_sequence_number=sequence,
        delete_row_count=delete_rows,
        creation_time_ms=created_ms,
    )


def levels_of(text: str, *, num_levels: int = 6) -> Levels:
    """The levels that a text like `L0:1,2 L4:10 L5:100` describes."""
    files = []
    for part in text.split():
        level, _, sizes = part[1:].partition(":")
        for size in sizes.split(","):
            # The first file is the newest one.
            files.append(sized_file(f"f{len(files)}", int(level), int(size), sequence=1000 - len(files)))
    return Levels.from_files(files, num_levels, number_of)
