"""Which buckets become items: order, budget, filters, and that an item's inputs are always safe to compact."""

import random
from dataclasses import replace

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.plan_options import PlanOptions, Strategy, plan_options
from bucketline.state.lsm.tree.append_pick import AppendCompactOptions
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.plans.choose import PlannedBucket, choose_append, choose_keyed, is_due
from bucketline.state.plans.item_unit import Obsolete, live_inputs, unit_of, why_unsound
from bucketline.state.plans.plan import Item
from tests.support.storage.stopped import HOUR_MS
from tests.support.tables.commits import number_of
from tests.support.tables.levels import levels_of, sized_file

NOW_MS = 1000 * HOUR_MS


def bucket(number: int, text: str, *, partition: bytes = b"", made_ms: int = 0) -> PlannedBucket:
    files = tuple(
        replace(f, file_name=f"{partition.hex()}b{number}-{f.file_name}", creation_time_ms=made_ms)
        for f in levels_of(text).files
    )
    return PlannedBucket(partition, number, 9, files)


def plan(strategy: str = "minor", **options: str) -> PlanOptions:
    named = {f"compaction-plan.{k.replace('_', '-')}": v for k, v in options.items()}
    return plan_options({"compaction-plan.strategy": strategy, **named})


def chosen(
    settings: PlanOptions,
    *buckets: PlannedBucket,
    busy: tuple[tuple[bytes, int], ...] = (),
    options: CompactOptions | None = None,
) -> tuple[Item, ...]:
    used = options or CompactOptions()
    return choose_keyed(buckets, used, settings, key_order=number_of, local_ms=NOW_MS, busy=busy)


def places(items: tuple[Item, ...]) -> list[tuple[int, int]]:
    """Bucket and number of inputs of each item, in order."""
    return [(i.bucket, len(i.inputs)) for i in items]


MANY = (
    bucket(0, "L0:1,1,1 L5:100"),
    bucket(1, "L0:1,1,1,1,1,1 L5:90"),
    bucket(2, "L5:100"),
    bucket(3, "L0:60 L3:60 L4:60 L5:50"),
    bucket(4, "L0:1,1,1,1,1 L5:100"),
)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("minor", [(1, 6), (4, 5)]),
        ("full", [(1, 7), (4, 6), (0, 4), (3, 4)]),
        ("level-0", [(1, 6), (4, 5)]),
        ("size-amplification", [(3, 4)]),
        ("read-amplification", [(1, 6), (4, 5)]),
    ],
)
def test_each_strategy_takes_its_buckets_the_most_urgent_first(strategy: str, expected: list[tuple[int, int]]) -> None:
    assert places(chosen(plan(strategy), *MANY)) == expected


def test_thresholds_are_options() -> None:
    assert places(chosen(plan("level-0", min_runs="3"), *MANY)) == [(1, 6), (4, 5), (0, 3)]
    assert places(chosen(plan("read-amplification", min_runs="4"), *MANY))[-2:] == [(0, 4), (3, 4)]
    assert [b for b, _ in places(chosen(plan("size-amplification", min_amplification_percent="3"), *MANY))] == [
        3,
        1,
        4,
        0,
    ]


def test_a_bucket_with_an_open_item_gets_no_other() -> None:
    assert places(chosen(plan(), *MANY, busy=((b"", 1),))) == [(4, 5)]


def test_a_plan_stays_within_its_bytes_but_its_first_item_may_be_larger() -> None:
    assert places(chosen(plan("full", max_bytes="210 b"), *MANY)) == [(1, 7), (4, 6)]
    assert places(chosen(plan("full", max_bytes="99 b"), *MANY)) == [(1, 7)]
    assert places(chosen(plan("full", max_bytes="1 b"), *MANY)) == [(1, 7)]


def test_only_partitions_that_were_idle_for_so_long_are_taken() -> None:
    hours = NOW_MS // HOUR_MS
    busy = [bucket(n, "L0:1,1 L5:9", partition=b"p", made_ms=(hours - n) * HOUR_MS) for n in (1, 50)]
    idle = [bucket(n, "L0:1,1 L5:9", partition=b"q", made_ms=(hours - 24 - n) * HOUR_MS) for n in (0, 1)]
    found = chosen(plan("full", partition_idle_time="1 d"), *busy, *idle)
    assert [(i.partition, i.bucket) for i in found] == [(b"q", 0), (b"q", 1)]


def test_what_was_not_compacted_fully_for_so_long_is_whatever_the_strategy() -> None:
    old = bucket(7, "L0:1 L5:100", made_ms=NOW_MS - 25 * HOUR_MS)
    young = bucket(8, "L0:1 L5:100", made_ms=NOW_MS - HOUR_MS)
    never = bucket(9, "L0:1,1", made_ms=NOW_MS)
    assert places(chosen(plan(full_after="1 d"), old, young, never)) == [(9, 2), (7, 2)]
    assert all(i.output_level == 5 for i in chosen(plan(full_after="1 d"), old, never))


