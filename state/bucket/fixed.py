"""Computes the bucket of each row of a table with fixed buckets, for each of Paimon's bucket functions.

Source: Paimon 2.0 DefaultBucketFunction, ModBucketFunction, HiveBucketFunction, HiveHasher.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.conf.table.choices import BucketFunction
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.types.binary_row import hash_rows
from bucketline.state.types.buffers import (
    BYTE_ROOTS,
    ByteColumn,
    byte_column,
    decimal_words,
    fixed_values,
    physical_array,
)
from bucketline.state.types.logical import DataType, TypeRoot

UInt32s = NDArray[np.uint32]

_31 = np.uint32(31)
_SIGNED = {
    TypeRoot.BOOLEAN: "|u1",
    TypeRoot.TINYINT: "|i1",
    TypeRoot.SMALLINT: "<i2",
    TypeRoot.INT: "<i4",
    TypeRoot.DATE: "<i4",
    TypeRoot.TIME: "<i4",
    TypeRoot.BIGINT: "<i8",
}
# For each width: the bits of -0.0, which is hashed as 0.0; the bits of infinity; the bits as which every NaN is hashed.
_FLOAT_BITS = {
    TypeRoot.FLOAT: ("<u4", 0x80000000, 0x7F800000, 0x7FC00000),
    TypeRoot.DOUBLE: ("<u8", 0x8000000000000000, 0x7FF0000000000000, 0x7FF8000000000000),
}


def assign_fixed_buckets(
    columns: Sequence[pa.Array | pa.ChunkedArray],
    types: Sequence[DataType],
    bucket_count: int,
    function: BucketFunction = BucketFunction.DEFAULT,
) -> pa.Int32Array:
    """Returns the bucket of each row of a fixed-bucket table.

    `columns` must be the columns of the bucket key, in the order in which they are hashed. `columns` may have nulls;
    the result has none.
    Buckets are from 0 up to `bucket_count` - 1. Raises UnsupportedTableError if the bucket function does not support
    the types, and SchemaMismatchError if the values of a column are not of its type.
    """
    assert bucket_count > 0, "the table has fixed buckets"
    count = np.int32(bucket_count)
    if function is BucketFunction.MOD:
        return pa.array(_mod_buckets(columns, types, bucket_count))
    if function is BucketFunction.HIVE:
        return pa.array((_hive_hashes(columns, types) & np.uint32(0x7FFFFFFF)).view(np.int32) % count)
    # Java's remainder has the sign of the dividend. Its absolute value is in range, but that of the hash -2^31 is not.
    return pa.array(np.abs(np.fmod(hash_rows(columns, types).to_numpy(), count)))


def _mod_buckets(
    columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType], bucket_count: int
) -> NDArray[np.int32]:
    if len(types) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT):
        raise UnsupportedTableError(
            "bucket function mod needs one bucket key of type INT or BIGINT", types=tuple(str(t) for t in types)
        )
    values = fixed_values(physical_array(columns[0], types[0]), _SIGNED[types[0].root])
    buckets: NDArray[np.int32] = np.mod(values, values.dtype.type(bucket_count)).astype(np.int32)
    return buckets


def _hive_hashes(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> UInt32s:
    assert columns and len(columns) == len(types), "there must be a type for each column, and at least one column"
    hashes = np.zeros(len(columns[0]), dtype=np.uint32)
    for column, data_type in zip(columns, types, strict=True):
        hashes = hashes * _31 + _hive_field(column, data_type)
    return hashes


def _hive_field(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> UInt32s:
    """Returns Hive's hash of each value; 0 for null."""
    root = data_type.root
    if root not in _SIGNED and root not in _FLOAT_BITS and root not in BYTE_ROOTS and root is not TypeRoot.DECIMAL:
        raise UnsupportedTableError(f"bucket function hive does not support {data_type}", type=str(data_type))
    array = physical_array(column, data_type)
    if root in BYTE_ROOTS:
        return _hive_bytes(byte_column(array))
    if root is TypeRoot.DECIMAL:
        low, high = decimal_words(array)
        return _hive_decimals(low, high, data_type.scale or 0)
    if root in _FLOAT_BITS:
        code, minus_zero, infinity, nan = _FLOAT_BITS[root]
        bits = fixed_values(array, code)
        kind = bits.dtype.type
        bits = np.where((bits & kind(minus_zero - 1)) > kind(infinity), kind(nan), bits)
        return _fold(np.where(bits == kind(minus_zero), kind(0), bits))
    values = fixed_values(array, _SIGNED[root])
    return _fold(values.view(np.uint64) if root is TypeRoot.BIGINT else values.astype(np.int32).view(np.uint32))


def _fold(bits: NDArray[np.unsignedinteger]) -> UInt32s:
    return (bits ^ (bits >> bits.dtype.type(32))).astype(np.uint32) if bits.itemsize == 8 else bits.astype(np.uint32)


def _hive_bytes(strings: ByteColumn) -> UInt32s:
    # The longest rows come first, so the rows that have a byte at a position are always the first rows.
    order = np.argsort(-strings.lengths, kind="stable")
    starts, lengths = strings.starts[order], strings.lengths[order]
    longest = int(lengths[0]) if len(lengths) else 0
    active = len(lengths) - np.searchsorted(lengths[::-1], np.arange(longest), side="right")
    state = np.zeros(len(lengths), dtype=np.uint32)
    for position, rows in enumerate(active.tolist()):
        octets = strings.data[starts[:rows] + position].view(np.int8)
        state[:rows] = state[:rows] * _31 + octets.astype(np.int32).view(np.uint32)
    hashes = np.empty(len(lengths), dtype=np.uint32)
    hashes[order] = state
    return hashes


def _hive_decimals(low: NDArray[np.uint64], high: NDArray[np.int64], scale: int) -> UInt32s:
    """Returns Java's BigDecimal.hashCode of each decimal, after removing the zeros at the end of its fraction. The hash
    of zero is 0. `low` and `high` are the lower and upper 64 bits of each unscaled value.
    """
    negative = high < 0
    # To negate a two's complement of 128 bits, the carry goes to the upper half only if the lower half is zero.
    plus_low = np.where(negative, ~low + np.uint64(1), low)
    plus_high = np.where(negative, ~high + (low == 0), high).view(np.uint64)
    limbs = np.stack([plus_high >> 32, plus_high & 0xFFFFFFFF, plus_low >> 32, plus_low & 0xFFFFFFFF])
    scales = np.full(len(low), scale, dtype=np.uint32)
    scales[~limbs.any(axis=0)] = 0
    for _ in range(scale):
        quotients, rest = _divide_by_ten(limbs)
        strip = (rest == 0) & (scales > 0)
        if not strip.any():
            break
        limbs = np.where(strip, quotients, limbs)
        scales[strip] -= np.uint32(1)
    number = np.zeros(len(low), dtype=np.uint32)
    for limb in limbs:
        number = number * _31 + limb.astype(np.uint32)
    number = np.where(negative, np.uint32(0) - number, number)
    return number * _31 + scales


def _divide_by_ten(limbs: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Divides numbers of 128 bits by ten, and returns the quotients and the remainders.

    Numbers and quotients are matrices with four lines. Each line has 32 bits of every number, and the most significant
    bits come first.
    """
    quotients = np.empty_like(limbs)
    rest = np.zeros(limbs.shape[1], dtype=np.uint64)
    for j, limb in enumerate(limbs):
        current = (rest << np.uint64(32)) | limb
        quotients[j] = current // np.uint64(10)
        rest = current - quotients[j] * np.uint64(10)
    return quotients, rest
