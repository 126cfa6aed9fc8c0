"""Arrow's `if_else`, with correct results in every supported release of pyarrow.

pyarrow before release 23 has a fault if one side is a slice of strings or byte strings and the other side is null:
offsets of the result point behind the end of its buffer.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def if_else(condition: pa.Array | pa.ChunkedArray, left: object, right: object) -> pa.Array | pa.ChunkedArray:
    """Returns `left` where the condition is true, `right` where it is false, and null where the condition is null, like
    `pyarrow.compute.if_else`.

    `left` and `right` are columns as long as the condition, or single values that stand for all rows.
    """
    if _is_null(left):
        right = _in_own_memory(right)
    elif _is_null(right):
        left = _in_own_memory(left)
    return pc.if_else(condition, left, right)


def _is_null(choice: object) -> bool:
    return choice is None or (isinstance(choice, pa.Scalar) and not choice.is_valid)


def _in_own_memory(choice: object) -> object:
    """Returns the values. If they are a slice of a larger array, they are copied, so that the first value begins at the
    start of its buffer.
    """
    if isinstance(choice, pa.ChunkedArray):
        whole: object = pa.chunked_array([_in_own_memory(chunk) for chunk in choice.chunks], choice.type)
        return whole
    if not isinstance(choice, pa.Array) or not _begins_later(choice):
        return choice
    own: object = choice.take(pa.array(np.arange(len(choice))))
    return own


def _begins_later(array: pa.Array) -> bool:
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        width: np.dtype[Any] = np.dtype(np.int32)
    elif pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        width = np.dtype(np.int64)
    else:
        return False
    if not len(array):
        return False
    return bool(np.frombuffer(array.buffers()[1], width, count=1, offset=array.offset * width.itemsize)[0])
