"""Converts raw arrays from JSON into arrays of table types, whole columns at a time.

Every function here raises ValueError (pa.ArrowInvalid is a ValueError) if a value cannot be converted exactly. Two
things are cut off, as Paimon's casts do: digits of a second finer than the column's precision, and bits of a double
that FLOAT does not have. If the text for a timestamp without time zone has a zone, the timestamp is converted to UTC.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.decimal_cast import cast_decimal, wide_decimal
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import INTEGER_ROOTS, DataType, TypeRoot
from bucketline.state.types.timestamp_text import timestamps_of
from bucketline.streaming.decode.json_values.json_shape import Form, JsonKind, Shape, ValueReading
from bucketline.streaming.decode.texts.base64_column import decode_base64, decode_hex
from bucketline.streaming.decode.values.decimals import decimals_as
from bucketline.streaming.decode.values.time_parts import (
    PARTS,
    offset_seconds,
    texts_of_parts,
    words_of_counts,
    words_of_parts,
)

_NANOS = {"d": 86_400_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_ASSUMED = {"ms": (10**11, 10**14), "us": (10**14, 10**17), "ns": (10**17, 2**63 - 1)}
"""Ranges of counts since 1970, from March 1973 on. They do not overlap, so the size of a count tells its unit."""

_ZONED = r"[T ][0-9]{2}.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_WHOLE_TEXT = r"^[+-]?[0-9]+$"
_REAL_TEXT = r"^(?:[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|[+-]?Infinity)$"
_MAYBE_BASE64 = r"^(?:[0-9eE+]{4})+$"
_DAY_IN_UTC = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})Z$"
_MAYBE_HEX = r"^(?:[0-9a-f]{4})+$"
_ENDLESS = pa.array(["infinity", "-infinity"])
_VARIABLE = pa.struct([("scale", pa.int32()), ("value", pa.string())])
_SAY_HOW = "say with source.bytes how the source writes bytes, or let it send its schema"
_IS_INFINITE = (
    "is Postgres's infinity, which a timestamp cannot hold; set infinity to null, if the value may become null"
)
TOO_LARGE = "is too large for a double"
_MOST_BITS = 64
_REAL = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})


class NotConvertible(ValueError):
    """Raised for a value that cannot be converted to its column's type; the message is a reason for people."""


def raw_type(data_type: DataType, form: Form) -> pa.DataType:
    """Returns the Arrow type with which values in the given form are read from JSON. `convert_leaf` then converts
    these values to the column's type `data_type`.
    """
    if form.reading is ValueReading.VARIABLE_DECIMAL:
        return _VARIABLE
    if form.reading is ValueReading.PARTS:
        return PARTS
    if form.reading in (ValueReading.COUNT, ValueReading.ASSUMED_COUNT, ValueReading.UNSIGNED, ValueReading.COUNT_TEXT):
        return pa.int64()
    if form.kind is JsonKind.BOOLEAN and form.reading is ValueReading.PLAIN:
        return pa.bool_()
    if data_type.root is TypeRoot.DECIMAL and form.reading in (
        ValueReading.PLAIN,
        ValueReading.TEXT,
        ValueReading.SIGNED_OR_NOT,
    ):
        return wide_decimal(pa.decimal128(data_type.precision, data_type.scale))
    if form.kind is JsonKind.NUMBER and form.reading is ValueReading.PLAIN:
        return pa.float64() if data_type.root in _REAL else pa.int64()
    return pa.string()


