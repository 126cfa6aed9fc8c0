"""Which snapshots go, and which files with them."""

import random

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_settings import RetentionSettings
from bucketline.state.commit.expire import (
    Footprint,
    Retention,
    dead_files,
    expiry_end,
    longer_changelog,
    retire,
    sharing_tags,
    unite,
)
from bucketline.state.format.entries import FileKind
from tests.support.tables.commits import data_file, entry, snapshot

ADD, DELETE = FileKind.ADD, FileKind.DELETE


def _end(
    earliest: int, latest: int, *, ages: dict[int, int] | None = None, consumers: tuple[int, ...] = (), **kept: int
) -> int:
    """Snapshots are a second apart, the newest is new, unless `ages` says otherwise; ages in milliseconds."""
    settings = {"min_count": 1, "max_count": 1000, "time_ms": 0, "limit": 1000} | kept
    now = 1_000_000_000
    return expiry_end(
        earliest,
        latest,
        Retention(**settings),
        now_ms=now,
        next_of_consumers=consumers,
        time_of=lambda i: now - (ages or {}).get(i, (latest - i) * 1000 + 1),
    )


def test_the_smallest_number_is_kept_however_old() -> None:
    assert _end(1, 20, min_count=10) == 11
    assert _end(1, 10, min_count=10) == 1
    assert _end(15, 20, min_count=10) == 15


def test_a_snapshot_stays_until_its_successor_is_too_old() -> None:
    # The state at the edge of the retention time is that of the snapshot before it.
    assert _end(1, 10, time_ms=3500) == 6


def test_those_above_the_largest_number_go_however_young() -> None:
    assert _end(1, 10, max_count=4, time_ms=10**9) == 7


def test_one_run_takes_no_more_than_the_limit() -> None:
    assert _end(5, 100, limit=3) == 8
    assert _end(5, 100, limit=3, max_count=2) == 8
    assert _end(5, 100, limit=0) == 5


def test_what_a_consumer_has_still_to_read_stays() -> None:
    assert _end(1, 10, consumers=(7, 4)) == 4
    assert _end(5, 10, consumers=(2,)) == 5
    assert _end(1, 10, consumers=(3,), max_count=1) == 3


def test_a_snapshot_that_is_gone_already_holds_nothing_up() -> None:
    found = expiry_end(
        1, 5, Retention(1, 9, 10, 9), now_ms=100, next_of_consumers=(), time_of=lambda i: None if i < 4 else 99
    )
    assert found == 3


@pytest.mark.parametrize(("lowest", "highest"), [(0, 5), (5, 4)])
def test_retention_that_makes_no_sense_is_refused(lowest: int, highest: int) -> None:
    with pytest.raises(OptionError):
        Retention(lowest, highest, 0, 50)


def test_changelogs_that_outlive_snapshots_are_noticed() -> None:
    assert longer_changelog(RetentionSettings({})) is None
    assert longer_changelog(RetentionSettings({"changelog.time-retained": "1 h"})) is None
    assert longer_changelog(RetentionSettings({"changelog.time-retained": "2 h"})) == "changelog.time-retained"
    assert (
        longer_changelog(RetentionSettings({"changelog.num-retained.min": "3", "snapshot.num-retained.min": "2"}))
        is not None
    )


def test_tags_that_share_files_are_those_inside_and_the_one_before() -> None:
    tags = [snapshot(i) for i in (9, 2, 5, 4, 7)]
    assert [t.id for t in sharing_tags(tags, 5, 9)] == [4, 5, 7]
    assert [t.id for t in sharing_tags(tags, 1, 2)] == []


def test_a_deleted_file_goes_with_the_snapshot_before() -> None:
    a, b = data_file("a"), data_file("b")
    dead = dead_files([(4, [entry(DELETE, a)]), (6, [entry(DELETE, b)])])
    assert {key[2]: last for key, (last, _) in dead.items()} == {"a": 3, "b": 5}


@pytest.mark.parametrize("turned", [False, True])
def test_a_file_that_changes_its_level_stays_whatever_the_order(turned: bool) -> None:
    entries = [entry(DELETE, data_file("a")), entry(ADD, data_file("a", level=5))]
    assert dead_files([(4, entries[::-1] if turned else entries)]) == {}


def test_a_file_added_again_later_stays() -> None:
    a = data_file("a")
    assert dead_files([(4, [entry(DELETE, a)]), (5, [entry(ADD, a)])]) == {}


def test_the_same_name_in_another_bucket_is_another_file() -> None:
    a = data_file("a")
    dead = dead_files([(4, [entry(DELETE, a, bucket=0), entry(ADD, a, bucket=1)])])
    assert [key[1:] for key in dead] == [(0, "a")]


def test_metadata_goes_with_the_last_snapshot_that_needs_it() -> None:
    def footprint(*names: str) -> Footprint:
        return Footprint(manifests=frozenset(names))

    gone = retire([(1, footprint("a", "b")), (2, footprint("b", "c", "k"))], footprint("k"))
    assert gone == {1: footprint("a"), 2: footprint("b", "c")}


def test_each_file_is_removed_with_the_last_snapshot_that_needs_it() -> None:
    draw = random.Random(7)

    def drawn() -> Footprint:
        return Footprint(*(frozenset(str(draw.randrange(20)) for _ in range(draw.randrange(5))) for _ in range(4)))

    for _ in range(200):
        footprints, kept = [(n, drawn()) for n in range(draw.randrange(10))], drawn()
        gone = retire(footprints, kept)
        for kind in ("lists", "manifests", "index_files", "statistics"):
            last = {name: n for n, footprint in footprints for name in getattr(footprint, kind)}
            wanted = {n: {f for f in last if last[f] == n and f not in getattr(kept, kind)} for n, _ in footprints}
            assert {n: set(getattr(found, kind)) for n, found in gone.items()} == wanted
            assert getattr(unite(f for _, f in footprints), kind) == last.keys()
