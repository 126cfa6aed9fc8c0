"""The order of keys, which is the order of Paimon's Java comparators: sorting rows, finding where the key changes, and
converting keys to values that compare in this order.

Keys are compared field by field. Strings and byte strings compare by unsigned bytes, and a prefix comes first. False
comes before true. Numbers, dates, times and timestamps compare by value. For floats, -0.0 comes before 0.0, and NaN
after all numbers. Nulls come first.
Source: Paimon 2.0 CodeGenUtils.newRecordComparator, SortUtil; Java's Float.compare and Double.compare.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.buffers import BYTE_ROOTS, decimal_words, plain_array
from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.logical import DataType, TypeRoot

Direction = Literal["ascending", "descending"]

# A zero byte inside a value is encoded so that it sorts after the end mark. So a prefix sorts before longer values.
_ESCAPED_ZERO = b"\0\xff"
_END = pa.scalar(b"\0\0", pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())
_NAN_BITS_32 = 0x7FC00000
_NAN_BITS_64 = 0x7FF8000000000000
# If more than one row in this number repeats a value, a stable sort is faster than ordering equal values afterwards.
_FEW_REPEATS = 4
_WIDTH_BYTES = {
    TypeRoot.BOOLEAN: 1,
    TypeRoot.TINYINT: 1,
    TypeRoot.SMALLINT: 2,
    TypeRoot.INT: 4,
    TypeRoot.DATE: 4,
    TypeRoot.TIME: 4,
    TypeRoot.FLOAT: 4,
}


def sort_indices(
    table: pa.Table | pa.RecordBatch, keys: Sequence[str], *, then: Sequence[tuple[str, Direction]] = ()
) -> pa.Array:
    """Returns the row numbers (uint64) in key order. Rows with equal keys are ordered by the `then` columns, and rows
    that are equal in these columns too keep their order.

    The columns in `keys` are sorted in ascending order. Nulls come first, also in a `then` column that descends.
    """
    columns = [(plain_array(table.column(k)), "ascending") for k in keys]
    columns += [(plain_array(table.column(name)), direction) for name, direction in then]
    if len(columns) == 1 and columns[0][1] == "ascending" and _is_int_like(columns[0][0]):
        return pa.array(_stable_order(_int_values(columns[0][0])).view(np.uint64))
    sorted_by: list[tuple[str, Direction]] = []
    arrays: list[pa.Array] = []
    for array, direction in columns:
        if array.null_count:
            # An explicit column determines where nulls go, because Arrow's own option for it differs between versions.
            sorted_by.append((str(len(arrays)), "ascending"))
            arrays.append(array.is_valid())
        sorted_by.append((str(len(arrays)), "descending" if direction == "descending" else "ascending"))
        arrays.append(_sortable(array))
    if not arrays:
        return pa.array(np.arange(table.num_rows, dtype=np.uint64))
    return pc.sort_indices(pa.table(arrays, names=[str(i) for i in range(len(arrays))]), sort_keys=sorted_by)


def key_changes(table: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Returns a mask of the rows whose key differs from the key of the row before; the mask is true for the first row.

    Equal means equal in key order: NaN equals NaN, -0.0 does not equal 0.0, null equals null.
    """
    changed = np.zeros(table.num_rows, dtype=np.bool_)
    if table.num_rows == 0:
        return changed
    changed[0] = True
    for key in keys:
        array = _sortable(plain_array(table.column(key)))
        after, before = array.slice(1), array.slice(0, len(array) - 1)
        differs = pc.fill_null(pc.not_equal(after, before), False)
        if array.null_count:
            differs = pc.or_(differs, pc.xor(after.is_valid(), before.is_valid()))
        changed[1:] |= differs.to_numpy(zero_copy_only=False)
    return changed


def key_order(types: Sequence[DataType]) -> Callable[[bytes], tuple[Any, ...]]:
    """Returns a function that takes the bytes of a key (its number of fields in 4 bytes, then the row) and returns
    a tuple. Python compares these tuples in key order.
    """
    comparable = [_comparable_of(t) for t in types]

    def order_of(key: bytes) -> tuple[Any, ...]:
        return tuple(f(v) for f, v in zip(comparable, decode_row(key, types), strict=True))

    return order_of


def normalized_keys(columns: Sequence[pa.Array], types: Sequence[DataType]) -> pa.Array:
    """Combines the key columns into one array that has the order of the keys.

    The result is int64 for a single column of fixed width, such as a decimal of up to 18 digits, or a float
    (`total_order`). For all other keys the result is large_binary, compared as unsigned bytes. The type of the result
    depends only on `types`, so arrays of different batches can be compared with each other.
    Keys hold no nulls: primary-key columns are NOT NULL.
    """
    assert columns and len(columns) == len(types), "a key has at least one column"
    arrays = [plain_array(c) for c in columns]
    assert not any(a.null_count for a in arrays), "keys hold no nulls"
    if len(arrays) == 1 and not _is_variable(types[0]):
        return pa.array(_int_values(arrays[0]))
    if len(arrays) == 1 and types[0].root in BYTE_ROOTS:
        return arrays[0].cast(pa.large_binary())
    parts: list[pa.Array | pa.Scalar] = []
    for i, (array, data_type) in enumerate(zip(arrays, types, strict=True)):
        if data_type.root not in BYTE_ROOTS:
            parts.append(_big_endian(array, data_type))
        elif i == len(arrays) - 1:
            # The last column needs no end mark: nothing follows that could be mistaken for its bytes.
            parts.append(array.cast(pa.large_binary()))
        else:
            parts += [pc.replace_substring(array.cast(pa.large_binary()), b"\0", _ESCAPED_ZERO), _END]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _NOTHING)


