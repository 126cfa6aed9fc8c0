"""Converts numbers that are stored as bytes (big-endian two's complement, with a scale beside them) to decimals, or to
strings, which hold any number of digits.
"""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.decimal_cast import cast_decimal
from bucketline.state.types.recast import decimal_texts
from bucketline.streaming.decode.texts.base64_column import decimals_of_bytes

_EMPTY = "a decimal must be of 1 byte or more"
_LARGEST_SCALE = 131_072
"""The largest scale of a number. No database has numbers with more digits, and strings of numbers with a much larger
scale would fill the memory.
"""


def decimals_as(numbers: pa.Array, scale: int, target: pa.DataType) -> pa.Array:
    """Takes numbers in bytes (large_binary, big-endian two's complement) with this scale, and returns them as values of
    the type `target`. Nulls stay nulls, and strings have no exponent.

    Raises ValueError for a number that the type does not hold.
    """
    if numbers.null_count == len(numbers):
        return pa.nulls(len(numbers), target)
    if not -_LARGEST_SCALE <= scale <= _LARGEST_SCALE:
        raise ValueError(f"a decimal has the scale {scale}, which is too large")
    if pa.types.is_floating(target):  # Arrow's cast of decimals is not always the nearest number
        nearest = decimals_as(numbers, scale, pa.string()).cast(pa.float64()).cast(target)
        if pc.any(pc.is_inf(nearest)).as_py():
            raise ValueError(f"a decimal is too large for {target}")
        return nearest
    if not pa.types.is_string(target):
        decimals = decimals_of_bytes(numbers, scale)
        return cast_decimal(decimals, target) if pa.types.is_decimal(target) else decimals.cast(target)
    if scale >= 0:
        try:
            return decimal_texts(decimals_of_bytes(numbers, scale))
        except ValueError:
            pass  # a few numbers have more digits than Arrow's decimals
    return pa.array([None if one is None else _text(one, scale) for one in numbers.to_pylist()], target)


def _text(number: bytes, scale: int) -> str:
    if not number:
        raise ValueError(_EMPTY)
    sign, digits, _ = Decimal(int.from_bytes(number, "big", signed=True)).as_tuple()
    return format(Decimal((sign, digits, -scale)), "f")
