"""Picking against the vectors taken from Paimon 2.0.0, and the rules they do not reach."""

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.table.changelog_options import ChangelogProducer
from bucketline.conf.table.choices import LookupCompact
from bucketline.conf.table.table_settings import MAX_LEVELS, TableSettings
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.pick import (
    CompactUnit,
    last_full_ms,
    pick_compaction,
    pick_full,
)
from tests.support.tables.commits import number_of
from tests.support.tables.levels import levels_of, sized_file

UNIVERSAL: dict[str, str] = {}
FORCED = {"compaction.force-up-level-0": "true"}
RADICAL = {"force-lookup": "true"}
HOUR_MS = 3_600_000


def _pick(levels: Levels, options: dict[str, str], *, local_ms: int = 0) -> CompactUnit | None:
    return pick_compaction(levels, CompactOptions.of(TableSettings(options)), local_ms)


def _short(unit: CompactUnit | None) -> str:
    return "none" if unit is None else f"{len(unit.files)} -> L{unit.output_level}"


GOLDEN = [
    (UNIVERSAL, "L0:1", "none"),
    (UNIVERSAL, "L0:1,1,1,1", "none"),
    (UNIVERSAL, "L0:1,1,1,1,1", "5 -> L5"),
    (UNIVERSAL, "L0:1,1,1,1 L5:3", "5 -> L5"),
    (UNIVERSAL, "L0:1,1,1,1 L5:1", "5 -> L5"),
    (UNIVERSAL, "L0:1,1,1,1 L5:100", "4 -> L4"),
    (UNIVERSAL, "L0:1,1,1 L4:10 L5:100", "3 -> L3"),
    (UNIVERSAL, "L0:1,2,4,8 L5:100", "none"),
    (UNIVERSAL, "L0:10,1,1 L4:100 L5:1000", "3 -> L3"),
    (UNIVERSAL, "L0:1,2,4,8,16 L5:1000", "6 -> L5"),
    (UNIVERSAL, "L0:1,2,4,8 L4:16 L5:1000", "5 -> L4"),
    (UNIVERSAL, "L0:1,2,4 L3:8 L4:16 L5:1000", "4 -> L3"),
    (UNIVERSAL, "L0:1,2,4 L1:8 L4:16 L5:1000", "4 -> L1"),
    (UNIVERSAL, "L0:1,1,1 L1:2 L5:1000", "4 -> L4"),
    (UNIVERSAL, "L0:1,100,100,100,100 L5:5000", "5 -> L4"),
    (FORCED, "L0:1", "1 -> L5"),
    (FORCED, "L5:100", "none"),
    (FORCED, "L0:1 L5:100", "1 -> L4"),
    (FORCED, "L0:1 L4:50 L5:1000", "1 -> L3"),
    (FORCED, "L0:1 L3:50 L4:100 L5:1000", "1 -> L2"),
    (FORCED, "L0:1 L1:2 L2:100 L5:1000", "2 -> L1"),
    (FORCED, "L0:1 L1:2 L2:3 L5:1000", "3 -> L4"),
    (FORCED, "L0:1 L1:50 L5:1000", "2 -> L4"),
    (FORCED, "L0:1,1 L2:50 L5:1000", "2 -> L1"),
    (FORCED, "L0:100 L5:101", "2 -> L5"),
    (FORCED, "L0:100 L5:102", "1 -> L4"),
    (FORCED, "L0:1 L1:100", "2 -> L5"),
    (FORCED, "L0:1 L2:100", "1 -> L1"),
    ({"compaction.total-size-threshold": "100"}, "L0:1 L5:50", "2 -> L5"),
    ({"compaction.total-size-threshold": "100"}, "L0:1 L5:100", "none"),
    ({"compaction.total-size-threshold": "100"}, "L0:1", "none"),
    ({"compaction.incremental-size-threshold": "10"}, "L0:11 L5:1000", "2 -> L5"),
    ({"compaction.incremental-size-threshold": "10"}, "L0:10 L5:1000", "none"),
    ({"compaction.incremental-size-threshold": "10"}, "L4:11 L5:1000", "2 -> L5"),
]