def convert_leaf(raw: pa.Array, shape: Shape, form: Form) -> pa.Array:
    """Takes JSON values that the source has written in one way, which `form` describes (for example numbers as
    strings). Returns the values in the type of the shape. Nulls stay nulls.

    Raises ValueError if any value cannot be converted.
    """
    root, target = shape.type.root, shape.arrow
    if form.reading is ValueReading.REFUSED:
        if raw.null_count < len(raw):
            raise NotConvertible(form.reason)
        return pa.nulls(len(raw), target)
    if form.reading in (ValueReading.COUNT, ValueReading.ASSUMED_COUNT):
        return _of_count(raw, shape, form)
    if form.reading is ValueReading.COUNT_TEXT:
        return pc.coalesce(words_of_counts(raw, form.unit), raw.cast(target))
    if form.reading is ValueReading.PARTS:
        return _of_parts(raw, shape, form)
    if form.reading in _BYTES_OF_TEXT:
        return _BYTES_OF_TEXT[form.reading](raw).cast(target)
    if form.reading is ValueReading.UNSIGNED:
        return _unsigned(raw, target)
    if form.reading is ValueReading.BITS:
        return number_of_bits(decode_base64(raw), target)
    if form.reading is ValueReading.DECIMAL_BYTES:
        return decimals_as(decode_base64(raw), form.scale, target)
    if form.reading is ValueReading.VARIABLE_DECIMAL:
        return _variable_decimal(raw, target)
    if form.reading is ValueReading.TEXT_OR_BYTES:
        _demand(
            pc.or_(pc.invert(pc.match_substring_regex(raw, _MAYBE_BASE64)), raw.is_null()),
            "may be a number in text or a number in base64; declare the column under types, as STRING or "
            "DECIMAL(p, s), or let the source send its schema",
        )
        if root is TypeRoot.DECIMAL:
            raw = cast_decimal(raw, target)
    if form.reading is ValueReading.SIGNED_OR_NOT:
        _demand(
            pc.or_(pc.greater_equal(raw, 0), pc.less(raw, -(2**63))),
            "may be a BIGINT UNSIGNED above the largest BIGINT; declare the column under types, as BIGINT "
            "UNSIGNED or as "
            "BIGINT, or set bigint.unsigned.handling.mode of the source to precise",
        )
    if form.reading in (ValueReading.TEXT, ValueReading.TEXT_OR_BYTES) and root is not TypeRoot.DECIMAL:
        return _of_text(_finite(raw, form), shape)
    if root is TypeRoot.BOOLEAN and form.kind is JsonKind.NUMBER:
        _demand(pc.and_(pc.greater_equal(raw, 0), pc.less_equal(raw, 1)), "is not 0 or 1, so it is not a boolean")
        return raw.cast(target)
    if root is TypeRoot.DECIMAL:
        # Arrow's reader and its cast of texts count the digits before they add zeros up to the scale.
        raw.validate(full=True)
    return _real(raw, target) if root is TypeRoot.FLOAT else raw.cast(target)


def _of_text(texts: pa.Array, shape: Shape) -> pa.Array:
    root, target = shape.type.root, shape.arrow
    if root is TypeRoot.BOOLEAN:
        lowered = pc.utf8_lower(texts)
        known = pc.is_in(lowered, value_set=pa.array(["true", "false", "1", "0"]))
        _demand(pc.or_(known, texts.is_null()), "is not true or false")
        return if_else(texts.is_null(), None, pc.is_in(lowered, value_set=pa.array(["true", "1"])))
    if root in INTEGER_ROOTS:
        _demand(pc.match_substring_regex(texts, _WHOLE_TEXT), "is not a whole number")
        return pc.utf8_ltrim(texts, characters="+").cast(target)
    if root in _REAL:
        _demand(pc.match_substring_regex(texts, _REAL_TEXT), "is no number")
        doubles = texts.cast(pa.float64())
        _demand(pc.equal(pc.is_inf(doubles), pc.match_substring(texts, "Infinity")), TOO_LARGE)
        return _real(doubles, target)
    if root is TypeRoot.DATE:
        days = pc.replace_substring_regex(texts, _DAY_IN_UTC, r"\1").cast(target)
        _demand_days(days.view(pa.int32()))
        return days
    if root is TypeRoot.TIME:
        return _time_of_text(texts, shape)
    own = cut_digits(_timestamps(texts, target.unit), shape.type, target.unit)
    return _within_the_years(own, target.unit).view(target)


def _base64_or_hex(texts: pa.Array) -> pa.Array:
    _demand(
        pc.or_(pc.invert(pc.match_substring_regex(texts, _MAYBE_HEX)), texts.is_null()),
        f"may be base64 or hex; {_SAY_HOW}",
    )
    return _known(decode_base64)(texts)


def _base64_url(texts: pa.Array) -> pa.Array:
    return decode_base64(pc.replace_substring(pc.replace_substring(texts, "-", "+"), "_", "/"), padded=False)


