"""Converts single internal values (`binary_row.decode_row` lists them) to Arrow scalars, and back.

These functions are for partition values, keys and bounds. For the rows of a table the functions are too slow.
"""

from typing import Any

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import Timestamp
from bucketline.state.types.logical import DataType, TypeRoot

_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def to_scalar(value: object, data_type: DataType) -> pa.Scalar:
    """Returns the value as a scalar of the type's Arrow type; None becomes a null.

    Raises CorruptFileError if the Arrow type cannot hold the value, for example a time after the year 2262 in
    nanoseconds.
    """
    target = arrow_type(data_type)
    try:
        if isinstance(value, Timestamp):
            per_milli = _PER_MILLI[target.unit]
            return pa.scalar(value.millis * per_milli + value.nanos_of_milli * per_milli // 1_000_000, target)
        return pa.scalar(value, target)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
        raise CorruptFileError(f"{value!r} is no value of {data_type}: {e}", type=str(data_type)) from e


def from_scalar(value: pa.Scalar, data_type: DataType) -> Any:
    """Returns the internal value of an Arrow scalar, for example the number of days since 1970 for a DATE; None for a
    null. The scalar must have the Arrow type of `data_type`, which must not be a nested type.
    """
    root = data_type.root
    if root in (TypeRoot.DATE, TypeRoot.TIME):
        return value.cast(pa.int32()).as_py()
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        if not value.is_valid:
            return None
        per_milli = _PER_MILLI[value.type.unit]
        millis, rest = divmod(value.value, per_milli)
        return Timestamp(millis, rest * (1_000_000 // per_milli))
    return value.as_py()