def test_partitions_that_are_not_asked_for_are_left_alone() -> None:
    two = [bucket(0, "L0:1,1 L5:9", partition=p) for p in (b"p", b"q")]
    found = choose_keyed(
        two, CompactOptions(), plan("full"), key_order=number_of, local_ms=NOW_MS, chosen=lambda p: p == b"q"
    )
    assert [i.partition for i in found] == [b"q"]


@pytest.mark.parametrize("seed", range(60))
def test_inputs_are_whole_runs_contiguous_in_age_and_nothing_older_stays_below_them(seed: int) -> None:
    """And they stay safe when newer files come, or are found unsafe when the bucket has become another one."""
    chance = random.Random(seed)
    files = [sized_file(f"l0-{n}", 0, chance.randint(1, 99), sequence=1000 + n) for n in range(chance.randint(0, 9))]
    for level in range(1, 6):
        for part in range(chance.choice((0, 0, 1, 3))):
            keys = (part * 10, part * 10 + 9)
            files.append(sized_file(f"l{level}-{part}", level, chance.randint(1, 999), keys=keys, sequence=10 - level))
    strategy = chance.choice(list(Strategy))
    options = CompactOptions(deletion_vectors=chance.random() < 0.2, lookup_cause=chance.choice((None, "force-lookup")))
    found = PlannedBucket(b"", 0, 9, tuple(files))
    for item in chosen(plan(strategy.value, min_runs="1", min_amplification_percent="1"), found, options=options):
        newer = [*files, sized_file("newest", 0, 5, sequence=5000)]
        live = live_inputs(item, newer, total_buckets=9, vector_files=())
        assert isinstance(live, tuple) and [f.file_name for f in live] == [i.name for i in item.inputs]
        levels = Levels.from_files(newer, 6, number_of)
        unit = unit_of(item, live, levels, options)
        assert not isinstance(unit, Obsolete)
        older = [r for r in levels.runs() if r.level > unit.output_level]
        assert unit.drop_deletes == (options.deletion_vectors or not older)
        taken = {f.file_name for f in live}
        for run in levels.runs():
            inside = {f.file_name in taken for f in run.run.files}
            assert len(inside) == 1
            if inside == {False} and run.run.files[0].file_name != "newest":
                newest = max(f.max_sequence_number for f in run.run.files)
                assert run.level > unit.output_level and all(f.min_sequence_number >= newest for f in live)
        below = sized_file("below", 0, 5, sequence=0)
        assert not unit.file_rewrite
        if any(f.level == 0 for f in live):
            assert why_unsound(unit, Levels.from_files([*files, below], 6, number_of)) is not None


def test_an_item_whose_bucket_has_changed_is_obsolete() -> None:
    before = bucket(0, "L0:1,1,1,1,1 L5:100")
    [item] = chosen(plan(), before)
    gone = live_inputs(item, before.files[1:], total_buckets=9, vector_files=())
    assert isinstance(gone, Obsolete) and gone.inputs_gone
    raised = [replace(before.files[0], level=1), *before.files[1:]]
    assert isinstance(live_inputs(item, raised, total_buckets=9, vector_files=()), Obsolete)
    for total, vectors, why in ((8, (), "rescaled from 9 to 8"), (9, ("index-1",), "rows of the bucket were deleted")):
        found = live_inputs(item, before.files, total_buckets=total, vector_files=vectors)
        assert isinstance(found, Obsolete) and why in found.reason and not found.inputs_gone


def test_files_with_deleted_rows_are_rewritten_alone() -> None:
    found = replace(bucket(0, "L5:100"), vector_files=("index-1",))
    found = replace(found, masked=frozenset({found.files[0].file_name}))
    [item] = chosen(plan("full"), found, options=CompactOptions(deletion_vectors=True))
    assert item.file_rewrite and item.output_level == 5 and item.vector_files == ("index-1",)
    assert chosen(plan("full"), bucket(0, "L5:100"), options=CompactOptions(deletion_vectors=True)) == ()


