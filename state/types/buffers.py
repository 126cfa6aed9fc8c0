"""Arrow columns as numpy arrays, on which hashes, BinaryRows and sort orders are computed.

Columns that are sliced, chunked, dictionary-encoded or have 32-bit offsets are first brought into one plain form.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.types.logical import DataType, TypeRoot

UInt64s = NDArray[np.uint64]

BYTE_ROOTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
TIMESTAMP_ROOTS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})

_FIXED: dict[TypeRoot, pa.DataType] = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
}
_SAME_FAMILY = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)
_UNITS_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_LOAD_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False)
class ByteColumn:
    """A column of strings or byte strings as numpy arrays: row i is `data[starts[i] : starts[i] + lengths[i]]`.

    The length of a null is 0. `data` has at least 8 more bytes after the end of the last row.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def load(self, positions: NDArray[np.int64]) -> UInt64s:
        """Returns for each position the 8 bytes of `data` that begin there, as a little-endian word.

        A position must not lie beyond the end of the last row.
        """
        count = len(self.data) - _LOAD_BYTES + 1
        # The words of this view overlap and are not aligned. Reading from it takes one index for each word, not for
        # each byte.
        overlapping: UInt64s = np.ndarray((count,), dtype="<u8", buffer=self.data, strides=(1,))
        return overlapping[positions]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns the column as one array. A column of one chunk is not copied, so the result may be a slice of larger
    buffers.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def repeated(value: pa.Scalar, count: int) -> pa.Array:
    """Returns an array with the value `count` times. Arrow's own `repeat` fails for a list, map or struct if `count` is
    0.
    """
    return pa.repeat(value, count) if count else pa.array([], value.type)


def own_copy(array: pa.Array) -> pa.Array:
    """Returns a copy of a list or map column in new buffers.

    The buffers of the copy start with the first item of the first row, and hold no items for null rows.
    """
    return array.take(pa.array(np.arange(len(array))))


