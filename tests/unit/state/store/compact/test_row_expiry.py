"""Rows that expire (`record-level.expire-time`): compactions drop them, and readers see them until then."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.table_at import table_at
from tests.support.tables.commit_table import StillClock
from tests.support.tables.worlds import handle_in

NOW_S = 1_700_000_000
HOUR_S = 3600
TIMES = {
    "INT": 1,
    "BIGINT": 1,
    "TIMESTAMP(3)": 1000,
    "TIMESTAMP(6)": 1_000_000,
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": 1_000_000,
}
"""SQL types of times, and how many of their unit are a second."""


def _table(tmp_path: Path, kind: str = "INT", **options: str) -> Table:
    return create_table(
        str(tmp_path / "t"),
        f"k INT NOT NULL, t {kind}, v INT",
        primary_key=["k"],
        options={"bucket": "1", "record-level.expire-time": "1 h", "record-level.time-field": "t", **options},
    )


def _write(table: Table, clock: StillClock, *rows: tuple[int, int | None, int], per_second: int = 1) -> None:
    times = [None if t is None else t * per_second for _, t, _ in rows]
    columns = {"k": [k for k, _, _ in rows], "t": times, "v": [v for *_, v in rows]}
    arrays = [pa.array(values, pa.int64()).cast(table.schema.field(name).type) for name, values in columns.items()]
    write_table(handle_in(table, clock=clock), pa.table(arrays, schema=table.schema))


def _values(table: Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.to_arrow(columns=["k", "v"]).to_pylist()}


def _clock() -> StillClock:
    return StillClock(NOW_S * 1000)


@pytest.mark.parametrize("kind", TIMES)
def test_a_compaction_drops_rows_whose_time_is_over(tmp_path: Path, kind: str) -> None:
    table, clock = _table(tmp_path, kind), _clock()
    over, just = NOW_S - HOUR_S - 1, NOW_S - HOUR_S
    _write(table, clock, (1, over, 1), (2, just, 2), (3, None, 3), per_second=TIMES[kind])
    assert _values(table) == {1: 1, 2: 2, 3: 3}
    compact_table(handle_in(table, clock=clock))
    assert _values(table) == {2: 2, 3: 3}
    assert table.doctor(rows=True) == []
    assert compact_table(handle_in(table, clock=clock)) is None
    clock.now += 1000
    assert compact_table(handle_in(table, clock=clock)) is not None
    assert _values(table) == {3: 3}


def test_a_large_bigint_is_in_milliseconds(tmp_path: Path) -> None:
    table, clock = _table(tmp_path, "BIGINT"), _clock()
    _write(table, clock, (1, (NOW_S - HOUR_S - 1) * 1000, 1), (2, (NOW_S - HOUR_S) * 1000, 2))
    compact_table(handle_in(table, clock=clock))
    assert _values(table) == {2: 2}


def test_an_expired_row_leaves_the_one_that_it_had_replaced(tmp_path: Path) -> None:
    table, clock = _table(tmp_path), _clock()
    _write(table, clock, (1, NOW_S, 1))
    _write(table, clock, (1, NOW_S - 2 * HOUR_S, 2))
    assert _values(table) == {1: 2}
    compact_table(handle_in(table, clock=clock))
    assert _values(table) == {1: 1}


def test_a_file_that_would_only_move_up_is_rewritten_for_its_expired_rows(tmp_path: Path) -> None:
    table, clock = _table(tmp_path, **{"compaction.small-file-ratio": "0.0"}), _clock()
    _write(table, clock, (1, NOW_S - 2 * HOUR_S, 1), (2, NOW_S, 2))
    _write(table, clock, (5, NOW_S, 5))
    compact_table(handle_in(table, clock=clock))
    assert _values(table) == {2: 2, 5: 5}
    assert sorted(table.files()["file_source"].to_pylist()) == ["APPEND", "COMPACT"]


@pytest.mark.parametrize("producer", ["none", "lookup", "full-compaction"])
def test_rows_of_a_changelog_do_not_say_that_a_row_has_expired(tmp_path: Path, producer: str) -> None:
    table, clock = _table(tmp_path, **{"changelog-producer": producer}), _clock()
    _write(table, clock, (1, NOW_S - HOUR_S, 1), (2, NOW_S, 2))
    compact_table(handle_in(table, clock=clock))
    clock.now += 10_000
    _write(table, clock, (1, NOW_S + 10, 3), (4, NOW_S, 4))
    compact_table(handle_in(table, clock=clock))
    assert _values(table) == {1: 3, 2: 2, 4: 4}
    if producer == "none":
        return
    changes = table.to_arrow(changes_since=0).select(["k", "v", "_row_kind"]).to_pylist()
    assert sorted((c["k"], c["v"], c["_row_kind"]) for c in changes) == [(1, 1, 0), (1, 3, 0), (2, 2, 0), (4, 4, 0)]


def test_deletion_vectors_mark_an_expired_row_that_a_newer_one_replaces(tmp_path: Path) -> None:
    table, clock = _table(tmp_path, **{"deletion-vectors.enabled": "true", "merge-engine": "partial-update"}), _clock()
    _write(table, clock, *((k, NOW_S - HOUR_S, k) for k in range(200)))
    clock.now += 10_000
    _write(table, clock, (7, NOW_S, 70))
    assert table.to_arrow(filter="k = 7").num_rows == 1
    assert _values(table)[7] == 70
    assert table.doctor(rows=True) == []


def test_a_plan_of_full_compactions_takes_a_bucket_with_an_expired_row(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"write-only": "true"})
    _write(table, StillClock(), (1, NOW_S - 2 * HOUR_S, 1), (2, 2**31 - 1, 2))
    compact_table(handle_in(table, clock=StillClock(0)))
    assert _values(table) == {1: 1, 2: 2}
    session = table_at(
        open_handle(table.path), {"compaction-plan.strategy": "full", "compaction": "dedicated"}
    ).refreshed()
    planned = make_plan(session, PlanFolder(handle_of(table).io, table.path), dry_run=True)
    assert len(planned.plan.items) == 1
    assert compact_table(handle_of(table)) is not None and _values(table) == {2: 2}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"record-level.time-field": "none"}, "INT", "Can not find time field none"),
        ({}, "STRING", "should be one of INT, BIGINT, or TIMESTAMP"),
    ],
)
def test_a_time_field_that_holds_no_time_is_refused(
    tmp_path: Path, options: dict[str, str], kind: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        _table(tmp_path, kind, **options)
    assert not (tmp_path / "t").exists()


def test_the_time_field_follows_a_rename_and_cannot_be_dropped(tmp_path: Path) -> None:
    table = _table(tmp_path).rename_column("t", "seen")
    assert table.options["record-level.time-field"] == "seen"
    with pytest.raises(OptionError, match="Can not find time field seen"):
        table.drop_column("seen")


def test_rows_of_tables_without_a_primary_key_are_refused_to_expire(tmp_path: Path) -> None:
    options = {"record-level.expire-time": "1 h", "record-level.time-field": "t"}
    with pytest.raises(OptionError, match="without a primary key"):
        create_table(str(tmp_path / "t"), "k INT, t INT", options=options)
