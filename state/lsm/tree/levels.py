"""The files of one bucket by level: the files of level 0, newest first, and one sorted run for each higher level.

Source: Paimon 2.0 Levels.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.run import LevelSortedRun, SortedRun, ToComparable, sorted_run


@dataclass(frozen=True, slots=True)
class Levels:
    """The files of one bucket by level. `upper[i]` is level i + 1 and may be empty; levels above the highest level that
    has files are left out.

    `from_files` builds and checks the object. `max_level` is higher than configured if files are already on a higher
    level.
    """

    level0: tuple[DataFileMeta, ...]
    upper: tuple[SortedRun, ...]
    max_level: int
    key_order: ToComparable = field(repr=False, compare=False)

    @staticmethod
    def from_files(files: Iterable[DataFileMeta], num_levels: int, key_order: ToComparable) -> "Levels":
        """Returns the live files of a bucket by level. `num_levels` is the configured number of levels, including level
        0.

        Raises CorruptFileError if a file is listed twice, or if files of a level above 0 overlap.
        """
        live_files = tuple(files)
        names = [f.file_name for f in live_files]
        if len(set(names)) < len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            raise CorruptFileError(f"files listed more than once in a bucket: {', '.join(twice)}", files=tuple(twice))
        highest = max((f.level for f in live_files), default=0)
        return Levels(
            level0=tuple(sorted((f for f in live_files if f.level == 0), key=_newest_first)),
            upper=tuple(
                sorted_run((f for f in live_files if f.level == level), key_order) for level in range(1, highest + 1)
            ),
            max_level=max(num_levels - 1, highest),
            key_order=key_order,
        )

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """Returns all files: first level 0, newest file first, and then the higher levels in ascending order, each in
        key order.
        """
        return (*self.level0, *(f for run in self.upper for f in run.files))

    @property
    def highest_level(self) -> int:
        """Returns the highest level that has files; 0 if no level above 0 has files."""
        return max((level for level, run in enumerate(self.upper, 1) if run.files), default=0)

    def run_of(self, level: int) -> SortedRun:
        """Returns the sorted run of a level above 0, which is empty if the level has no files."""
        assert level > 0
        return self.upper[level - 1] if level <= len(self.upper) else SortedRun()

    def runs(self) -> tuple[LevelSortedRun, ...]:
        """Returns all sorted runs that have files, newest first: each file of level 0, and then the higher levels in
        ascending order.
        """
        return (
            *(LevelSortedRun(0, SortedRun((f,))) for f in self.level0),
            *(LevelSortedRun(level, run) for level, run in enumerate(self.upper, 1) if run.files),
        )


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    return (-file.max_sequence_number, file.min_sequence_number, file.creation_time_ms or 0, file.file_name)