def plain_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns the column as one array without dictionary encoding or extension type. Strings become large_string, and
    byte strings large_binary.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return plain_array(column.chunk(0))
        empty = pa.array([], type=column.type)
        return pa.concat_arrays([plain_array(chunk) for chunk in (column.chunks or [empty])])
    if isinstance(column, pa.ExtensionArray):
        return plain_array(column.storage)
    if isinstance(column, pa.DictionaryArray):
        # Decoding a dictionary of strings could overflow 32-bit offsets. Taking from an array with 64-bit offsets
        # cannot.
        return plain_array(column.dictionary).take(column.indices)
    arrow = column.type
    if pa.types.is_string(arrow) or pa.types.is_string_view(arrow):
        return column.cast(pa.large_string())
    if pa.types.is_binary(arrow) or pa.types.is_binary_view(arrow) or pa.types.is_fixed_size_binary(arrow):
        return column.cast(pa.large_binary())
    return column


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yields the arrays without nested types that a column consists of. A column that is not nested yields itself.

    The arrays of a map may hold more values than the rows of the column refer to.
    """
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from leaves(child)
    elif pa.types.is_map(array.type):
        yield from leaves(array.keys)
        yield from leaves(array.items)
    elif pa.types.is_list(array.type):
        yield from leaves(array.flatten())
    else:
        yield array


def physical_array(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """Returns the column in the single Arrow type from which this package encodes and hashes values of `data_type`.

    Integers, floats, dates, times and decimals are cast to another size of the same kind, without loss. Timestamps keep
    their unit (ms, us or ns).
    Raises SchemaMismatchError if the column holds values of another kind, and UnsupportedTableError for nested types.
    """
    array = plain_array(column)
    target = _physical_type(array.type, data_type)
    if array.type == target:
        return array
    related = pa.types.is_null(array.type) or any(test(array.type) and test(target) for test in _SAME_FAMILY)
    # Arrow's safe cast checks integers and decimals, but rounds floats silently.
    rounds = pa.types.is_floating(array.type) and array.type.bit_width > target.bit_width
    if not related or rounds:
        raise SchemaMismatchError(
            f"expected {data_type}, found {array.type}", expected=str(data_type), found=str(array.type)
        )
    try:
        return array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatchError(
            f"{array.type} does not fit {data_type}: {e}", expected=str(data_type), found=str(array.type)
        ) from e


def _physical_type(arrow: pa.DataType, data_type: DataType) -> pa.DataType:
    root = data_type.root
    if root in _FIXED:
        return _FIXED[root]
    if root in BYTE_ROOTS:
        return pa.large_string() if pa.types.is_large_string(arrow) else pa.large_binary()
    if root is TypeRoot.DECIMAL:
        # The precision of a decimal does not change its bytes, so a decimal of less precision and the same scale is not
        # cast.
        if pa.types.is_decimal128(arrow) and arrow.scale == data_type.scale and arrow.precision <= data_type.precision:
            return arrow
        return pa.decimal128(data_type.precision, data_type.scale)
    if root in TIMESTAMP_ROOTS:
        return arrow if pa.types.is_timestamp(arrow) and arrow.unit in _UNITS_PER_MILLI else pa.timestamp("ms")
    raise UnsupportedTableError(f"{data_type} cannot be part of a key", type=str(data_type))


def validity(array: pa.Array) -> NDArray[np.bool_] | None:
    """Returns a mask of the values that are not null; None if no value is null, so that this common case costs
    nothing.
    """
    if array.null_count == 0:
        return None
    if array.buffers()[0] is None:
        return np.zeros(len(array), dtype=np.bool_)
    bits = np.frombuffer(array.buffers()[0], dtype=np.uint8)
    return _unpack(bits, array.offset, len(array))


def _unpack(bits: NDArray[np.uint8], offset: int, count: int) -> NDArray[np.bool_]:
    first = offset // 8
    unpacked = np.unpackbits(bits[first : (offset + count + 7) // 8], bitorder="little")
    return unpacked[offset - first * 8 :][:count].view(np.bool_)


def fixed_values(array: pa.Array, dtype: str) -> NDArray[Any]:
    """Returns the values of a fixed-width array as a numpy array of type `dtype`, which must have the same width. A
    null gives 0.

    Booleans are returned as 0 and 1 of type `|u1`.
    """
    buffer = array.buffers()[1]
    count = len(array)
    if buffer is None or count == 0:
        return np.zeros(count, dtype=dtype)
    if pa.types.is_boolean(array.type):
        values: NDArray[Any] = _unpack(np.frombuffer(buffer, dtype=np.uint8), array.offset, count).view(np.uint8)
    else:
        values = np.frombuffer(buffer, dtype=dtype)[array.offset : array.offset + count]
    valid = validity(array)
    return values if valid is None else np.where(valid, values, np.zeros(1, values.dtype))


def byte_column(array: pa.Array) -> ByteColumn:
    """Returns a large_string or large_binary array as a ByteColumn: its bytes, and where each row begins and how long
    it is.
    """
    count = len(array)
    _, offset_buffer, data_buffer = array.buffers()
    if count == 0 or offset_buffer is None:
        zeros = np.zeros(count, dtype=np.int64)
        return ByteColumn(np.zeros(_LOAD_BYTES, dtype=np.uint8), zeros, zeros)
    offsets = np.frombuffer(offset_buffer, dtype="<i8")[array.offset : array.offset + count + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    data = np.zeros(end - start + _LOAD_BYTES, dtype=np.uint8)
    if end > start:
        data[: end - start] = np.frombuffer(data_buffer, dtype=np.uint8)[start:end]
    lengths = np.diff(offsets)
    valid = validity(array)
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    return ByteColumn(data, offsets[:-1] - start, lengths)


def decimal_words(array: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Returns the lower and the upper 64 bits of the unscaled values (two's complement) of a decimal128 array. A null
    gives 0.
    """
    count = len(array)
    buffer = array.buffers()[1]
    if buffer is None or count == 0:
        return np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.int64)
    pairs = np.frombuffer(buffer, dtype="<u8").reshape(-1, 2)[array.offset : array.offset + count]
    low, high = pairs[:, 0], pairs[:, 1]
    valid = validity(array)
    if valid is not None:
        low, high = np.where(valid, low, np.uint64(0)), np.where(valid, high, np.uint64(0))
    return np.ascontiguousarray(low), np.ascontiguousarray(high).view(np.int64)


def timestamp_parts(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns two arrays: the milliseconds since 1970, rounded down, and the nanoseconds (0..999999) to add to these
    milliseconds. A null gives 0.
    """
    values = fixed_values(array, "<i8")
    per_milli = _UNITS_PER_MILLI[array.type.unit]
    if per_milli == 1:
        return values, np.zeros(len(values), dtype=np.int64)
    millis = values // per_milli
    return millis, (values - millis * per_milli) * (1_000_000 // per_milli)
