"""Converts base64 and hexadecimal strings to bytes, and bytes to decimals, whole columns at a time."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, dtype=np.uint8)
_DIGITS[np.frombuffer(_ALPHABET, dtype=np.uint8)] = np.arange(64, dtype=np.uint8)
_HEX_DIGITS = np.full(256, _NO_DIGIT, dtype=np.uint8)
_HEX_DIGITS[np.frombuffer(b"0123456789abcdefABCDEF", dtype=np.uint8)] = [*range(16), *range(10, 16)]
_LARGEST_DECIMAL_BYTES = 16
_TOO_MANY_DIGITS = "a decimal has more than 38 digits"


def decode_hex(texts: pa.Array) -> pa.Array:
    """Takes hexadecimal strings, and returns their bytes as large_binary. Nulls stay nulls.

    Raises ValueError for a string that is not hexadecimal.
    """
    offsets, data = _filled(texts.cast(pa.string()))
    if np.any(np.diff(offsets) % 2):
        raise ValueError("its length is odd")
    digits = _HEX_DIGITS[data]
    if np.any(digits == _NO_DIGIT):
        raise ValueError("not hexadecimal")
    decoded = (digits[::2] << 4) | digits[1::2]
    values = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(texts), [None, pa.py_buffer(offsets // 2), pa.py_buffer(decoded)]
    )
    return if_else(texts.is_null(), pa.scalar(None, pa.large_binary()), values)


def decode_base64(texts: pa.Array, *, padded: bool = True) -> pa.Array:
    """Takes strings in standard base64, and returns their bytes as large_binary. Nulls stay nulls.

    If `padded` is false, the `=` signs at the end may be missing. Raises ValueError for a string that is not base64.
    """
    if not padded:
        missing = pc.bit_wise_and(pc.negate(pc.binary_length(texts)), 3)
        texts = pc.binary_join_element_wise(texts, pc.binary_repeat("=", missing), "")
    offsets, data = _filled(texts.cast(pa.string()))
    lengths = np.diff(offsets)
    if np.any(lengths % 4):
        raise ValueError("its length is not a multiple of 4")
    ends = offsets[1:][lengths > 0]
    last, before = data[ends - 1] == ord("="), data[ends - 2] == ord("=")
    padding = np.zeros(len(lengths), dtype=np.int64)
    padding[lengths > 0] = last.astype(np.int64) + (last & before)
    digits = _DIGITS[data]
    digits[ends[last] - 1] = 0
    digits[ends[last & before] - 2] = 0
    if np.any(digits == _NO_DIGIT):
        raise ValueError("not base64")
    words = digits.reshape(-1, 4).astype(np.uint32)
    packed = (words[:, 0] << 18) | (words[:, 1] << 12) | (words[:, 2] << 6) | words[:, 3]
    decoded = np.stack([packed >> 16, packed >> 8, packed], axis=1).astype(np.uint8).ravel()
    keep = np.ones(len(decoded), dtype=bool)
    decoded_ends = ends // 4 * 3
    keep[decoded_ends[last] - 1] = False
    keep[decoded_ends[last & before] - 2] = False
    decoded_offsets = np.concatenate([[0], np.cumsum(lengths // 4 * 3 - padding)]).astype(np.int64)
    values = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(texts), [None, pa.py_buffer(decoded_offsets), pa.py_buffer(decoded[keep])]
    )
    return if_else(texts.is_null(), pa.scalar(None, pa.large_binary()), values)


def decimals_of_bytes(numbers: pa.Array, scale: int) -> pa.Array:
    """Takes numbers in bytes (large_binary, big-endian two's complement), and returns them as decimal128(38, scale).
    Nulls stay nulls. A number may begin with bytes that only repeat its sign, as in Avro's type fixed.

    Raises ValueError for a number of no bytes or of more than 38 digits, and for a scale that Arrow does not have.
    """
    offsets, data = _filled(numbers)
    lengths = np.diff(offsets)
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    if np.any(lengths[valid] == 0):
        raise ValueError("a decimal must have at least 1 byte")
    sign = np.zeros(len(lengths), dtype=np.uint8)
    sign[lengths > 0] = np.where(data[offsets[:-1][lengths > 0]] & 0x80, 0xFF, 0)
    rows = np.repeat(sign[:, None], _LARGEST_DECIMAL_BYTES, axis=1)
    row = np.repeat(np.arange(len(lengths)), lengths)
    from_end = np.repeat(offsets[1:] - 1, lengths) - np.arange(len(data))
    if len(data) and lengths.max() > _LARGEST_DECIMAL_BYTES:
        is_more = from_end >= _LARGEST_DECIMAL_BYTES
        if np.any(data[is_more] != sign[row[is_more]]):
            raise ValueError(_TOO_MANY_DIGITS)
        row, from_end, data = row[~is_more], from_end[~is_more], data[~is_more]
    rows[row, from_end] = data  # little-endian, as Arrow holds decimals
    is_turned = (rows[:, -1] ^ sign) & 0x80 != 0  # only if more bytes than Arrow's have been left out
    is_lowest = (rows[:, -1] == 0x80) & ~np.any(rows[:, :-1], axis=1)  # Arrow's check overlooks it
    if np.any(is_turned | is_lowest):
        raise ValueError(_TOO_MANY_DIGITS)
    data_type = pa.decimal128(38, scale)
    decimals = pa.Array.from_buffers(data_type, len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))])
    decimals.validate(full=True)  # 16 bytes can hold more than 38 digits
    return if_else(numbers.is_null(), pa.scalar(None, data_type), decimals)


def _filled(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Returns the offsets of the texts, and one array with the bytes of all texts: text i has the bytes from
    `offsets[i]` up to `offsets[i + 1]`. A null has no bytes.
    """
    filled = pc.fill_null(texts.cast(pa.large_binary()), b"")
    if len(filled) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    _, offset_buffer, data_buffer = filled.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64, count=len(filled) + 1, offset=filled.offset * 8)
    if data_buffer is None:
        return offsets - offsets[0], np.zeros(0, dtype=np.uint8)
    return offsets - offsets[0], np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
