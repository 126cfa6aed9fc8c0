"""Parses strings as timestamps, with the same range in every release of pyarrow.

64 bits of nanoseconds hold times from 1677-09-21 to 2262-04-11. Before release 23, pyarrow parses a string of an
earlier or later time as a wrong time in this range, without an error.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SECOND_NS = 1_000_000_000
_MOST_SECONDS = (2**63 - 1) // _SECOND_NS
_FRACTION = r"\.[0-9]+"


def timestamps_of(texts: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Parses ISO 8601 strings as timestamps of type `target`. If `target` has a time zone, each string must have a time
    zone; otherwise no string may have one.

    Nulls stay nulls. Raises pa.ArrowInvalid for a string that is no time, that has more fractional digits than the unit
    of `target`, or whose time does not fit into 64 bits.
    """
    times = texts.cast(target)
    if target.unit != "ns":
        return times  # a year of four digits always fits
    whole = pc.replace_substring_regex(texts, _FRACTION, "").cast(pa.timestamp("s", target.tz))
    seconds = pc.drop_null(whole.cast(pa.int64())).to_numpy(zero_copy_only=False)
    nanos = pc.drop_null(times.cast(pa.int64())).to_numpy(zero_copy_only=False)
    wrong = (np.abs(seconds) > _MOST_SECONDS) | (np.floor_divide(nanos, _SECOND_NS) != seconds)
    if wrong.any():
        text = pc.drop_null(texts)[int(np.flatnonzero(wrong)[0])]
        raise pa.ArrowInvalid(
            f"'{text}' is outside of 1677-09-21 to 2262-04-11, the range of times in 64 bits of nanoseconds"
        )
    return times


def plain_value(value: pa.Scalar) -> object:
    """Returns the Python value of a scalar. Two kinds of values stay Arrow scalars: a timestamp in nanoseconds, because
    without pandas Python has no type for it; and a date or time outside of the years 1 to 9999, which Python cannot
    hold.
    """
    if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
        return value
    try:
        return value.as_py()
    except OverflowError:
        return value


def cast_text(text: str, target: pa.DataType) -> pa.Scalar:
    """Parses a string as a value of the Arrow type `target`. Raises pa.ArrowInvalid if the string is no such value;
    timestamps follow the rules of `timestamps_of`.
    """
    if pa.types.is_timestamp(target):
        return timestamps_of(pa.array([text], pa.string()), target)[0]
    return pa.scalar(text).cast(target)
