"""Instants and local times of a zone, against Python's zones, which go on after the last transition that is listed."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from random import Random
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression, evaluate
from bucketline.state.sql.compute.zones import instants_in, local_column, shown_in

ZONES = ("America/New_York", "Europe/Berlin", "Australia/Sydney", "Africa/Casablanca", "Asia/Tokyo", "UTC")
OFFSETS = {"+02:00": timedelta(hours=2), "-0530": -timedelta(hours=5, minutes=30)}
INSTANT = pa.timestamp("us", "UTC")


def moments() -> list[datetime]:
    """Instants of all years that Python knows, and those around transitions of years that no file lists."""
    draw, first = Random(3), datetime(1920, 1, 1, tzinfo=UTC)
    drawn = [first + timedelta(seconds=draw.randrange(8000 * 31_556_952), microseconds=7) for _ in range(300)]
    near = [
        datetime(year, month, 1, tzinfo=UTC) + timedelta(hours=1)
        for year in (2037, 2038, 2101, 2500)
        for month in range(1, 13)
    ]
    march = [datetime(2060, 3, 14, 6, 59, 59, tzinfo=UTC), datetime(2060, 3, 14, 7, tzinfo=UTC)]
    return [*drawn, *near, *march]


def known(zone: str) -> tzinfo:
    return timezone(OFFSETS[zone]) if zone in OFFSETS else ZoneInfo(zone)


@pytest.mark.parametrize("zone", [*ZONES, *OFFSETS])
def test_a_zone_shows_the_same_clock_in_every_year(zone: str) -> None:
    given = moments()
    shown = [m.astimezone(known(zone)).replace(tzinfo=None) for m in given]
    instants = pa.array([*given, None], INSTANT)
    assert shown_in(instants, zone).cast(pa.timestamp("us")).to_pylist() == [*shown, None]
    for unit in ("s", "ms", "us"):
        column = pa.array([m.replace(microsecond=0) for m in given], pa.timestamp(unit, zone))
        assert local_column(column).to_pylist() == [m.replace(microsecond=0) for m in shown]


@pytest.mark.parametrize("zone", [*ZONES, *OFFSETS])
def test_a_local_time_is_the_earlier_instant_and_one_that_is_skipped_is_moved_by_the_gap(zone: str) -> None:
    local = [m.replace(tzinfo=None) for m in moments()]
    local += [datetime(2061, 3, 13, 2, 30), datetime(2061, 11, 6, 1, 30), datetime(2061, 3, 27, 2, 30)]
    local += [datetime(2061, 10, 30, 2, 30), datetime(2433, 4, 3, 2, 30), datetime(2433, 10, 2, 2, 30)]
    # fold=0 is the earlier of two instants, and the offset before a gap.
    expected = [m.replace(tzinfo=known(zone), fold=0).astimezone(UTC) for m in local]
    given = pa.array([*local, None], pa.timestamp("us")).cast(pa.int64())
    assert instants_in(given, zone).cast(INSTANT).to_pylist() == [*expected, None]


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "+02:00"])
def test_an_instant_is_the_same_whatever_the_zone_and_unit_of_its_column(unit: str, zone: str) -> None:
    instants = pa.array([datetime(2024, 11, 3, 1, 30, 5, tzinfo=UTC), None], pa.timestamp(unit, zone))
    context = Context("America/New_York", has_instants=True)
    for expression, expected in (
        ("CAST(z AS BIGINT)", 1730597405),
        ("CAST(z AS STRING)", "2024-11-02 21:30:05"),
        ("to_timestamp(z)", datetime(2024, 11, 3, 1, 30, 5, tzinfo=UTC)),
    ):
        assert evaluate(SqlExpression(expression), {"z": instants}, 2, context).to_pylist() == [expected, None]


def test_a_date_is_formatted_as_the_moment_that_spark_makes_of_it() -> None:
    skipped = [datetime(2024, 3, 10, 2, 30), datetime(2060, 3, 14, 2, 30), None, datetime(2024, 11, 3, 1, 30)]
    found = evaluate(
        SqlExpression("date_format(p, 'yyyy-MM-dd HH:mm')"),
        {"p": pa.array(skipped, pa.timestamp("us"))},
        len(skipped),
        Context("America/New_York", has_instants=True),
    )
    assert found.to_pylist() == ["2024-03-10 03:30", "2060-03-14 03:30", None, "2024-11-03 01:30"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("to_timestamp(z)", [(5, 30, 5), (6, 30, 5), (7, 30, 5)]),
        ("date_trunc('MINUTE', z)", [(5, 30), (6, 30), (7, 30)]),
        ("date_trunc('HOUR', z)", [(5, 0), (6, 0), (7, 0)]),
        ("date_trunc('DAY', z)", [(4, 0), (4, 0), (4, 0)]),
    ],
)
def test_a_time_that_a_zone_has_twice_stays_the_one_that_it_is(
    expression: str, expected: list[tuple[int, ...]]
) -> None:
    instants = pa.array([datetime(2024, 11, 3, hour, 30, 5, tzinfo=UTC) for hour in (5, 6, 7)], INSTANT)
    found = evaluate(SqlExpression(expression), {"z": instants}, 3, Context("America/New_York", has_instants=True))
    assert found.to_pylist() == [datetime(2024, 11, 3, *clock, tzinfo=UTC) for clock in expected]