def total_order(array: pa.Array) -> npt.NDArray[np.int64]:
    """Returns an integer for each float, in the order in which Java compares floats: -0.0 before 0.0, and all NaNs
    equal and last.

    Takes float32 or float64. The integer for a null is arbitrary.
    """
    values = _filled(array)
    if pa.types.is_float32(array.type):
        bits = np.where(np.isnan(values), np.int32(_NAN_BITS_32), values.view(np.int32))
        return np.where(bits < 0, bits ^ np.int32(2**31 - 1), bits).astype(np.int64)
    bits = np.where(np.isnan(values), np.int64(_NAN_BITS_64), values.view(np.int64))
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def _stable_order(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the positions of the values in ascending order. Equal values keep their order.

    numpy's unstable sort is several times faster than its stable one. So the values are sorted unstably, and then only
    the positions of equal values are put in order.
    """
    order: npt.NDArray[np.int64] = np.argsort(values)
    ascending = values[order]
    repeats = np.flatnonzero(ascending[1:] == ascending[:-1]) + 1
    if not len(repeats):
        return order
    if len(repeats) > len(values) // _FEW_REPEATS:
        return np.argsort(values, kind="stable")
    tied = distinct(repeats - 1, repeats)
    order[tied] = order[tied][np.lexsort((order[tied], ascending[tied]))]
    return order


def _is_int_like(array: pa.Array) -> bool:
    t = array.type
    if array.null_count or pa.types.is_unsigned_integer(t):
        return False
    return bool(pa.types.is_integer(t) or pa.types.is_temporal(t) or pa.types.is_boolean(t) or pa.types.is_floating(t))


def _sortable(array: pa.Array) -> pa.Array:
    if not pa.types.is_floating(array.type):
        return array
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(total_order(array), mask=missing)


def _filled(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = (pc.fill_null(array, 0.0) if array.null_count else array).to_numpy(zero_copy_only=False)
    return values


def _int_values(array: pa.Array) -> npt.NDArray[np.int64]:
    """Returns an integer for each value, in the order of the values. The array has no nulls and a fixed width of up to
    64 bits.
    """
    t = array.type
    if pa.types.is_floating(t):
        return total_order(array)
    if pa.types.is_decimal(t):
        return decimal_words(array)[0].view(np.int64)
    if pa.types.is_boolean(t):
        array = array.cast(pa.int8())
    elif pa.types.is_temporal(t):
        array = array.cast(pa.int32() if t.bit_width == 32 else pa.int64())
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)


def _is_variable(data_type: DataType) -> bool:
    """Returns True if the type's values cannot be mapped to int64 numbers of the same order."""
    return data_type.root in BYTE_ROOTS or (data_type.root is TypeRoot.DECIMAL and (data_type.precision or 0) > 18)


def _big_endian(array: pa.Array, data_type: DataType) -> pa.Array:
    """Returns a fixed-width column of a key as large_binary. Each value is big-endian with its sign bit inverted, so
    that negative numbers come first.
    """
    if data_type.root is TypeRoot.DECIMAL and _is_variable(data_type):
        low, high = decimal_words(array)
        key_bytes = np.stack([high.view(np.uint64), low], axis=1).astype(">u8").view(np.uint8)
        width = 16
    else:
        width = _WIDTH_BYTES.get(data_type.root, 8)
        key_bytes = _int_values(array).astype(f">i{width}").view(np.uint8)
    key_bytes = key_bytes.reshape(len(array), width)
    key_bytes[:, 0] ^= 0x80
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(key_bytes)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(array), buffers)


def _comparable_of(data_type: DataType) -> Callable[[Any], Any]:
    comparable = _COMPARABLE.get(data_type.root, _same)
    if not data_type.nullable:
        return comparable
    return lambda value: (0,) if value is None else (1, comparable(value))


def _same(value: Any) -> Any:
    return value


def _utf8(value: str) -> bytes:
    return value.encode()


def _float_order(value: float) -> int:
    bits: int = _NAN_BITS_64 if value != value else struct.unpack("<q", struct.pack("<d", value))[0]
    return bits ^ (2**63 - 1) if bits < 0 else bits


_COMPARABLE: dict[TypeRoot, Callable[[Any], Any]] = {
    TypeRoot.CHAR: _utf8,
    TypeRoot.VARCHAR: _utf8,
    TypeRoot.FLOAT: _float_order,
    TypeRoot.DOUBLE: _float_order,
}
