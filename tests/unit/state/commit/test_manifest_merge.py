"""Which manifests merge, and what becomes of their entries."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_settings import CommitSettings
from bucketline.state.commit.manifest_merge import (
    FullMerge,
    ManifestMergeOptions,
    deleted_identities,
    live_entries,
    merge_entries,
    narrow_full_merge,
    plan_manifest_merge,
    rewrite_fully,
)
from bucketline.state.errors import CommitConflictError
from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from bucketline.state.format.entries import FileKind, ManifestEntry, ManifestFileMeta
from bucketline.state.format.manifest import describe_manifest
from bucketline.state.types.binary_row import encode_row
from bucketline.state.types.logical import parse_type_text

ADD, DELETE = FileKind.ADD, FileKind.DELETE
INT = parse_type_text("INT")
OPTIONS = ManifestMergeOptions(target_size_bytes=100, full_threshold_bytes=1000, merge_min_count=3)


def _entry(kind: FileKind, name: str, level: int = 0, partition: bytes = EMPTY_ROW) -> ManifestEntry:
    file = DataFileMeta(name, 1, 1, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, level)
    return ManifestEntry(kind, partition, 0, 1, file)


def _meta(name: str, size: int, deletes: int = 0) -> ManifestFileMeta:
    return ManifestFileMeta(name, size, 1, deletes, EMPTY_STATS, 0)


def _minor(sizes: list[int], options: ManifestMergeOptions = OPTIONS) -> list[list[int]]:
    plan = plan_manifest_merge([_meta(str(i), s) for i, s in enumerate(sizes)], options)
    return [[m.file_size for m in g.manifests] for g in plan.minor]


def test_neighbours_merge_whenever_they_reach_the_target_size() -> None:
    assert _minor([60, 40, 50, 50, 10]) == [[60, 40], [50, 50], [10]]


def test_a_manifest_that_reaches_the_target_by_itself_stays() -> None:
    plan = plan_manifest_merge([_meta("a", 100), _meta("b", 300)], OPTIONS)
    assert plan.changes_nothing and [g.is_kept for g in plan.minor] == [True, True]


def test_a_small_manifest_merges_with_the_large_one_behind_it() -> None:
    assert _minor([10, 200]) == [[10, 200]]


def test_the_tail_merges_once_it_is_long_enough() -> None:
    assert _minor([100, 1, 1]) == [[100], [1], [1]]
    assert _minor([100, 1, 1, 1]) == [[100], [1, 1, 1]]
    assert _minor([]) == []


def test_thirty_small_manifests_collapse_by_default() -> None:
    assert len(_minor([2000] * 29, ManifestMergeOptions())) == 29
    assert len(_minor([2000] * 30, ManifestMergeOptions())) == 1


def test_a_full_merge_is_due_once_what_must_change_reaches_the_threshold() -> None:
    metas = [_meta("big", 900), _meta("deletes", 950, deletes=1), _meta("small", 49)]
    assert plan_manifest_merge(metas, OPTIONS).full is None
    full = plan_manifest_merge([*metas, _meta("last", 1)], OPTIONS).full
    assert full is not None
    assert full.must_rewrite == {"deletes", "small", "last"}
    assert [m.file_name for m in full.with_deletes] == ["deletes"]


def test_a_large_manifest_is_not_read_when_no_deleted_partition_can_be_in_it() -> None:
    def manifest(name: str, first: int, last: int) -> ManifestFileMeta:
        entries = [_entry(ADD, f"{name}{p}", partition=encode_row((p,), [INT])) for p in (first, last)]
        return describe_manifest(name, 500, entries, [INT], 0)

    metas = [
        manifest("a", 0, 3),
        manifest("b", 4, 9),
        replace(manifest("c", 0, 9), num_deleted_files=1),
        manifest("d", 5, 5),
    ]
    full = plan_manifest_merge(metas, ManifestMergeOptions(100, 500, 3)).full
    assert full is not None
    deleted = deleted_identities([_entry(DELETE, "a3", partition=encode_row((3,), [INT]))])
    narrowed = narrow_full_merge(full, deleted, [INT])
    assert narrowed is not None
    assert [m.file_name for m in narrowed.merge] == ["a", "c"]
    assert [m.file_name for m in narrowed.keep] == ["b", "d"]


def test_a_full_merge_of_one_manifest_is_not_worth_doing() -> None:
    full = plan_manifest_merge([_meta("a", 2000), _meta("b", 1000, deletes=1)], OPTIONS).full
    assert full is not None
    assert narrow_full_merge(full, set(), []) is None
    narrowed = narrow_full_merge(full, deleted_identities([_entry(DELETE, "x")]), [])
    assert narrowed is not None and narrowed.merge == full.merge


def test_a_full_merge_leaves_adds_only_and_keeps_a_manifest_that_has_nothing_to_lose() -> None:
    full = FullMerge((), (_meta("a", 500), _meta("b", 500, deletes=1)), frozenset({"b"}))
    adds = [_entry(ADD, "1"), _entry(ADD, "2")]
    assert rewrite_fully(full, full.merge[0], adds, {_entry(DELETE, "3").identity}) is None
    assert rewrite_fully(full, full.merge[0], adds, {_entry(DELETE, "1").identity}) == adds[1:]
    assert rewrite_fully(full, full.merge[1], [_entry(DELETE, "9"), *adds], set()) == adds


def test_an_add_and_its_later_delete_vanish_and_a_lone_delete_stays() -> None:
    kept = [_entry(DELETE, "old"), _entry(ADD, "b")]
    assert merge_entries([kept[0], _entry(ADD, "a"), kept[1], _entry(DELETE, "a")]) == kept


def test_an_upgrade_is_a_delete_and_an_add_of_different_files() -> None:
    upgraded = [_entry(ADD, "a"), _entry(DELETE, "a"), _entry(ADD, "a", level=5)]
    assert merge_entries(upgraded) == upgraded[2:] == live_entries(upgraded)


@pytest.mark.parametrize(
    "kinds", [(ADD, ADD), (DELETE, ADD), (DELETE, DELETE), (ADD, DELETE, ADD), (ADD, DELETE, DELETE)]
)
def test_a_file_that_comes_or_goes_twice_is_a_conflict(kinds: tuple[FileKind, ...]) -> None:
    with pytest.raises(CommitConflictError, match="a in bucket 0 on level 0"):
        merge_entries(_entry(k, "a") for k in kinds)


def test_a_delete_hides_its_file_wherever_it_stands() -> None:
    assert live_entries([_entry(DELETE, "a"), _entry(ADD, "b"), _entry(ADD, "a")]) == [_entry(ADD, "b")]


@given(st.lists(st.integers(0, 7), unique=True), st.data())
def test_merging_any_prefix_changes_nothing_that_is_seen(names: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(names))) if names else set()
    entries = [_entry(ADD, str(n)) for n in names] + [_entry(DELETE, str(n)) for n in sorted(gone)]
    cut = data.draw(st.integers(0, len(entries)))
    merged = merge_entries([*merge_entries(entries[:cut]), *merge_entries(entries[cut:])])
    assert merged == merge_entries(entries) == live_entries(entries)


def test_options_are_read_from_a_table() -> None:
    assert ManifestMergeOptions.of(CommitSettings({})) == ManifestMergeOptions()
    assert ManifestMergeOptions.of(CommitSettings({"manifest.target-file-size": "1 kb"})).target_size_bytes == 1024
    with pytest.raises(OptionError, match=r"manifest\.merge-min-count"):
        ManifestMergeOptions.of(CommitSettings({"manifest.merge-min-count": "many"}))
