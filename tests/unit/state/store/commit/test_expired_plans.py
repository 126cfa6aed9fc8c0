"""Compactions whose snapshot expires before they are committed: what others have changed since still counts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import CommitResult, Committed
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import CommitKind, DeletionVectorRange, FileKind, IndexManifestEntry
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.commit.commit_check import PlannedOn
from bucketline.state.store.read.bucket_deletions import deletion_entries
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import create_table, open_table
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io
from tests.support.tables.commit_table import CommitTable, Follower, message
from tests.support.tables.commits import data_file
from tests.support.tables.committing import ME, Interference, append, compacted

LOOKS_UP = {"changelog-producer": "lookup"}
TOP, FAR = data_file("top", level=2), data_file("far", level=2, keys=(30, 40))
HAS_VECTORS = {"deletion-vectors.enabled": "true"}


def marks(name: str, *rows: tuple[str, int]) -> CommitMessage:
    """An index file that marks so many rows of each of these data files."""
    ranges = tuple(DeletionVectorRange(file, 1, 22, count) for file, count in rows)
    found = IndexManifestEntry(FileKind.ADD, EMPTY_ROW, 0, "DELETION_VECTORS", name, 31, len(ranges), ranges)
    return replace(message(), compact_index_files=(found,))


def commit(table: CommitTable, made: CommitMessage) -> None:
    outcome = table.committer().commit(table.put_files([made]), user="other", kind=CommitKind.COMPACT)
    assert isinstance(outcome, Committed)


def late(table: CommitTable, ours: CommitMessage, act: Callable[[], object], *, remembers: bool = True) -> CommitResult:
    """The outcome of a compaction that is planned now. Then others act, and all snapshots but the newest expire."""
    view = Follower(table.snapshots, table.manifests)
    based_on = view.refresh().snapshot
    assert based_on is not None
    planned = PlannedOn(view.live, deletion_entries(table.manifests.read_index(based_on.index_manifest)))
    act()
    append(table, "later", user="other", identifier=9)
    for number in table.snapshots.ids()[:-1]:
        table.storage.delete(table.snapshots.path(number))
    return table.committer().commit(
        table.put_files([ours]),
        user=ME,
        kind=CommitKind.COMPACT,
        based_on=based_on.id,
        view=view,
        planned=planned if remembers else None,
    )


OTHERS: Mapping[str, tuple[str | None, CommitMessage]] = {
    "rows": (None, message(data_file("b"))),
    "a file above level 0 with its keys": ("levels-changed", message(after=[data_file("b", level=4)])),
    "a file above level 0 with others": (None, message(after=[data_file("b", level=4, keys=(10, 20))])),
    "a file above level 0 of another bucket": (None, message(after=[data_file("b", level=4)], bucket=1)),
    "the same compaction": ("levels-changed", compacted("theirs", "a")),
    "a file above level 0 with its keys goes": ("levels-changed", message(before=[TOP])),
    "a file above level 0 with others goes": (None, message(before=[FAR])),
}


@pytest.mark.parametrize("case", OTHERS)
def test_levels_that_were_looked_up_must_be_as_they_were(case: str) -> None:
    rule, theirs = OTHERS[case]
    table = CommitTable(options=LOOKS_UP).create()
    commit(table, message(after=[TOP, FAR]))
    append(table, "a")

    def act() -> None:
        append(table, "b", user="other") if theirs.new_files else commit(table, theirs)

    outcome = late(table, compacted("ours", "a"), act)
    assert (outcome.rule if isinstance(outcome, Conflict) else None) == rule
    assert ("ours" in table.live_names()) == (rule is None) and "later" in table.live_names()


def test_without_what_it_was_planned_on_it_is_lost() -> None:
    table = CommitTable(options=LOOKS_UP).create()
    append(table, "a")
    outcome = late(table, compacted("ours", "a"), lambda: append(table, "b", user="other"), remembers=False)
    assert isinstance(outcome, Conflict) and outcome.rule == "history-gone"


def test_a_rollback_to_before_the_plan_is_no_expiry() -> None:
    table = CommitTable(options=LOOKS_UP).create()
    append(table, "a")
    append(table, "b")
    planned = PlannedOn(Follower(table.snapshots, table.manifests).refresh(), {})
    rollback_to(table.storage, table.path, 1)
    ours = table.put_files([compacted("ours", "a")])
    outcome = table.committer().commit(ours, user=ME, kind=CommitKind.COMPACT, based_on=2, planned=planned)
    assert isinstance(outcome, Conflict) and outcome.rule == "history-gone"


@pytest.mark.parametrize(
    ("theirs", "ours", "rule"),
    [
        (marks("theirs", ("a", 1), ("b", 2)), compacted("ours", "a"), None),
        (marks("theirs", ("a", 2)), compacted("ours", "a"), "rows-deleted"),
        (marks("theirs", ("a", 1), ("b", 1)), marks("ours", ("a", 2)), "index-changed"),
    ],
)
def test_rows_that_others_delete_stay_deleted(theirs: CommitMessage, ours: CommitMessage, rule: str | None) -> None:
    table = CommitTable(options=HAS_VECTORS).create()
    append(table, "a", "b")
    commit(table, marks("first", ("a", 1)))
    outcome = late(table, ours, lambda: commit(table, theirs))
    assert (outcome.rule if isinstance(outcome, Conflict) else None) == rule


@pytest.mark.parametrize("options", [LOOKS_UP, HAS_VECTORS, {"merge-engine": "first-row"}], ids=lambda o: next(iter(o)))
def test_a_compaction_that_takes_longer_than_snapshots_live_comes_through(
    tmp_path: Path, options: Mapping[str, str]
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    made = create_table(
        str(tmp_path / "shop.db" / "t"), schema, ("id",), options={"bucket": "1", "write-only": "true", **options}
    )

    def write(number: int) -> None:
        open_table(made.path).write(pa.table({"id": range(number, 20), "v": [number] * (20 - number)}, schema=schema))

    def act() -> None:
        write(3)
        open_table(made.path).expire_snapshots(retain_min=1, retain_max=1)

    for number in range(3):
        write(number)
    on_io(open_table(made.path), FaultyIO(LocalIO(), before_call=Interference([act]))).compact()
    open_table(made.path).compact()
    found = open_table(made.path)
    expected = [0] * 20 if "merge-engine" in options else [0, 1, 2] + [3] * 17
    assert found.to_arrow().sort_by("id")["v"].to_pylist() == expected and found.doctor(rows=True) == []
