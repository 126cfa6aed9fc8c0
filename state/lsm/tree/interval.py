"""Divides files into sections. The key ranges of two sections do not overlap, so each section can be merged by itself.
The files of a section form as few sorted runs as possible.

Source: Paimon 2.0 IntervalPartition.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.run import SortedRun, ToComparable

_Ranged = tuple[Any, Any, DataFileMeta]


def sections(files: Iterable[DataFileMeta], key_order: ToComparable) -> list[list[SortedRun]]:
    """Divides files into sections, which are returned in key order. A section is a list of sorted runs. Files whose key
    ranges overlap are always in the same section, so no key is in two sections.

    The order of the runs in a section says nothing about the age of their rows. Which of two rows is newer depends on
    the sequence numbers of the rows.
    """
    ranged: list[_Ranged] = [(key_order(f.min_key), key_order(f.max_key), f) for f in files]
    ranged.sort(key=lambda r: (r[0], r[1]))
    return [_runs(section) for section in _connected(ranged)]


def _connected(ranged: list[_Ranged]) -> Iterator[list[_Ranged]]:
    section: list[_Ranged] = []
    reach: Any = None
    for r in ranged:
        if section and r[0] > reach:
            yield section
            section = []
        reach = max(reach, r[1]) if section else r[1]
        section.append(r)
    if section:
        yield section


def _runs(section: list[_Ranged]) -> list[SortedRun]:
    runs: list[list[DataFileMeta]] = []
    ends: list[tuple[Any, int]] = []
    for low, high, file in section:
        if ends and low > ends[0][0]:
            index = ends[0][1]
            heapq.heapreplace(ends, (high, index))
            runs[index].append(file)
        else:
            heapq.heappush(ends, (high, len(runs)))
            runs.append([file])
    return [SortedRun(tuple(files)) for files in runs]
