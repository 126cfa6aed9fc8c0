"""Sort keys over several columns: one column after the other, or along a Z-order or a Hilbert curve through all
columns.

A sort key is a table of int64, uint64 and binary columns without nulls; its rows compare as the values themselves do.
For a curve, each value becomes 64 bits in the order of the values: a number with its sign bit inverted, or the first
eight bytes of a string. As in Paimon, nulls come first; on a Hilbert curve they come last.
If several tasks sort, each takes a range of keys. The bounds of the ranges come from a sample of the keys.
Source: Paimon 2.0 ZIndexer, HilbertIndexer, OrderSorter; J. Skilling, Programming the Hilbert curve (2004).
"""

from collections.abc import Sequence
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SIGN = np.uint64(1 << 63)
_BITS = 64
_TEXT_BYTES = 8
_BLOCK_ROWS = 65536

CurveWords = np.ndarray
"""A uint64 array with a value for each row."""


class OrderStrategy(Enum):
    """The ways in which rows can be ordered by several columns."""

    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


def sort_key(columns: Sequence[pa.Array], strategy: OrderStrategy) -> pa.Table:
    """Takes the columns to sort by. Returns a table with the sort key of each row: integer or binary columns without
    nulls. If the rows are sorted by these columns, they have the order that `strategy` names: by one column after the
    other, or along a Z-order or Hilbert curve.
    """
    if strategy is OrderStrategy.ORDER:
        parts = [part for column in columns for part in _ordered(_plain(column))]
        return pa.table(parts, names=[str(n) for n in range(len(parts))])
    rows = len(columns[0])
    blocks = [range(start, min(start + _BLOCK_ROWS, rows)) for start in range(0, rows, _BLOCK_ROWS)]
    make = _z_values if strategy is OrderStrategy.ZORDER else _hilbert_values
    chunks = []
    for block in blocks:
        words = [curve_words(c.slice(block.start, len(block)), nulls_last=make is _hilbert_values) for c in columns]
        chunks.append(_as_binary(make(words)))
    return pa.table([pa.chunked_array(chunks, pa.binary(8 * len(columns)))], names=["0"])


def curve_words(column: pa.Array, *, nulls_last: bool = False) -> CurveWords:
    """Returns an unsigned 64-bit number for each value. The numbers compare as the values do, but strings with the same
    first eight bytes have the same number. A null is the smallest number, or with `nulls_last` the largest.
    """
    plain = _plain(column)
    words: CurveWords
    if pa.types.is_boolean(plain.type):
        words = plain.fill_null(False).cast(pa.int64()).to_numpy().astype(np.uint64) * _SIGN
    elif pa.types.is_binary(plain.type):
        words = _prefixes(plain)
    else:
        if pa.types.is_decimal(plain.type):
            plain = plain.cast(pa.float64())
        words = _numbers(plain)
    if plain.null_count:
        absent = plain.is_null().to_numpy(zero_copy_only=False)
        words = np.where(absent, np.uint64(2**64 - 1 if nulls_last else 0), words)
    return words


def interleaved(words: Sequence[CurveWords]) -> np.ndarray:
    """Returns for each row the bits of its words interleaved: the highest bit of each word, then the second highest bit
    of each word, and so on.

    The result has the shape (rows, 8 * number of words) and the type uint8.
    """
    stacked: np.ndarray = np.stack(words, axis=1).astype(">u8")
    bits: np.ndarray = np.unpackbits(stacked.view(np.uint8).reshape(len(stacked), len(words), _TEXT_BYTES), axis=2)
    return np.packbits(bits.transpose(0, 2, 1).reshape(len(stacked), -1), axis=1)


def hilbert_transposed(words: Sequence[CurveWords]) -> list[CurveWords]:
    """Takes the coordinates of each row, 64 bits for each dimension, and returns the row's position on a Hilbert curve.

    The result has as many words for each row as there are dimensions, and the bits of the position are spread over
    these words. `interleaved` puts these bits together.
    """
    x = [w.copy() for w in words]
    for bit in range(_BITS - 1, 0, -1):
        q = np.uint64(1 << bit)
        low = q - np.uint64(1)
        for i in range(len(x)):
            is_set = (x[i] & q) != 0
            swapped = np.where(is_set, np.uint64(0), (x[0] ^ x[i]) & low)
            x[0] ^= np.where(is_set, low, swapped)
            if i:
                x[i] ^= swapped
    for i in range(1, len(x)):
        x[i] ^= x[i - 1]
    turned = np.zeros_like(x[0])
    for bit in range(_BITS - 1, 0, -1):
        q = np.uint64(1 << bit)
        turned ^= np.where((x[-1] & q) != 0, q - np.uint64(1), np.uint64(0))
    return [word ^ turned for word in x]


def _z_values(words: Sequence[CurveWords]) -> np.ndarray:
    return interleaved(words)


def _hilbert_values(words: Sequence[CurveWords]) -> np.ndarray:
    return interleaved(hilbert_transposed(words))


