"""Deletion-vector files: for each data file, such a file holds a Roaring bitmap with the positions of deleted rows.

    byte 0   0x01, the format version of the file
    then the vectors, one after the other; the index manifest has the offset and length of each:

    V1, 32 bit                                  V2, 64 bit
    4  BE  L = 4 + bitmap                       4  BE  L = 4 + 8 + bitmaps
    4  BE  magic 1581511376                     4  LE  magic 1681511377
    .      portable Roaring bitmap              8  LE  count of bitmaps; each: 4 LE high key, portable Roaring bitmap
    4  BE  CRC32 of magic and bitmap            4  BE  CRC32 of magic, count and bitmaps

LE and BE mean little- and big-endian. The length in the index manifest is L for V1, and L + 8 (the whole vector) for
V2. A position is the number of the row in the data file, counted from 0.

Source: Paimon 2.0 DeletionVectorsIndexFile, BitmapDeletionVector, Bitmap64DeletionVector. Java writes the CRC but does
not check it. This module checks it, because a damaged vector would silently hide the wrong rows.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence

from pyroaring import BitMap, BitMap64

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.format.entries import DeletionVectorRange

DELETION_VECTORS = "DELETION_VECTORS"
"""The index type in index manifests."""

FILE_VERSION = b"\x01"
MAGIC_V1 = (1581511376).to_bytes(4, "big")
MAGIC_V2 = (1681511377).to_bytes(4, "little")

_FRAME_BYTES = 8
"""The 4 bytes of length before a vector and the 4 bytes of CRC32 after it. The length does not include these 8
bytes.
"""
_ONE_LOW_BITMAP = struct.pack("<qI", 1, 0)
_MAX_LENGTH = 2**31 - 1
_MAX_POSITIONS = 2**32


def encode_deletion_vectors(
    vectors: Mapping[str, BitMap], bitmap64: bool
) -> tuple[bytes, tuple[DeletionVectorRange, ...]]:
    """Returns the bytes of a deletion-vector file, and the position of each data file's vector in these bytes, in the
    order of the mapping.

    `bitmap64` is the table option deletion-vectors.bitmap64: true writes V2. Row positions must fit into 32 bits in
    both versions.
    """
    parts = [FILE_VERSION]
    ranges: list[DeletionVectorRange] = []
    offset = len(FILE_VERSION)
    for data_file_name, vector in vectors.items():
        body = _body_v2(vector) if bitmap64 else MAGIC_V1 + _portable(vector)
        assert len(body) <= _MAX_LENGTH, (
            f"{data_file_name}: its deletion vector has {counted(len(body), 'byte')}, too many for the file format"
        )
        blob = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        length = len(blob) if bitmap64 else len(body)
        ranges.append(DeletionVectorRange(data_file_name, offset, length, len(vector)))
        parts.append(blob)
        offset += len(blob)
    return b"".join(parts), tuple(ranges)


def read_span(at: DeletionVectorRange) -> tuple[int, int]:
    """Returns the offset and the number of bytes to read from an index file for one vector. The number may go beyond
    the end of the file.
    """
    return at.offset, at.length + _FRAME_BYTES


def decode_deletion_vector(blob: bytes, at: DeletionVectorRange) -> BitMap:
    """Returns the deleted row positions of one data file.

    `blob` holds the bytes of the index file from `at.offset` on, and may have more bytes than the vector. Raises
    CorruptFileError if the length, magic number, CRC or number of rows is not as expected, and UnsupportedTableError
    for positions of 2^32 and more.
    """
    if len(blob) < 12:
        raise _corrupt(at, f"{counted(len(blob), 'byte')} are left, too few for a vector")
    size = int.from_bytes(blob[:4], "big", signed=True)
    if not 4 <= size <= len(blob) - _FRAME_BYTES:
        raise _corrupt(
            at, f"its length field says {counted(size, 'byte')}, but only {len(blob) - _FRAME_BYTES} are left"
        )
    body, checksum = blob[4 : 4 + size], blob[4 + size : 8 + size]
    magic = body[:4]
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _corrupt(at, f"its magic number {magic.hex()} is neither {MAGIC_V1.hex()} nor {MAGIC_V2.hex()}")
    length = size if magic == MAGIC_V1 else size + _FRAME_BYTES
    if length != at.length:
        raise _corrupt(at, f"it is {counted(length, 'byte')} long, but the index manifest says {at.length}")
    if zlib.crc32(body).to_bytes(4, "big") != checksum:
        raise _corrupt(at, "the CRC32 does not match")
    vector = _bitmap_v1(body[4:], at) if magic == MAGIC_V1 else _bitmap_v2(body[4:], at)
    if at.cardinality is not None and len(vector) != at.cardinality:
        raise _corrupt(at, f"it deletes {counted(len(vector), 'row')}, but the index manifest says {at.cardinality}")
    return vector


def decode_deletion_vectors(data: bytes, ranges: Sequence[DeletionVectorRange]) -> dict[str, BitMap]:
    """Returns the vectors of a whole index file by the names of their data files, in the order of `ranges`. Raises the
    same errors as `decode_deletion_vector`.
    """
    if data[:1] != FILE_VERSION:
        raise CorruptFileError(
            f"this is no deletion-vector file: the first byte is {data[:1].hex() or 'missing'}", offset=0
        )
    vectors: dict[str, BitMap] = {}
    for at in ranges:
        start, length = read_span(at)
        if start < len(FILE_VERSION) or at.data_file_name in vectors:
            raise _corrupt(at, "it overlaps the file's version byte, or its data file has a second vector")
        vectors[at.data_file_name] = decode_deletion_vector(data[start : start + length], at)
    return vectors


def _body_v2(vector: BitMap) -> bytes:
    return MAGIC_V2 + (_ONE_LOW_BITMAP + _portable(vector) if vector else bytes(8))


def _portable(vector: BitMap) -> bytes:
    compact = BitMap(vector)
    compact.run_optimize()
    portable: bytes = compact.serialize()
    return portable


def _bitmap_v1(data: bytes, at: DeletionVectorRange) -> BitMap:
    try:
        vector = BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as e:
        raise _corrupt(at, f"its bytes are no Roaring bitmap: {e}") from e
    return vector


def _bitmap_v2(data: bytes, at: DeletionVectorRange) -> BitMap:
    # A count, and then a high key and a 32-bit bitmap for each, is the portable format of a 64-bit Roaring bitmap.
    try:
        wide = BitMap64.deserialize(data)
    except (ValueError, IndexError, MemoryError) as e:
        raise _corrupt(at, f"its bytes are no 64-bit Roaring bitmap: {e}") from e
    if not wide:
        return BitMap()
    if wide.max() >= _MAX_POSITIONS:
        raise UnsupportedTableError(
            f"the deletion vector of {at.data_file_name} holds row position {wide.max()}; this release reads "
            "positions up to 2^32 - 1",
            file=at.data_file_name,
        )
    # All writers store a single bitmap with the high key 0. It is used as it is, without copying positions.
    return _bitmap_v1(data[12:], at) if data[:12] == _ONE_LOW_BITMAP else BitMap(wide)


def _corrupt(at: DeletionVectorRange, reason: str) -> CorruptFileError:
    return CorruptFileError(
        f"deletion vector of {at.data_file_name} at offset {at.offset}: {reason}",
        file=at.data_file_name,
        offset=at.offset,
    )
