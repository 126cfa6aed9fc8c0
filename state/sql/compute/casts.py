"""CAST and TRY_CAST as Spark 4 computes them in ANSI mode. For a value that the type cannot hold, CAST raises an error
and TRY_CAST returns null.

Source: Spark 4.0 Cast.scala, UTF8String (toLong, toInt), SparkDateTimeUtils; sql-ref-ansi-compliance.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from decimal import Context as DecimalContext
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.moments import dates_of, from_local, instants_of, local_us, try_dates, try_stamps
from bucketline.state.sql.compute.numbers import as_double, cast_value, is_number
from bucketline.state.sql.compute.time_patterns import SECOND_US, written
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import INTEGER_ROOTS, DataType, TypeRoot
from bucketline.state.types.number_text import float_texts

Tried: TypeAlias = tuple[pa.Array, npt.NDArray[np.bool_]]
"""The result of a cast: the values, and a mask of the rows that could be cast or were null. The value of a row that
could not be cast is null.
"""

_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_BLANKS = "".join(map(chr, range(0x21))) + "\x7f"
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def cast_to(values: pa.Array, wanted: DataType, context: Context) -> pa.Array:
    """Returns the result of CAST. Raises ArrowInvalid, which names the value, if the type cannot hold a value, and
    ArrowNotImplementedError if there is no cast between the two types.
    """
    found, is_cast = _tried(values, wanted, context)
    failed = np.flatnonzero(~is_cast)
    if len(failed):
        raise pa.ArrowInvalid(f"{str(values[int(failed[0])].as_py())[:80]!r} cannot be cast to {wanted}")
    return found


def try_cast_to(values: pa.Array, wanted: DataType, context: Context) -> pa.Array:
    """Returns the result of TRY_CAST, which is null for a value for which CAST raises an error."""
    return _tried(values, wanted, context)[0]


def _tried(values: pa.Array, wanted: DataType, context: Context) -> Tried:
    kind, target = values.type, arrow_type(wanted)
    if pa.types.is_null(kind):
        return pa.nulls(len(values), target), np.ones(len(values), np.bool_)
    if kind == target and wanted.root is not TypeRoot.CHAR:
        return values, np.ones(len(values), np.bool_)
    if wanted.root is TypeRoot.VARCHAR and not pa.types.is_time(kind):
        return _all(_to_text(values, context))
    tried = _TRIES.get(wanted.root)
    found = None if tried is None else tried(values, wanted, context)
    return found or _all(cast_value(values, wanted))


def _all(values: pa.Array) -> Tried:
    return values, np.ones(len(values), np.bool_)


def text_of_values(values: pa.Array, context: Context) -> pa.Array:
    """Returns the result of CAST(... AS STRING)."""
    return _to_text(values, context)


def _to_text(values: pa.Array, context: Context) -> pa.Array:
    kind = values.type
    if pa.types.is_floating(kind):
        return float_texts(values)
    if pa.types.is_date(kind):
        return written(local_us(values, context), "yyyy-MM-dd")
    if pa.types.is_timestamp(kind):
        return _stamp_texts(local_us(values, context))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.string())
    if pa.types.is_binary(kind):
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid as e:
            raise pa.ArrowInvalid("the bytes are no valid UTF-8") from e
    if pa.types.is_nested(kind):
        raise pa.ArrowNotImplementedError(f"{kind} cannot be cast to STRING")
    return cast_value(values, DataType(TypeRoot.VARCHAR, length=2**31 - 1))


def _stamp_texts(micros: pa.Array) -> pa.Array:
    whole = written(micros, "yyyy-MM-dd HH:mm:ss")
    if not np.any(np.asarray(micros.fill_null(0), np.int64) % SECOND_US):
        return whole
    digits = pc.utf8_rtrim(written(micros, "SSSSSS"), characters="0")
    point = if_else(pc.equal(digits, ""), "", ".")
    return pc.binary_join_element_wise(whole, point, digits, "")


def _checked(values: pa.Array, is_right: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns a mask of the rows for which `is_right` is true or the value is null."""
    right: npt.NDArray[np.bool_] = np.asarray(pc.fill_null(is_right, False)) | np.asarray(values.is_null())
    return right


