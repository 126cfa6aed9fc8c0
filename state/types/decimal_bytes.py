"""Reads columns of decimals that are stored as bytes: big-endian two's complement of any length.

Source: Avro 1.11 specification, logical type decimal; Parquet format, DECIMAL on BINARY and FIXED_LEN_BYTE_ARRAY.
"""

import numpy as np
import pyarrow as pa

from bucketline.state.types.buffers import byte_column, plain_array, validity
from bucketline.state.types.long_decimals import COMPACT_DIGITS, null_where_too_long

_WIDTH = 16


def decimals(column: pa.Array, target: pa.DataType, *, needs_values: bool = False) -> pa.Array:
    """Returns the unscaled values in a binary column as decimals of type `target`, a decimal128.

    Nulls stay nulls. A value that has more digits than the type becomes null, as in Paimon. But if `needs_values` is
    true and the type has at most 18 digits, a value with more digits is kept, as in formats that store decimals in 64
    bits. Raises ArrowInvalid for a value that has no bytes or needs more than 16 bytes.
    """
    raw = plain_array(column)
    octets = byte_column(raw)
    valid = validity(raw)
    empty = (octets.lengths == 0) if valid is None else (octets.lengths == 0) & valid
    if empty.any():
        raise pa.ArrowInvalid("a decimal has no bytes")
    ends = octets.starts + octets.lengths
    # One byte more than the 16 of 128 bits tells whether the bytes before them only repeat the sign.
    places = ends[:, None] - np.arange(_WIDTH + 1)[None, :] - 1
    inside = places >= octets.starts[:, None]
    sign = np.where(octets.data[octets.starts] & 0x80, 0xFF, 0).astype(np.uint8)
    little = np.where(inside, octets.data[np.maximum(places, 0)], sign[:, None])
    longer = octets.lengths > _WIDTH
    if longer.any() and not _is_sign_only(octets.data, octets.starts[longer], ends[longer], little[longer]):
        raise pa.ArrowInvalid(f"a decimal has more than {_WIDTH} bytes")
    values = pa.py_buffer(np.ascontiguousarray(little[:, :_WIDTH]))
    nulls = None if valid is None else pa.array(valid).buffers()[1]
    array = pa.Array.from_buffers(target, len(raw), [nulls, values])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        keeps = needs_values and target.precision <= COMPACT_DIGITS
        return array if keeps else null_where_too_long(array)
    return array


def _is_sign_only(
    data: "np.ndarray[tuple[int], np.dtype[np.uint8]]",
    starts: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    ends: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    little: "np.ndarray[tuple[int, int], np.dtype[np.uint8]]",
) -> bool:
    """Returns True if in every value the bytes before the last 16 only repeat the sign of the number. Value i is
    `data[starts[i] : ends[i]]`; row i of `little` has the last bytes of value i, lowest byte first.
    """
    sign = np.where(little[:, _WIDTH - 1] & 0x80, 0xFF, 0)
    return all(bool((data[a : b - _WIDTH] == s).all()) for a, b, s in zip(starts, ends, sign, strict=True))
