"""Ranges of a sort key: bounds from a sample of keys, and the range that each key is in.

A sort key is a table as `curves.sort_key` makes it: columns without nulls that compare one after the other.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def bounds_of(sample: pa.Table, count: int) -> pa.Table:
    """At most `count` - 1 ascending, distinct keys that divide a sample into ranges of about as many keys each.

    Range n holds the keys from bound n - 1 on, up to bound n alone. Many equal keys make fewer ranges.
    """
    ordered = sample.take(pc.sort_indices(sample, sort_keys=[(name, "ascending") for name in sample.column_names]))
    places = np.unique(np.arange(1, count) * ordered.num_rows // count)
    bounds = ordered.take(pa.array(places[places > 0])).combine_chunks()
    if bounds.num_rows < 2:
        return bounds
    is_new = _at_or_below(bounds.slice(1), bounds.slice(0, bounds.num_rows - 1))
    return bounds.filter(pa.array(np.append(True, ~is_new)))


def ranges_of(key: pa.Table, bounds: pa.Table) -> np.ndarray:
    """Returns the number of each key's range. Shapes: n rows in, n int64 out, from 0 to the number of bounds."""
    low = np.zeros(key.num_rows, np.int64)
    high = np.full(key.num_rows, bounds.num_rows, np.int64)
    for _ in range(bounds.num_rows.bit_length()):
        middle = (low + high) // 2
        is_open = low < high
        middles = bounds.take(pa.array(np.minimum(middle, bounds.num_rows - 1)))
        up = is_open & _at_or_below(middles, key)
        low = np.where(up, middle + 1, low)
        high = np.where(is_open & ~up, middle, high)
    return low


def _at_or_below(keys: pa.Table, others: pa.Table) -> np.ndarray:
    """Whether each key is at most the other key of its row."""
    below, equal = np.zeros(keys.num_rows, np.bool_), np.ones(keys.num_rows, np.bool_)
    for name in keys.column_names:
        left, right = keys[name], others[name]
        below |= equal & _as_numpy(pc.less(left, right))
        equal &= _as_numpy(pc.equal(left, right))
    return below | equal


def _as_numpy(flags: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(flags.to_numpy(), np.bool_)
