"""Checksums of a whole ORC file, stored in its footer as user metadata, which other readers ignore.

The file's bytes up to the checksums are taken in blocks of one size, so that a reader who wants a few columns has to
check little more than he reads. The checksums are found from the end of the file, without trusting its postscript:

    footer as written | chunk header | user metadata item: name, value | postscript | length of the postscript

with the value last in its item: format, size of a block, length of the body, one CRC-32 for each block, CRC-32 of
postscript and its length, CRC-32 of the value so far, length of the value, magic. Numbers are little-endian.
Source: ORC specification v1, file tail (Footer.metadata is member 5); Protocol Buffers wire format.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from bucketline.state.errors import CorruptFileError

TAIL_BYTES = 16 << 10
"""What is read of a file's end at first: as much as ORC's own readers do."""

LONGEST_ENDING = 256
"""Bytes of the longest postscript and its length."""

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
        """Raises CorruptFileError if block `number` does not hold the same bytes as when it was written."""
        if zlib.crc32(block) != self.values[number]:
            at = number * self.block_bytes
            raise CorruptFileError(f"the checksum of the bytes from offset {at} on does not match", offset=at)


def checked_tail(tail: bytes, *, offset: int, block_bytes: int, values: Sequence[int], started: bytes) -> bytes:
    """Returns the last bytes of an ORC file with checksums of all that comes before them; unchanged where they do not
    fit in.

    `tail` are the file's bytes from `offset` on, its postscript among them; `values` are the checksums of the blocks
    before `offset` that are whole, and `started` are the bytes of the last block before it, which is not whole.
    """
    postscript_bytes = tail[-1] + 1
    members = _varint_members(tail[-postscript_bytes:-1])
    footer_bytes, chunk_bytes, is_packed = members.get(1, 0), members.get(3, 0), members.get(2, 0) != 0
    rest = tail[: len(tail) - postscript_bytes]
    end = offset + len(rest)
    lead = b""
    # How long the lengths are depends on how many blocks there are, and those on where the value begins.
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
    """Returns the checksums at the end of a file of `size` bytes; None when it has none.

    `tail` are its last bytes, at least TAIL_BYTES or all; where they are too few, the answer is how many are needed.
    Raises CorruptFileError when the end of the file is not as it was written.
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
    """Returns the members of a postscript that are numbers."""
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
    """Returns the postscript with another length of the footer, which is its first member."""
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
