"""Commits by one writer and against others: what is published, what is refused, and what is left on disk."""

from dataclasses import replace

import pytest

from bucketline.state.commit.change import AppendCheck
from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.outcome import Committed
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import CommitKind, DeletionVectorRange, FileKind, IndexManifestEntry
from tests.support.tables.commit_table import CommitTable, Follower, message
from tests.support.tables.commits import data_file
from tests.support.tables.committing import ME, append, compacted, interrupted


@pytest.fixture
def table() -> CommitTable:
    return CommitTable().create()


def test_a_commit_is_an_append_snapshot_and_a_compact_snapshot(table: CommitTable) -> None:
    a, b = data_file("a"), data_file("b")
    [m] = table.put_files([message(a, b, before=[a, b], after=[data_file("ab", level=5, rows=20)])])
    outcome = table.committer().commit([m], user=ME, identifier=7, properties={"p": "1"}, watermark=5)
    assert isinstance(outcome, Committed)
    assert outcome.snapshot_ids == (1, 2)
    first, second = outcome.snapshots
    assert (first.commit_kind, second.commit_kind) == (CommitKind.APPEND, CommitKind.COMPACT)
    for s in outcome.snapshots:
        assert (s.commit_user, s.commit_identifier, s.watermark, s.properties) == (ME, 7, 5, {"p": "1"})
    assert (first.total_record_count, second.total_record_count) == (20, 20)
    assert table.live_names() == ["ab"]
    assert table.all_snapshots() == list(outcome.snapshots)
    assert table.manifest_files() == table.named_manifest_files()
    table.check()


def test_hints_are_written(table: CommitTable) -> None:
    append(table, "a")
    append(table, "b", identifier=2)
    assert table.storage.read(f"{table.path}/snapshot/LATEST") == b"2"
    assert table.storage.read(f"{table.path}/snapshot/EARLIEST") == b"1"


def test_a_watermark_never_goes_back_and_properties_are_the_commits_own(table: CommitTable) -> None:
    committer = table.committer()
    committer.commit([], user=ME, identifier=1, watermark=9, properties={"p": "1"})
    committer.commit([], user=ME, identifier=2, watermark=3)
    assert (table.latest().watermark, table.latest().properties) == (9, {})


@pytest.mark.parametrize(
    ("identifier", "options", "ignore_empty", "made"),
    [
        (1, {}, None, 1),
        (1, {}, True, 0),
        (2**63 - 1, {}, None, 0),
        (2**63 - 1, {}, False, 1),
        (1, {"snapshot.ignore-empty-commit": "true"}, None, 0),
        (1, {"snapshot.ignore-empty-commit": "true"}, False, 1),
        (2**63 - 1, {"snapshot.ignore-empty-commit": "false"}, None, 1),
        (2**63 - 1, {"commit.force-create-snapshot": "true"}, None, 1),
    ],
)
def test_an_empty_commit_shows_its_identifier_unless_told_otherwise(
    table: CommitTable, identifier: int, options: dict[str, str], ignore_empty: bool | None, made: int
) -> None:
    committer = replace(table, options=options).committer()
    outcome = committer.commit([message()], user=ME, identifier=identifier, ignore_empty=ignore_empty)
    assert isinstance(outcome, Committed)
    assert len(outcome.snapshots) == made
    table.check()


def test_a_compaction_alone_repeats_its_identifier(table: CommitTable) -> None:
    append(table, "a")
    messages = table.put_files([compacted("top", "a")])
    outcome = table.committer().commit(messages, user=ME, identifier=1, kind=CommitKind.COMPACT, based_on=1)
    assert isinstance(outcome, Committed) and not outcome.replayed
    assert [s.commit_kind for s in outcome.snapshots] == [CommitKind.COMPACT]
    assert table.live_names() == ["top"]
    table.check()


def test_a_lost_race_is_tried_again_on_the_new_snapshot_and_leaves_nothing(table: CommitTable) -> None:
    append(table, "a")
    races = [lambda n=n: append(table, f"other{n}", user="other", identifier=n) for n in range(3)]
    racing = interrupted(table, *races)
    outcome = racing.committer().commit(table.put_files([message(data_file("b"))]), user=ME, identifier=2)
    assert isinstance(outcome, Committed)
    assert outcome.snapshot_ids == (5,)
    assert table.live_names() == ["a", "b", "other0", "other1", "other2"]
    assert len(table.pause.waits) == 3
    assert table.manifest_files() == table.named_manifest_files()
    table.check()


