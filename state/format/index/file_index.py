"""The index of one data file: the stored indexes of its columns, in a file next to the data file or in its manifest
entry.

All integers are big-endian, and names are in Java's modified UTF-8.
Source: Paimon 2.0 FileIndexFormat; docs/concepts/spec/fileindex.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError

INDEX_SUFFIX = ".index"
"""The name of an index file is the name of its data file with this suffix."""

HEAD_START_BYTES = 16
"""The number of bytes at the start of an index that `head_bytes` needs to tell the length of the index's head."""

_MAGIC = 1493475289347502
_VERSION = 1
_NOTHING = -1
_START = struct.Struct(">qii")
_NUMBER = struct.Struct(">i")
_PLACE = struct.Struct(">ii")
_LENGTH = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """The position of a column's index inside the index file, in bytes. `length` is 0 if the column has no rows."""

    column: str
    kind: str
    start: int
    length: int


def index_name(column: str, map_key: str | None = None) -> str:
    """Returns the name under which an index file stores the index of a column. If `map_key` is given, the column is a
    map, and the index has only the values of this key.
    """
    return column if map_key is None else f"{column}[{map_key}]"


def encode_file_index(columns: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Returns the bytes of an index file. `columns` maps the name of each column to its encoded indexes, by the kind of
    index.
    """
    head_length = _START.size + 2 * _NUMBER.size
    for column, kinds in columns.items():
        head_length += len(_modified_utf8(column)) + _NUMBER.size
        head_length += sum(len(_modified_utf8(kind)) + _PLACE.size for kind in kinds)
    head = bytearray(_START.pack(_MAGIC, _VERSION, head_length) + _NUMBER.pack(len(columns)))
    body = bytearray()
    for column, kinds in columns.items():
        head += _modified_utf8(column) + _NUMBER.pack(len(kinds))
        for kind, stored in kinds.items():
            head += _modified_utf8(kind) + _PLACE.pack(head_length + len(body), len(stored))
            body += stored
    return bytes(head + _NUMBER.pack(0) + body)


def head_bytes(start: bytes) -> int:
    """Returns the length of the head in bytes. `start` holds the first `HEAD_START_BYTES` of the index file. Raises
    CorruptFileError if these bytes are not the start of an index file.
    """
    if len(start) < _START.size:
        raise CorruptFileError(f"a file index of {counted(len(start), 'byte')} ends inside its head", offset=len(start))
    magic, version, length = _START.unpack_from(start)
    if magic != _MAGIC or length < _START.size:
        raise CorruptFileError("the bytes are no file index: the magic number is wrong", offset=0)
    if version != _VERSION:
        raise CorruptFileError(
            f"the file index has version {version}; this release reads version {_VERSION} only", offset=8
        )
    return int(length)


def decode_head(head: bytes) -> tuple[StoredIndex, ...]:
    """Returns the position of each index that the head of an index file lists. `head` may have more bytes than the
    head, up to the whole file. Raises CorruptFileError if the head is damaged.
    """
    at, found = _START.size, []
    try:
        if head_bytes(head) > len(head):
            raise CorruptFileError(
                f"a file index ends inside its head, after {counted(len(head), 'byte')}", offset=len(head)
            )
        (column_count,) = _NUMBER.unpack_from(head, at)
        at += _NUMBER.size
        for _ in range(column_count):
            column, at = _name_at(head, at)
            (kind_count,) = _NUMBER.unpack_from(head, at)
            at += _NUMBER.size
            for _ in range(kind_count):
                kind, at = _name_at(head, at)
                start, length = _PLACE.unpack_from(head, at)
                at += _PLACE.size
                found.append(StoredIndex(column, kind, max(0, start), 0 if start == _NOTHING else length))
    except (struct.error, UnicodeDecodeError) as e:
        raise CorruptFileError(f"the head of a file index cannot be read: {e}", offset=at) from e
    return tuple(found)


def _name_at(head: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(head, at)
    at += _LENGTH.size
    if at + length > len(head):
        raise CorruptFileError("the head of a file index ends inside a name", offset=at)
    # In modified UTF-8, each surrogate is encoded by itself, and a NUL takes two bytes.
    text = head[at : at + length].replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16"), at + length


def _modified_utf8(text: str) -> bytes:
    """Returns a name in Java's modified UTF-8, after its length in bytes."""
    units = text.encode("utf-16-be", "surrogatepass")
    halves = "".join(chr(int.from_bytes(units[i : i + 2], "big")) for i in range(0, len(units), 2))
    encoded = halves.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return _LENGTH.pack(len(encoded)) + encoded
