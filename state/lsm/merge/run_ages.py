"""Decides whether a merge can skip the sequence numbers in files, because the manifests already say which sorted run is
newer.

Row kinds must always be read, because pypaimon 2.1 and pypaimon-rust record for every file that the file has no
deletes, even if it has some.
"""

from collections.abc import Sequence
from itertools import pairwise

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.fold import Fold, Selection
from bucketline.state.lsm.tree.run import SortedRun


def are_ages_known(runs: Sequence[SortedRun], fold: Fold) -> bool:
    """Returns True if the metadata of the files tells which of two rows with the same key is newer: no two sorted runs
    have sequence numbers in the same range. The fold (which merges the rows of a key) must need nothing else from
    sequence numbers.

    If a range has fewer numbers than the file has rows, the range is wrong, and the function returns False. pypaimon up
    to 1.4 writes these wrong ranges.
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
