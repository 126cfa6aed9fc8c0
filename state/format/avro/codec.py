"""The compression codecs of Avro containers, by the names that Avro gives them.

pyarrow or the standard library has every codec that Paimon writes.

A block that is packed here has a checksum, which `unpack_block` verifies. Snappy and bzip2 have their own checksums.
For zstandard and deflate, a CRC-32 follows the data where other readers ignore it: in a skippable frame, or after the
last deflate block. The codec `null` has no place for a checksum.
Source: Avro 1.11 specification, required and optional codecs; RFC 8878, 3.1.2 (skippable frames); RFC 1951.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError

MAX_BLOCK_BYTES = 1 << 30
"""The largest size of an unpacked block. A manifest has a few megabytes."""

_PIECE_BYTES = 1 << 18

_CHECKED = b"CRC1"
"""The four bytes that stand before the checksum, a little-endian CRC-32 of all bytes of the packed block."""
_CHECK_BYTES = len(_CHECKED) + 4
_SKIPPED = (0x184D2A5B).to_bytes(4, "little") + _CHECK_BYTES.to_bytes(4, "little")
"""The header of a zstandard frame that readers skip."""


def pack_block(codec: str, data: pa.Buffer | bytes, level: int | None = None) -> bytes:
    """Returns the packed block. `level` is the compression level, for codecs that have levels; None means the codec's
    default level.
    """
    return AVRO_CODECS[codec](data, level)


def unpack_block(codec: str, data: bytes, offset: int) -> bytes:
    """Returns the unpacked bytes of a block. `offset` is where the block begins in its file, for error messages.

    Raises CorruptFileError if the block is damaged, or has more than MAX_BLOCK_BYTES when it is unpacked.
    """
    try:
        body = _UNPACKERS[codec](data)
    except (ValueError, OSError, EOFError, MemoryError, zlib.error, lzma.LZMAError) as e:
        raise CorruptFileError(f"the {codec} block at offset {offset} cannot be unpacked: {e!r}", offset=offset) from e
    if len(body) > MAX_BLOCK_BYTES:
        raise CorruptFileError(f"the block at offset {offset} unpacks to over {MAX_BLOCK_BYTES} bytes", offset=offset)
    return body


def is_read(codec: str) -> bool:
    """Returns True if this release can unpack blocks of the codec."""
    return codec in _UNPACKERS


def _pack_deflate(data: pa.Buffer | bytes, level: int | None) -> bytes:
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return _with_checksum(stream.compress(data) + stream.flush(), b"")


def _pack_bzip2(data: pa.Buffer | bytes, level: int | None) -> bytes:
    return bz2.compress(data, 9 if level is None else level)


def _pack_snappy(data: pa.Buffer | bytes, level: int | None) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def _pack_zstandard(data: pa.Buffer | bytes, level: int | None) -> bytes:
    packed: bytes = pa.Codec("zstd", compression_level=1 if level is None else level).compress(data, asbytes=True)
    return _with_checksum(packed, _SKIPPED)


def _with_checksum(packed: bytes, header: bytes) -> bytes:
    return b"".join((packed, header, _CHECKED, zlib.crc32(packed).to_bytes(4, "little")))


def _without_checksum(data: bytes, header: bytes) -> bytes:
    """Returns the packed data without the checksum and the `header` before it. Data without a checksum is returned
    unchanged. Raises ValueError if the checksum does not match.
    """
    end = len(data) - _CHECK_BYTES - len(header)
    if end < 0 or data[end:-4] != header + _CHECKED:
        return data
    if zlib.crc32(data[:end]).to_bytes(4, "little") != data[-4:]:
        raise ValueError("the CRC-32 does not match")
    return data[:end]


AVRO_CODECS: dict[str, Callable[[pa.Buffer | bytes, int | None], bytes]] = {
    "null": lambda data, level: bytes(data),
    "bzip2": _pack_bzip2,
    "deflate": _pack_deflate,
    "snappy": _pack_snappy,
    "zstandard": _pack_zstandard,
}
"""Maps the name of each codec to the function that packs a block; its second argument is the compression level or
None.
"""


class _Unpacking(Protocol):
    @property
    def eof(self) -> bool: ...


def _unpack_deflate(data: bytes) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    return _whole(stream, stream.decompress(_without_checksum(data, b""), MAX_BLOCK_BYTES + 1))


def _unpack_bzip2(data: bytes) -> bytes:
    stream = bz2.BZ2Decompressor()
    return _whole(stream, stream.decompress(data, MAX_BLOCK_BYTES + 1))


def _unpack_xz(data: bytes) -> bytes:
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    return _whole(stream, stream.decompress(data, MAX_BLOCK_BYTES + 1))


def _whole(stream: _Unpacking, body: bytes) -> bytes:
    if not stream.eof and len(body) <= MAX_BLOCK_BYTES:
        raise EOFError("the compressed data ends too early")
    return body


def _unpack_snappy(data: bytes) -> bytes:
    packed, checksum = data[:-4], data[-4:]
    size = 0
    for i, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            break
    if size > MAX_BLOCK_BYTES:
        raise ValueError(f"its length field says {counted(size, 'byte')}, which is too long")
    body: bytes = pa.Codec("snappy").decompress(packed, decompressed_size=size, asbytes=True)
    if zlib.crc32(body).to_bytes(4, "big") != checksum:
        raise ValueError("the CRC-32 does not match")
    return body


def _unpack_zstandard(data: bytes) -> bytes:
    # Frames that Java writes as a stream do not contain the unpacked size.
    data = _without_checksum(data, _SKIPPED)
    # `read` allocates as many bytes as it is asked for, even if fewer exist.
    pieces: list[bytes] = []
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while (piece := stream.read(_PIECE_BYTES)) and len(pieces) * _PIECE_BYTES <= MAX_BLOCK_BYTES:
            pieces.append(piece)
    return b"".join(pieces)


_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "bzip2": _unpack_bzip2,
    "deflate": _unpack_deflate,
    "snappy": _unpack_snappy,
    "xz": _unpack_xz,
    "zstandard": _unpack_zstandard,
}