def _plain(column: pa.Array) -> pa.Array:
    """Returns the column without dictionary encoding. Strings become byte strings, and dates and times become
    integers.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32())
    if pa.types.is_temporal(kind):
        return column.cast(pa.int64())
    return column


def _ordered(column: pa.Array) -> list[pa.Array]:
    """Returns columns without nulls. Sorting by these columns, one after the other, orders the rows as `column` does,
    nulls first.
    """
    parts = [column.is_valid().cast(pa.int64())]
    if pa.types.is_binary(column.type):
        return [*parts, column.fill_null(b"")]
    if pa.types.is_decimal(column.type):
        high, low = _decimal_halves(column)
        return [*parts, pa.array(high), pa.array(low)]
    if pa.types.is_boolean(column.type):
        return [*parts, column.fill_null(False).cast(pa.int64())]
    words = _numbers(column)
    return [*parts, pa.array(np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint64(0), words))]


def _numbers(column: pa.Array) -> CurveWords:
    """Returns 64 bits for each number of an integer or floating-point column, in the order of the numbers. The bits of
    a null are arbitrary, and the caller replaces them.
    """
    if pa.types.is_floating(column.type):
        values = np.asarray(column.fill_null(0.0).cast(pa.float64()), np.float64)
        # All NaNs become one NaN, which sorts after all numbers, and -0.0 becomes 0.0.
        values = np.where(np.isnan(values), np.nan, values) + 0.0
        bits = np.ascontiguousarray(values).view(np.uint64)
        return np.where((bits & _SIGN) != 0, ~bits, bits | _SIGN)
    values = np.asarray(column.fill_null(0).cast(pa.int64()), np.int64)
    return np.ascontiguousarray(values).view(np.uint64) ^ _SIGN


def _prefixes(column: pa.Array) -> CurveWords:
    """Returns the first eight bytes of each byte string. A shorter string is filled up with zeros."""
    cut = pc.binary_slice(column.fill_null(b""), 0, _TEXT_BYTES)
    lengths = np.asarray(pc.binary_length(cut), np.int64)
    data = np.frombuffer(cut.buffers()[2] or b"", np.uint8)
    offsets = np.frombuffer(cut.buffers()[1], np.int32, len(cut) + 1, cut.offset * 4).astype(np.int64)
    places = offsets[:-1, None] + np.arange(_TEXT_BYTES)
    inside = np.arange(_TEXT_BYTES) < lengths[:, None]
    prefixes = np.zeros((len(cut), _TEXT_BYTES), np.uint8)
    prefixes[inside] = data[places[inside]]
    return prefixes.view(">u8").astype(np.uint64).reshape(-1)


def _decimal_halves(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the upper 64 bits of each decimal as a signed integer, and the lower 64 bits as an unsigned one."""
    whole = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    raw = np.frombuffer(whole.buffers()[1], "<u8")[2 * whole.offset : 2 * (whole.offset + len(whole))].reshape(-1, 2)
    absent = whole.is_null().to_numpy(zero_copy_only=False)
    low, high = np.where(absent, np.uint64(0), raw[:, 0]), np.where(absent, np.uint64(0), raw[:, 1])
    return np.ascontiguousarray(high).view(np.int64), low


def _as_binary(values: np.ndarray) -> pa.Array:
    width = values.shape[1]
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(values), [None, pa.py_buffer(np.ascontiguousarray(values).tobytes())]
    )


def bounds_of(sample: pa.Table, count: int) -> pa.Table:
    """Returns at most `count` - 1 ascending, distinct keys that divide a sample into ranges of about equal size.

    Range n holds the keys from bound n - 1 (included) up to bound n (not included). If many keys are equal, there are
    fewer ranges.
    """
    ordered = sample.take(pc.sort_indices(sample, sort_keys=[(name, "ascending") for name in sample.column_names]))
    places = np.unique(np.arange(1, count) * ordered.num_rows // count)
    bounds = ordered.take(pa.array(places[places > 0])).combine_chunks()
    if bounds.num_rows < 2:
        return bounds
    is_new = _at_or_below(bounds.slice(1), bounds.slice(0, bounds.num_rows - 1))
    return bounds.filter(pa.array(np.append(True, ~is_new)))


def ranges_of(key: pa.Table, bounds: pa.Table) -> np.ndarray:
    """Returns for each key the number of its range, as int64: from 0 up to the number of bounds."""
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
    """Returns a mask of the rows whose key is less than or equal to the key of the same row in `others`."""
    below, equal = np.zeros(keys.num_rows, np.bool_), np.ones(keys.num_rows, np.bool_)
    for name in keys.column_names:
        left, right = keys[name], others[name]
        below |= equal & _as_numpy(pc.less(left, right))
        equal &= _as_numpy(pc.equal(left, right))
    return below | equal


def _as_numpy(flags: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(flags.to_numpy(), np.bool_)