def test_a_writer_that_loses_every_race_gives_up_and_leaves_nothing(table: CommitTable) -> None:
    table = replace(table, options={"commit.max-retries": "2"})
    races = [lambda n=n: append(table, f"other{n}", user="other", identifier=n) for n in range(3)]
    outcome = interrupted(table, *races).committer().commit([message(data_file("b"))], user=ME, identifier=2)
    assert isinstance(outcome, Conflict)
    assert outcome.rule == "retries"
    assert table.manifest_files() == table.named_manifest_files()
    table.check()


def test_the_same_commit_of_another_run_is_recognised_while_retrying(table: CommitTable) -> None:
    raced = interrupted(table, lambda: append(table, "theirs", identifier=7))
    outcome = raced.committer().commit(table.put_files([message(data_file("ours"))]), user=ME, identifier=7)
    assert isinstance(outcome, Committed)
    assert (outcome.replayed, outcome.snapshot_ids) == (True, (1,))
    assert table.live_names() == ["theirs"]
    assert table.manifest_files() == table.named_manifest_files()
    table.check()


def test_the_same_commit_since_the_work_was_planned_is_recognised_at_once(table: CommitTable) -> None:
    append(table, "a", identifier=6)
    append(table, "theirs", identifier=7)
    append(table, "later", user="other", identifier=1)
    outcome = table.committer().commit([message(data_file("ours"))], user=ME, identifier=7, based_on=1)
    assert isinstance(outcome, Committed)
    assert (outcome.replayed, outcome.snapshot_ids) == (True, (2,))
    assert len(table.all_snapshots()) == 3


def test_it_is_refused_where_expired_snapshots_may_have_held_the_same_commit(table: CommitTable) -> None:
    for n in range(4):
        append(table, f"f{n}", user="other", identifier=n)
    table.storage.delete(table.snapshots.path(2))
    outcome = table.committer().commit([message(data_file("ours"))], user=ME, identifier=7, based_on=1)
    assert isinstance(outcome, Conflict)
    assert outcome.rule == "history-gone"


def test_two_batch_commits_are_two_commits(table: CommitTable) -> None:
    for name in "ab":
        messages = table.put_files([message(data_file(name))])
        outcome = table.committer().commit(messages, user=ME, based_on=0)
        assert isinstance(outcome, Committed) and not outcome.replayed
    assert table.live_names() == ["a", "b"]


def test_a_compaction_that_loses_its_race_is_dropped_with_its_outputs_and_the_append_stays(table: CommitTable) -> None:
    append(table, "a")
    other = table.put_files([compacted("theirs", "a")])

    def race() -> None:
        outcome = table.committer().commit(other, user="other", kind=CommitKind.COMPACT)
        assert isinstance(outcome, Committed)

    [ours] = table.put_files([replace(compacted("ours", "a", "b"), new_files=(data_file("b"),))])
    racing = interrupted(table, lambda: None, race)
    outcome = racing.committer().commit([ours], user=ME, identifier=2, based_on=1)
    assert isinstance(outcome, Committed)
    assert [s.commit_kind for s in outcome.snapshots] == [CommitKind.APPEND]
    assert isinstance(outcome.dropped, Conflict) and outcome.dropped.rule == "file-deleted"
    assert table.live_names() == ["b", "theirs"]
    assert not table.storage.exists(table.data_path("ours"))
    assert table.manifest_files() == table.named_manifest_files()
    table.check()


def test_a_dropped_upgrade_keeps_the_file(table: CommitTable) -> None:
    append(table, "a", "b")
    [theirs] = table.put_files([compacted("theirs", "a")])
    table.committer().commit([theirs], user="other", kind=CommitKind.COMPACT)
    a, b = data_file("a"), data_file("b", keys=(20, 29))
    ours = message(before=[a, b], after=[a.upgraded(4), b.upgraded(4)])
    outcome = table.committer().commit([ours], user=ME, identifier=2, kind=CommitKind.COMPACT, based_on=1)
    assert isinstance(outcome, Conflict)
    assert table.storage.exists(table.data_path("a"))
    assert table.storage.exists(table.data_path("b"))
    table.check()


