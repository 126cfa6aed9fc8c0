"""Casts strings and decimals to decimals of another precision and scale.

Arrow checks the number of digits before it adds the zeros that a larger scale needs. If the number then no longer fits
into 128 bits, Arrow returns a wrong number without an error. For decimals of 256 bits, Arrow raises an error.
"""

import pyarrow as pa

_MOST_DIGITS = 38


def wide_decimal(target: pa.DataType, digits: int | None = None) -> pa.DataType:
    """Returns the type to which values are cast first, before they are cast to the target. This first type is the
    target itself, or a decimal of 256 bits if the values may need more than 128 bits at the target's scale.

    `digits` is the number of digits that the values may have before the point; None stands for the precision of the
    target.
    """
    most = (target.precision if digits is None else digits) + target.scale
    return target if most <= _MOST_DIGITS else pa.decimal256(target.precision, target.scale)


def cast_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns strings or decimals as decimals of the target type. Raises pa.ArrowInvalid for a number that the type
    cannot hold.
    """
    digits = values.type.precision - values.type.scale if pa.types.is_decimal(values.type) else None
    return values.cast(wide_decimal(target, digits)).cast(target)
