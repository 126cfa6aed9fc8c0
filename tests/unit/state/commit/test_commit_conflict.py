"""Each conflict rule breaks on its own example, and on nothing that is allowed."""

from dataclasses import replace

import pytest

from bucketline.state.commit.conflict import (
    Conflict,
    check_conflicts,
    check_looked_up,
    check_unmarked,
)
from bucketline.state.errors import CommitConflictError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import (
    CommitKind,
    DeletionVectorRange,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
)
from tests.support.tables.commits import data_file, entry, number_of

ADD, DELETE = FileKind.ADD, FileKind.DELETE
OLD = data_file("old")
TOP = data_file("top", level=5, keys=(0, 9))


def vectors(name: str, *data_files: str, kind: FileKind = ADD) -> IndexManifestEntry:
    ranges = tuple(DeletionVectorRange(f, 1, 22, 1) for f in data_files)
    return IndexManifestEntry(kind, EMPTY_ROW, 0, "DELETION_VECTORS", name, 31, len(ranges), ranges)


ALLOWED: dict[str, tuple[list[ManifestEntry], list[ManifestEntry]]] = {
    "a new file in an empty table": ([], [entry(ADD, OLD)]),
    "overlapping files at level 0": ([entry(ADD, OLD)], [entry(ADD, data_file("new"))]),
    "an upgrade": ([entry(ADD, OLD)], [entry(DELETE, OLD), entry(ADD, replace(OLD, level=5))]),
    "a rewrite that replaces what it overlaps": (
        [entry(ADD, OLD), entry(ADD, TOP)],
        [entry(DELETE, OLD), entry(DELETE, TOP), entry(ADD, data_file("merged", level=5))],
    ),
    "overlap on different levels": ([entry(ADD, TOP)], [entry(ADD, data_file("mid", level=4))]),
    "overlap in different buckets": ([entry(ADD, TOP)], [entry(ADD, data_file("b1", level=5), bucket=1)]),
    "adjacent ranges": ([entry(ADD, TOP)], [entry(ADD, data_file("next", level=5, keys=(10, 19)))]),
    "an old overlap on a level that is not touched": (
        [entry(ADD, TOP), entry(ADD, data_file("bad", level=5))],
        [entry(ADD, data_file("new"))],
    ),
    "totals that are not positive": ([entry(ADD, OLD, total=2)], [entry(ADD, data_file("p"), bucket=-2, total=-2)]),
    "another partition with another total": (
        [entry(ADD, OLD, total=2)],
        [entry(ADD, data_file("p"), partition=b"other", total=3)],
    ),
}

REFUSED: dict[str, tuple[str, list[ManifestEntry], list[ManifestEntry]]] = {
    "another total in the same bucket": ("bucket-count", [entry(ADD, OLD)], [entry(ADD, data_file("n"), total=3)]),
    "another total in a bucket without files": (
        "bucket-count",
        [entry(ADD, OLD, bucket=0)],
        [entry(ADD, data_file("n"), bucket=2, total=3)],
    ),
    "two totals in one commit": (
        "bucket-count",
        [],
        [entry(ADD, OLD, total=2), entry(ADD, data_file("n"), bucket=1, total=3)],
    ),
    "one file added twice": ("delta", [], [entry(ADD, OLD), entry(ADD, OLD)]),
    "one file deleted twice": ("delta", [entry(ADD, OLD)], [entry(DELETE, OLD), entry(DELETE, OLD)]),
    "a file deleted and added as it was": ("delta", [entry(ADD, OLD)], [entry(DELETE, OLD), entry(ADD, OLD)]),
    "a live file added again": ("already-added", [entry(ADD, OLD)], [entry(ADD, OLD)]),
    "a delete of nothing": ("file-deleted", [], [entry(DELETE, OLD)]),
    "a delete at the level it came from": (
        "file-deleted",
        [entry(ADD, replace(OLD, level=5))],
        [entry(DELETE, OLD), entry(ADD, data_file("merged", level=5, keys=(20, 21)))],
    ),
    "overlap with a live file": ("key-range", [entry(ADD, TOP)], [entry(ADD, data_file("n", level=5, keys=(9, 20)))]),
    "overlap inside the commit": (
        "key-range",
        [],
        [entry(ADD, data_file("a", level=1, keys=(0, 5))), entry(ADD, data_file("b", level=1, keys=(3, 9)))],
    ),
}


@pytest.mark.parametrize("case", ALLOWED)
@pytest.mark.parametrize("kind", [CommitKind.APPEND, CommitKind.COMPACT, CommitKind.OVERWRITE])
def test_changes_that_fit_pass_every_rule(case: str, kind: CommitKind) -> None:
    base, delta = ALLOWED[case]
    assert check_conflicts(base, delta, kind, number_of) is None