def test_a_compaction_committed_twice_is_refused_and_its_files_stay(table: CommitTable) -> None:
    append(table, "a")
    messages = table.put_files([compacted("top", "a")])
    for expected in (Committed, Conflict):
        outcome = table.committer().commit(messages, user=ME, identifier=1, kind=CommitKind.COMPACT, based_on=1)
        assert isinstance(outcome, expected)
    assert table.live_names() == ["top"]
    table.check()


def test_files_that_may_be_in_the_table_already_are_found_by_the_full_check(table: CommitTable) -> None:
    append(table, "a")
    outcome = table.committer().commit(
        [message(data_file("a"))], user="next", identifier=1, append_check=AppendCheck.ALL_RULES
    )
    assert isinstance(outcome, Conflict) and outcome.rule == "already-added"


@pytest.mark.parametrize("with_view", [False, True])
def test_another_bucket_count_is_refused(table: CommitTable, with_view: bool) -> None:
    append(table, "a")
    view = Follower(table.snapshots, table.manifests) if with_view else None
    outcome = table.committer().commit([message(data_file("b"), bucket=2, total=3)], user=ME, identifier=2, view=view)
    assert isinstance(outcome, Conflict) and outcome.rule == "bucket-count"
    assert len(table.all_snapshots()) == 1


@pytest.mark.parametrize("with_view", [False, True])
def test_an_overwrite_replaces_what_is_live_when_it_is_published(table: CommitTable, with_view: bool) -> None:
    append(table, "a")
    view = Follower(table.snapshots, table.manifests) if with_view else None
    racing = interrupted(table, lambda: append(table, "late", user="other"))
    messages = table.put_files([message(data_file("new"), bucket=2, total=3)])
    outcome = racing.committer().commit(
        messages, user=ME, identifier=2, kind=CommitKind.OVERWRITE, overwrite=lambda p: p == EMPTY_ROW, view=view
    )
    assert isinstance(outcome, Committed)
    assert outcome.snapshots[0].commit_kind is CommitKind.OVERWRITE
    assert table.live_names() == ["new"]
    assert table.manifest_files() == table.named_manifest_files()
    table.check()


def test_a_planned_overwrite_is_refused_when_its_target_has_changed(table: CommitTable) -> None:
    append(table, "a")
    append(table, "late", user="other")
    outcome = table.committer().commit(
        [message(data_file("new"))],
        user=ME,
        kind=CommitKind.OVERWRITE,
        overwrite=lambda p: p == EMPTY_ROW,
        based_on=1,
    )
    assert isinstance(outcome, Conflict) and outcome.rule == "target-changed"


def test_an_overwrite_without_files_empties_its_partitions(table: CommitTable) -> None:
    append(table, "a")
    table.committer().commit([], user=ME, kind=CommitKind.OVERWRITE, overwrite=lambda p: True)
    assert table.live_names() == []
    table.check()


def test_files_outside_the_overwritten_partitions_are_refused(table: CommitTable) -> None:
    with pytest.raises(SchemaMismatchError):
        table.committer().commit(
            [message(data_file("a"))], user=ME, kind=CommitKind.OVERWRITE, overwrite=lambda p: False
        )
    assert table.all_snapshots() == []


def vectors(name: str, data_file_name: str) -> IndexManifestEntry:
    ranges = (DeletionVectorRange(data_file_name, 1, 22, 1),)
    return IndexManifestEntry(FileKind.ADD, EMPTY_ROW, 0, "DELETION_VECTORS", name, 31, 1, ranges)


def test_an_append_that_masks_rows_is_an_overwrite_under_all_rules(table: CommitTable) -> None:
    append(table, "a")
    fits, dangles = (replace(message(), new_index_files=(vectors(f"i-{f}", f),)) for f in ("a", "gone"))
    refused = table.committer().commit([dangles], user=ME, identifier=2)
    assert isinstance(refused, Conflict) and refused.rule == "deletion-vector"
    outcome = table.committer().commit(table.put_files([fits]), user=ME, identifier=2)
    assert isinstance(outcome, Committed)
    assert outcome.snapshots[0].commit_kind is CommitKind.OVERWRITE
    assert [e.file_name for e in table.manifests.read_index(table.latest().index_manifest)] == ["i-a"]
    table.check()


