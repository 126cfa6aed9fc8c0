"""Converts instants to the local times of a time zone, and back, in every year.

Arrow uses only the clock changes that are listed one by one in the file of a zone, until 2037 for most zones. After
that, Arrow stays in winter time. For later years, this module uses the rule at the end of the zone's file. Zones that
are an offset, such as `+02:00`, are computed without Arrow, because older releases of Arrow look for them in the time
zone database.

The Gregorian calendar repeats itself every 400 years, so the clock changes of 400 years are enough for all later years.
Source: RFC 8536, section 3.3 (the footer of a TZif file).
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]

_LOCAL = pa.timestamp("us")
_SECOND_US = 1_000_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_US = 86_400 * _SECOND_US
_CYCLE_YEARS, _CYCLE_US = 400, 146_097 * _DAY_US
_FIRST_YEAR, _CYCLE_YEAR = 2037, 2100
"""From the first year on, this module does not use Arrow's result. From the second year on, no zone's file lists clock
changes one by one.
"""
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")
_STEP = timedelta(days=7)
"""A time that is shorter than the time between any two clock changes of a zone."""


def shown_in(instants: pa.Array, zone: str) -> pa.Array:
    """Converts instants (microseconds since 1970 in UTC) to the local times of a zone, as microseconds since 1970 on
    the zone's clock (int64). Nulls stay nulls.
    """
    fixed = _fixed_us(zone)
    if fixed is not None:
        return pc.add(instants.cast(pa.int64()), fixed)
    near = pc.local_timestamp(instants.cast(pa.timestamp("us", zone))).cast(pa.int64())
    return _with_far(instants.cast(pa.int64()), near, zone, is_local=False)


def local_column(column: pa.Array) -> pa.Array:
    """Converts a timestamp column with a time zone to the local times of this zone, in the same unit."""
    unit, zone = column.type.unit, column.type.tz
    seconds = pc.floor_temporal(column.cast(pa.timestamp(unit, "UTC")), unit="second").cast(pa.timestamp("us", "UTC"))
    moved = pc.divide(pc.subtract(shown_in(seconds, zone), seconds.cast(pa.int64())), _SECOND_US)
    return pc.add(column.cast(pa.int64()), pc.multiply(moved, _PER_SECOND[unit])).cast(pa.timestamp(unit))


def instants_in(local: pa.Array, zone: str) -> pa.Array:
    """Converts local times of a zone to instants. This function is the reverse of `shown_in`.

    If a local time occurs twice in the zone, the earlier instant is returned. A local time that the zone skips is moved
    later by the length of the gap.
    """
    fixed = _fixed_us(zone)
    if fixed is not None:
        return pc.subtract(local, fixed)
    known = pc.assume_timezone(local.cast(_LOCAL), zone, ambiguous="earliest", nonexistent="earliest")
    offsets = pc.subtract(pc.local_timestamp(known).cast(pa.int64()), known.cast(pa.int64()))
    return _with_far(local, pc.subtract(local, offsets), zone, is_local=True)


def not_skipped(local: pa.Array, zone: str) -> pa.Array:
    """Takes local times of a time zone, as `shown_in` returns them, and returns these times with one change. A time
    that the zone skips becomes later by the length of the gap: 02:30 becomes 03:30 if the clocks go from 02:00 to
    03:00.
    """
    newest = pc.max(local).as_py()
    if zone == "UTC" or newest is None or _fixed_us(zone) is not None:
        return local
    if newest < _year_us(_FIRST_YEAR):
        try:
            pc.assume_timezone(local.cast(_LOCAL), zone, ambiguous="earliest", nonexistent="raise")
            return local
        except pa.ArrowInvalid:
            pass  # The zone skips one of these times.
    return shown_in(instants_in(local, zone).cast(pa.timestamp("us", "UTC")), zone)


def _fixed_us(zone: str) -> int | None:
    """Returns the offset from UTC in microseconds if the name of a zone is an offset such as `+02:00`, and None
    otherwise.
    """
    found = _OFFSET.fullmatch(zone)
    if found is None:
        return None
    sign, hours, minutes = found.groups()
    ahead = (int(hours) * 3600 + int(minutes) * 60) * _SECOND_US
    return -ahead if sign == "-" else ahead


class _Rule(NamedTuple):
    """The clock changes of a zone: their instants, and the offsets from UTC before and after them."""

    instants: Longs
    before: Longs
    after: Longs


def _with_far(given: pa.Array, near: pa.Array, zone: str, *, is_local: bool) -> pa.Array:
    """Returns `near`, which Arrow has computed from `given`, corrected for the years for which Arrow does not know the
    rules of the zone. If `is_local` is true, `given` has local times and `near` has instants; otherwise `given` has
    instants and `near` has local times.
    """
    numbers: Longs = np.asarray(given.fill_null(0), np.int64)
    far = np.flatnonzero(numbers >= _year_us(_FIRST_YEAR))
    rule = _rule_of(zone) if len(far) else None
    if rule is None:
        return near
    at = numbers[far]
    at = at - np.maximum(0, (at - _year_us(_CYCLE_YEAR)) // _CYCLE_US) * _CYCLE_US
    # A local time gets the new offset if it is after the clock change both by the old and by the new offset.
    begins = rule.instants + (np.maximum(rule.before, rule.after) if is_local else 0)
    offsets = np.concatenate([rule.before[:1], rule.after])[np.searchsorted(begins, at, side="right")]
    found: Longs = np.asarray(near.fill_null(0), np.int64).copy()
    found[far] = numbers[far] + (-offsets if is_local else offsets)
    return pa.array(found, pa.int64(), mask=np.asarray(given.is_null()))


@lru_cache(maxsize=16)
def _rule_of(zone: str) -> _Rule | None:
    """Returns the clock changes of a zone from one year before `_FIRST_YEAR` on; None for a zone without clock
    changes.
    """
    try:
        info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        return None
    at, end = datetime(_FIRST_YEAR - 1, 1, 1, tzinfo=UTC), datetime(_CYCLE_YEAR + _CYCLE_YEARS + 1, 1, 1, tzinfo=UTC)
    found = []
    offset = _offset(info, at)
    while at < end:
        later = at + _STEP
        new = _offset(info, later)
        if new != offset:
            found.append((_transition(info, at, later), offset, new))
        at, offset = later, new
    if not found:
        return None
    instants, before, after = np.array(found, np.int64).T
    return _Rule(instants * _SECOND_US, before * _SECOND_US, after * _SECOND_US)


def _transition(info: ZoneInfo, at: datetime, later: datetime) -> int:
    """Returns the instant, in seconds since 1970, at which the offset of a zone changes between the instants `at` and
    `later`.
    """
    low, high, offset = int(at.timestamp()), int(later.timestamp()), _offset(info, at)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(info, datetime.fromtimestamp(middle, UTC)) == offset:
            low = middle
        else:
            high = middle
    return high


def _offset(info: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(info).utcoffset()
    assert offset is not None, "a zone has an offset at each instant"
    return round(offset.total_seconds())


def _year_us(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * _SECOND_US
