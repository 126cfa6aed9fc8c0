"""What becomes of each file of a compaction."""

from typing import Any

from bucketline.conf.table.changelog_options import ChangelogProducer
from bucketline.conf.table.choices import FileFormat
from bucketline.conf.table.merge_options import MergeEngine
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.pick import CompactUnit
from bucketline.state.lsm.tree.upgrade import Rewrite, Upgrade, plan_rewrite
from tests.support.tables.commits import number_of
from tests.support.tables.levels import sized_file

OPTIONS = CompactOptions(target_file_bytes=100, small_file_ratio=0.7)


def _file(name: str, low: int, high: int, *, size: int = 100, level: int = 0, deletes: int | None = 0) -> DataFileMeta:
    return sized_file(name, level, size, keys=(low, high), delete_rows=deletes)


def _plan(*files: DataFileMeta, output: int = 5, options: CompactOptions = OPTIONS) -> list[str]:
    """Steps as text: `a^` an upgrade, `(ab|c)` a rewrite, sections divided by bars."""
    steps = plan_rewrite(CompactUnit(files, output), options, 5, number_of)
    return [
        f"{s.file.file_name}^"
        if isinstance(s, Upgrade)
        else "(" + "|".join("".join(f.file_name for r in section for f in r.files) for section in s.sections) + ")"
        for s in steps
    ]


def test_a_large_file_alone_moves_up() -> None:
    assert _plan(_file("a", 0, 9), _file("b", 20, 29)) == ["a^", "b^"]


def test_a_lonely_small_file_moves_up_too() -> None:
    assert _plan(_file("a", 0, 9, size=1)) == ["a^"]
    assert _plan(_file("a", 0, 9, size=1), _file("b", 20, 29)) == ["a^", "b^"]


def test_small_neighbours_are_written_into_one() -> None:
    names = [_file(n, i * 10, i * 10 + 5, size=1) for i, n in enumerate("abcde")]
    assert _plan(*names) == ["(a|b|c|d|e)"]


def test_a_size_below_the_ratio_is_small_and_at_the_ratio_is_not() -> None:
    assert _plan(_file("a", 0, 9, size=69), _file("b", 20, 29, size=69)) == ["(a|b)"]
    assert _plan(_file("a", 0, 9, size=70), _file("b", 20, 29, size=69)) == ["a^", "b^"]


def test_overlapping_files_are_merged_with_small_neighbours() -> None:
    found = _plan(
        _file("a", 0, 9), _file("b", 5, 12), _file("c", 20, 29, size=1), _file("d", 40, 49), _file("e", 60, 69, size=1)
    )
    assert found == ["(ab|c)", "d^", "e^"]


def test_a_file_that_may_hold_deletes_is_rewritten_on_its_way_to_the_last_level() -> None:
    for deletes in (1, None):
        assert _plan(_file("a", 0, 9, deletes=deletes)) == ["(a)"]
        assert _plan(_file("a", 0, 9, deletes=deletes), output=4) == ["a^"]
        assert _plan(_file("a", 0, 9, deletes=deletes, level=5)) == ["(a)"]


def test_a_file_on_the_output_level_stays_untouched() -> None:
    assert _plan(_file("a", 0, 9, level=5), _file("b", 20, 29)) == ["b^"]


def test_all_files_are_rewritten_on_demand() -> None:
    options = CompactOptions(target_file_bytes=100, small_file_ratio=0.7, force_rewrite_all_files=True)
    assert _plan(_file("a", 0, 9), _file("b", 20, 29, level=5), options=options) == ["(a)", "(b)"]


def test_file_rewrites_keep_files_apart() -> None:
    files = (_file("a", 0, 9, size=1, level=5), _file("b", 20, 29, size=1, level=5))
    steps = plan_rewrite(CompactUnit(files, 5, file_rewrite=True, drop_deletes=True), OPTIONS, 5, number_of)
    assert [s.files for s in steps if isinstance(s, Rewrite)] == [(files[0],), (files[1],)]


def test_an_upgrade_changes_the_level_only() -> None:
    file = _file("a", 0, 9)
    assert Upgrade(file, 4).after == file.upgraded(4)


def _lookup(**more: Any) -> CompactOptions:
    return CompactOptions(target_file_bytes=100, small_file_ratio=0.7, lookup_cause="changelog-producer", **more)


def _moved(options: CompactOptions, *, output: int, deletes: int = 0, level: int = 0) -> str:
    """`a^` an upgrade, `a^?` one whose rows are compared, `(a)` a rewrite, `(a)-` one without deletes."""
    file = _file("a", 0, 9, deletes=deletes, level=level)
    unit = CompactUnit((file,), output, drop_deletes=output == 5)
    (step,) = plan_rewrite(unit, options, 5, number_of)
    if isinstance(step, Upgrade):
        return "a^?" if step.compares else "a^"
    return "(a)-" if step.drop_deletes else "(a)"


def test_level_0_is_compared_with_what_is_above_on_its_way_up() -> None:
    assert _moved(_lookup(), output=4) == "a^?"
    assert _moved(_lookup(), output=5) == "a^?"
    assert _moved(_lookup(), output=5, deletes=1) == "(a)-"
    assert _moved(_lookup(), output=4, level=3) == "a^"


def test_rows_that_older_ones_complete_are_written_anew() -> None:
    for options in (_lookup(merge_engine=MergeEngine.AGGREGATION), _lookup(has_sequence_field=True)):
        assert _moved(options, output=4) == "(a)"
        assert _moved(options, output=5) == "a^?"


def test_deletes_go_where_vectors_mark_what_they_delete() -> None:
    assert _moved(_lookup(deletion_vectors=True), output=4, deletes=1) == "(a)-"
    assert _moved(_lookup(), output=4, deletes=1) == "a^?"


def test_another_format_on_the_level_above_needs_a_rewrite() -> None:
    assert _moved(_lookup(file_format_per_level={0: FileFormat.AVRO}), output=4) == "(a)"


def test_a_full_compaction_logs_what_reaches_the_last_level() -> None:
    options = CompactOptions(
        target_file_bytes=100, small_file_ratio=0.7, changelog_producer=ChangelogProducer.FULL_COMPACTION
    )
    assert _moved(options, output=4) == "a^"
    assert _moved(options, output=5) == "a^?"
    assert _moved(options, output=5, level=4) == "a^?"
