"""Sequence numbers that a merge does not read from files, because manifests say which run is newer.

Row kinds are always read: pypaimon 2.1 and pypaimon-rust record that a file holds no deletes, whatever it holds.
"""

from collections.abc import Sequence
from itertools import pairwise

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.fold import Fold, Selection
from bucketline.state.lsm.tree.run import SortedRun


def are_ages_known(runs: Sequence[SortedRun], fold: Fold) -> bool:
    """Whether the sequence number ranges of files say which of two rows with one key is newer, and a merge needs no
    more than that.

    A range with fewer numbers than its file has rows is wrong: pypaimon up to 1.4 writes such ranges.
    """
    files = [f for run in runs for f in run.files]
    if not isinstance(fold, Selection) or any(_number_count(f) < f.row_count for f in files):
        return False
    ranges = sorted(
        (min(f.min_sequence_number for f in run.files), max(f.max_sequence_number for f in run.files)) for run in runs
    )
    return all(before[1] < after[0] for before, after in pairwise(ranges))


def _number_count(file: DataFileMeta) -> int:
    return file.max_sequence_number - file.min_sequence_number + 1
