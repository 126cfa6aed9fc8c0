"""Prints columns of floating-point numbers as Java does: `1.0`, `1.0E10`, `NaN`, `-Infinity`.

A number gets the fewest digits (at least two) that distinguish it from the neighbouring numbers. From 0.001 up to
10,000,000 it is printed without an exponent, otherwise with one.
Source: Double.toString and Float.toString of Java 19 and newer.
"""

from decimal import Context

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else

_PLAIN_POINTS = range(-2, 8)
"""The positions of the decimal point, counted from the first digit that is no zero, for which a number is printed
without an exponent.
"""

_NUMBER = r"^-?(?P<whole>\d+)(?:\.(?P<fraction>\d*))?(?:e(?P<exponent>[+-]?\d+))?$"
_TWO_DIGITS = Context(prec=2)
_FEW_DIGITS_BELOW = {pa.float32(): 1e-42, pa.float64(): 1e-320}
"""Below these numbers, a single digit may identify a number. Java then prints the nearest number with two digits:
4.9E-324, not 5.0E-324.
"""


def float_texts(column: pa.Array) -> pa.Array:
    """Returns each number of a float32 or float64 column as a string. Nulls stay nulls."""
    shortest = column.cast(pa.string())
    parts = pc.extract_regex(shortest, _NUMBER)
    whole, fraction, exponent = (pc.struct_field(parts, i) for i in range(3))
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, "0")
    leading = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    power = if_else(pc.equal(exponent, ""), "0", pc.utf8_ltrim(exponent, "+")).cast(pa.int32())
    point = pc.add(pc.subtract(pc.utf8_length(whole), leading), power)
    significant = pc.utf8_rtrim(significant, "0")
    text = _with_exponent(column, significant, point)
    for place in _PLAIN_POINTS:
        is_here = pc.equal(point, place)
        if pc.any(is_here).as_py():
            text = if_else(is_here, _plain(significant, place), text)
    text = if_else(pc.equal(significant, ""), "0.0", text)
    named = if_else(pc.is_nan(column), "NaN", "Infinity")
    text = if_else(pc.is_finite(column), text, named)
    is_negative = pc.starts_with(shortest, "-")
    return if_else(is_negative, pc.binary_join_element_wise("-", text, ""), text)


def _plain(digits: pa.Array, point: int) -> pa.Array:
    if point <= 0:
        return pc.binary_join_element_wise("0." + "0" * -point, digits, "")
    padded = pc.utf8_rpad(digits, width=point + 1, padding="0")
    return pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(padded, 0, point), pc.utf8_slice_codeunits(padded, point), "."
    )


def _with_exponent(column: pa.Array, digits: pa.Array, point: pa.Array) -> pa.Array:
    padded = pc.utf8_rpad(digits, width=2, padding="0")
    mantissa = _plain(padded, 1)
    power = pc.subtract(point, 1).cast(pa.string())
    text = pc.binary_join_element_wise(mantissa, power, "E")
    size = pc.abs(column)
    is_tiny = pc.and_(pc.less(size, _FEW_DIGITS_BELOW[column.type]), pc.equal(pc.utf8_length(digits), 1))
    if not pc.any(is_tiny).as_py():
        return text
    tiny = pc.unique(size.filter(is_tiny))
    places = pc.index_in(size, tiny)
    return if_else(pc.is_valid(places), pa.array([_two_digits(v) for v in tiny.to_pylist()]).take(places), text)


def _two_digits(value: float) -> str:
    number = _TWO_DIGITS.create_decimal_from_float(value)
    first, *rest = number.as_tuple().digits
    return f"{first}.{''.join(map(str, rest)) or '0'}E{number.adjusted()}"
