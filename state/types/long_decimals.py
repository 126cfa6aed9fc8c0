"""Decimals with more digits than their type allows. Other writers may have stored such decimals in files, for
example as sums.
"""

import numpy as np
import pyarrow as pa

from bucketline.state.types.buffers import decimal_words
from bucketline.state.types.if_else import if_else

COMPACT_DIGITS = 18
"""Decimals of up to this precision are stored as 64-bit integers, which can also hold numbers with more digits."""


def null_where_too_long(values: pa.Array) -> pa.Array:
    """Returns the decimals, with null in place of each value that has more digits than its type allows."""
    limit = 10**values.type.precision
    low, high = decimal_words(values)
    if values.type.precision <= COMPACT_DIGITS:
        unscaled = low.view(np.int64)
        too_long = (unscaled <= -limit) | (unscaled >= limit) | (high != unscaled >> np.int64(63))
    else:
        magnitude = np.abs((high.astype(object) << 64) + low.astype(object))
        too_long = (magnitude >= limit).astype(bool)
    if not too_long.any():
        return values
    return if_else(pa.array(too_long), pa.scalar(None, values.type), values)


def without_long(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """Returns the batch, with null in place of each decimal that has more digits than its type allows. Only the columns
    in `names` are checked.
    """
    for name in names:
        position = batch.schema.get_field_index(name)
        if position < 0:
            continue
        stored = batch.column(position)
        values = null_where_too_long(stored)
        if values is not stored:
            batch = batch.set_column(position, pa.field(name, values.type), values)
    return batch
