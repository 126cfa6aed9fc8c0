"""SQL functions on dates and times."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.calls import Evaluate, Function, FunctionCall, literal
from bucketline.state.sql.compute.moments import (
    INSTANT,
    as_stamps,
    by_array,
    dates_of,
    from_local,
    instants_of,
    local_us,
    refuse_unread,
    try_dates,
    try_stamps,
)
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.compute.time_patterns import DAY_US, SECOND_US, Longs, days_of, read, written
from bucketline.state.sql.compute.zones import not_skipped, shown_in
from bucketline.state.types.if_else import if_else

_FULL = "yyyy-MM-dd HH:mm:ss"
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""After so many years and days the calendar repeats itself, weekdays included."""

_TRUNCATED = {
    **dict.fromkeys(("year", "yyyy", "yy"), "Y"),
    **dict.fromkeys(("month", "mon", "mm"), "M"),
    **dict.fromkeys(("day", "dd"), "D"),
    "hour": "h",
    "minute": "m",
    "second": "s",
    "millisecond": "ms",
    "microsecond": "us",
}
_BY_DATE = ("week", "quarter", *(unit for unit, code in _TRUNCATED.items() if code in "YM"))
"""Units for which Spark truncates the date of a time, and returns the first instant of the resulting day."""


def _local(call: FunctionCall, value: Evaluate, at: int, compute: Callable[[pa.Array], pa.Array]) -> Value:
    """Applies `compute` to the argument at position `at`, converted to local times in microseconds."""
    return by_array(value(call.arguments[at]), lambda moments: compute(_checked_local(call, moments, value)))


def _is_instant(moments: pa.Array) -> bool:
    return pa.types.is_timestamp(moments.type) and moments.type.tz is not None


def _checked_local(call: FunctionCall, moments: pa.Array, value: Evaluate) -> pa.Array:
    try:
        return local_us(moments, value.context)
    except pa.ArrowTypeError as e:
        raise pa.ArrowTypeError(f"{call.text!r}: {e}") from e


def _date(call: FunctionCall, value: Evaluate, at: int, compute: Callable[[pa.Array], pa.Array]) -> Value:
    """Applies `compute` to the argument at position `at`, converted to dates."""
    return by_array(value(call.arguments[at]), lambda moments: compute(_checked_dates(call, moments, value)))


def _checked_dates(call: FunctionCall, moments: pa.Array, value: Evaluate) -> pa.Array:
    if pa.types.is_null(moments.type):
        return moments.cast(pa.date32())
    if not (pa.types.is_date(moments.type) or pa.types.is_timestamp(moments.type) or pa.types.is_string(moments.type)):
        raise pa.ArrowTypeError(f"{call.text!r} needs a date or a time, not {moments.type}; use CAST")
    return dates_of(moments, value.context)


def _day_part(function: Callable[..., Any]) -> Function:
    return Function(1, 1, lambda call, value: _date(call, value, 0, lambda d: function(_in_cycle(d)).cast(pa.int32())))


def _in_cycle(days: pa.Array) -> pa.Array:
    """Returns each date as the date in the years 1970 to 2369 with the same month, day and weekday. For years of more
    than 15 bits, Arrow computes wrong years and wrong days of the year.
    """
    return _numbers(days.view(pa.int32()), lambda d: d % _CYCLE_DAYS, pa.int32()).view(pa.date32())


