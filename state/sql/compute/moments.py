"""Conversions between dates, instants and local times, as in Spark: times are microseconds, and local times are in the
session's time zone.

Source: Spark 4.0 SparkDateTimeUtils; Java's ZonedDateTime.ofLocal for local times that occur twice or not at all when a
clock is changed.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.compute.time_patterns import (
    DAY_US,
    OTHER_STAMP,
    SIGNED_YEAR,
    Longs,
    read_dates,
    read_stamps,
    refuse_beyond,
)
from bucketline.state.sql.compute.zones import instants_in, shown_in

LOCAL = pa.timestamp("us")
INSTANT = pa.timestamp("us", "UTC")


def by_array(value: Value, compute: Callable[[pa.Array], pa.Array]) -> Value:
    """Applies `compute`, which works on columns, to a value. A single value is converted to a column of one row, and
    the result is a single value, too.
    """
    if isinstance(value, pa.Scalar):
        return compute(pa.array([value.as_py()], value.type) if value.is_valid else pa.nulls(1, value.type))[0]
    return compute(value)


def stamp_type(context: Context) -> pa.DataType:
    """Returns the Arrow type of TIMESTAMP: an instant, as in Spark, or a local time, as in Paimon."""
    return INSTANT if context.has_instants else LOCAL


def local_us(moments: pa.Array, context: Context) -> pa.Array:
    """Converts dates, times, or strings with times to local times in the session's time zone, in microseconds since
    1970.
    """
    if pa.types.is_null(moments.type):
        return moments.cast(pa.int64())
    if pa.types.is_string(moments.type):
        moments = stamps_of(moments, context)
    if pa.types.is_date(moments.type):
        return pc.multiply(moments.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), DAY_US)
    if not pa.types.is_timestamp(moments.type):
        raise pa.ArrowTypeError(f"{moments.type} is neither a date nor a time; use CAST")
    if moments.type.tz is not None:
        return shown_in(_in_us(moments), context.zone)
    return _in_us(moments).cast(pa.int64())


def instants_of(moments: pa.Array, context: Context) -> pa.Array:
    """Converts dates and times to instants. Dates, and times without a zone, are local times in the session's zone."""
    if pa.types.is_timestamp(moments.type) and moments.type.tz is not None:
        return _in_us(moments).cast(INSTANT)
    return from_local(local_us(moments, context), context.zone)


def from_local(micros: pa.Array, zone: str) -> pa.Array:
    """Converts local times to instants. If a local time occurs twice in the zone, the earlier instant is taken. A local
    time that the zone skips is moved later by the length of the gap.
    """
    return (micros if zone == "UTC" else instants_in(micros, zone)).cast(INSTANT)


def as_stamps(micros: pa.Array, context: Context) -> pa.Array:
    """Converts local times in the session's zone, in microseconds, to values of type TIMESTAMP."""
    return from_local(micros, context.zone) if context.has_instants else micros.cast(LOCAL)


def stamps_of(texts: pa.Array, context: Context, *, wanted: pa.DataType | None = None) -> pa.Array:
    """Parses strings as timestamps. Raises ArrowInvalid for a string that is no timestamp. The message names the type
    `wanted`.
    """
    found, is_read = try_stamps(texts, context, wanted=wanted)
    refuse_unread(texts, is_read, "TIMESTAMP")
    return found


def try_stamps(
    texts: pa.Array, context: Context, *, wanted: pa.DataType | None = None
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Parses strings as timestamps. Returns the timestamps, with null for a string that is no timestamp, and a mask of
    the strings that are timestamps.
    """
    target = wanted or stamp_type(context)
    said = read_stamps(texts)
    refuse_beyond(texts, said.is_read, OTHER_STAMP)
    nulls = ~said.is_read
    if target.tz is None:
        # For a local time, Spark ignores the time zone in the string.
        return pa.array(said.moments, pa.int64(), mask=nulls).cast(LOCAL), said.is_read
    zoned = said.moments - said.offsets
    if said.has_zone.all():
        return pa.array(zoned, pa.int64(), mask=nulls).cast(INSTANT), said.is_read
    local = from_local(pa.array(said.moments, pa.int64()), context.zone).cast(pa.int64())
    micros: Longs = np.where(said.has_zone, zoned, np.asarray(local, np.int64))
    return pa.array(micros, pa.int64(), mask=nulls).cast(INSTANT), said.is_read


def dates_of(moments: pa.Array, context: Context) -> pa.Array:
    """Converts times or strings to dates in the session's time zone. Raises ArrowInvalid for a string that is no
    date.
    """
    if pa.types.is_date(moments.type):
        return moments.cast(pa.date32())
    if pa.types.is_string(moments.type):
        found, is_read = try_dates(moments)
        refuse_unread(moments, is_read, "DATE")
        return found
    micros = local_us(moments, context)
    days = np.asarray(micros.fill_null(0), np.int64) // DAY_US
    return pa.array(days.astype(np.int32), pa.int32(), mask=np.asarray(micros.is_null())).cast(pa.date32())


def try_dates(texts: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Parses strings as dates. Returns the dates, with null for a string that is no date, and a mask of the strings
    that are dates.
    """
    days, is_read = read_dates(texts)
    refuse_beyond(texts, is_read, SIGNED_YEAR)
    return pa.array(np.where(is_read, days, 0).astype(np.int32), pa.int32(), mask=~is_read).cast(pa.date32()), is_read


def refuse_unread(texts: pa.Array, is_read: npt.NDArray[np.bool_], wanted: str) -> None:
    """Raises ArrowInvalid, which names the string, if a string could not be parsed. `is_read` marks the strings that
    were parsed.
    """
    unread = np.flatnonzero(~is_read & np.asarray(texts.is_valid()))
    if len(unread):
        raise pa.ArrowInvalid(f"{str(texts[int(unread[0])].as_py())[:80]!r} is no {wanted}")


def _in_us(stamps: pa.Array) -> pa.Array:
    """Returns the timestamps in microseconds. Finer digits are cut off, towards the past."""
    if stamps.type.unit == "ns":
        # Rounding in UTC gives the same result in each zone, and older releases of Arrow do not know zones such as
        # `+02:00`.
        zone = stamps.type.tz
        stamps = pc.floor_temporal(stamps.cast(pa.timestamp("ns", None if zone is None else "UTC")), unit="microsecond")
    return stamps.cast(pa.timestamp("us", stamps.type.tz))
