"""Encodes Arrow columns as the rows of Avro data files, one block at a time and without a loop over rows.

Each column becomes arrays of byte strings, which this module calls pieces: for each row, one piece for what comes
before the value (the branch of the union, or a length) and one for the value. Joining the pieces of all columns row by
row gives the block.
Source: Avro 1.11 specification, binary encoding and object container files; Paimon 2.0 FieldWriterFactory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.avro.codec import pack_block
from bucketline.state.format.avro.container import SYNC_BYTES, container_header, encode_varint
from bucketline.state.format.avro.data_schema import data_schema, is_text_map, map_entry
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.buffers import (
    BYTE_ROOTS,
    TIMESTAMP_ROOTS,
    byte_column,
    decimal_words,
    fixed_values,
    one_array,
    own_copy,
    physical_array,
    validity,
)
from bucketline.state.types.logical import DataField, DataType, TypeRoot

Mask = NDArray[np.bool_]
Octets = NDArray[np.uint8]

_BRANCH_OF_VALUES = 2
"""The number of the second branch of a union of null and a type, as an Avro varint. It comes before a value that is not
null.
"""
_SHORT_DECIMAL_DIGITS = 18
_REAL_BYTES = {TypeRoot.FLOAT: 4, TypeRoot.DOUBLE: 8}


@dataclass(frozen=True, slots=True)
class AvroEncoder:
    """Encodes tables as the parts of one Avro container. The file is all parts, one after the other.

    The sync marker is computed from the schema and `seed`, which must differ for each file; it can be the file's name.
    Raises UnsupportedTableError for columns that Avro has no type for.
    """

    fields: tuple[DataField, ...]
    codec: str
    level: int | None
    seed: bytes

    def header(self) -> bytes:
        """Returns the header of the container, which is the first part of the file."""
        return self._header() + self._sync()

    def block(self, rows: pa.Table | pa.RecordBatch) -> list[bytes]:
        """Encodes some rows, and returns their part of the file as a list of byte strings, which is empty if there are
        no rows. Columns are found by name.

        Raises SchemaMismatchError for a null in a column that is NOT NULL.
        """
        if rows.num_rows == 0:
            return []
        body = encode_rows([rows.column(f.name) for f in self.fields], self.fields)
        packed = pack_block(self.codec, body, self.level)
        return [encode_varint(rows.num_rows), encode_varint(len(packed)), packed, self._sync()]

    def _header(self) -> bytes:
        return container_header(data_schema(self.fields), self.codec)

    def _sync(self) -> bytes:
        return blake2b(self._header() + self.seed, digest_size=SYNC_BYTES).digest()


def encode_rows(columns: Sequence[pa.Array | pa.ChunkedArray], fields: Sequence[DataField]) -> pa.Buffer:
    """Encodes each row as an Avro record, and returns the bytes of all records, one after the other.

    Raises SchemaMismatchError for a null in a column that is NOT NULL.
    """
    pieces: list[pa.LargeBinaryArray] = []
    for column, field in zip(columns, fields, strict=True):
        try:
            pieces += _pieces(one_array(column), field.type, None)
        except SchemaMismatchError as e:
            raise e.reworded(f"column {field.name}: {e.message}", column=field.name) from e
    return _bytes_of(_joined(pieces))


def _pieces(column: pa.Array, data_type: DataType, wanted: Mask | None) -> list[pa.LargeBinaryArray]:
    """Encodes one column in Avro. Returns binary arrays with one value for each row; a row's bytes in the Avro file
    are its values in all of these arrays, one after the other.

    If `wanted` is false for a row, the values of the row are empty: the list, map or struct around the column is null
    in this row, so nothing is written.
    """
    valid = validity(column)
    if valid is not None and not data_type.nullable:
        if not (valid if wanted is None else valid | ~wanted).all():
            raise SchemaMismatchError(
                f"a column or field of type {data_type} holds nulls", expected=str(data_type), found=None
            )
        valid = None
    row = _Row(len(column), data_type.nullable, valid, wanted)
    root = data_type.root
    if root is TypeRoot.ROW:
        pieces = row.pieces(np.empty((row.count, 0), np.uint8))
        for field, child in zip(data_type.fields, column.flatten(), strict=True):
            pieces += _pieces(child, field.type, row.present())
        return pieces
    if root is TypeRoot.ARRAY:
        assert data_type.element is not None
        offsets, (values,) = _contents(column)
        return row.list_pieces(offsets, _joined(_pieces(values, data_type.element, None)))
    if root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key_type, value_type = map_entry(data_type)
        if is_text_map(data_type):
            key_type = key_type.not_null()
        offsets, (keys, values) = _contents(column)
        entries = [*_pieces(keys, key_type, None), *_pieces(values, value_type, None)]
        return row.list_pieces(offsets, _joined(entries))
    return _atomic_pieces(column, data_type, row)


def _atomic_pieces(column: pa.Array, data_type: DataType, row: "_Row") -> list[pa.LargeBinaryArray]:
    root = data_type.root
    array = physical_array(column, data_type)
    if root in BYTE_ROOTS:
        return [*row.pieces(*_varints(byte_column(array).lengths)), array.cast(pa.large_binary())]
    if root is TypeRoot.BOOLEAN:
        return row.pieces(fixed_values(array, "|u1")[:, None])
    if root in _REAL_BYTES:
        width = _REAL_BYTES[root]
        return row.pieces(np.ascontiguousarray(fixed_values(array, f"<f{width}")).view(np.uint8).reshape(-1, width))
    if root is TypeRoot.DECIMAL:
        return row.pieces(*_decimals(array, data_type.precision or 0))
    if root in TIMESTAMP_ROOTS:
        array = array.cast(arrow_type(data_type))
    return row.pieces(*_varints(fixed_values(array, f"<i{array.type.bit_width // 8}").astype(np.int64)))


def _contents(column: pa.ListArray | pa.MapArray) -> tuple[NDArray[np.int64], list[pa.Array]]:
    """Returns where each row's items begin and end, and the items themselves: an array of elements, or an array of keys
    and an array of values.

    Row i has the items from `offsets[i]` up to `offsets[i + 1]`, and the first offset is 0. A null row has no items.
    """
    valid = validity(column)
    offsets = np.zeros(1, np.int64) if len(column) == 0 else column.offsets.to_numpy().astype(np.int64)
    if valid is not None and np.diff(offsets)[~valid].any():
        # In Arrow, a list that is null may still have items, which are left out here.
        return _contents(own_copy(column))
    whole = [column.keys, column.items] if pa.types.is_map(column.type) else [column.values]
    return offsets - offsets[0], [child.slice(offsets[0], offsets[-1] - offsets[0]) for child in whole]


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """Says which rows of a column have a value (`valid`), and which rows are written at all (`wanted`). None means all
    rows.
    """

    count: int
    nullable: bool
    valid: Mask | None
    wanted: Mask | None

    def present(self) -> Mask | None:
        """Returns a mask of the rows that have a value and are written; None means all rows."""
        if self.valid is None or self.wanted is None:
            return self.wanted if self.valid is None else self.valid
        return self.valid & self.wanted

    def pieces(self, octets: Octets, kept: Mask | None = None) -> list[pa.LargeBinaryArray]:
        """Returns binary arrays with one value for each row; a row's bytes in the Avro file are its values in all of
        these arrays, one after the other. There is one array, or none if no row has bytes.

        `octets` is a matrix with the encoded bytes of each row in a line. For a nullable column, the byte that
        selects a branch of the Avro union (null or value) is put before each line. `kept` marks the bytes to write;
        None means all of them.
        """
        present = self.present()
        if present is not None:
            kept = np.broadcast_to(present[:, None], octets.shape) if kept is None else kept & present[:, None]
        if self.nullable:
            branch = np.full((self.count, 1), _BRANCH_OF_VALUES, np.uint8)
            if self.valid is not None:
                branch[~self.valid] = 0
            octets = np.concatenate([branch, octets], axis=1)
            if kept is not None:
                written = np.ones((self.count, 1), np.bool_) if self.wanted is None else self.wanted[:, None]
                kept = np.concatenate([written, kept], axis=1)
        if octets.shape[1] == 0:
            return []
        return [_compact(octets, kept)]

    def list_pieces(self, offsets: NDArray[np.int64], items: pa.LargeBinaryArray) -> list[pa.LargeBinaryArray]:
        """Returns the bytes of a column of lists: several arrays of byte strings. For each row, joining the strings of
        all arrays gives the Avro bytes of the list. A list with items is one Avro block, followed by the empty block
        that ends an Avro array. An empty list is only the empty block.

        `items` are the bytes of all items, and `offsets` says which items belong to which list.
        """
        counts = np.diff(offsets)
        octets, kept = _varints(counts)
        kept = np.ones(octets.shape, np.bool_) if kept is None else kept
        data = _bytes_of(items)
        places = np.frombuffer(items.buffers()[1], "<i8")[items.offset :][: len(items) + 1]
        starts = places[offsets] - places[0]
        body = pa.Array.from_buffers(pa.large_binary(), self.count, [None, pa.py_buffer(starts), data])
        end = replace(self, nullable=False).pieces(np.zeros((self.count, 1), np.uint8))
        return [*self.pieces(octets, kept & (counts > 0)[:, None]), body, *end]


def _varints(values: NDArray[np.int64]) -> tuple[Octets, Mask | None]:
    """Returns the values in Avro's encoding of a long (zig-zag, variable length), and a mask of the bytes to write. The
    mask is None if all bytes are written.

    The bytes are a matrix with a line for each value, left-aligned and as wide as the longest value.
    """
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    highest = int(rest.max(initial=0))
    width = max(1, -(-highest.bit_length() // 7))
    octets = np.empty((len(values), width), np.uint8)
    kept = np.ones((len(values), width), np.bool_)
    for place in range(width):
        octets[:, place] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        if place + 1 < width:
            more = rest != 0
            octets[:, place] |= more.view(np.uint8) << 7
            kept[:, place + 1] = more
    return octets, None if width == 1 else kept


def _decimals(array: pa.Array, precision: int) -> tuple[Octets, Mask]:
    """Returns the bytes of decimals as Avro writes them, and a mask. Each row of bytes holds the length, and then the
    unscaled value as a big-endian two's complement number. All rows are equally long; the mask is false for the bytes
    to leave out, which are leading bytes that only repeat the sign.
    """
    low, high = decimal_words(array)
    little = low[:, None] if precision <= _SHORT_DECIMAL_DIGITS else np.stack([low, high.view(np.uint64)], axis=1)
    big = np.ascontiguousarray(little).view(np.uint8)[:, ::-1]
    is_negative = high < 0
    sign = np.where(is_negative, 0xFF, 0).astype(np.uint8)
    # A byte is left out if it only repeats the sign, and the first bit of the next byte shows the same sign.
    spare = (big[:, :-1] == sign[:, None]) & ((big[:, 1:] >= 0x80) == is_negative[:, None])
    spare = np.logical_and.accumulate(spare, axis=1)
    count = len(array)
    lengths = big.shape[1] - _counts(spare)
    octets = np.concatenate([(lengths * 2).astype(np.uint8)[:, None], big], axis=1)
    kept = np.concatenate([np.ones((count, 1), np.bool_), ~spare, np.ones((count, 1), np.bool_)], axis=1)
    return octets, kept


def _compact(octets: Octets, kept: Mask | None) -> pa.LargeBinaryArray:
    """Returns one byte string for each row, with the bytes that `kept` marks. If `kept` is None, all bytes stay."""
    count, width = octets.shape
    if kept is None or kept.all():
        data, ends = np.ascontiguousarray(octets).reshape(-1), np.arange(1, count + 1, dtype=np.int64) * width
    else:
        data, ends = octets[kept], np.cumsum(_counts(kept))
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _counts(mask: Mask) -> NDArray[np.int64]:
    """Returns how many values are true in each row. Adding column by column is faster in numpy than adding up many
    short rows.
    """
    counts = np.zeros(len(mask), np.int64)
    for place in range(mask.shape[1]):
        counts += mask[:, place]
    return counts


def _joined(pieces: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Joins several columns of byte strings into one column: each row gets the byte strings of this row in all columns,
    one after the other. A null counts as an empty byte string.
    """
    if len(pieces) == 1:
        return pieces[0]
    nothing = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(*pieces, nothing, null_handling="replace", null_replacement="")


def _bytes_of(array: pa.LargeBinaryArray) -> pa.Buffer:
    """Returns the bytes of all rows, one after the other."""
    if len(array) == 0:
        return pa.py_buffer(b"")
    places = np.frombuffer(array.buffers()[1], "<i8")[array.offset :][: len(array) + 1]
    data = array.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(int(places[0]), int(places[-1] - places[0]))