def _to_integer(values: pa.Array, wanted: DataType, context: Context) -> Tried | None:
    target = arrow_type(wanted)
    low, high = -(1 << (target.bit_width - 1)), (1 << (target.bit_width - 1)) - 1
    if pa.types.is_string(values.type):
        digits = pc.utf8_trim(values, characters=_BLANKS)
        is_whole = pc.match_substring_regex(digits, r"^[+-]?0*[0-9]{1,19}$")
        wide = if_else(is_whole, pc.utf8_ltrim(digits, characters="+"), None).cast(pa.decimal128(38, 0))
    elif pa.types.is_floating(values.type):
        cut = pc.trunc(values.cast(pa.float64()))
        inside = pc.and_(pc.greater_equal(cut, float(low)), pc.less(cut, float(high + 1)))
        right = _checked(values, inside)
        return if_else(pa.array(right), cut, None).cast(target, safe=False), right
    elif pa.types.is_decimal(values.type):
        wide = pc.trunc(values.cast(pa.decimal256(76, values.type.scale))).cast(pa.decimal256(76, 0))
    elif pa.types.is_integer(values.type):
        wide = values.cast(pa.decimal128(38, 0))
    elif pa.types.is_timestamp(values.type):
        micros = np.asarray(instants_of(values, context).cast(pa.int64()).fill_null(0), np.int64)
        seconds = pa.array(micros // SECOND_US, mask=np.asarray(values.is_null()))
        wide = seconds.cast(pa.decimal128(38, 0))
    elif pa.types.is_boolean(values.type):
        return _all(values.cast(target))
    else:
        return None
    inside = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
    right = _checked(values, inside)
    return if_else(pa.array(right), wide, None).cast(target), right


def _to_float(values: pa.Array, wanted: DataType, context: Context) -> Tried | None:
    target = arrow_type(wanted)
    if pa.types.is_string(values.type):
        given = pc.utf8_lower(pc.utf8_trim(values, characters=_BLANKS))
        is_plain = pc.match_substring_regex(given, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$")
        is_named = pc.match_substring_regex(given, r"^([+-]?inf(inity)?|nan)$")
        given = pc.utf8_ltrim(given, characters="+")
        right = _checked(values, pc.or_(is_plain, is_named))
        return if_else(pa.array(right), given, None).cast(target), right
    if is_number(values.type):
        return _all(as_double(values).cast(target, safe=False))
    if pa.types.is_boolean(values.type):
        return _all(values.cast(pa.int8()).cast(target))
    if pa.types.is_timestamp(values.type):
        micros = instants_of(values, context).cast(pa.int64())
        return _all(pc.divide(micros.cast(pa.float64(), safe=False), float(SECOND_US)).cast(target, safe=False))
    return None


def _to_decimal(values: pa.Array, wanted: DataType, context: Context) -> Tried | None:
    if pa.types.is_string(values.type):
        texts = pc.utf8_trim(values, characters=_BLANKS)
    elif pa.types.is_floating(values.type):
        texts = float_texts(values)
    else:
        return _to_decimal_of_numbers(values, wanted)
    is_number = pc.match_substring_regex(texts, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$")
    coded = if_else(is_number, texts, None).dictionary_encode()
    exact = pa.array([_rounded(text, wanted) for text in coded.dictionary.to_pylist()], arrow_type(wanted))
    found = exact.take(coded.indices)
    is_right = found.is_valid()
    if pa.types.is_floating(values.type):
        # For NaN and the infinities, Spark returns null and raises no error.
        is_right = pc.or_(is_right, pc.fill_null(pc.invert(pc.is_finite(values)), False))
    return found, _checked(values, is_right)


def _rounded(text: str, wanted: DataType) -> Decimal | None:
    precision, scale = wanted.precision or 10, wanted.scale or 0
    number = Decimal(text)
    if number.adjusted() >= precision - scale:
        return None if number else Decimal(0)
    if number.adjusted() < -scale - 1:
        return Decimal(0)
    units = number.quantize(Decimal((0, (1,), -scale)), rounding=ROUND_HALF_UP, context=_WIDE)
    return None if units.adjusted() >= precision - scale and units else units


def _to_decimal_of_numbers(values: pa.Array, wanted: DataType) -> Tried | None:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if not is_number(values.type):
        return None
    precision, scale = wanted.precision or 10, wanted.scale or 0
    if pa.types.is_integer(values.type):
        wide = values.cast(pa.decimal128(38, 0)).cast(pa.decimal256(76, 0))
    else:
        wide = values.cast(pa.decimal256(76, values.type.scale))
    if wide.type.scale > scale:
        wide = pc.round(wide, scale, "half_towards_infinity")
    nines = Decimal((0, (9,) * precision, -scale))
    most = pa.scalar(nines, pa.decimal128(precision, scale)).cast(pa.decimal256(76, scale))
    inside = pc.less_equal(pc.abs(wide.cast(pa.decimal256(76, max(scale, 0)))), most)
    right = _checked(values, inside)
    return if_else(pa.array(right), wide, None).cast(pa.decimal256(76, scale)).cast(arrow_type(wanted)), right


def _to_boolean(values: pa.Array, wanted: DataType, context: Context) -> Tried | None:
    if pa.types.is_string(values.type):
        given = pc.utf8_lower(pc.utf8_trim(values, characters=_BLANKS))
        is_true = pc.is_in(given, value_set=pa.array(_TRUE))
        right = _checked(values, pc.or_(is_true, pc.is_in(given, value_set=pa.array(_FALSE))))
        return if_else(pa.array(right & np.asarray(values.is_valid())), is_true, None), right
    if is_number(values.type):
        return _all(pc.not_equal(as_double(values), 0.0))
    return None


def _to_date(values: pa.Array, wanted: DataType, context: Context) -> Tried | None:
    if pa.types.is_string(values.type):
        found, is_read = try_dates(values)
        return found, is_read | np.asarray(values.is_null())
    return _all(dates_of(values, context)) if pa.types.is_timestamp(values.type) else None


def _to_stamp(values: pa.Array, wanted: DataType, context: Context) -> Tried | None:
    target = arrow_type(wanted)
    whole = pa.timestamp("us", target.tz)
    if pa.types.is_string(values.type):
        found, is_read = try_stamps(values, context, wanted=whole)
        stored, fits = _in_unit(found, target, values)
        return stored, fits & (is_read | np.asarray(values.is_null()))
    if pa.types.is_timestamp(values.type) and values.type == target:
        return _all(values)
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        micros = local_us(values, context)
        moments = micros.cast(whole) if target.tz is None else from_local(micros, context.zone)
        return _in_unit(moments, target)
    if pa.types.is_integer(values.type) and target.tz is not None:
        return _in_unit(pc.multiply_checked(values.cast(pa.int64()), SECOND_US).cast(whole), target)
    return None


def _in_unit(moments: pa.Array, target: pa.TimestampType, texts: pa.Array | None = None) -> Tried:
    """Converts times in microseconds to the unit of the type `target`, and returns them with a mask of the times that
    the type can hold. Digits finer than the unit are cut off. A time that does not fit into 64 bits of nanoseconds is
    not in the mask.

    If the times were parsed from strings, `texts` has these strings, and the digits after the microseconds are read
    from them.
    """
    if target.unit == "us":
        return _all(moments)
    nulls = np.asarray(moments.is_null())
    counts = np.asarray(moments.cast(pa.int64()).fill_null(0), np.int64)
    fits = np.ones(len(moments), np.bool_)
    if target.unit != "ns":
        counts = counts // _US_IN[target.unit]
    else:
        left = np.zeros(len(moments), np.int64) if texts is None else _nanoseconds(texts)
        fits = nulls | (np.abs(counts) < _MOST_US) | ((counts == _MOST_US) & (left <= _MOST_LEFT))
        counts = np.where(fits, counts, 0) * 1000 + left
    return pa.array(counts, pa.int64(), mask=nulls | ~fits).cast(target), fits


def _nanoseconds(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the seventh to ninth fractional digit of the times in `texts`, as a number."""
    digits = pc.struct_field(pc.extract_regex(texts, r"\.[0-9]{6}(?P<left>[0-9]{1,3})"), "left")
    counts = pc.utf8_rpad(pc.fill_null(digits, "0"), 3, "0").cast(pa.int64())
    return np.asarray(counts, np.int64)


_US_IN = {"s": SECOND_US, "ms": SECOND_US // 1000}
_MOST_US, _MOST_LEFT = divmod(2**63 - 1, 1000)
"""The largest time that fits into 64 bits of nanoseconds: its microseconds, and the nanoseconds after them."""


_WIDE = DecimalContext(prec=500)

_TRIES: dict[TypeRoot, Callable[[pa.Array, DataType, Context], Tried | None]] = {
    **dict.fromkeys(INTEGER_ROOTS, _to_integer),
    **dict.fromkeys(_FLOATS, _to_float),
    TypeRoot.DECIMAL: _to_decimal,
    TypeRoot.BOOLEAN: _to_boolean,
    TypeRoot.DATE: _to_date,
    **dict.fromkeys(_STAMPS, _to_stamp),
}
