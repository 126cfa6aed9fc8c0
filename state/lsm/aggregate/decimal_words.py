"""Converts decimals to exact integers and back, and adds decimals up without a loop over rows."""

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.events import Events, Op
from bucketline.state.types.buffers import decimal_words

_LIMB = np.uint64(0xFFFFFFFF)


def unscaled(values: pa.Array) -> np.ndarray:
    """Returns the unscaled value of each decimal as a Python integer; 0 for a null."""
    low, high = decimal_words(values)
    numbers: np.ndarray = (high.astype(object) << 64) + low.astype(object)
    return numbers


def from_unscaled(numbers: np.ndarray, valid: np.ndarray, data_type: pa.Decimal128Type) -> pa.Array:
    """Returns the decimals with the unscaled values `numbers`, and null where `valid` is false. A value may have more
    digits than the type allows.
    """
    kept = np.where(valid, numbers, 0)
    words = np.empty((len(kept), 2), np.uint64)
    words[:, 0] = (kept & (2**64 - 1)).astype(np.uint64)
    words[:, 1] = ((kept >> 64) & (2**64 - 1)).astype(np.uint64)
    present = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Decimal128Array.from_buffers(data_type, len(kept), [present, pa.py_buffer(words)])


def sum_by_key(
    values: pa.Array, live: np.ndarray, events: Events, limit: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns three arrays with an item for each key: the exact sum as a Python integer, whether the key has values
    that count, and whether a partial sum may reach `limit`.

    `live` marks the values that count. The values of -U and -D rows are subtracted.
    """
    low, high = decimal_words(values)
    low, high = np.where(live, low, np.uint64(0)), np.where(live, high, np.int64(0))
    sign = np.where(events.ops == Op.RETRACT, -1, 1)
    totals = np.zeros(events.key_count, object)
    # The sum of up to 2**31 limbs of 32 bits fits into 64 bits.
    for shift, limb in (
        (0, (low & _LIMB).astype(np.int64)),
        (32, (low >> np.uint64(32)).astype(np.int64)),
        (64, high & np.int64(0xFFFFFFFF)),
        (96, high >> np.int64(32)),
    ):
        totals = totals + (np.add.reduceat(limb * sign, events.starts).astype(object) << shift)
    magnitude = np.abs(high.astype(np.float64) * 2.0**64 + low.astype(np.float64))
    # Floats are rounded. The factor is far larger than the rounding error, so that no sum at the limit is missed.
    risky = np.add.reduceat(magnitude, events.starts) * 1.000001 >= float(limit)
    return totals, np.logical_or.reduceat(live, events.starts), risky