@pytest.mark.parametrize("case", REFUSED)
def test_changes_that_do_not_fit_break_the_rule_made_for_them(case: str) -> None:
    rule, base, delta = REFUSED[case]
    conflict = check_conflicts(base, delta, CommitKind.COMPACT, number_of)
    assert conflict is not None
    assert conflict.rule == rule


def test_the_bucket_count_of_a_partition_binds_buckets_outside_the_base() -> None:
    delta = [entry(ADD, data_file("n"), bucket=2, total=3)]
    conflict = check_conflicts([], delta, CommitKind.APPEND, number_of, partition_totals={EMPTY_ROW: 2})
    assert conflict is not None and conflict.rule == "bucket-count"


def test_an_overwrite_may_change_the_bucket_count() -> None:
    delta = [entry(DELETE, OLD, total=2), entry(ADD, data_file("n"), bucket=2, total=3)]
    assert check_conflicts([entry(ADD, OLD, total=2)], delta, CommitKind.OVERWRITE, number_of) is None


def test_append_tables_have_no_key_ranges() -> None:
    delta = [entry(ADD, data_file("n", level=5))]
    assert check_conflicts([entry(ADD, TOP)], delta, CommitKind.COMPACT, None) is None


def test_a_deletion_vector_needs_its_data_file() -> None:
    base = [entry(ADD, OLD)]
    fits, dangles = vectors("index-1", "old"), vectors("index-1", "old", "gone")
    assert check_conflicts(base, [], CommitKind.COMPACT, number_of, delta_index=[fits]) is None
    conflict = check_conflicts(base, [], CommitKind.COMPACT, number_of, delta_index=[dangles])
    assert conflict is not None and conflict.rule == "deletion-vector"


def test_a_deletion_vector_of_a_file_that_the_commit_removes_dangles() -> None:
    conflict = check_conflicts(
        [entry(ADD, OLD)], [entry(DELETE, OLD)], CommitKind.COMPACT, number_of, delta_index=[vectors("i", "old")]
    )
    assert conflict is not None and conflict.rule == "deletion-vector"


def test_an_index_file_can_be_taken_away_once() -> None:
    gone = vectors("index-1", kind=DELETE)
    live = [vectors("index-1")]
    assert check_conflicts([], [], CommitKind.COMPACT, None, base_index=live, delta_index=[gone]) is None
    conflict = check_conflicts([], [], CommitKind.COMPACT, None, base_index=[], delta_index=[gone])
    assert conflict is not None and conflict.rule == "index-replaced"


NEWER: dict[str, tuple[bool, ManifestEntry]] = {
    "a file above level 0 with keys of the input": (True, entry(ADD, data_file("n", level=4, keys=(9, 20)))),
    "a file above level 0 with other keys": (False, entry(ADD, data_file("n", level=4, keys=(10, 20)))),
    "a file of another bucket": (False, entry(ADD, data_file("n", level=4), bucket=1)),
    "a file on level 0": (False, entry(ADD, data_file("n"))),
    "a file with keys of the input that went away": (True, entry(DELETE, TOP)),
    "a file with other keys that went away": (False, entry(DELETE, data_file("n", level=4, keys=(10, 20)))),
    "a file of level 0 that went away": (False, entry(DELETE, data_file("n"))),
}


@pytest.mark.parametrize("case", NEWER)
def test_what_was_looked_up_is_still_all_there_is(case: str) -> None:
    broken, newer = NEWER[case]
    old = data_file("old", keys=(0, 9))
    delta = [entry(DELETE, old), entry(ADD, data_file("merged", level=5, keys=(0, 9)))]
    conflict = check_looked_up([newer], delta, number_of)
    assert (conflict is not None and conflict.rule == "levels-changed") if broken else conflict is None
    # Without rows of level 0 nothing is looked up.
    assert check_looked_up([newer], [entry(DELETE, replace(old, level=3))], number_of) is None


def test_rows_that_were_deleted_after_a_compaction_read_their_file_do_not_come_back() -> None:
    upgraded = [entry(DELETE, OLD), entry(ADD, replace(OLD, level=5))]
    gone = [entry(DELETE, OLD), entry(ADD, data_file("merged", level=5))]
    marked, others = [vectors("index-1", "old")], [vectors("index-1", "else")]
    conflict = check_unmarked([], marked, gone)
    assert conflict is not None and conflict.rule == "rows-deleted"
    for planned, found, delta in (
        (marked, marked, gone),
        (marked, [vectors("index-2", "old", "else")], gone),  # written anew, as many rows of the file
        ([], marked, upgraded),
        ([], others, gone),
        (marked, [], gone),
    ):
        assert check_unmarked(planned, found, delta) is None


def test_a_conflict_becomes_an_error_that_names_its_rule_and_evidence() -> None:
    error = Conflict("file-deleted", "gone", {"file": "data-1"}).error()
    assert isinstance(error, CommitConflictError)
    assert error.fields == {"rule": "file-deleted", "file": "data-1"}
