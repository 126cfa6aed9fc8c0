"""Texts as timestamps, with a range that is the same in every release of pyarrow.

64 bits of nanoseconds hold times of 1677-09-21 to 2262-04-11. Releases of pyarrow before 23 take a text of another year
for a time in these years, without an error.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SECOND_NS = 1_000_000_000
_MOST_SECONDS = (2**63 - 1) // _SECOND_NS
_FRACTION = r"\.[0-9]+"


def timestamps_of(texts: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Returns texts of ISO 8601 as timestamps; a text has a zone if, and only if, `target` has one.

    Nulls stay nulls. Raises pa.ArrowInvalid for a text that is no time, that is finer than the unit, or that 64 bits of
    the unit cannot hold.
    """
    times = texts.cast(target)
    if target.unit != "ns":
        return times  # four digits of a year always fit
    whole = pc.replace_substring_regex(texts, _FRACTION, "").cast(pa.timestamp("s", target.tz))
    seconds = pc.drop_null(whole.cast(pa.int64())).to_numpy(zero_copy_only=False)
    nanos = pc.drop_null(times.cast(pa.int64())).to_numpy(zero_copy_only=False)
    wrong = (np.abs(seconds) > _MOST_SECONDS) | (np.floor_divide(nanos, _SECOND_NS) != seconds)
    if wrong.any():
        text = pc.drop_null(texts)[int(np.flatnonzero(wrong)[0])]
        raise pa.ArrowInvalid(
            f"'{text}' is outside of 1677-09-21 to 2262-04-11, the times that 64 bits of nanoseconds hold"
        )
    return times


def plain_value(value: pa.Scalar) -> object:
    """Returns the Python value of a scalar. A time in nanoseconds stays a scalar: Python has one for it only with
    pandas.
    """
    if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
        return value
    return value.as_py()


def cast_text(text: str, target: pa.DataType) -> pa.Scalar:
    """Returns a text as a value of a type. Raises pa.ArrowInvalid for a text that is no such value; for timestamps as
    `timestamps_of` does.
    """
    if pa.types.is_timestamp(target):
        return timestamps_of(pa.array([text], pa.string()), target)[0]
    return pa.scalar(text).cast(target)
