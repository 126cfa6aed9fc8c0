"""Converts values from the former type of a column to its current type, as Paimon does.

The results are the same as in Java, and so as in Paimon's other readers: a value may be rounded, cut off, wrapped
around or null. A cast is refused if its result is not known to agree with Java's.
Source: Paimon 2.0 CastExecutors and its rules, DecimalUtils, BinaryStringUtils, DateTimeUtils.
"""

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import INTEGER_ROOTS, MAX_LENGTH, DataType, TypeRoot
from bucketline.state.types.number_text import float_texts
from bucketline.state.types.timestamp_text import timestamps_of

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_NUMBERS = (*INTEGER_ROOTS, *_FLOATS, TypeRoot.DECIMAL)
_TIMES = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_DAY_MS = 86_400_000
_WIDE_DIGITS = 76
_WIDE_SCALE = 38
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_UNITS_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def recast(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array:
    """Takes values in the Arrow type of `stored`, and returns them in the Arrow type of `wanted`. Neither type has
    nested types.

    Nulls stay nulls, and decimals that do not fit become null.
    Raises Arrow's own errors (ArrowInvalid, ArrowNotImplementedError) for a cast or a value that is not supported.
    """
    if stored.as_nullable() == wanted.as_nullable():
        return column
    cast = next((do for roots, do in _CASTS if wanted.root in roots), None)
    values = None if cast is None else cast(column, stored, wanted)
    if values is None:
        raise pa.ArrowNotImplementedError("no such cast")
    return values


def _to_text(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    text = _text_of(column, stored)
    if text is None or wanted.length is None or wanted.length == MAX_LENGTH:
        return text
    cut = pc.utf8_slice_codeunits(text, 0, wanted.length)
    return pc.utf8_rpad(cut, width=wanted.length) if wanted.root is TypeRoot.CHAR else cut


def _text_of(column: pa.Array, stored: DataType) -> pa.Array | None:
    root = stored.root
    if root in _TEXTS:
        return column
    if root in _FLOATS:
        return float_texts(column)
    if root is TypeRoot.DECIMAL:
        return decimal_texts(column)
    if root is TypeRoot.TIME:
        digits = min(stored.precision or 0, 3)
        text = pc.utf8_slice_codeunits(column.cast(pa.string()), 0, 9 + digits if digits else 8)
        return pc.replace_substring_regex(text, r"(\.\d+?)0+$", r"\1")
    if root in _TIMES:
        text = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
        digits = stored.precision or 0
        text = pc.replace_substring_regex(text, rf"(\.\d{{{digits}}}\d*?)0+$", r"\1")
        return pc.utf8_rtrim(text, ".")
    return column.cast(pa.string()) if root in (TypeRoot.BOOLEAN, TypeRoot.DATE, *INTEGER_ROOTS, *_BYTES) else None


def decimal_texts(column: pa.Array) -> pa.Array:
    """Returns decimals as strings without an exponent. Arrow's own cast prints small decimals with an exponent, so this
    function prints the unscaled integers and inserts the point.
    """
    scale = column.type.scale
    if scale == 0:
        return column.cast(pa.string())
    unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(column), column.buffers(), offset=column.offset)
    is_negative = pc.less(column, pa.scalar(Decimal(0), column.type))
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled.cast(pa.string()), "-"), width=scale + 1, padding="0")
    text = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale), "."
    )
    return if_else(is_negative, pc.binary_join_element_wise("-", text, ""), text)


