"""Finds the entries in a block of a manifest, and their partitions, without decoding the entries.

Each entry begins with its version, its kind and its partition, and a partition begins with its number of columns. The
functions search the unpacked block for this pattern of bytes. Other bytes can look the same by chance, and damaged
bytes can hide an entry. So the result counts only if the pattern is found as often as the block has entries by its own
count, and if each partition is as long as its values need. Otherwise the caller must decode the block.

Source: Avro 1.11 specification, binary encoding; Paimon 2.0 ManifestEntrySerializer, SerializationUtils.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from bucketline.state.format.avro.container import RecordBlock, encode_varint
from bucketline.state.types.binary_row import row_bytes
from bucketline.state.types.logical import DataType

_FIRST_FIELDS = ("_VERSION", "_KIND", "_PARTITION")
_FIRST_TYPES = (("int", "long"), ("int", "long"), ("bytes",))
_VERSION, _ADD, _DELETE = map(encode_varint, (2, 0, 1))


@dataclass(frozen=True, slots=True)
class EntryStarts:
    """The entries in a block. `partitions` has the partition of each entry, and `spans` the start and the end of each
    entry, as byte positions in the unpacked block. `deleted` is the number of DELETE entries.
    """

    partitions: tuple[bytes, ...]
    spans: tuple[tuple[int, int], ...]
    deleted: int


def find_entry_starts(block: RecordBlock, types: Sequence[DataType]) -> EntryStarts | None:
    """Returns the places and the partitions of the entries of a block. `types` are the types of the table's partition
    columns. Returns None if the table has no partition columns, or if the places are not certain; then the caller must
    decode the block.

    Raises CorruptFileError if the block cannot be unpacked.
    """
    if not types or not _begins_with_partition(block):
        return None
    body = block.body()
    partitions: list[bytes] = []
    starts: list[int] = []
    deleted = 0
    for start in _pattern(len(types)).finditer(body):
        at, varint = start.end(), start[2]
        size = varint[0] >> 1 if len(varint) == 1 else _size(varint)
        partitions.append(body[at : at + size])
        starts.append(start.start())
        deleted += start[1] == _DELETE
    if len(starts) != block.count or starts[0] != 0 or any(row_bytes(p, types) != len(p) for p in {*partitions}):
        return None
    return EntryStarts(tuple(partitions), tuple(pairwise((*starts, len(body)))), deleted)


def _begins_with_partition(block: RecordBlock) -> bool:
    first = block.fields[: len(_FIRST_FIELDS)]
    names = tuple(name for name, _ in first)
    return names == _FIRST_FIELDS and all(t in known for (_, t), known in zip(first, _FIRST_TYPES, strict=True))


@lru_cache(maxsize=64)
def _pattern(column_count: int) -> re.Pattern[bytes]:
    kind = b"([" + re.escape(_ADD + _DELETE) + b"])"
    size = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
    columns = b"(?=" + re.escape(column_count.to_bytes(4, "big")) + b")"
    return re.compile(re.escape(_VERSION) + kind + size + columns)


def _size(varint: bytes) -> int:
    value = 0
    for i, byte in enumerate(varint):
        value |= (byte & 0x7F) << (7 * i)
    return value >> 1
