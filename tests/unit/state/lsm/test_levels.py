"""Levels: order within level 0, disjointness above, and what a compaction leaves."""

import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.run import run_count
from tests.support.tables.commits import number_of
from tests.support.tables.levels import levels_of, sized_file


def test_level_0_is_newest_first() -> None:
    newest = sized_file("d", 0, 1, sequence=9)
    same = [sized_file(name, 0, 1, sequence=5, created_ms=ms) for name, ms in [("a", 2), ("c", 1), ("b", 1)]]
    levels = Levels.from_files([*same, newest], 6, number_of)
    assert [f.file_name for f in levels.level0] == ["d", "b", "c", "a"]


def test_runs_skip_empty_levels_and_end_with_the_oldest() -> None:
    levels = levels_of("L0:1,2 L3:5 L5:7")
    assert [(r.level, r.size_bytes) for r in levels.runs()] == [(0, 1), (0, 2), (3, 5), (5, 7)]
    assert levels.highest_level == 5
    assert levels_of("L0:1").highest_level == 0


@pytest.mark.parametrize(("text", "runs"), [("L0:1,2 L3:5 L5:7", 4), ("L0:1", 1), ("L2:1 L5:1", 2)])
def test_each_file_of_level_0_and_each_level_above_is_a_run(text: str, runs: int) -> None:
    levels = levels_of(text)
    assert run_count(levels.files) == runs == len(levels.runs())


def test_a_bucket_without_files_has_no_runs() -> None:
    assert run_count([]) == 0


def test_files_of_one_upper_level_are_ordered_by_key() -> None:
    files = [sized_file("b", 2, 1, keys=(10, 19)), sized_file("a", 2, 1, keys=(0, 9))]
    assert [f.file_name for f in Levels.from_files(files, 6, number_of).run_of(2).files] == ["a", "b"]


def test_overlap_above_level_0_is_corruption() -> None:
    files = [sized_file("a", 2, 1, keys=(0, 9)), sized_file("b", 2, 1, keys=(9, 19))]
    with pytest.raises(CorruptFileError, match="a and b of level 2"):
        Levels.from_files(files, 6, number_of)


def test_a_file_listed_twice_is_corruption() -> None:
    with pytest.raises(CorruptFileError, match="twice"):
        Levels.from_files([sized_file("twice", 0, 1), sized_file("twice", 1, 1)], 6, number_of)


def test_files_above_the_configured_levels_raise_the_last_level() -> None:
    assert levels_of("L0:1 L7:1", num_levels=3).max_level == 7
    assert levels_of("L0:1", num_levels=3).max_level == 2
