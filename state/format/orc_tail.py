"""Reads from the end of an ORC file where its stripes begin, and the time zone of their writer.

pyarrow exposes neither. Error messages need the offset of a stripe. The writer's time zone is needed for TIMESTAMP_LTZ
values in Paimon's older format.
Source: ORC specification v1, file tail and stripe footer; Protocol Buffers wire format.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError

MAGIC = b"ORC"
MAX_TAIL_BYTES = 256 << 20
"""The largest allowed size of a footer, both compressed and uncompressed."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CODECS = {0: None, 1: "zlib", 2: "snappy", 4: "lz4", 5: "zstd"}
_LZ4_FRAME = bytes.fromhex("04224d18607073")
"""The header of an LZ4 frame with independent blocks and without checksums."""


@dataclass(frozen=True, slots=True)
class Stripe:
    """One stripe of an ORC file: the offset at which it begins, and the offset and length of its footer, in bytes."""

    offset: int
    footer_offset: int
    footer_length: int


@dataclass(frozen=True, slots=True)
class OrcTail:
    """The stripes of a file in order, and how footers are compressed."""

    stripes: tuple[Stripe, ...]
    codec: str | None
    block_bytes: int


def read_tail(read_at: Callable[[int, int], bytes], size: int) -> OrcTail:
    """Returns the tail of a file of `size` bytes; `read_at(offset, length)` reads from the file. Raises
    CorruptFileError if the file is no ORC file, or if its end is damaged.
    """
    length = _exactly(read_at, size - 1, 1)[0] if size > len(MAGIC) else 0
    if not 0 < length < size:
        raise CorruptFileError("this is no ORC file: it has no postscript", offset=max(size - 1, 0))
    at = size - 1 - length
    postscript = dict(_members(_exactly(read_at, at, length), at))
    codec = _CODECS.get(_number(postscript.get(2, 0)), "")
    if postscript.get(8000) != MAGIC or codec == "":
        raise CorruptFileError("this is no ORC file: it has no valid postscript, or an unknown compression", offset=at)
    footer_length, block_bytes = _number(postscript.get(1, 0)), _number(postscript.get(3, 256 << 10))
    if not 0 <= footer_length <= min(at, MAX_TAIL_BYTES) or block_bytes > MAX_TAIL_BYTES:
        raise CorruptFileError(f"the ORC footer cannot be {counted(footer_length, 'byte')} long", offset=at)
    start = at - footer_length
    footer = _unpacked(_exactly(read_at, start, footer_length), codec, block_bytes, start)
    stripes = [_stripe(v, start) for member, v in _members(footer, start) if member == 3 and isinstance(v, bytes)]
    return OrcTail(tuple(stripes), codec, block_bytes)


def writer_zone(read_at: Callable[[int, int], bytes], tail: OrcTail, stripe: Stripe) -> str:
    """Returns the name of the time zone of a stripe's writer; `UTC` if the stripe names none. Raises
    CorruptFileError if the footer of the stripe is damaged.
    """
    at = stripe.footer_offset
    packed = _exactly(read_at, at, stripe.footer_length)
    zone = dict(_members(_unpacked(packed, tail.codec, tail.block_bytes, at), at)).get(3, b"UTC")
    try:
        return zone.decode() if isinstance(zone, bytes) else "UTC"
    except UnicodeDecodeError as e:
        raise CorruptFileError("the name of the time zone in the ORC stripe is no valid UTF-8", offset=at) from e


def _stripe(data: bytes, at: int) -> Stripe:
    members = dict(_members(data, at))
    offset, index, rows, footer = (_number(members.get(i, 0)) for i in (1, 2, 3, 4))
    if footer > MAX_TAIL_BYTES:
        raise CorruptFileError(f"an ORC stripe footer cannot be {counted(footer, 'byte')} long", offset=at)
    return Stripe(offset, offset + index + rows, footer)


def _exactly(read_at: Callable[[int, int], bytes], offset: int, length: int) -> bytes:
    data = read_at(offset, length)
    if len(data) != length:
        raise CorruptFileError(f"the ORC file ends before offset {offset + length}", offset=offset)
    return data


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise CorruptFileError("a member of the ORC tail that must be a number has another type", offset=0)
    return value


def _members(data: bytes, at: int) -> Iterator[tuple[int, int | bytes]]:
    """Yields the field number and the value of each member of a Protocol Buffers message. `at` is the offset of the
    message in the file, for errors.
    """
    place = 0
    while place < len(data):
        tag, place = _varint(data, place, at)
        member, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, place = _varint(data, place, at)
            yield member, value
            continue
        if wire == _BYTES:
            length, place = _varint(data, place, at)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(wire, len(data) + 1)
        if length > len(data) - place:
            raise CorruptFileError("a message of the ORC tail is cut off", offset=at)
        yield member, data[place : place + length]
        place += length


def _varint(data: bytes, place: int, at: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(data[place : place + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, place + i + 1
    raise CorruptFileError("a message of the ORC tail is cut off", offset=at)


def _unpacked(data: bytes, codec: str | None, block_bytes: int, at: int) -> bytes:
    """Returns the uncompressed bytes of a footer. A footer consists of blocks, and the header of each block says
    whether the block is compressed.
    """
    if codec is None:
        return data
    parts: list[bytes] = []
    place = 0
    while place < len(data):
        header = int.from_bytes(data[place : place + 3], "little")
        length, start = header >> 1, place + 3
        if start + length > len(data) or sum(map(len, parts)) > MAX_TAIL_BYTES:
            raise CorruptFileError("a block of the ORC tail is cut off", offset=at + place)
        block = data[start : start + length]
        parts.append(block if header & 1 else _unpack(block, codec, block_bytes, at + place))
        place = start + length
    return b"".join(parts)


def _unpack(block: bytes, codec: str, block_bytes: int, at: int) -> bytes:
    try:
        if codec == "zlib":
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(block, block_bytes)
        if codec in ("lz4", "zstd"):
            # An LZ4 block does not contain its uncompressed length, but pyarrow can read an LZ4 frame until its end.
            framed = _LZ4_FRAME + len(block).to_bytes(4, "little") + block + bytes(4) if codec == "lz4" else block
            with pa.CompressedInputStream(pa.BufferReader(framed), codec) as stream:
                body: bytes = stream.read(block_bytes)
            return body
        size = _varint(block, 0, at)[0]
        if size > block_bytes:
            raise ValueError(f"its length field says {counted(size, 'byte')}, which is too long")
        unpacked: bytes = pa.Codec(codec).decompress(block, decompressed_size=size, asbytes=True)
        return unpacked
    except (ValueError, OSError, EOFError, MemoryError, zlib.error) as e:
        raise CorruptFileError(f"the {codec} block of the ORC tail cannot be unpacked: {e}", offset=at) from e