def _year(call: FunctionCall, value: Evaluate) -> Value:
    def years(days: pa.Array) -> pa.Array:
        cycles = _numbers(days.view(pa.int32()), lambda d: d // _CYCLE_DAYS * _CYCLE_YEARS, pa.int32())
        return pc.add(pc.year(_in_cycle(days)).cast(pa.int32()), cycles)

    return _date(call, value, 0, years)


def _time_part(unit_us: int, modulus: int) -> Function:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        return _local(call, value, 0, lambda micros: _numbers(micros, lambda m: m // unit_us % modulus, pa.int32()))

    return Function(1, 1, compute)


def _numbers(values: pa.Array, compute: Callable[[Longs], Longs], kind: pa.DataType) -> pa.Array:
    numbers = compute(np.asarray(values.fill_null(0), np.int64))
    return pa.array(numbers, pa.int64(), mask=np.asarray(values.is_null())).cast(kind)


def _second_part(call: FunctionCall, value: Evaluate) -> Value:
    def seconds(micros: pa.Array) -> pa.Array:
        units = _numbers(micros, lambda m: m % (60 * SECOND_US), pa.int64())
        # A number of microseconds is the unscaled value of a decimal of seconds with six digits after the point.
        wide = units.cast(pa.decimal128(19, 0)).buffers()
        return pa.Array.from_buffers(pa.decimal128(8, 6), len(units), wide)

    return _local(call, value, 0, seconds)


def _date_part(call: FunctionCall, value: Evaluate) -> Value:
    name = literal(call.arguments[0], str).lower()
    if name not in _PARTS:
        known = ", ".join(_PARTS).upper()
        raise OptionError(f"{call.text!r}: {name.upper()} is not supported; supported are {known}", key="expression")
    return _PARTS[name].compute(FunctionCall(name, call.arguments[1:], call.node), value)


def _date_format(call: FunctionCall, value: Evaluate) -> Value:
    pattern = literal(call.arguments[1], str)
    written(pa.array([], pa.int64()), pattern)

    def texts(moments: pa.Array) -> pa.Array:
        micros = _checked_local(call, moments, value)
        if value.context.has_instants and not _is_instant(moments):
            # Spark converts to a TIMESTAMP first, so a local time that the session's zone skips is moved later.
            micros = not_skipped(micros, value.context.zone)
        return written(micros, pattern)

    return by_array(value(call.arguments[0]), texts)


def _from_unixtime(call: FunctionCall, value: Evaluate) -> Value:
    pattern = literal(call.arguments[1], str) if len(call.arguments) > 1 else _FULL
    written(pa.array([], pa.int64()), pattern)

    def texts(seconds: pa.Array) -> pa.Array:
        instants = pc.multiply_checked(_whole(seconds, call), SECOND_US).cast(INSTANT)
        return written(local_us(instants, value.context), pattern)

    return by_array(value(call.arguments[0]), texts)


def _whole(numbers: pa.Array, call: FunctionCall) -> pa.Array:
    if not (pa.types.is_integer(numbers.type) or pa.types.is_null(numbers.type)):
        raise pa.ArrowTypeError(f"{call.text!r} needs a whole number, not {numbers.type}; use CAST")
    return numbers.cast(pa.int64())


def _to_date(call: FunctionCall, value: Evaluate) -> Value:
    return _read_dates(call, value, fails=True)


def _try_to_date(call: FunctionCall, value: Evaluate) -> Value:
    return _read_dates(call, value, fails=False)


def _read_dates(call: FunctionCall, value: Evaluate, *, fails: bool) -> Value:
    def dates(moments: pa.Array) -> pa.Array:
        if not pa.types.is_string(moments.type):
            return _checked_dates(call, moments, value)
        if len(call.arguments) == 1:
            found, is_read = try_dates(moments)
        else:
            micros, is_read = read(moments, literal(call.arguments[1], str))
            days = np.where(is_read, micros, 0) // DAY_US
            found = pa.array(days.astype(np.int32), pa.int32(), mask=~is_read).cast(pa.date32())
        if fails:
            refuse_unread(moments, is_read, "DATE of this pattern" if len(call.arguments) > 1 else "DATE")
        return found

    return by_array(value(call.arguments[0]), dates)


def _to_timestamp(call: FunctionCall, value: Evaluate) -> Value:
    return _read_stamps(call, value, fails=True)


def _try_to_timestamp(call: FunctionCall, value: Evaluate) -> Value:
    return _read_stamps(call, value, fails=False)


def _read_stamps(call: FunctionCall, value: Evaluate, *, fails: bool) -> Value:
    def stamps(moments: pa.Array) -> pa.Array:
        if pa.types.is_integer(moments.type) and len(call.arguments) == 1:
            return _counted(SECOND_US, moments, value, call)
        if _is_instant(moments) and value.context.has_instants:
            return instants_of(moments, value.context)
        if not pa.types.is_string(moments.type):
            return as_stamps(_checked_local(call, moments, value), value.context)
        if len(call.arguments) == 1:
            found, is_read = try_stamps(moments, value.context)
        else:
            micros, is_read = read(moments, literal(call.arguments[1], str))
            found = as_stamps(pa.array(micros, pa.int64(), mask=~is_read), value.context)
        if fails:
            refuse_unread(moments, is_read, "TIMESTAMP of this pattern" if len(call.arguments) > 1 else "TIMESTAMP")
        return found

    return by_array(value(call.arguments[0]), stamps)


def _counted(unit_us: int, numbers: pa.Array, value: Evaluate, call: FunctionCall) -> pa.Array:
    instants = pc.multiply_checked(_whole(numbers, call), unit_us).cast(INSTANT)
    return instants if value.context.has_instants else local_us(instants, value.context).cast(pa.timestamp("us"))


def _of_count(unit_us: int) -> Function:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        return by_array(value(call.arguments[0]), lambda numbers: _counted(unit_us, numbers, value, call))

    return Function(1, 1, compute)


def _count_of(unit_us: int) -> Function:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        def counts(moments: pa.Array) -> pa.Array:
            _checked_local(call, moments.slice(0, 0), value)
            instants = instants_of(moments, value.context).cast(pa.int64())
            return _numbers(instants, lambda micros: micros // unit_us, pa.int64())

        return by_array(value(call.arguments[0]), counts)

    return Function(1, 1, compute)


def _unix_timestamp(call: FunctionCall, value: Evaluate) -> Value:
    def seconds(moments: pa.Array) -> pa.Array:
        if pa.types.is_string(moments.type):
            pattern = literal(call.arguments[1], str) if len(call.arguments) > 1 else _FULL
            micros, is_read = read(moments, pattern)
            refuse_unread(moments, is_read, f"TIMESTAMP of the pattern {pattern}")
            moments = from_local(pa.array(micros, pa.int64(), mask=~is_read), value.context.zone)
        is_local = pa.types.is_timestamp(moments.type) and moments.type.tz is None
        # For a TIMESTAMP_NTZ, Spark does not convert the time to another zone.
        instants = moments.cast(INSTANT) if is_local else instants_of(moments, value.context)
        instants = instants.cast(pa.int64())
        # Spark cuts the fraction off, towards zero also before 1970.
        return _numbers(instants, lambda m: np.sign(m) * (np.abs(m) // SECOND_US), pa.int64())

    return by_array(value(call.arguments[0]), seconds)


def _date_trunc(call: FunctionCall, value: Evaluate) -> Value:
    unit = literal(call.arguments[0], str).lower()
    _truncated_to(unit, np.array([0], np.int64), call)
    context = value.context

    def truncated(moments: pa.Array) -> pa.Array:
        local = _checked_local(call, moments, value)
        cut = _numbers(local, lambda n: _truncated_to(unit, n, call), pa.int64())
        stamps = as_stamps(cut, context)
        if not (_is_instant(moments) and context.has_instants) or unit in _BY_DATE:
            return stamps
        # If a local time occurs twice in the zone, the later instant stays the later one.
        same_offset = pc.add(instants_of(moments, context).cast(pa.int64()), pc.subtract(cut, local)).cast(INSTANT)
        return if_else(pc.equal(shown_in(same_offset, context.zone), cut), same_offset, stamps)

    return by_array(value(call.arguments[1]), truncated)


def _trunc(call: FunctionCall, value: Evaluate) -> Value:
    unit = literal(call.arguments[1], str).lower()
    if unit not in ("week", "quarter") and _TRUNCATED.get(unit) not in ("Y", "M"):
        raise OptionError(f"{call.text!r}: trunc supports YEAR, QUARTER, MONTH and WEEK", key="expression")

    def days(dates: pa.Array) -> pa.Array:
        numbers = dates.cast(pa.int32())
        cut = _numbers(numbers, lambda n: _truncated_to(unit, n * DAY_US, call) // DAY_US, pa.int32())
        return cut.cast(pa.date32())

    return _date(call, value, 0, days)


def _truncated_to(unit: str, micros: Longs, call: FunctionCall) -> Longs:
    stamps = micros.astype("M8[us]")
    if unit == "week":
        days = micros // DAY_US
        return (days - (days + 3) % 7) * DAY_US
    if unit == "quarter":
        months = stamps.astype("M8[M]").astype(np.int64)
        return (months - months % 3).astype("M8[M]").astype("M8[us]").astype(np.int64)
    code = _TRUNCATED.get(unit)
    if code is None:
        known = ", ".join(("quarter", "week", *_TRUNCATED)).upper()
        raise OptionError(f"{call.text!r}: {unit.upper()} is not supported; supported are {known}", key="expression")
    return stamps.astype(f"M8[{code}]").astype("M8[us]").astype(np.int64)


def _moved(sign: int) -> Callable[[FunctionCall, Evaluate], Value]:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        count = value(call.arguments[1])
        if not (pa.types.is_integer(count.type) and count.type.bit_width <= 32):
            raise pa.ArrowTypeError(f"{call.text!r}: the number of days must be an INT, not {count.type}; use CAST")
        add = pc.add_checked if sign > 0 else pc.subtract_checked

        def moved(moments: pa.Array, days: pa.Array) -> pa.Array:
            dates = _checked_dates(call, moments, value).cast(pa.int32())
            return add(dates, days.cast(pa.int32())).cast(pa.date32())

        return by_two(value(call.arguments[0]), count, moved)

    return compute


def by_two(left: Value, right: Value, compute: Callable[[pa.Array, pa.Array], pa.Array]) -> Value:
    """Applies `compute`, which works on two columns, to two values. A single value is repeated for all rows."""
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return compute(pa.array([left.as_py()], left.type), pa.array([right.as_py()], right.type))[0]
    count = len(right) if isinstance(left, pa.Scalar) else len(left)
    left, right = (pa.repeat(v, count) if isinstance(v, pa.Scalar) else v for v in (left, right))
    return compute(left, right)


def _datediff(call: FunctionCall, value: Evaluate) -> Value:
    def days(end: pa.Array, start: pa.Array) -> pa.Array:
        ends, starts = (_checked_dates(call, d, value).cast(pa.int32()) for d in (end, start))
        return pc.subtract_checked(ends, starts)

    return by_two(value(call.arguments[0]), value(call.arguments[1]), days)


def _last_day(call: FunctionCall, value: Evaluate) -> Value:
    def last(dates: pa.Array) -> pa.Array:
        numbers = dates.cast(pa.int32())

        def ends(days: Longs) -> Longs:
            return (days.astype("M8[D]").astype("M8[M]") + 1).astype("M8[D]").astype(np.int64) - 1

        return _numbers(numbers, ends, pa.int32()).cast(pa.date32())

    return _date(call, value, 0, last)


def _make_date(call: FunctionCall, value: Evaluate) -> Value:
    numbers = [value(node) for node in call.arguments]
    if not all(pa.types.is_integer(n.type) for n in numbers):
        raise pa.ArrowTypeError(f"{call.text!r} needs arguments of type INT; use CAST")
    count = max((len(n) for n in numbers if isinstance(n, pa.Array)), default=1)
    columns = [pa.repeat(n, count) if isinstance(n, pa.Scalar) else n for n in numbers]
    is_null = np.logical_or.reduce([np.asarray(c.is_null()) for c in columns])
    days, is_day = days_of(*(np.asarray(c.fill_null(1), np.int64) for c in columns))
    if not (is_day | is_null).all():
        raise pa.ArrowInvalid(f"{call.text!r}: the year, month and day are no valid date")
    made = pa.array(days.astype(np.int32), pa.int32(), mask=is_null).cast(pa.date32())
    return made if any(isinstance(n, pa.Array) for n in numbers) else made[0]


def _utc(to_utc: bool) -> Callable[[FunctionCall, Evaluate], Value]:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        zone = literal(call.arguments[1], str)
        try:
            from_local(pa.array([0]), zone)
        except pa.ArrowInvalid as e:
            raise OptionError(f"{call.text!r}: {e}", key="expression") from e

        def moved(moments: pa.Array) -> pa.Array:
            # Spark adds to the local time in the session's zone, even if the result is a time that the zone skips.
            shown = instants_of(moments, value.context).cast(pa.int64())
            if to_utc:
                return _back(from_local(shown, zone).cast(pa.int64()), value)
            return _back(shown_in(shown.cast(INSTANT), zone), value)

        return by_array(value(call.arguments[0]), moved)

    return compute


def _back(micros: pa.Array, value: Evaluate) -> pa.Array:
    instants = micros.cast(INSTANT)
    return instants if value.context.has_instants else local_us(instants, value.context).cast(pa.timestamp("us"))


def _now(call: FunctionCall, value: Evaluate) -> Value:
    now = value.context.now_us
    if now is None:
        raise OptionError(
            f"{call.text} is not supported here; write the time as a literal", key="expression", function=call.name
        )
    instant = pa.array([now], pa.int64()).cast(INSTANT)
    if call.name in ("current_date", "curdate"):
        return dates_of(instant, value.context)[0]
    if call.name == "localtimestamp":
        return local_us(instant, value.context).cast(pa.timestamp("us"))[0]
    return _back(instant.cast(pa.int64()), value)[0]


NOW = ("current_timestamp", "now", "current_date", "curdate", "localtimestamp")
"""Functions that return the current time or date."""

_DAY = _day_part(pc.day)
_PARTS: Mapping[str, Function] = {
    "year": Function(1, 1, _year),
    "quarter": _day_part(pc.quarter),
    "month": _day_part(pc.month),
    "day": _DAY,
    "hour": _time_part(3600 * SECOND_US, 24),
    "minute": _time_part(60 * SECOND_US, 60),
    "second": Function(1, 1, _second_part),
}

TIME_FUNCTIONS: Mapping[str, Function] = {
    **_PARTS,
    "second": _time_part(SECOND_US, 60),
    "dayofmonth": _DAY,
    "dayofyear": _day_part(pc.day_of_year),
    "dayofweek": _day_part(lambda days: pc.add(pc.day_of_week(days, count_from_zero=True, week_start=7), 1)),
    "weekday": _day_part(lambda days: pc.day_of_week(days, count_from_zero=True, week_start=1)),
    "weekofyear": _day_part(pc.iso_week),
    "date_part": Function(2, 2, _date_part),
    "datepart": Function(2, 2, _date_part),
    "date_format": Function(2, 2, _date_format),
    "from_unixtime": Function(1, 2, _from_unixtime),
    "to_date": Function(1, 2, _to_date),
    "try_to_date": Function(1, 2, _try_to_date),
    "to_timestamp": Function(1, 2, _to_timestamp),
    "try_to_timestamp": Function(1, 2, _try_to_timestamp),
    "timestamp_seconds": _of_count(SECOND_US),
    "timestamp_millis": _of_count(1000),
    "timestamp_micros": _of_count(1),
    "unix_seconds": _count_of(SECOND_US),
    "unix_millis": _count_of(1000),
    "unix_micros": _count_of(1),
    "unix_timestamp": Function(1, 2, _unix_timestamp),
    "to_unix_timestamp": Function(1, 2, _unix_timestamp),
    "date_trunc": Function(2, 2, _date_trunc),
    "trunc": Function(2, 2, _trunc),
    "date_add": Function(2, 2, _moved(1)),
    "dateadd": Function(2, 2, _moved(1)),
    "date_sub": Function(2, 2, _moved(-1)),
    "datediff": Function(2, 2, _datediff),
    "date_diff": Function(2, 2, _datediff),
    "last_day": Function(1, 1, _last_day),
    "make_date": Function(3, 3, _make_date),
    "to_utc_timestamp": Function(2, 2, _utc(True)),
    "from_utc_timestamp": Function(2, 2, _utc(False)),
    **{name: Function(0, 0, _now) for name in NOW},
}
