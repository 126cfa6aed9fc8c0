"""From messages to a planned snapshot, and the search for a commit that happened already."""

from dataclasses import replace

import pytest

from bucketline.state.commit.author import Author
from bucketline.state.commit.changes import changed_buckets, collect_changes, combine_index
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.plan import (
    WrittenList,
    overwrite_entries,
    plan_snapshot,
)
from bucketline.state.commit.replay import find_replayed, newest_of_user
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import (
    BATCH_COMMIT_IDENTIFIER,
    CommitKind,
    FileKind,
    IndexManifestEntry,
    Operation,
    Snapshot,
)
from tests.support.tables.commits import data_file, entry, snapshot

ADD, DELETE = FileKind.ADD, FileKind.DELETE
ME = Author("user", 7, {"offsets": "12"}, watermark=50, operation=Operation.WRITE)


def hash_index(name: str, *, bucket: int = 0, kind: FileKind = ADD) -> IndexManifestEntry:
    return IndexManifestEntry(kind, EMPTY_ROW, bucket, "HASH", name, 4, 1)


def vectors(name: str, *, bucket: int = 0, kind: FileKind = ADD) -> IndexManifestEntry:
    return IndexManifestEntry(kind, EMPTY_ROW, bucket, "DELETION_VECTORS", name, 31, 1, ())


def test_messages_split_into_appended_files_and_compactions() -> None:
    file = data_file("f")
    changes = collect_changes(
        [
            CommitMessage(
                EMPTY_ROW,
                0,
                2,
                new_files=(file,),
                changelog_files=(data_file("c"),),
                compact_before=(file,),
                compact_after=(file.upgraded(5),),
                new_index_files=(hash_index("h"),),
            )
        ]
    )
    assert changes.append_entries == (entry(ADD, file),)
    assert changes.append_changelog == (entry(ADD, data_file("c")),)
    assert changes.append_index == (hash_index("h"),)
    assert changes.compact_entries == (entry(DELETE, file), entry(ADD, file.upgraded(5)))
    assert changes.append_kind is CommitKind.APPEND
    assert changed_buckets(changes.append_entries) == {(EMPTY_ROW, 0)}


def test_every_delete_precedes_every_add_across_messages() -> None:
    files = [data_file(f"f{i}") for i in range(3)]
    messages = [
        CommitMessage(EMPTY_ROW, i, 3, compact_before=(f,), compact_after=(f.upgraded(5),)) for i, f in enumerate(files)
    ]
    kinds = [e.kind for e in collect_changes(messages).compact_entries]
    assert kinds == [DELETE] * 3 + [ADD] * 3


def test_an_append_that_deletes_or_masks_is_an_overwrite() -> None:
    assert collect_changes([CommitMessage(EMPTY_ROW, 0, 1, deleted_files=(data_file("f"),))]).append_kind is (
        CommitKind.OVERWRITE
    )
    assert collect_changes([CommitMessage(EMPTY_ROW, 0, 1, new_index_files=(vectors("v"),))]).append_kind is (
        CommitKind.OVERWRITE
    )


def test_a_new_index_file_takes_the_place_of_its_buckets_old_one() -> None:
    base = [hash_index("h0"), vectors("v0"), hash_index("h1", bucket=1)]
    combined = combine_index(base, [hash_index("h2")], vectors_by_file=False)
    assert combined == (vectors("v0"), hash_index("h1", bucket=1), hash_index("h2"))


def test_an_index_delete_without_an_add_empties_its_place() -> None:
    base = [hash_index("h0"), vectors("v0")]
    assert combine_index(base, [vectors("v0", kind=DELETE)], vectors_by_file=False) == (hash_index("h0"),)


def test_vectors_by_file_live_side_by_side() -> None:
    combined = combine_index([vectors("v0")], [vectors("v1")], vectors_by_file=True)
    assert combined == (vectors("v0"), vectors("v1"))


def test_the_first_snapshot_counts_from_one() -> None:
    plan = plan_snapshot(
        None, kind=CommitKind.APPEND, entries=[entry(ADD, data_file("f"))], author=ME, schema_id=3, uuid="u", now_ms=9
    )
    found = plan.snapshot(base=WrittenList("b", 1), delta=WrittenList("d", 2), changelog=None, index_manifest=None)
    assert found == Snapshot(
        id=1,
        schema_id=3,
        base_manifest_list="b",
        base_manifest_list_size=1,
        delta_manifest_list="d",
        delta_manifest_list_size=2,
        commit_user="user",
        commit_identifier=7,
        commit_kind=CommitKind.APPEND,
        time_ms=9,
        total_record_count=10,
        delta_record_count=10,
        watermark=50,
        properties={"offsets": "12"},
        next_row_id=0,
        operation="WRITE",
        uuid="u",
    )


