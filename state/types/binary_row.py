"""BinaryRow: the byte format in which Paimon stores keys, partitions and bounds, and which it hashes to choose buckets.

A row consists of null bits, an 8-byte slot for each field, and a variable area of 8-byte words. So this module builds
rows as arrays of 8-byte words.
`encode_rows` and `hash_rows` work on whole columns. `encode_row` and `decode_row` work on the single rows of metadata.
These two functions share no code with the functions for whole columns, so tests can check one kind against the other.

Source: Paimon 2.0 BinaryRow, BinaryRowWriter, AbstractBinaryWriter, SerializationUtils.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError, SchemaMismatchError, UnsupportedTableError
from bucketline.state.types.buffers import (
    BYTE_ROOTS,
    TIMESTAMP_ROOTS,
    ByteColumn,
    UInt64s,
    byte_column,
    decimal_words,
    fixed_values,
    physical_array,
    timestamp_parts,
    validity,
)
from bucketline.state.types.hashes.murmur import murmur_columns, murmur_ragged
from bucketline.state.types.logical import DataType, TypeRoot

COMPACT_DECIMAL_PRECISION = 18
COMPACT_TIMESTAMP_PRECISION = 3

# The longest byte string that fits into its slot.
_INLINE_BYTES = 7
_MAX_ROW_BYTES = (1 << 31) - 1
# The number of rows that are built at a time if only their hashes are needed.
_HASH_BLOCK_ROWS = 1 << 15

# The numpy type of a slot's bits. It is unsigned, so that the unused bytes of the slot become zero.
_SLOT_BITS = {
    TypeRoot.BOOLEAN: "|u1",
    TypeRoot.TINYINT: "|u1",
    TypeRoot.SMALLINT: "<u2",
    TypeRoot.INT: "<u4",
    TypeRoot.DATE: "<u4",
    TypeRoot.TIME: "<u4",
    TypeRoot.FLOAT: "<u4",
    TypeRoot.BIGINT: "<u8",
    TypeRoot.DOUBLE: "<u8",
}
_SLOT_CODES = {
    TypeRoot.BOOLEAN: "<?7x",
    TypeRoot.TINYINT: "<b7x",
    TypeRoot.SMALLINT: "<h6x",
    TypeRoot.INT: "<i4x",
    TypeRoot.DATE: "<i4x",
    TypeRoot.TIME: "<i4x",
    TypeRoot.FLOAT: "<f4x",
    TypeRoot.BIGINT: "<q",
    TypeRoot.DOUBLE: "<d",
}
_NAN_BITS = {TypeRoot.FLOAT: 0x7FC00000, TypeRoot.DOUBLE: 0x7FF8000000000000}
_INFINITY_BITS = {TypeRoot.FLOAT: 0x7F800000, TypeRoot.DOUBLE: 0x7FF0000000000000}
_KEEP_FIRST_BYTES: UInt64s = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_ZERO_WORD: UInt64s = np.zeros(1, dtype=np.uint64)


class Timestamp(NamedTuple):
    """A point in time: the milliseconds since 1970, rounded down, and the nanoseconds (0..999999) to add to these
    milliseconds.
    """

    millis: int
    nanos_of_milli: int


def is_wide(data_type: DataType) -> bool:
    """Returns True for DECIMAL with a precision above 18, and TIMESTAMP with a precision above 3. In a BinaryRow, a
    value of such a type is in the variable part, and takes space there even if the value is null.
    """
    precision = data_type.precision or 0
    if data_type.root is TypeRoot.DECIMAL:
        return precision > COMPACT_DECIMAL_PRECISION
    return data_type.root in TIMESTAMP_ROOTS and precision > COMPACT_TIMESTAMP_PRECISION


def encode_rows(
    columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType], *, with_arity: bool
) -> pa.LargeBinaryArray:
    """Returns the BinaryRow of each row. If `with_arity` is True, each BinaryRow begins with its number of fields in 4
    bytes, as in metadata; the bytes to be hashed have no such prefix.

    Takes at least one column; nulls are allowed. The result has no nulls. Equal rows give equal bytes. Raises
    SchemaMismatchError if a column's values are not of its type, UnsupportedTableError for nested types.
    """
    rows = _lay_out(_physical(columns, types), types)
    row_words = np.diff(rows.offsets)
    halves = rows.words.view("<u4")
    if not with_arity:
        return _large_binary(rows.offsets * 8, halves)
    count = len(row_words)
    offsets = rows.offsets * 8 + 4 * np.arange(count + 1)
    serialized = np.empty(len(halves) + count, dtype="<u4")
    is_arity = np.zeros(len(serialized), dtype=np.bool_)
    is_arity[offsets[:-1] >> 2] = True
    serialized[is_arity] = np.array([len(types)], dtype=">u4").view("<u4")
    serialized[~is_arity] = halves
    return _large_binary(offsets, serialized)


def hash_rows(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> pa.Int32Array:
    """Returns the hash of each row's BinaryRow. Buckets are chosen by this hash, and HASH indexes store this hash.

    Takes at least one column; nulls are allowed. The result has no nulls. Raises the errors of `encode_rows`.
    """
    arrays = _physical(columns, types)
    row_count = len(arrays[0])
    has_variable = any(t.root in BYTE_ROOTS or is_wide(t) for t in types)
    row_hashes = np.empty(row_count, dtype=np.int32)
    for start in range(0, row_count, _HASH_BLOCK_ROWS):
        block = [a.slice(start, _HASH_BLOCK_ROWS) for a in arrays]
        if has_variable:
            rows = _lay_out(block, types)
            places = rows.offsets * 2
            hashes = murmur_ragged(rows.words.view("<u4"), places[:-1], np.diff(places))
        else:
            words = [*_null_words(block), *(_slot_bits(a, t) for a, t in zip(block, types, strict=True))]
            hashes = murmur_columns((half for w in words for half in _halves(w)), 2 * len(words))
        row_hashes[start : start + _HASH_BLOCK_ROWS] = hashes
    return pa.array(row_hashes)


def _halves(words: NDArray[np.unsignedinteger]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    if words.itemsize == 8:
        halves = words.view("<u4")
        return halves[0::2], halves[1::2]
    return words.astype(np.uint32, copy=False), np.zeros(1, dtype=np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class _RowWords:
    """Encoded rows, one after the other: row i is `words[offsets[i] : offsets[i + 1]]`. `offsets` has one item more
    than there are rows.
    """

    words: UInt64s
    offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Tail:
    """The values of one field that do not fit into the 8-byte slots of the rows, and are written behind the slots.
    Either `columns` holds them as columns of 8-byte words, or `strings` holds them as byte strings.

    `cursors` says for each row at which byte of the row its value begins.
    """

    cursors: NDArray[np.int64]
    columns: tuple[UInt64s, ...] = ()
    strings: ByteColumn | None = None


def _physical(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> list[pa.Array]:
    assert columns and len(columns) == len(types), "there must be a type for each column, and at least one column"
    arrays = []
    for position, (column, data_type) in enumerate(zip(columns, types, strict=True)):
        try:
            arrays.append(physical_array(column, data_type))
        except SchemaMismatchError as e:
            raise e.reworded(f"key column {position}: {e.message}", position=position) from e
    assert len({len(a) for a in arrays}) == 1, "columns have one length"
    return arrays


def _large_binary(offsets: NDArray[np.int64], data: NDArray[np.unsignedinteger]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _null_area_words(field_count: int) -> int:
    return (field_count + 63 + 8) // 64


def _null_words(arrays: Sequence[pa.Array]) -> list[UInt64s]:
    """Returns the 64-bit words of a BinaryRow that say which columns are null, one bit for each column. Each word is an
    array with a value for each row; if the word is zero in all rows, the array has a single zero.
    """
    words = [_ZERO_WORD] * _null_area_words(len(arrays))
    for i, array in enumerate(arrays):
        valid = validity(array)
        if valid is not None:
            word, bit = divmod(i + 8, 64)
            words[word] = words[word] | ((~valid).astype(np.uint64) << np.uint64(bit))
    return words


def _slot_bits(array: pa.Array, data_type: DataType) -> NDArray[np.unsignedinteger]:
    """Returns the 8-byte slots of a field in BinaryRow, as unsigned integers of 1 to 8 bytes. The field must have a
    type whose values fit into the slot. A null gives 0.
    """
    root = data_type.root
    if root is TypeRoot.DECIMAL:
        return decimal_words(array)[0]
    if root in TIMESTAMP_ROOTS:
        return timestamp_parts(array)[0].view(np.uint64)
    bits: NDArray[np.unsignedinteger] = fixed_values(array, _SLOT_BITS[root])
    if root in _NAN_BITS:
        # All NaNs are equal as keys, so they get the same bits. With different bits, equal keys could go to different
        # buckets.
        infinity = bits.dtype.type(_INFINITY_BITS[root])
        nan = (bits & bits.dtype.type(~np.uint64(0) >> np.uint64(65 - 8 * bits.itemsize))) > infinity
        if nan.any():
            bits = np.where(nan, bits.dtype.type(_NAN_BITS[root]), bits)
    return bits


def _lay_out(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> _RowWords:
    row_count = len(arrays[0])
    slots: list[NDArray[np.unsignedinteger]] = list(_null_words(arrays))
    fixed_words = len(slots) + len(arrays)
    cursors = np.full(row_count, 8 * fixed_words, dtype=np.int64)
    tails: list[_Tail] = []
    for array, data_type in zip(arrays, types, strict=True):
        if data_type.root in BYTE_ROOTS:
            strings = byte_column(array)
            slots.append(_string_slots(strings, validity(array), cursors))
            tails.append(_Tail(cursors, strings=strings))
            cursors = cursors + np.where(strings.lengths > _INLINE_BYTES, (strings.lengths + 7) & ~7, 0)
        elif not is_wide(data_type):
            slots.append(_slot_bits(array, data_type))
        elif data_type.root is TypeRoot.DECIMAL:
            lengths, first, second = _wide_decimals(array)
            slots.append(_references(cursors, lengths))
            tails.append(_Tail(cursors, (first, second)))
            cursors = cursors + 16
        else:
            millis, nanos = timestamp_parts(array)
            slots.append(_references(cursors, nanos))
            tails.append(_Tail(cursors, (millis.view(np.uint64),)))
            cursors = cursors + 8
    if row_count and int(cursors.max()) > _MAX_ROW_BYTES:
        raise SchemaMismatchError(
            f"the key of a row takes {counted(cursors.max(), 'byte')}; an encoded key may take at most "
            f"{counted(_MAX_ROW_BYTES, 'byte')}"
        )
    offsets = np.zeros(row_count + 1, dtype=np.int64)
    np.cumsum(cursors >> 3, out=offsets[1:])
    if not tails:
        matrix = np.empty((row_count, fixed_words), dtype=np.uint64)
        for j, slot in enumerate(slots):
            matrix[:, j] = slot
        return _RowWords(matrix.reshape(-1), offsets)
    words = np.zeros(int(offsets[-1]), dtype=np.uint64)
    for j, slot in enumerate(slots):
        words[offsets[:-1] + j] = slot
    for tail in tails:
        places = offsets[:-1] + (tail.cursors >> 3)
        for j, column in enumerate(tail.columns):
            words[places + j] = column
        if tail.strings is not None:
            _scatter_strings(words, places, tail.strings)
    return _RowWords(words, offsets)


def _references(cursors: NDArray[np.int64], low: NDArray[np.int64]) -> UInt64s:
    return ((cursors << 32) | low).view(np.uint64)


def _string_slots(strings: ByteColumn, valid: NDArray[np.bool_] | None, cursors: NDArray[np.int64]) -> UInt64s:
    lengths = strings.lengths
    is_long = lengths > _INLINE_BYTES
    if is_long.all():
        return _references(cursors, lengths)
    short = np.where(is_long, 0, lengths)
    marks = (short.view(np.uint64) | np.uint64(0x80)) << np.uint64(56)
    inline = (strings.load(strings.starts) & _KEEP_FIRST_BYTES[short]) | marks
    slots = np.where(is_long, _references(cursors, lengths), inline)
    return slots if valid is None else np.where(valid, slots, np.uint64(0))


def _scatter_strings(words: UInt64s, places: NDArray[np.int64], strings: ByteColumn) -> None:
    """Writes each byte string that does not fit into its slot: the string of row i goes to `words` from index
    `places[i]` on. The unused bytes of the last word of a string become zero.
    """
    rows = np.flatnonzero(strings.lengths > _INLINE_BYTES)
    if len(rows) == 0:
        return
    lengths = strings.lengths[rows]
    counts = (lengths + 7) >> 3
    ends = np.cumsum(counts)
    within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    string_words = strings.load(np.repeat(strings.starts[rows], counts) + 8 * within)
    string_words[ends - 1] &= _KEEP_FIRST_BYTES[lengths - 8 * (counts - 1)]
    words[np.repeat(places[rows], counts) + within] = string_words


def _wide_decimals(array: pa.Array) -> tuple[NDArray[np.int64], UInt64s, UInt64s]:
    """Returns three arrays for a decimal column: the number of bytes of each value, and two 8-byte words that hold
    these bytes, left-aligned.

    The bytes are the shortest big-endian two's complement of the value. A null gives zeros.
    """
    low, high = decimal_words(array)
    sign = high >> 63
    magnitude = np.empty((len(low), 2), dtype="<u8")
    magnitude[:, 0] = low ^ sign.view(np.uint64)
    magnitude[:, 1] = (high ^ sign).view(np.uint64)
    octets = magnitude.view(np.uint8)
    used = octets != 0
    top = np.where(used.any(axis=1), 15 - np.argmax(used[:, ::-1], axis=1), 0)
    # If the magnitude uses the highest bit of its first byte, one more byte in front holds the sign.
    lengths = top + 1 + (octets[np.arange(len(top)), top] >> 7)
    sources = lengths[:, None] - 1 - np.arange(16)
    values = octets ^ sign.astype(np.uint8)[:, None]
    aligned = np.where(sources >= 0, np.take_along_axis(values, np.maximum(sources, 0), axis=1), np.uint8(0))
    valid = validity(array)
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    pairs = np.ascontiguousarray(aligned).view("<u8")
    return lengths, pairs[:, 0], pairs[:, 1]


def encode_row(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Returns the number of fields in 4 bytes, followed by the BinaryRow of one row of internal values (`decode_row`
    describes internal values).

    Raises SchemaMismatchError for a value that its type cannot hold, and UnsupportedTableError for a value of a nested
    type, unless the value is None.
    """
    null_bytes = 8 * _null_area_words(len(types))
    fixed = bytearray(null_bytes)
    tail = bytearray()
    for i, (value, data_type) in enumerate(zip(values, types, strict=True)):
        if value is None:
            fixed[(i + 8) // 8] |= 1 << ((i + 8) % 8)
        try:
            slot, variable = _encode_value(value, data_type, null_bytes + 8 * len(types) + len(tail))
        except (struct.error, OverflowError, TypeError, AttributeError) as e:
            raise SchemaMismatchError(f"{value!r} is no {data_type}", position=i, expected=str(data_type)) from e
        fixed += slot
        tail += variable
    return struct.pack(">i", len(types)) + bytes(fixed) + bytes(tail)


def _encode_value(value: object, data_type: DataType, cursor: int) -> tuple[bytes, bytes]:
    """Encodes one value of a BinaryRow. Returns its slot (the 8 bytes in the part of fixed size), and its bytes in the
    variable area behind this part. `cursor` is the position at which the bytes in the variable area will begin.

    A null of a wide type leaves the same bytes in the variable area as Paimon's Java code does.
    """
    root = data_type.root
    if is_wide(data_type):
        if root is TypeRoot.DECIMAL:
            octets = b"" if value is None else _minimal_bytes(_unscaled(value, data_type))
            return struct.pack("<ii", len(octets), cursor), octets.ljust(16, b"\0")
        millis, nanos = (0, 0) if value is None else _timestamp(value)
        return struct.pack("<ii", nanos, cursor), struct.pack("<q", millis)
    if value is None:
        return bytes(8), b""
    if root in BYTE_ROOTS:
        octets = value.encode() if isinstance(value, str) else memoryview(value).tobytes()  # type: ignore[arg-type]
        if len(octets) <= _INLINE_BYTES:
            return octets.ljust(7, b"\0") + bytes([0x80 | len(octets)]), b""
        return struct.pack("<ii", len(octets), cursor), octets + bytes(-len(octets) % 8)
    if root is TypeRoot.DECIMAL:
        return struct.pack("<q", _unscaled(value, data_type)), b""
    if root in TIMESTAMP_ROOTS:
        return struct.pack("<q", _timestamp(value).millis), b""
    if root not in _SLOT_CODES:
        raise UnsupportedTableError(f"{data_type} cannot be part of a row of metadata", type=str(data_type))
    if root in _NAN_BITS and value != value:
        return struct.pack("<Q", _NAN_BITS[root]), b""
    return struct.pack(_SLOT_CODES[root], value), b""


def _timestamp(value: object) -> Timestamp:
    if not isinstance(value, Timestamp):
        raise TypeError(value)
    return value


def _unscaled(value: object, data_type: DataType) -> int:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise TypeError(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int) and data_type.scale is not None
    whole = int("".join(map(str, digits)))
    quotient: int
    shift = exponent + data_type.scale
    quotient, rest = (whole * 10**shift, 0) if shift >= 0 else divmod(whole, 10**-shift)
    if rest or len(str(quotient)) > (data_type.precision or 0):
        raise OverflowError(value)
    return -quotient if sign else quotient


def _minimal_bytes(number: int) -> bytes:
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def decode_row(data: bytes, types: Sequence[DataType]) -> tuple[object, ...]:
    """Returns the internal values of one BinaryRow, which begins with its number of fields in 4 bytes.

    Internal values are bool, int (DATE in days, TIME in milliseconds), float, str, bytes, Decimal with the scale of the
    type, Timestamp, and None for null.
    Raises CorruptFileError if the bytes are no BinaryRow of these types, and UnsupportedTableError for a nested value
    that is not null.
    """
    row = memoryview(data)[4:]
    fixed_bytes = 8 * (_null_area_words(len(types)) + len(types))
    if len(data) < 4 or int.from_bytes(data[:4], "big") != len(types) or len(row) < fixed_bytes:
        raise CorruptFileError(
            f"these bytes are not a BinaryRow of {counted(len(types), 'field')}: {data[:64].hex()}", expected=len(types)
        )
    first_slot = fixed_bytes - 8 * len(types)
    values: list[object] = []
    for i, data_type in enumerate(types):
        if row[(i + 8) // 8] & (1 << ((i + 8) % 8)):
            values.append(None)
            continue
        try:
            values.append(_decode_value(row, first_slot + 8 * i, data_type))
        except (struct.error, ValueError) as e:
            raise CorruptFileError(
                f"field {i} of a BinaryRow is no {data_type}: {e}", position=i, expected=str(data_type)
            ) from e
    return tuple(values)


def row_bytes(data: bytes, types: Sequence[DataType]) -> int:
    """Returns the size in bytes that the serialized row in `data` must have. `types` are the types of its fields. The
    size includes the 4 bytes for the number of fields, the slots of the fields, and long values, whose sizes are in the
    slots. Returns -1 if `data` is too short to have all slots.
    """
    slot = 4 + 8 * _null_area_words(len(types))
    size = slot + 8 * len(types)
    if len(data) < size:
        return -1
    for data_type in types:
        if is_wide(data_type):
            size += 16 if data_type.root is TypeRoot.DECIMAL else 8
        elif data_type.root in BYTE_ROOTS and data[slot + 7] < 0x80:
            size += -(-int.from_bytes(data[slot : slot + 4], "little") // 8) * 8
        slot += 8
    return size


def _decode_value(row: memoryview, slot: int, data_type: DataType) -> object:
    root = data_type.root
    if root in BYTE_ROOTS:
        mark = row[slot + 7]
        octets = bytes(row[slot : slot + (mark & 0x7F)]) if mark & 0x80 else _referenced(row, slot)
        return octets.decode() if root in (TypeRoot.CHAR, TypeRoot.VARCHAR) else octets
    if root is TypeRoot.DECIMAL:
        if is_wide(data_type):
            unscaled = int.from_bytes(_referenced(row, slot), "big", signed=True)
        else:
            (unscaled,) = struct.unpack_from("<q", row, slot)
        digits = tuple(int(d) for d in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -(data_type.scale or 0)))
    if root in TIMESTAMP_ROOTS:
        if not is_wide(data_type):
            return Timestamp(struct.unpack_from("<q", row, slot)[0], 0)
        nanos, cursor = struct.unpack_from("<ii", row, slot)
        (millis,) = struct.unpack_from("<q", row, cursor)
        return Timestamp(millis, nanos)
    if root not in _SLOT_CODES:
        raise UnsupportedTableError(f"{data_type} cannot be part of a row of metadata", type=str(data_type))
    value: object = struct.unpack_from(_SLOT_CODES[root], row, slot)[0]
    return value


def _referenced(row: memoryview, slot: int) -> bytes:
    length, cursor = struct.unpack_from("<ii", row, slot)
    if length < 0 or cursor < 0 or cursor + length > len(row):
        raise ValueError(f"the length {length} at offset {cursor} does not fit a row of {counted(len(row), 'byte')}")
    return bytes(row[cursor : cursor + length])