@pytest.mark.parametrize(("options", "runs", "expected"), GOLDEN)
def test_picks_what_paimon_picks(options: dict[str, str], runs: str, expected: str) -> None:
    assert _short(_pick(levels_of(runs), options)) == expected


@pytest.mark.parametrize(("options", "runs", "expected"), [g for g in GOLDEN if g[0] is FORCED])
def test_lookup_tables_pick_like_forced_ones(options: dict[str, str], runs: str, expected: str) -> None:
    assert _short(_pick(levels_of(runs), RADICAL)) == expected


@pytest.mark.parametrize(("interval", "expected"), [("5", "5 -> L5"), ("6", "none")])
def test_gentle_lookup_empties_level_0_once_it_has_as_many_files_as_the_interval(interval: str, expected: str) -> None:
    options = RADICAL | {"lookup-compact": "gentle", "lookup-compact.max-interval": interval}
    assert _short(_pick(levels_of("L0:1,2,4,8,17"), options)) == expected
    assert _short(_pick(levels_of("L0:1 L5:100"), options)) == "none"


def test_force_up_level_0_is_never_gentle_without_lookup() -> None:
    options = FORCED | {"lookup-compact": "gentle"}
    assert _short(_pick(levels_of("L0:1 L5:100"), options)) == "1 -> L4"


def test_the_optimization_interval_must_have_passed() -> None:
    options = {"compaction.optimization-interval": "1 h"}
    files = [sized_file("new", 0, 1), sized_file("full", 5, 100, created_ms=0)]
    levels = Levels.from_files(files, 6, number_of)
    assert _pick(levels, options, local_ms=HOUR_MS) is None
    assert _short(_pick(levels, options, local_ms=HOUR_MS + 1)) == "2 -> L5"
    never = Levels.from_files([sized_file("new", 0, 1), sized_file("old", 4, 100)], 6, number_of)
    assert _short(_pick(never, options)) == "2 -> L5"
    assert _pick(levels_of("L5:100"), options) is None


@pytest.mark.parametrize(
    ("start", "end", "hour", "expected"),
    [
        ("2", "5", 2, "4 -> L4"),
        ("2", "5", 4, "4 -> L4"),
        ("2", "5", 5, "none"),
        ("22", "5", 23, "4 -> L4"),
        ("22", "5", 4, "4 -> L4"),
        ("22", "5", 12, "none"),
        ("3", "3", 3, "none"),
        ("-1", "5", 3, "none"),
    ],
)
def test_off_peak_hours_relax_the_size_ratio(start: str, end: str, hour: int, expected: str) -> None:
    options = {
        "compaction.offpeak.start.hour": start,
        "compaction.offpeak.end.hour": end,
        "compaction.offpeak-ratio": "100",
    }
    assert _short(_pick(levels_of("L0:1,2,4,8 L5:1000"), options, local_ms=hour * HOUR_MS)) == expected


def test_size_amplification_counts_from_the_percentage() -> None:
    levels = levels_of("L0:1,2,4,8 L5:100")
    assert _short(_pick(levels, {"compaction.max-size-amplification-percent": "15"})) == "none"
    assert _short(_pick(levels, {"compaction.max-size-amplification-percent": "14"})) == "5 -> L5"


def test_deletes_are_dropped_only_when_nothing_older_lies_below() -> None:
    for runs, drops in [("L0:1,1,1,1,1", True), ("L0:1,1,1,1 L5:100", False), ("L0:1,1,1,1 L5:1", True)]:
        unit = _pick(levels_of(runs), {})
        assert unit is not None and unit.drop_deletes is drops
    forced = _pick(levels_of("L0:1 L5:100"), {"deletion-vectors.enabled": "true"})
    assert forced is not None and forced.drop_deletes


def test_a_full_compaction_takes_everything_to_the_last_level() -> None:
    options = CompactOptions()
    assert pick_full(levels_of(""), options) is None
    unit = pick_full(levels_of("L0:1 L3:1 L5:100"), options)
    assert _short(unit) == "3 -> L5" and unit is not None and unit.drop_deletes and not unit.file_rewrite
    assert _short(pick_full(levels_of("L0:1"), options)) == "1 -> L5"
    assert _short(pick_full(levels_of("L4:1"), options)) == "1 -> L5"