def test_a_snapshot_continues_its_predecessor() -> None:
    latest = replace(
        snapshot(4, total_rows=100, watermark=60), index_manifest="index-manifest-1", statistics="stat-1", next_row_id=5
    )
    old = data_file("old", rows=30)
    plan = plan_snapshot(
        latest,
        kind=CommitKind.COMPACT,
        entries=[entry(DELETE, old), entry(ADD, data_file("new", level=5, rows=20))],
        changelog=[entry(ADD, data_file("c", rows=4))],
        author=ME,
        schema_id=0,
        uuid="u",
        now_ms=9,
    )
    found = plan.snapshot(
        base=WrittenList("b", 1), delta=WrittenList("d", 2), changelog=WrittenList("c", 3), index_manifest=None
    )
    assert (found.id, found.total_record_count, found.delta_record_count) == (5, 90, -10)
    assert (found.changelog_manifest_list, found.changelog_record_count) == ("c", 4)
    assert (found.watermark, found.index_manifest, found.statistics) == (60, "index-manifest-1", "stat-1")
    assert found.next_row_id == 5


def test_statistics_end_with_their_schema() -> None:
    latest = replace(snapshot(4), statistics="stat-1")
    plan = plan_snapshot(latest, kind=CommitKind.APPEND, entries=[], author=ME, schema_id=1, uuid="u", now_ms=9)
    found = plan.snapshot(base=WrittenList("b", 1), delta=WrittenList("d", 2), changelog=None, index_manifest=None)
    assert found.statistics is None


def test_index_changes_ask_for_a_complete_new_list() -> None:
    plan = plan_snapshot(
        snapshot(1),
        kind=CommitKind.APPEND,
        entries=[],
        index=combine_index([hash_index("h1", bucket=1)], [hash_index("h0")], vectors_by_file=False),
        author=ME,
        schema_id=0,
        uuid="u",
        now_ms=9,
    )
    assert plan.index_entries == (hash_index("h1", bucket=1), hash_index("h0"))


def test_a_delete_after_an_add_is_a_bug() -> None:
    file = data_file("f")
    with pytest.raises(AssertionError):
        plan_snapshot(
            None,
            kind=CommitKind.COMPACT,
            entries=[entry(ADD, file.upgraded(5)), entry(DELETE, file)],
            author=ME,
            schema_id=0,
            uuid="u",
            now_ms=9,
        )


def test_new_rows_of_one_partition_get_ids_in_one_range() -> None:
    at = {name: bytes([0, 0, 0, 1, ord(name)]) for name in "xy"}
    old = replace(entry(DELETE, data_file("old", rows=5)), partition=at["y"])
    new = [
        replace(entry(ADD, data_file(f"{part}{n}", rows=rows)), partition=at[part])
        for n, (part, rows) in enumerate([("x", 2), ("y", 3), ("x", 4), ("y", 1)])
    ]
    plan = plan_snapshot(
        replace(snapshot(6), next_row_id=10),
        kind=CommitKind.OVERWRITE,
        entries=[old, *new],
        author=ME,
        schema_id=0,
        uuid="u",
        now_ms=9,
        tracks_rows=True,
    )
    assert plan.delta_entries[0] == old  # a file that goes needs no id
    ids = {e.file.file_name: e.file.first_row_id for e in plan.delta_entries[1:]}
    assert ids == {"x0": 10, "x2": 12, "y1": 16, "y3": 19}
    assert plan.next_row_id == 20


def test_an_overwrite_deletes_what_lives_and_adds_what_is_new() -> None:
    old, new = entry(ADD, data_file("old"), total=2), entry(ADD, data_file("new"), total=4)
    assert overwrite_entries([old], [new]) == (entry(DELETE, data_file("old"), total=2), new)


def test_the_newest_snapshot_of_a_user_is_its_first_one_from_the_newest_on() -> None:
    history = [
        snapshot(4, identifier=3, kind=CommitKind.COMPACT),
        snapshot(3, identifier=3),
        snapshot(2, user="other", identifier=9),
        snapshot(1, identifier=1),
    ]
    assert newest_of_user(history, "user") == history[0]
    assert newest_of_user(history, "other") == history[2]
    assert newest_of_user(history, "nobody") is None


def test_a_replayed_snapshot_is_an_append_of_our_own_identifier() -> None:
    assert find_replayed([snapshot(2, identifier=3)], "user", 3) == snapshot(2, identifier=3)
    assert find_replayed([snapshot(2, identifier=3, kind=CommitKind.COMPACT)], "user", 3) is None
    batch = snapshot(2, identifier=BATCH_COMMIT_IDENTIFIER)
    assert find_replayed([batch], "user", BATCH_COMMIT_IDENTIFIER) is None
