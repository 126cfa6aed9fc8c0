"""Converts numbers in bytes to decimals, or to texts, which hold any number of digits."""

from decimal import Decimal

import pyarrow as pa

from bucketline.state.types.decimal_cast import cast_decimal
from bucketline.state.types.recast import decimal_texts
from bucketline.streaming.decode.texts.base64_column import decimals_of_bytes

_EMPTY = "a decimal must be of 1 byte or more"


def decimals_as(numbers: pa.Array, scale: int, target: pa.DataType) -> pa.Array:
    """Numbers in bytes, with that scale, as values of the type; texts have no exponent.

    Shapes: n large_binary in, big-endian two's complement; n out, nulls kept. Raises ValueError for a number that the
    type does not hold.
    """
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
