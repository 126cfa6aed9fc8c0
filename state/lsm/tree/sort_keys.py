"""Sorts keys in numpy arrays: merges several arrays of sorted keys, and finds where keys change.

Keys that are byte strings become integers or fixed-width strings if the memory allows it. Sorted arrays are joined to
one array. numpy's stable sort recognises the parts that are sorted, and merges them, which is many times faster than
sorting.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.types.logical import DataType
from bucketline.state.types.order import normalized_keys

MAX_FIXED_WIDTH_BYTES = 64 << 20
"""The largest size in bytes of a fixed-width copy of byte keys. If the copy would be larger (because a few keys are
very long), the keys are sorted without a copy.
"""

_INTEGER_BYTES = 8
_LENGTH_BYTES = 5

SortKeys: TypeAlias = pa.Array
"""An array of comparable keys (from `normalized_keys`): int64, uint64 or large_binary."""


def last_key(keys: SortKeys) -> Any:
    """Returns the last key as a value that Python compares in key order."""
    return keys[len(keys) - 1].as_py()


def count_up_to(keys: SortKeys, bound: Any) -> int:
    """Returns how many of the ascending keys are at most `bound`."""
    if pa.types.is_large_binary(keys.type):
        return bisect_right(range(len(keys)), bound, key=lambda i: keys[i].as_py())
    values = keys.to_numpy()
    return int(np.searchsorted(values, values.dtype.type(bound), side="right"))


def merge_order(
    pieces: Sequence[SortKeys], *, fixed_width_bytes: int = MAX_FIXED_WIDTH_BYTES, are_sorted: bool = True
) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_]]:
    """Sorts the keys of all `pieces` together. Returns two values:

    - the order: the positions of the sorted keys in the concatenation of the pieces; None if the concatenation is
      already in order. Equal keys keep their order.
    - a mask over the sorted keys, which is true at the first key and at each key that differs from the key before it.

    If `are_sorted` is true, the keys of each piece ascend. `fixed_width_bytes` limits the memory for keys that are
    converted to strings of a fixed width.
    """
    keys = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    values = _comparable(keys, fixed_width_bytes)
    if values is None:
        # Arrow's sort is also stable, but takes longer.
        indices = pc.sort_indices(keys)
        ordered = keys.take(indices)
        changes = pc.not_equal(ordered.slice(1), ordered.slice(0, max(len(keys) - 1, 0)))
        return indices.to_numpy().astype(np.int64), _starts(changes.to_numpy(zero_copy_only=False))
    if len(pieces) == 1 and are_sorted:
        return None, _starts(values[1:] != values[:-1])
    order = np.argsort(values, kind="stable")
    values = values[order]
    return order, _starts(values[1:] != values[:-1])


def sequence_columns(
    columns: Sequence[pa.Array], types: Sequence[DataType], *, descending: bool
) -> list[NDArray[np.int64] | NDArray[np.uint64] | NDArray[np.bool_]]:
    """Returns arrays by which rows can be sorted to get the order of their sequence fields, most significant array
    first. Nulls come before all values, also if `descending` is true.

    Each column gives one or two arrays.
    """
    arrays: list[NDArray[Any]] = []
    for column, data_type in zip(columns, types, strict=True):
        if column.null_count == len(column):
            continue
        if column.null_count:
            arrays.append(column.is_valid().to_numpy(zero_copy_only=False))
            column = pc.fill_null(column, column.drop_null()[0])
        keys = normalized_keys([column], [data_type])
        if pa.types.is_large_binary(keys.type):
            keys = pc.rank(keys, tiebreaker="dense")
        values = keys.to_numpy()
        arrays.append(~values if descending else values)
    return arrays


def _comparable(keys: SortKeys, limit_bytes: int) -> NDArray[Any] | None:
    """Returns the keys as integers or as byte strings of a fixed width, which have the same order as the keys. Returns
    None if the result would take more than `limit_bytes`.
    """
    if not pa.types.is_large_binary(keys.type):
        values: NDArray[Any] = keys.to_numpy()
        return values
    lengths = np.diff(_offsets(keys))
    longest, shortest = (int(lengths.max()), int(lengths.min())) if len(keys) else (0, 0)
    width = longest if longest == shortest else longest + _LENGTH_BYTES
    if width * len(keys) > limit_bytes:
        return None
    if longest == shortest and longest <= _INTEGER_BYTES:
        return _matrix(keys, _INTEGER_BYTES).view(">u8").ravel().astype(np.uint64)
    if longest < _INTEGER_BYTES:
        # If two padded keys are equal, one of them is the other with zero bytes added. The shorter key comes first.
        padded = _matrix(keys, _INTEGER_BYTES).copy()
        padded[:, -1] = lengths
        return padded.view(">u8").ravel().astype(np.uint64)
    if longest == shortest:
        return np.ascontiguousarray(_matrix(keys, longest)).view(f"S{longest}").ravel()
    fixed = np.empty((len(keys), width), np.uint8)
    fixed[:, :longest] = _matrix(keys, longest)
    fixed[:, longest:-1] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    # numpy removes zero bytes at the end of its strings, so the last byte must not be zero.
    fixed[:, -1] = 1
    return fixed.view(f"S{width}").ravel()


def _matrix(keys: SortKeys, width: int) -> NDArray[np.uint8]:
    """Returns a read-only matrix with a line for each key. Each key is padded with zero bytes to `width` bytes."""
    text = pa.LargeStringArray.from_buffers(len(keys), *keys.buffers()[1:], offset=keys.offset)
    padded = pc.ascii_rpad(text, width=width, padding="\0")
    start = int(_offsets(padded)[0])
    return np.frombuffer(padded.buffers()[2], np.uint8, len(keys) * width, start).reshape(len(keys), width)


def _offsets(keys: pa.Array) -> NDArray[np.int64]:
    return np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, keys.offset * 8)


def _starts(changes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.concatenate([np.ones(1, bool), changes])


def is_older(rows: pa.RecordBatch, others: pa.RecordBatch, names: Collection[str]) -> np.ndarray:
    """Compares row i of `rows` with row i of `others`, for each i. Returns a mask of the rows in `rows` whose values
    come first. The columns `names` are compared one after the other, and null comes first.
    """
    older, same = np.zeros(rows.num_rows, bool), np.ones(rows.num_rows, bool)
    for name in names:
        own, other = rows[name], others[name].cast(rows[name].type)
        gone, other_gone = np.asarray(pc.is_null(own)), np.asarray(pc.is_null(other))
        less = np.asarray(pc.fill_null(pc.less(own, other), False)) | (gone & ~other_gone)
        equal = np.asarray(pc.fill_null(pc.equal(own, other), False)) | (gone & other_gone)
        older |= same & less
        same &= equal
    return older
