"""ROUND, FLOOR and CEIL: numbers with fewer digits after the point.

Spark rounds the decimal digits that a double is written with: 1.005 becomes 1.01, though the double lies below 1.005.
Multiplying by a power of ten finds the same where no tie is near; the others are rounded as decimals.
Source: Spark 4.0 mathExpressions.scala, RoundBase.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.sql.compute.numbers import Value, as_double

_DIGITS, _WIDE = 38, 76
_HALF_UP = "half_towards_infinity"
_DOUBLE_DIGITS = 18
_EXACT_POWER = 22
"""Powers of ten up to this one are doubles."""


def rounded(value: Value, digits: int, mode: str = _HALF_UP) -> Value:
    """Returns the number with so many digits after the point; whole numbers stay, and digits below 0 are refused."""
    if digits < 0:
        raise pa.ArrowNotImplementedError("numbers are rounded to 0 or more digits after the point")
    if pa.types.is_integer(value.type):
        return value
    if pa.types.is_floating(value.type):
        doubles = as_double(value)
        near = pc.round(doubles, digits, mode) if mode != _HALF_UP else _half_up(doubles, digits)
        return near.cast(value.type, safe=False)
    if digits >= value.type.scale:
        # ROUND leaves room for one digit more, also where it rounds nothing.
        wider = pa.decimal128(min(_DIGITS, value.type.precision + 1), value.type.scale)
        return value.cast(wider) if mode == _HALF_UP else value
    wide = pc.round(value.cast(pa.decimal256(_WIDE, value.type.scale)), digits, mode)
    return wide.cast(pa.decimal128(min(_DIGITS, value.type.precision - value.type.scale + digits + 1), digits))


def _half_up(doubles: Value, digits: int) -> Value:
    if isinstance(doubles, pa.Scalar):
        return _half_up(pa.array([doubles.as_py()], pa.float64()), digits)[0]
    if digits > _EXACT_POWER:
        raise pa.ArrowNotImplementedError(f"doubles are rounded to {_EXACT_POWER} digits after the point at most")
    numbers = np.asarray(doubles.fill_null(0.0))
    with np.errstate(all="ignore"):
        scaled = np.abs(numbers) * 10.0**digits
        found = np.copysign(np.floor(scaled + 0.5) / 10.0**digits, numbers)
        is_tie = np.abs(scaled - np.floor(scaled) - 0.5) <= scaled * 2.0**-50 + 2.0**-50
    has_fraction = np.abs(numbers) < 2.0**53
    unsure = np.flatnonzero(has_fraction & (is_tie | (scaled >= 2.0**51)))
    if len(unsure):
        written = pa.array(numbers[unsure]).cast(pa.string()).cast(pa.decimal256(_WIDE, digits + _DOUBLE_DIGITS))
        found[unsure] = np.asarray(pc.round(written, digits, _HALF_UP).cast(pa.string()).cast(pa.float64()))
    # Adding 0 makes a plain zero of a negative one.
    found = np.where(has_fraction, found, numbers) + 0.0
    return pa.array(found, pa.float64(), mask=np.asarray(doubles.is_null()))