def test_small_files_of_append_tables_are_packed_group_by_group() -> None:
    small = [sized_file(f"f{n}", 0, 10, sequence=n) for n in range(12)]
    large = replace(sized_file("large", 0, 500, sequence=6), min_sequence_number=6)
    files = (*small[:6], large, *(replace(f, min_sequence_number=f.min_sequence_number + 1) for f in small[6:]))
    settings = AppendCompactOptions(target_bytes=100, small_bytes=70, min_files=5)
    found = PlannedBucket(b"", 0, -1, files)
    items = choose_append([found], settings, plan(), local_ms=NOW_MS)
    assert [[f.name for f in i.inputs] for i in items] == [[f"f{n}" for n in range(6)], [f"f{n}" for n in range(6, 12)]]
    [other] = choose_append([found], settings, plan(), local_ms=NOW_MS, busy_files=("f3",))
    assert other.inputs == items[1].inputs and other.number == 0


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("commits", [False, True, False, True]),
        ("time", [True, True, False, False]),
        ("both", [False, True, False, False]),
        ("either", [True, True, False, True]),
    ],
)
def test_a_writer_plans_by_commits_by_time_by_both_or_by_either(trigger: str, expected: list[bool]) -> None:
    settings = plan(trigger=trigger, commits="3", interval="1 min")
    found = [(4, 60_000), (6, None), (7, 59_999), (9, 1)]
    assert [is_due(settings, commits=c, since_last_ms=t) for c, t in found] == expected


def test_options_of_plans_are_checked() -> None:
    with pytest.raises(OptionError, match=r"did you mean 'compaction-plan\.strategy'"):
        plan_options({"compaction-plan.stratgy": "full"})
    with pytest.raises(OptionError, match=r"compaction-plan\.interval.* has no unit"):
        plan(interval="5")
    with pytest.raises(OptionError, match="at least 1"):
        plan(commits="0")
    assert plan_options({"num-sorted-run.compaction-trigger": "9"}).min_runs == 9


def waiting(text: str = "L0:1,1,1", *, partition: bytes = b"p", total: int = 2) -> PlannedBucket:
    return replace(bucket(-2, text, partition=partition), total_buckets=total)


def found(items: tuple[Item, ...]) -> list[tuple[bytes, int, int]]:
    """Partition, bucket and output level of each item, in order."""
    return [(i.partition, i.bucket, i.output_level) for i in items]


def test_rows_that_wait_come_first_and_their_item_is_the_only_one_of_its_partition() -> None:
    buckets = [waiting(), *(bucket(n, "L0:1,1,1,1,1,1 L5:9", partition=p) for n in (0, 1) for p in (b"p", b"q"))]
    assert found(chosen(plan(), *buckets)) == [(b"p", -2, 0), (b"q", 0, 4), (b"q", 1, 4)]
    assert found(chosen(plan("full"), *buckets))[0] == (b"p", -2, 5)
    for strategy in Strategy:
        assert [i.bucket for i in chosen(plan(strategy.value), waiting())] == [-2]
    [item] = chosen(plan(max_bytes="1 b"), *buckets)
    assert item.moves_rows and item.total_buckets == 2 and item.input_bytes == 3


def test_rows_wait_on_where_their_partition_has_an_open_item() -> None:
    buckets = [waiting(), *(bucket(n, "L0:1,1,1,1,1,1 L5:9", partition=b"p") for n in (0, 1))]
    assert found(chosen(plan(), *buckets, busy=((b"p", 0),))) == [(b"p", 1, 4)]
    assert chosen(plan(), *buckets, busy=((b"p", -2),)) == ()
    assert found(chosen(plan(), *buckets, busy=((b"q", -2),))) == [(b"p", -2, 0)]


def test_what_is_due_fully_is_compacted_with_the_rows_that_move() -> None:
    """Also where a full compaction was owed while the rows moved, and no more of them wait."""
    old = bucket(0, "L0:1 L5:100", partition=b"p", made_ms=NOW_MS - 25 * HOUR_MS)
    young = bucket(0, "L0:1 L5:100", partition=b"p", made_ms=NOW_MS - HOUR_MS)
    assert found(chosen(plan(full_after="1 d"), waiting(), old)) == [(b"p", -2, 5)]
    assert found(chosen(plan(full_after="1 d"), waiting(), young)) == [(b"p", -2, 0)]
    owed = frozenset({(b"p", -2)}).__contains__
    for given, expected in (([waiting(), young], (b"p", -2, 5)), ([young], (b"p", 0, 5))):
        items = choose_keyed(given, CompactOptions(), plan(), key_order=number_of, local_ms=NOW_MS, fully=owed)
        assert found(items) == [expected]


def test_an_item_that_moves_rows_is_obsolete_once_its_partition_has_another_bucket_count() -> None:
    [item] = chosen(plan(), waiting())
    files = waiting().files
    assert isinstance(live_inputs(item, files, total_buckets=2, vector_files=()), tuple)
    rescaled = live_inputs(item, files, total_buckets=3, vector_files=())
    assert isinstance(rescaled, Obsolete) and "rescaled from 2 to 3" in rescaled.reason
    [first] = chosen(plan(), waiting(total=0))
    assert isinstance(live_inputs(first, files, total_buckets=3, vector_files=()), tuple)