def _to_bytes(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    if stored.root not in (*_TEXTS, *_BYTES) or wanted.length is None:
        return None
    octets = column.cast(pa.binary())
    if wanted.root is TypeRoot.BINARY:
        zeros = pa.scalar(bytes(wanted.length), pa.binary())
        octets = pc.binary_join_element_wise(octets, zeros, pa.scalar(b"", pa.binary()))
    return octets if wanted.length == MAX_LENGTH else pc.binary_slice(octets, 0, wanted.length)


def _to_boolean(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    if stored.root in _TEXTS:
        lower = pc.utf8_lower(column)
        is_true = pc.is_in(lower, pa.array(_TRUE))
        if not pc.all(pc.or_(is_true, pc.is_in(lower, pa.array([*_FALSE, None]))), min_count=0).as_py():
            raise pa.ArrowInvalid("a string is no boolean")
        return if_else(pc.is_valid(column), is_true, pa.scalar(None, pa.bool_()))
    return column.cast(pa.bool_()) if stored.root in INTEGER_ROOTS else None


def _to_integer(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    target = arrow_type(wanted)
    if stored.root in _FLOATS:
        return _from_floats(column, target)
    if stored.root in _TIMES:
        if wanted.root not in (TypeRoot.INT, TypeRoot.BIGINT):
            return None
        # Java's division rounds towards zero.
        return pc.divide(_millis(column), 1000).cast(target, safe=False)
    if stored.root in _TEXTS:
        whole = pc.replace_substring_regex(column, r"^(?:\+|(-))?(\d+)(?:\.\d*)?$", r"\1\2")
        return whole.cast(target)
    return column.cast(target, safe=False) if stored.root in (TypeRoot.BOOLEAN, *_NUMBERS) else None


def _from_floats(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Converts floating-point numbers to integers as Java does: NaN becomes 0, and a number that is too large becomes
    the largest integer. For an integer of 8 or 16 bits, the number is first converted to an integer of 32 bits, and
    then only the lower bits are kept.
    """
    wide = np.int64 if target == pa.int64() else np.int32
    values = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), 0.0, values)
    low, high = np.iinfo(wide).min, np.iinfo(wide).max
    is_low, is_high = values <= float(low), values >= float(high)
    kept = np.where(is_low | is_high, 0.0, values).astype(wide)
    narrowed = np.where(is_low, low, np.where(is_high, high, kept)).astype(target.to_pandas_dtype())
    return pa.array(narrowed, target, mask=column.is_null().to_numpy(zero_copy_only=False))


def _to_float(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    target = arrow_type(wanted)
    if stored.root is TypeRoot.DECIMAL:
        # Arrow divides by a power of ten, which may not give the nearest float. Parsing the printed digits does.
        return column.cast(pa.string()).cast(target)
    if stored.root in _TEXTS:
        return column.cast(target)
    return column.cast(target, safe=False) if stored.root in (TypeRoot.BOOLEAN, *_NUMBERS) else None


def _to_decimal(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    if stored.root in _FLOATS:
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise pa.ArrowInvalid("a number is not finite")
        too_large = pc.greater_equal(pc.abs(column), pa.scalar(1e38, pa.float64()))
        text = if_else(too_large, pa.scalar(None, pa.string()), column.cast(pa.string()))
        is_nothing = pc.less(pc.abs(column), pa.scalar(1e-39, pa.float64()))
        wide = if_else(is_nothing, "0", text).cast(pa.decimal256(_WIDE_DIGITS, _WIDE_SCALE))
    elif stored.root in _TEXTS:
        wide = column.cast(pa.decimal256(_WIDE_DIGITS, _WIDE_SCALE))
    elif stored.root is TypeRoot.DECIMAL:
        wide = column.cast(pa.decimal256(_WIDE_DIGITS, column.type.scale))
    elif stored.root in (TypeRoot.BOOLEAN, *INTEGER_ROOTS):
        wide = column.cast(pa.int64()).cast(pa.decimal256(_WIDE_DIGITS, 0))
    else:
        return None
    return _fit_decimal(wide, arrow_type(wanted))


def _fit_decimal(wide: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the decimals in the target type. A half is rounded away from zero, and a decimal with too many digits
    becomes null.
    """
    if target.scale < wide.type.scale:
        wide = pc.round(wide, target.scale, "half_towards_infinity")
    scaled = wide.cast(pa.decimal256(_WIDE_DIGITS, target.scale))
    limit = pa.scalar(Decimal(10) ** (target.precision - target.scale), scaled.type)
    fits = pc.less(pc.abs(scaled), limit)
    return if_else(fits, scaled, pa.scalar(None, scaled.type)).cast(target)


def _to_date(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    if stored.root in _TEXTS:
        return column.cast(pa.date32())
    if stored.root not in _TIMES:
        return None
    millis = _millis(column)
    # Java's division of times without a zone rounds towards zero, so a time on the day before 1970-01-01 gets
    # 1970-01-01.
    days = pc.divide(millis, _DAY_MS) if stored.root is TypeRoot.TIMESTAMP else _floor_divide(millis, _DAY_MS)
    return days.cast(pa.int32()).cast(pa.date32())


def _to_time(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    if stored.root is TypeRoot.TIME:
        return column
    if stored.root not in _TIMES:
        return None
    millis = _millis(column)
    of_day = pc.subtract(millis, pc.multiply(_floor_divide(millis, _DAY_MS), _DAY_MS))
    return of_day.cast(pa.int32()).cast(pa.time32("ms"))


def _to_timestamp(column: pa.Array, stored: DataType, wanted: DataType) -> pa.Array | None:
    target = arrow_type(wanted)
    if stored.root in _TIMES:
        return _cut_time(column, stored.precision or 0, wanted.precision or 0).cast(target)
    if stored.root in (TypeRoot.INT, TypeRoot.BIGINT):
        return column.cast(pa.int64()).cast(pa.timestamp("s")).cast(target)
    if stored.root is TypeRoot.DATE:
        return column.cast(pa.timestamp("s")).cast(target)
    if stored.root is TypeRoot.TIME:
        return column.cast(pa.int32()).cast(pa.int64()).cast(pa.timestamp("ms")).cast(target)
    return timestamps_of(column, target) if stored.root in _TEXTS else None


def _cut_time(column: pa.Array, stored: int, wanted: int) -> pa.Array:
    """Returns times with only as many fractional digits of a second as `wanted` has. As in Java, times with at most 3
    digits are rounded towards zero, and times with more digits towards the past.
    """
    if wanted >= stored:
        return column
    units = column.cast(pa.int64())
    if wanted <= 3:
        step = 10 ** (3 - wanted)
        millis = _floor_divide(units, _UNITS_PER_MILLI[column.type.unit])
        return pc.multiply_checked(pc.divide(millis, step), step).cast(pa.timestamp("ms", column.type.tz))
    digits = {"us": 6, "ns": 9}[column.type.unit]
    unit = "us" if wanted <= 6 else "ns"
    kept = _floor_divide(units, 10 ** (digits - wanted))
    return pc.multiply_checked(kept, 10 ** ({"us": 6, "ns": 9}[unit] - wanted)).cast(pa.timestamp(unit, column.type.tz))


def _millis(column: pa.Array) -> pa.Array:
    return _floor_divide(column.cast(pa.int64()), _UNITS_PER_MILLI[column.type.unit])


def _floor_divide(values: pa.Array, by: int) -> pa.Array:
    if by == 1:
        return values
    quotients = np.floor_divide(values.fill_null(0).to_numpy(zero_copy_only=False), by)
    return pa.array(quotients, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


_CASTS: tuple[tuple[tuple[TypeRoot, ...], Callable[[pa.Array, DataType, DataType], pa.Array | None]], ...] = (
    (_TEXTS, _to_text),
    (_BYTES, _to_bytes),
    ((TypeRoot.BOOLEAN,), _to_boolean),
    (INTEGER_ROOTS, _to_integer),
    (_FLOATS, _to_float),
    ((TypeRoot.DECIMAL,), _to_decimal),
    ((TypeRoot.DATE,), _to_date),
    ((TypeRoot.TIME,), _to_time),
    (_TIMES, _to_timestamp),
)