def _known(decode: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Returns a function that works like `decode`, which converts strings to bytes. An error of the returned function
    also names the option that says how the source writes bytes.
    """

    def decoded(texts: pa.Array) -> pa.Array:
        try:
            return decode(texts)
        except ValueError as e:
            raise NotConvertible(f"cannot become bytes: {e}; {_SAY_HOW}") from e

    return decoded


def _unsigned(numbers: pa.Array, target: pa.DataType) -> pa.Array:
    """Takes unsigned 64-bit numbers that were written as signed numbers, and returns the unsigned numbers."""
    if pa.types.is_integer(target):
        _demand(pc.greater_equal(numbers, 0), f"stands for a BIGINT UNSIGNED that is too large for {target}")
    return _of_unsigned(numbers.view(pa.uint64()), target)


def _of_unsigned(unsigned: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target):
        return cast_decimal(unsigned.cast(pa.string()), target)
    return unsigned.cast(target)


def number_of_bits(bits: pa.Array, target: pa.DataType) -> pa.Array:
    """Takes bytes (large_binary) with the lowest byte first, and returns each value as a number. Source:
    Debezium Bits.
    """
    bytes_each = pc.fill_null(pc.binary_length(bits), 0)
    _demand(pc.less_equal(bytes_each, _MOST_BITS // 8), f"has more than {_MOST_BITS} bits")
    missing = pc.subtract(pa.scalar(_MOST_BITS // 8, bytes_each.type), bytes_each)
    own = pc.fill_null(bits, b"").cast(pa.binary())
    filled = pc.binary_join_element_wise(own, pc.binary_repeat(b"\0", missing), b"")
    data = filled.buffers()[2] or pa.py_buffer(b"")
    unsigned = pa.Array.from_buffers(pa.uint64(), len(bits), [None, data])
    numbers = if_else(bits.is_null(), pa.scalar(None, pa.uint64()), unsigned)
    return _of_unsigned(numbers, target)


_BYTES_OF_TEXT: Mapping[ValueReading, Callable[[pa.Array], pa.Array]] = {
    ValueReading.BASE64: decode_base64,
    ValueReading.UTF8: lambda texts: texts.cast(pa.binary()),
    ValueReading.BASE64_URL: _known(_base64_url),
    ValueReading.HEX: _known(decode_hex),
    ValueReading.BASE64_OR_HEX: _base64_or_hex,
}


def _demand(holds: pa.Array, reason: str) -> None:
    if pc.all(holds).as_py() is False:
        raise NotConvertible(reason)


def _real(doubles: pa.Array, target: pa.DataType) -> pa.Array:
    numbers = doubles.cast(target)
    if pc.any(pc.and_(pc.is_inf(numbers), pc.invert(pc.is_inf(doubles)))).as_py():
        raise NotConvertible("is too large for FLOAT")
    return numbers


def _finite(texts: pa.Array, form: Form) -> pa.Array:
    """Returns the texts of times. If the job asks for null in place of an infinite time, the words for infinity, such
    as `infinity`, are replaced by null.
    """
    if not form.is_null_for_infinity:
        return texts
    return if_else(pc.is_in(texts, value_set=_ENDLESS), pa.scalar(None, pa.string()), texts)


def _of_parts(parts: pa.Array, shape: Shape, form: Form) -> pa.Array:
    """Converts objects with the parts of a date or time (year, month, hour, ...) to values of the column. A time with
    an offset is converted to UTC.
    """
    target = shape.arrow
    words = words_of_parts(parts)
    if form.is_null_for_infinity:
        parts = if_else(words.is_valid(), pa.scalar(None, parts.type), parts)
    else:
        _demand(words.is_null(), _IS_INFINITE)
    if pa.types.is_date(target):
        return _of_text(texts_of_parts(parts, has_date=True, has_clock=False), shape)
    unit, is_time = target.unit, pa.types.is_time(target)
    local = _of_text(texts_of_parts(parts, has_date=not is_time, has_clock=True), shape)
    counts = pc.subtract_checked(
        local.cast(pa.int32()).cast(pa.int64()) if is_time else local.cast(pa.int64()),
        pc.multiply(offset_seconds(parts), _NANOS["s"] // _NANOS[unit]),
    )
    if not is_time:
        return _within_the_years(counts, unit).view(target)
    day = _NANOS["d"] // _NANOS[unit]
    return pc.subtract(counts, _floor(counts, day)).cast(pa.int32()).view(target)


def _demand_days(counts: pa.Array) -> None:
    days = pc.and_(pc.greater_equal(counts, _FIRST_DAY), pc.less_equal(counts, _LAST_DAY))
    _demand(days, "is not a number of days between the years 1 and 9999")


def _of_count(counts: pa.Array, shape: Shape, form: Form) -> pa.Array:
    target = shape.arrow
    if not pa.types.is_time(target):
        words = words_of_counts(counts, form.unit)
        if form.is_null_for_infinity:
            counts = if_else(words.is_valid(), pa.scalar(None, pa.int64()), counts)
        else:
            _demand(words.is_null(), _IS_INFINITE)
    if pa.types.is_date(target):
        _demand_days(counts)
        return counts.cast(pa.int32()).cast(target)
    if form.reading is ValueReading.ASSUMED_COUNT:
        low, high = _ASSUMED[form.unit]
        likely = pc.or_(pc.equal(counts, 0), pc.and_(pc.greater_equal(counts, low), pc.less(counts, high)))
        _demand(
            likely,
            f"may be {form.unit} since 1970 by the column's precision, but its size leaves other units possible; "
            "send ISO 8601 texts, or Debezium's schema with each record",
        )
    own = cut_digits(scale_count(counts, form.unit, target.unit), shape.type, target.unit)
    if pa.types.is_time(target):
        return _within_a_day(own).cast(pa.int32()).view(target)
    return _within_the_years(own, target.unit).view(target)


def _within_the_years(counts: pa.Array, unit: str) -> pa.Array:
    first, last = (days * (_NANOS["d"] // _NANOS[unit]) for days in (_FIRST_DAY, _LAST_DAY + 1))
    if first > -(2**63):
        moments = pc.and_(pc.greater_equal(counts, first), pc.less(counts, last))
        _demand(moments, "is not a time between the years 1 and 9999")
    return counts


def scale_count(counts: pa.Array, unit: str, target_unit: str) -> pa.Array:
    """Takes int64 counts of `unit`, and returns them as counts of `target_unit`, rounded down. Raises pa.ArrowInvalid
    on overflow.
    """
    have, want = _NANOS[unit], _NANOS[target_unit]
    if have >= want:
        return pc.multiply_checked(counts, pa.scalar(have // want, pa.int64()))
    return pc.divide(_floor(counts, want // have), pa.scalar(want // have, pa.int64()))


def cut_digits(counts: pa.Array, data_type: DataType, unit: str) -> pa.Array:
    """Rounds times down to the precision of the type. `counts` are the times as numbers of the unit `unit`. For
    example, 1234567 microseconds become 1234000 for the type TIMESTAMP(3).
    """
    assert data_type.precision is not None
    missing = _UNIT_DIGITS[unit] - data_type.precision
    return _floor(counts, 10**missing) if missing > 0 else counts


def _floor(counts: pa.Array, step: int) -> pa.Array:
    """Returns the largest multiples of `step` that are not above the counts."""
    size = pa.scalar(step, pa.int64())
    rest = pc.subtract(counts, pc.multiply(pc.divide(counts, size), size))
    up = if_else(pc.less(rest, 0), size, pa.scalar(0, pa.int64()))
    return pc.subtract_checked(pc.subtract(counts, rest), up)


def _timestamps(texts: pa.Array, unit: str) -> pa.Array:
    """Converts ISO 8601 texts to int64 counts of `unit`; finer digits are cut off."""
    try:
        return _parse_timestamps(texts, unit)
    except pa.ArrowInvalid:
        digits = rf"(\.[0-9]{{{_UNIT_DIGITS[unit]}}})[0-9]+"
        return _parse_timestamps(pc.replace_substring_regex(texts, digits, r"\1"), unit)


def _parse_timestamps(texts: pa.Array, unit: str) -> pa.Array:
    try:
        # Arrow refuses texts with a zone here.
        return timestamps_of(texts, pa.timestamp(unit)).cast(pa.int64())
    except pa.ArrowInvalid:
        zoned = pc.match_substring_regex(texts, _ZONED)
        if not pc.any(zoned).as_py():
            raise
    nothing = pa.scalar(None, pa.string())
    instants = timestamps_of(if_else(zoned, texts, nothing), pa.timestamp(unit, "UTC")).cast(pa.int64())
    if pc.all(zoned).as_py():
        return instants
    local = timestamps_of(if_else(zoned, nothing, texts), pa.timestamp(unit)).cast(pa.int64())
    return pc.coalesce(instants, local)


def _time_of_text(texts: pa.Array, shape: Shape) -> pa.Array:
    """Converts texts to times of day; a time with a zone is converted to UTC. Source: Debezium 3 ZonedTime, IsoTime."""
    moments = _timestamps(pc.binary_join_element_wise("1970-01-01T", texts, ""), "ms")
    day = _NANOS["d"] // _NANOS["ms"]
    own = cut_digits(pc.subtract(moments, _floor(moments, day)), shape.type, "ms")
    return own.cast(pa.int32()).view(shape.arrow)


def _within_a_day(counts: pa.Array) -> pa.Array:
    day = _NANOS["d"] // _NANOS["ms"]
    _demand(
        pc.and_(pc.greater_equal(counts, 0), pc.less(counts, day)),
        "is not a time of day: it is negative, or 24 hours or more",
    )
    return counts


def _variable_decimal(raw: pa.Array, target: pa.DataType) -> pa.Array:
    """Converts decimals that each have a scale of their own, with one pass for each scale. Source: Debezium
    VariableScaleDecimal.
    """
    # If a struct is null, its fields need not be null.
    scales, numbers = pc.struct_field(raw, "scale"), decode_base64(pc.struct_field(raw, "value"))
    if pc.any(pc.and_(raw.is_valid(), pc.or_(scales.is_null(), numbers.is_null()))).as_py():
        raise NotConvertible("is not a decimal with its scale")
    decimals = pa.nulls(len(raw), target)
    for scale in np.unique(scales.drop_null().to_numpy()):
        has_scale = pc.fill_null(pc.equal(scales, int(scale)), False)
        of_scale = if_else(has_scale, numbers, pa.scalar(None, pa.large_binary()))
        decimals = pc.coalesce(decimals, decimals_as(of_scale, int(scale), target))
    return decimals