def test_a_compact_bucket_is_rewritten_only_on_demand() -> None:
    files = [sized_file("a", 5, 1, keys=(0, 9)), sized_file("b", 5, 1, keys=(10, 19))]
    levels = Levels.from_files(files, 6, number_of)
    assert pick_full(levels, CompactOptions()) is None
    unit = pick_full(levels, CompactOptions(), must_rewrite={"b"})
    assert unit == CompactUnit((files[1],), 5, file_rewrite=True, drop_deletes=True)
    unit = pick_full(levels, CompactOptions(force_rewrite_all_files=True))
    assert unit is not None and unit.files == tuple(files) and unit.file_rewrite


def test_the_last_full_compaction_is_read_from_the_last_level() -> None:
    files = [
        sized_file("a", 5, 1, keys=(0, 9), created_ms=7),
        sized_file("b", 5, 1, keys=(10, 19), created_ms=5),
        sized_file("c", 4, 1, created_ms=9),
    ]
    assert last_full_ms(Levels.from_files(files, 6, number_of)) == 7
    assert last_full_ms(Levels.from_files(files[2:], 6, number_of)) is None


def test_every_option_is_read() -> None:
    found = CompactOptions.of(
        TableSettings(
            {
                "num-sorted-run.compaction-trigger": "7",
                "num-sorted-run.stop-trigger": "9",
                "compaction.max-size-amplification-percent": "150",
                "compaction.size-ratio": "3",
                "compaction.offpeak.start.hour": "1",
                "compaction.offpeak.end.hour": "6",
                "compaction.offpeak-ratio": "20",
                "compaction.optimization-interval": "1 h",
                "compaction.total-size-threshold": "64 mb",
                "compaction.incremental-size-threshold": "1 gb",
                "compaction.force-up-level-0": "true",
                "compaction.force-rewrite-all-files": "true",
                "changelog-producer": "lookup",
                "lookup-compact": "GENTLE",
                "lookup-compact.max-interval": "2",
                "target-file-size": "10 mb",
                "compaction.small-file-ratio": "0.5",
            }
        )
    )
    assert found == CompactOptions(
        compaction_trigger=7,
        stop_trigger=9,
        num_levels=8,
        max_size_amplification_percent=150,
        size_ratio=3,
        offpeak_start_hour=1,
        offpeak_end_hour=6,
        offpeak_ratio=20,
        optimization_interval_ms=3_600_000,
        total_size_threshold_bytes=64 << 20,
        incremental_size_threshold_bytes=1 << 30,
        force_up_level0=True,
        force_rewrite_all_files=True,
        lookup_cause="changelog-producer",
        lookup_compact=LookupCompact.GENTLE,
        lookup_compact_max_interval=7,
        changelog_producer=ChangelogProducer.LOOKUP,
        target_file_bytes=10 << 20,
        small_file_ratio=0.5,
    )
    assert found.small_file_bytes == 5 << 20
    assert CompactOptions.of(TableSettings({})) == CompactOptions()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"merge-engine": "first-row"}, "merge-engine"),
        ({"changelog-producer": "lookup"}, "changelog-producer"),
        ({"deletion-vectors.enabled": "true"}, "deletion-vectors.enabled"),
        ({"force-lookup": "true"}, "force-lookup"),
        ({"changelog-producer": "full-compaction"}, None),
    ],
)
def test_lookup_tables_are_known_by_the_option_that_makes_them(options: dict[str, str], cause: str | None) -> None:
    assert CompactOptions.of(TableSettings(options)).lookup_cause == cause


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num-levels", "1"),
        ("num-levels", "1025"),
        ("num-sorted-run.compaction-trigger", "0"),
        ("compaction.offpeak.start.hour", "24"),
        ("compaction.size-ratio", "one"),
        ("lookup-compact", "sometimes"),
    ],
)
def test_unusable_settings_are_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(OptionError, match=key):
        CompactOptions.of(TableSettings({key: value}))


def test_a_huge_trigger_does_not_ask_for_as_many_levels() -> None:
    assert (
        CompactOptions.of(TableSettings({"num-sorted-run.compaction-trigger": "2147483647"})).num_levels == MAX_LEVELS
    )
