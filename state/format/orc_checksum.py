"""Checksums of a whole ORC file, stored in its footer as user metadata, which other readers ignore.

The bytes before the checksums are divided into blocks of equal size. So a reader of a few columns checks little more
than the bytes that it reads. The reader finds the checksums from the end of the file, without trusting ORC's
postscript. The end of the file is:

    footer as written | chunk header | user metadata item: name, value | postscript | length of the postscript

The value is the last part of the user metadata item. The value holds, in this order: format, block size, length of the
body, a CRC-32 for each block, a CRC-32 of the postscript and its length, a CRC-32 of the value up to here, length of
the value, magic number. Numbers are little-endian. Source: ORC specification v1, file tail (Footer.metadata is member
5); Protocol Buffers wire format.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from bucketline.state.errors import CorruptFileError

TAIL_BYTES = 16 << 10
"""The number of bytes that are read first from the end of a file. ORC's own readers read as many."""

LONGEST_ENDING = 256
"""The largest number of bytes that a postscript and its length can take."""

_NAME = b"bucketline.crc32"
_MAGIC = b"BKLT-CRC"
_HEAD = struct.Struct("<IIQ")
_CRC = struct.Struct("<I")
_FOOT = struct.Struct("<III8s")
_FORMAT = 1
_USER_METADATA = 5 << 3 | 2
_CHUNK_LIMIT = 1 << 23


@dataclass(frozen=True, slots=True)
class BlockChecksums:
    """CRC-32 of each block of the first `body_bytes` bytes of a file; the last block may be shorter."""

    block_bytes: int
    body_bytes: int
    values: tuple[int, ...]

    def check(self, number: int, block: "bytes | memoryview") -> None:
        """Raises CorruptFileError if the checksum of block `number` does not match the bytes in `block`."""
        if zlib.crc32(block) != self.values[number]:
            at = number * self.block_bytes
            raise CorruptFileError(f"the checksum of the bytes from offset {at} on does not match", offset=at)


def checked_tail(tail: bytes, *, offset: int, block_bytes: int, values: Sequence[int], started: bytes) -> bytes:
    """Takes the last bytes of an ORC file, and returns them with the checksums of the whole file added. If the
    checksums do not fit into the footer, the function returns the bytes unchanged.

    `tail` holds the file's bytes from `offset` on, including the postscript. `values` are the checksums of the complete
    blocks before `offset`, and `started` holds the bytes of the incomplete block right before `offset`.
    """
    postscript_bytes = tail[-1] + 1
    members = _varint_members(tail[-postscript_bytes:-1])
    footer_bytes, chunk_bytes, is_packed = members.get(1, 0), members.get(3, 0), members.get(2, 0) != 0
    rest = tail[: len(tail) - postscript_bytes]
    end = offset + len(rest)
    lead = b""
    # The length fields depend on the number of blocks, which depends on where the value begins. So repeat until both
    # agree.
    for _ in range(4):
        body_bytes = end + len(lead)
        value_bytes = _HEAD.size + _CRC.size * -(-body_bytes // block_bytes) + _FOOT.size
        item = b"\x0a" + _varint(len(_NAME)) + _NAME + b"\x12" + _varint(value_bytes)
        member = _varint(_USER_METADATA) + _varint(len(item) + value_bytes) + item
        chunk = len(member) + value_bytes
        if is_packed and chunk > min(chunk_bytes, _CHUNK_LIMIT - 1):
            return tail
        lead = ((chunk << 1 | 1).to_bytes(3, "little") if is_packed else b"") + member
    postscript = _with_footer_length(tail[-postscript_bytes:-1], footer_bytes + len(lead) + value_bytes)
    if end + len(lead) != body_bytes or len(postscript) > 255:
        return tail
    ending = postscript + bytes([len(postscript)])
    body = started + rest + lead
    checksums = [*values, *(zlib.crc32(body[i : i + block_bytes]) for i in range(0, len(body), block_bytes))]
    value = _HEAD.pack(_FORMAT, block_bytes, body_bytes) + b"".join(map(_CRC.pack, checksums))
    value += _CRC.pack(zlib.crc32(ending))
    value += _CRC.pack(zlib.crc32(value)) + _CRC.pack(value_bytes) + _MAGIC
    return rest + lead + value + ending


def read_checksums(tail: bytes, size: int) -> BlockChecksums | int | None:
    """Returns the checksums of a file of `size` bytes; None if the file has no checksums.

    `tail` holds the last bytes of the file: at least TAIL_BYTES, or the whole file. If `tail` is too short, the
    function returns how many bytes it must have. Raises CorruptFileError if the end of the file is damaged.
    """
    at = tail.rfind(_MAGIC, max(0, len(tail) - LONGEST_ENDING - len(_MAGIC)))
    if at < 0:
        return None
    end = at + len(_MAGIC)
    start_of_foot = end - _FOOT.size
    if start_of_foot < 0:
        return None
    ending_crc, own_crc, value_bytes, _ = _FOOT.unpack(tail[start_of_foot:end])
    place = size - len(tail) + start_of_foot
    if not _HEAD.size + _FOOT.size <= value_bytes <= size:
        raise CorruptFileError("the checksums at the end of the ORC file are damaged", offset=place)
    if value_bytes > end:
        return int(value_bytes + len(tail) - end)
    value = tail[end - value_bytes : end]
    checked, crcs = value[: -_FOOT.size + _CRC.size], value[_HEAD.size : -_FOOT.size]
    form: int
    block_bytes: int
    body_bytes: int
    form, block_bytes, body_bytes = _HEAD.unpack(value[: _HEAD.size])
    if zlib.crc32(checked) != own_crc or zlib.crc32(tail[end:]) != ending_crc:
        raise CorruptFileError("the checksums at the end of the ORC file are damaged", offset=place)
    if form != _FORMAT:
        return None
    values = tuple(v for (v,) in _CRC.iter_unpack(crcs))
    if body_bytes != size - len(tail) + end - value_bytes or len(values) != -(-body_bytes // block_bytes):
        raise CorruptFileError("the checksums at the end of the ORC file belong to another file", offset=place)
    return BlockChecksums(block_bytes, body_bytes, values)


def _varint_members(postscript: bytes) -> dict[int, int]:
    """Returns the integer members of a postscript, by their field number in the Protocol Buffers message."""
    members: dict[int, int] = {}
    at = 0
    while at < len(postscript):
        tag, at = _read_varint(postscript, at)
        value, at = _read_varint(postscript, at)
        if tag & 7 == 0:
            members[tag >> 3] = value
        else:
            at += value
    return members


def _with_footer_length(postscript: bytes, footer_bytes: int) -> bytes:
    """Returns the postscript with its first member, the length of the footer, changed to `footer_bytes`."""
    tag, at = _read_varint(postscript, 0)
    assert tag == 1 << 3, "ORC's postscript begins with the length of the footer"
    _, at = _read_varint(postscript, at)
    return _varint(tag) + _varint(footer_bytes) + postscript[at:]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