def test_an_index_that_another_writer_changed_since_is_not_replaced(table: CommitTable) -> None:
    append(table, "a")
    theirs, ours = (replace(message(), compact_index_files=(vectors(n, "a"),)) for n in ("theirs", "ours"))
    table.put_files([theirs, ours])
    commits = [
        table.committer().commit([m], user=u, identifier=1, kind=CommitKind.COMPACT, based_on=1)
        for u, m in (("other", theirs), (ME, ours))
    ]
    assert isinstance(commits[0], Committed)
    assert isinstance(commits[1], Conflict) and commits[1].rule == "index-changed"
    assert table.storage.list_names(f"{table.path}/index") == ["theirs"]
    table.check()


@pytest.mark.parametrize("rival_comes_before_publication", [1, 2])
def test_the_index_of_a_compaction_is_not_replaced_whenever_it_changed(
    table: CommitTable, rival_comes_before_publication: int
) -> None:
    append(table, "a")
    theirs = replace(message(), compact_index_files=(vectors("theirs", "a"),))
    ours = replace(message(data_file("b")), compact_index_files=(vectors("ours", "a"),))
    table.put_files([theirs, ours])

    def race() -> None:
        outcome = table.committer().commit([theirs], user="other", kind=CommitKind.COMPACT)
        assert isinstance(outcome, Committed)

    acts = [lambda: None] * (rival_comes_before_publication - 1) + [race]
    outcome = interrupted(table, *acts).committer().commit([ours], user=ME, identifier=2, based_on=1)
    assert isinstance(outcome, Committed)
    assert isinstance(outcome.dropped, Conflict) and outcome.dropped.rule == "index-changed"
    assert table.live_names() == ["a", "b"]
    assert table.storage.list_names(f"{table.path}/index") == ["theirs"]
    table.check()


def test_both_halves_may_change_the_index_of_one_bucket(table: CommitTable) -> None:
    append(table, "a")
    ours = replace(message(), new_index_files=(vectors("first", "a"),), compact_index_files=(vectors("second", "a"),))
    outcome = table.committer().commit(table.put_files([ours]), user=ME, identifier=2, based_on=1)
    assert isinstance(outcome, Committed) and outcome.dropped is None
    assert [e.file_name for e in table.manifests.read_index(table.latest().index_manifest)] == ["second"]
    table.check()


def test_an_append_that_takes_away_an_index_file_finds_it_live(table: CommitTable) -> None:
    gone = IndexManifestEntry(FileKind.ADD, EMPTY_ROW, 0, "HASH", "gone", 4, 1)
    outcome = table.committer().commit([replace(message(), deleted_index_files=(gone,))], user=ME, identifier=1)
    assert isinstance(outcome, Conflict) and outcome.rule == "index-replaced"


def test_only_an_overwrite_of_partitions_changes_their_bucket_count(table: CommitTable) -> None:
    append(table, "a")
    masking = replace(message(data_file("b"), total=3), new_index_files=(vectors("i", "a"),))
    outcome = table.committer().commit([masking], user=ME, identifier=2)
    assert isinstance(outcome, Conflict) and outcome.rule == "bucket-count"


def test_an_overwrite_takes_the_index_files_of_its_partitions_away(table: CommitTable) -> None:
    append(table, "a")
    masking = replace(message(), new_index_files=(vectors("i", "a"),))
    table.committer().commit(table.put_files([masking]), user=ME, identifier=2)
    messages = table.put_files([message(data_file("new"))])
    table.committer().commit(
        messages, user=ME, identifier=3, kind=CommitKind.OVERWRITE, overwrite=lambda p: True, based_on=2
    )
    assert table.live_names() == ["new"]
    assert table.manifests.read_index(table.latest().index_manifest) == []
    table.check()


def test_manifests_are_merged_and_old_ones_stay_for_older_snapshots(table: CommitTable) -> None:
    table = replace(table, options={"manifest.merge-min-count": "3"})
    for n in range(6):
        append(table, f"f{n}", identifier=n)
    base = table.manifests.read_list(table.latest().base_manifest_list)
    assert len(base) < 5
    assert table.live_names() == [f"f{n}" for n in range(6)]
    assert table.manifest_files() == table.named_manifest_files()
    table.check()
