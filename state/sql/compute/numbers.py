"""Numbers in SQL expressions: arithmetic, rounding, common types and casts. Results are exact if they are exact in SQL,
and a result that the type cannot hold is an error.

Whole numbers are computed in the larger of their types, decimals with the digits that Spark gives them (at most 38),
and other numbers as DOUBLE. Overflow and division by zero raise Arrow's ArrowInvalid. If an operand is null, the result
is null.

Spark rounds the decimal digits with which a double is printed: 1.005 becomes 1.01, although the double is slightly less
than 1.005. Multiplying by a power of ten gives the same result unless the number is almost halfway between two results.
Such numbers are rounded as decimals.
Source: Spark 4 DecimalPrecisionTypeCoercion, with its rule for more than 38 digits (`adjustPrecisionScale`);
mathExpressions.scala, RoundBase.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from math import trunc
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.arrow import arrow_type, logical_type
from bucketline.state.types.logical import INTEGER_ROOTS, DataType, TypeRoot
from bucketline.state.types.recast import recast

Value: TypeAlias = pa.Array | pa.Scalar
"""A column, or a single value for all rows."""

_DIGITS = 38
_WIDE = 76
_KEPT_SCALE = 6
_HALF_UP = "half_towards_infinity"
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_DOUBLE_DIGITS = 18
_EXACT_POWER = 22
"""The largest exponent for which the power of ten is exact as a double."""
_CHECKED: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}


def is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_decimal(arrow) or pa.types.is_floating(arrow))


def arithmetic(sign: str, left: Value, right: Value) -> Value:
    """Returns the result of `left sign right` for two numbers. `sign` is one of + - * / % and div."""
    if sign == "div" and not (pa.types.is_integer(left.type) and pa.types.is_integer(right.type)):
        raise pa.ArrowNotImplementedError("div supports only whole numbers; CAST the result of / to BIGINT instead")
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        if left.type == right.type == pa.float32() and sign in _CHECKED:
            return _CHECKED[sign](left, right)
        result = _of_doubles(sign, as_double(left), as_double(right))
        return result.cast(pa.float32()) if left.type == right.type == pa.float32() and sign == "%" else result
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return _of_decimals(sign, _as_decimal(left), _as_decimal(right))
    if sign == "/":
        return pc.divide_checked(as_double(left), as_double(right))
    if sign == "div":
        return pc.divide_checked(left.cast(pa.int64()), right.cast(pa.int64()))
    kind = left.type if left.type.bit_width >= right.type.bit_width else right.type
    left, right = left.cast(kind), right.cast(kind)
    if sign == "%":
        return pc.subtract(left, pc.multiply(pc.divide(left, right), right))
    return _CHECKED[sign](left, right)


def negated(value: Value) -> Value:
    """Returns the number with its sign changed."""
    if pa.types.is_integer(value.type):
        return pc.negate_checked(value)
    return pc.negate(value)


def as_double(value: Value) -> Value:
    """Returns the DOUBLE that is nearest to the number."""
    if pa.types.is_decimal(value.type):
        return value.cast(pa.string()).cast(pa.float64())
    return value.cast(pa.float64(), safe=False)


def common_numbers(types: Sequence[pa.DataType]) -> pa.DataType:
    """Returns the type that can hold the values of all these numeric types."""
    if any(pa.types.is_floating(t) for t in types):
        return pa.float64()
    decimals = [t for t in types if pa.types.is_decimal(t)]
    if not decimals:
        return max(types, key=lambda t: t.bit_width)
    shapes = [(_INTEGER_DIGITS[t.bit_width], 0) if pa.types.is_integer(t) else (t.precision, t.scale) for t in types]
    scale = max(s for _, s in shapes)
    return pa.decimal128(min(_DIGITS, max(p - s for p, s in shapes) + scale), scale)


def to_number(value: Value, target: pa.DataType) -> Value:
    """Converts a number to a type that `common_numbers` has returned."""
    if value.type == target:
        return value
    if pa.types.is_floating(target):
        return as_double(value)
    if pa.types.is_decimal(target):
        return _as_decimal(value).cast(pa.decimal256(_WIDE, target.scale)).cast(target)
    return value.cast(target)


def cast_value(value: pa.Array, wanted: DataType) -> pa.Array:
    """Returns the result of CAST(value AS wanted). Strings are parsed, and fractions are cut off or rounded. Raises
    ArrowInvalid for a value that does not fit.
    """
    if pa.types.is_null(value.type):
        return pa.nulls(len(value), arrow_type(wanted))
    if wanted.root in INTEGER_ROOTS and (pa.types.is_floating(value.type) or pa.types.is_decimal(value.type)):
        return pc.round(value, 0, "towards_zero").cast(arrow_type(wanted))
    if wanted.root in INTEGER_ROOTS and pa.types.is_integer(value.type):
        return value.cast(arrow_type(wanted))
    if wanted.root is TypeRoot.DATE and pa.types.is_timestamp(value.type):
        return value.cast(
            pa.date32()
        )  # Rounded down to the day, also before 1970. Paimon's casts of columns differ there.
    if wanted.root in INTEGER_ROOTS and pa.types.is_timestamp(value.type):
        value = pc.floor_temporal(value, unit="second")  # Rounded down to the second, also before 1970.
    stored = logical_type(value.type, nullable=True)
    if pa.types.is_timestamp(value.type):
        stored = DataType(TypeRoot.TIMESTAMP, precision=0)  # As a string without zeros at the end, as in Spark.
    converted = recast(value, stored, wanted)
    if converted.null_count > value.null_count:
        raise pa.ArrowInvalid(f"a value does not fit into {wanted}")
    return converted


def fitted(value: pa.Array, wanted: DataType) -> pa.Array:
    """Converts a value to the type `wanted` of a column. Decimals are rounded, and nothing else is lost. A value whose
    type is of another kind is returned unchanged, and the caller refuses the value.
    """
    target = arrow_type(wanted)
    if pa.types.is_null(value.type):
        return pa.nulls(len(value), target)
    if wanted.root is TypeRoot.DECIMAL and is_number(value.type):
        return cast_value(value, wanted)
    if wanted.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE) and is_number(value.type):
        return as_double(value).cast(target, safe=False)
    if wanted.root in INTEGER_ROOTS and is_number(value.type):
        return value.cast(target)
    if wanted.root is TypeRoot.TIMESTAMP and pa.types.is_date(value.type):
        return value.cast(target)
    return value


def _of_doubles(sign: str, left: Value, right: Value) -> Value:
    if sign == "/":
        return pc.divide_checked(left, right)
    if sign != "%":
        return _CHECKED[sign](left, right)
    if pc.any(pc.equal(right, 0.0)).as_py():
        raise pa.ArrowInvalid("divide by zero")
    both = [pa.array([v.as_py()], pa.float64()) if isinstance(v, pa.Scalar) else v for v in (left, right)]
    numbers = [np.asarray(v.fill_null(1.0)) for v in both]
    remainders = np.fmod(*numbers)
    is_null = np.broadcast_to(np.asarray(both[0].is_null()) | np.asarray(both[1].is_null()), remainders.shape)
    result = pa.array(remainders, pa.float64(), mask=is_null)
    return result if isinstance(left, pa.Array) or isinstance(right, pa.Array) else result[0]


def _of_decimals(sign: str, left: Value, right: Value) -> Value:
    p1, s1, p2, s2 = left.type.precision, left.type.scale, right.type.precision, right.type.scale
    if sign == "/":
        scale = max(_KEPT_SCALE, s1 + p2 + 1)
        whole = p1 - s1 + s2
        if whole + scale > _DIGITS:
            scale = max(_DIGITS - whole, min(scale, _KEPT_SCALE))
        # Arrow cuts the quotient off after s1 + p2 - s2 + 1 digits. The last of them is only used for rounding.
        more = max(0, scale - p2 + s2 - s1)
        numerator = left.cast(pa.decimal256(min(_WIDE, p1 + more), s1 + more))
        return _narrowed(_quotient(numerator, right.cast(pa.decimal256(p2, s2))), scale)
    if sign == "%":
        raise pa.ArrowNotImplementedError("% of a DECIMAL is not supported; CAST it to BIGINT or DOUBLE")
    if sign == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > _DIGITS:
        scale = max(_DIGITS - (precision - scale), min(scale, _KEPT_SCALE))
    wide = _CHECKED[sign](left.cast(pa.decimal256(p1, s1)), right.cast(pa.decimal256(p2, s2)))
    return _narrowed(wide, scale)


def _quotient(left: Value, right: Value) -> Value:
    """Returns the result of `left / right` for decimals of 256 bits. The quotient has as many digits as Arrow returns;
    further digits are cut off.

    Arrow's result is wrong for some numbers of more than 64 bits, for example 9223372036854775807 /
    99999999999999999999. A quotient is wrong if the remainder is not less than the divisor. The few wrong quotients are
    computed again, one by one.
    """
    quotient = pc.divide(left, right)
    digits, scale = right.type.precision, quotient.type.scale
    try:
        product = pc.multiply(quotient.cast(pa.decimal256(_WIDE - 2 - digits, scale)), right)
        rest = pc.abs(pc.subtract(left.cast(product.type), product))
        one = pa.scalar(Decimal((0, (1,), -scale)), pa.decimal256(scale + 1, scale))
        is_wrong = pc.greater_equal(rest, pc.abs(pc.multiply(right, one)))
    except (pa.ArrowInvalid, ValueError):
        return quotient  # There are too many digits for this check.
    if not pc.any(is_wrong).as_py():
        return quotient
    if isinstance(quotient, pa.Scalar):
        return pa.scalar(_divided(left, right, scale), quotient.type)
    wrong = pc.fill_null(is_wrong, False)
    pairs = zip(*(v.filter(wrong) if isinstance(v, pa.Array) else repeat(v) for v in (left, right)), strict=False)
    exact = pa.array([_divided(dividend, divisor, scale) for dividend, divisor in pairs], quotient.type)
    return pc.replace_with_mask(quotient, wrong, exact)


def _divided(left: pa.Scalar, right: pa.Scalar, scale: int) -> Decimal:
    """Returns the exact quotient with `scale` digits after the point. Further digits are cut off, not rounded."""
    units = trunc(Fraction(left.as_py()) / Fraction(right.as_py()) * 10**scale)
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _narrowed(wide: Value, scale: int) -> Value:
    """Returns the decimal with `scale` digits after the point, rounded half up. Raises ArrowInvalid for more than 38
    digits.
    """
    if wide.type.scale > scale:
        wide = pc.round(wide, scale, _HALF_UP)
    precision = min(_DIGITS, wide.type.precision - wide.type.scale + scale)
    return wide.cast(pa.decimal256(_WIDE, scale)).cast(pa.decimal128(max(1, precision), scale))


def _as_decimal(value: Value) -> Value:
    if pa.types.is_decimal(value.type):
        return value
    if isinstance(value, pa.Scalar) and value.is_valid:
        number = Decimal(value.as_py())
        return pa.scalar(number, pa.decimal128(max(1, len(number.as_tuple().digits)), 0))
    digits = _INTEGER_DIGITS[value.type.bit_width]
    return value.cast(pa.decimal128(20, 0)).cast(pa.decimal128(digits, 0))


def rounded(value: Value, digits: int, mode: str = _HALF_UP) -> Value:
    """Rounds a number to `digits` digits after the point. Whole numbers stay unchanged. `mode` is a rounding mode of
    Arrow's `round`. Raises an error if `digits` is less than 0.
    """
    if digits < 0:
        raise pa.ArrowNotImplementedError("numbers can only be rounded to 0 or more digits after the point")
    if pa.types.is_integer(value.type):
        return value
    if pa.types.is_floating(value.type):
        doubles = as_double(value)
        near = pc.round(doubles, digits, mode) if mode != _HALF_UP else _half_up(doubles, digits)
        return near.cast(value.type, safe=False)
    if digits >= value.type.scale:
        # The type of ROUND's result has one more digit, even if nothing is rounded.
        wider = pa.decimal128(min(_DIGITS, value.type.precision + 1), value.type.scale)
        return value.cast(wider) if mode == _HALF_UP else value
    wide = pc.round(value.cast(pa.decimal256(_WIDE, value.type.scale)), digits, mode)
    return wide.cast(pa.decimal128(min(_DIGITS, value.type.precision - value.type.scale + digits + 1), digits))


def _half_up(doubles: Value, digits: int) -> Value:
    if isinstance(doubles, pa.Scalar):
        return _half_up(pa.array([doubles.as_py()], pa.float64()), digits)[0]
    if digits > _EXACT_POWER:
        raise pa.ArrowNotImplementedError(f"doubles can be rounded to at most {_EXACT_POWER} digits after the point")
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
    # Adding 0.0 changes -0.0 to 0.0.
    found = np.where(has_fraction, found, numbers) + 0.0
    return pa.array(found, pa.float64(), mask=np.asarray(doubles.is_null()))
