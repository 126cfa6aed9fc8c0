"""64-bit Roaring bitmaps as Paimon stores them in rbm64 columns: a radix tree of keys, then the containers. The table
shows length in bytes, byte order (LE, BE: little- and big-endian) and content.

    1      0: the bitmap is empty and ends here; 1
    8  LE  count of keys
    .      the nodes of the tree, each before its children, children by ascending key byte:
           1      kind: 0 to 3 a branch for up to 4, 16, 48 or 256 children, 4 a leaf
           2  LE  count of children          1  length of the path that all keys below share, then its bytes
           .      kind 0, 1   4, 16 key bytes, each group of 4, 8 in reverse order
                  kind 2      256 indexes of children by key byte, 0xff for none, each group of 8 in reverse order
                  kind 3      256 bits: which key bytes exist
                  kind 4      6 BE high 48 bits of the values, 8 LE number of the container
    4  LE  count of container arrays; each: 1 0xfe, 4 LE count of slots, and for each slot 0 if it is empty, or
           1, 1 kind (0 runs, 1 bits, 2 values), 4 LE count of values, then what a portable Roaring bitmap holds
    8  LE  count of containers, 4 LE and 4 LE position of the last one

The leaves contain all information of the tree, so a reader skips the branches. Java numbers containers in the order in
which they were created, and leaves gaps. This module numbers containers in the order of their keys, without gaps, so
that equal bitmaps have equal bytes.

Source: RoaringBitmap 1.2.1 Roaring64Bitmap.serialize, Art, Containers, as called by Paimon 1.4 and 2.0 RoaringBitmap64.
The authors of that library say that this format may change. Deletion vectors have another format, the portable 64-bit
one.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

import numpy as np
from pyroaring import BitMap64

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError

_EMPTY = b"\x00"
_LEAF = 4
_CHILDREN = (4, 16, 48, 256)
_BODY_BYTES = (4, 16, 256, 32)
_KEY_BYTES = 6
_NOT_TRIMMED = b"\xfe"
_NO_RUNS, _RUNS = 12346, 12347
_OFFSETS_FROM = 4
"""A portable bitmap with runs contains offsets only if it has at least this number of containers."""
_MOST_ARRAY = 4096
_BITS_BYTES = 8192


class _Kind(IntEnum):
    RUN = 0
    BITS = 1
    ARRAY = 2


@dataclass(frozen=True, slots=True)
class _Container:
    """A container of the bitmap: the low 16 bits of all values that share their high 48 bits. `payload` has the same
    bytes as in the portable format of Roaring bitmaps.
    """

    kind: _Kind
    cardinality: int
    payload: bytes


def encode_bitmap64(bitmap: BitMap64) -> bytes:
    """Returns the bytes of a bitmap. A container (the values that share their high 48 bits) is written as runs if that
    is shorter.
    """
    if not bitmap:
        return _EMPTY
    compact = BitMap64(bitmap)
    compact.run_optimize()
    containers = _read_portable(compact.serialize())
    keys = [key.to_bytes(_KEY_BYTES, "big") for key, _ in containers]
    parts = [b"\x01", struct.pack("<q", len(keys))]
    _write_node(keys, 0, len(keys), 0, parts)
    parts.append(struct.pack("<i", 1) + _NOT_TRIMMED + struct.pack("<i", len(containers)))
    for _, container in containers:
        parts.append(struct.pack("<BBi", 1, container.kind, container.cardinality))
        parts.append(container.payload)
    parts.append(struct.pack("<qii", len(containers), 0, len(containers) - 1))
    return b"".join(parts)


def decode_bitmap64(data: bytes) -> BitMap64:
    """Returns the bitmap that these bytes encode. Raises CorruptFileError if the bytes are no bitmap, or if other bytes
    follow the bitmap.
    """
    if data == _EMPTY:
        return BitMap64()
    if data[:1] != b"\x01":
        raise _corrupt(0, f"the first byte is {data[:1].hex() or 'missing'}")
    try:
        leaves, at = _read_leaves(data)
        containers, at = _read_containers(data, at)
        if at + 16 != len(data):
            raise _corrupt(at, f"{counted(len(data) - at, 'byte')} follow instead of 16")
        if sorted(number for _, number in leaves) != sorted(containers):
            raise _corrupt(at, "the leaves of the tree do not refer to the containers that follow it")
        bitmap = BitMap64.deserialize(_write_portable([(key, containers[number]) for key, number in leaves]))
    except struct.error as e:
        raise _corrupt(len(data), "it ends too early") from e
    except (ValueError, IndexError, MemoryError) as e:
        raise _corrupt(0, str(e)) from e
    return bitmap


def _read_leaves(data: bytes) -> tuple[list[tuple[int, int]], int]:
    """Returns the high 48 bits and the container number of each leaf, in ascending order, and the offset at which the
    tree ends.
    """
    (key_count,) = struct.unpack_from("<q", data, 1)
    at, open_nodes = 9, 1
    leaves: list[tuple[int, int]] = []
    while open_nodes:
        kind, children, path_length = struct.unpack_from("<BHB", data, at)
        at += 4
        if kind == _LEAF:
            top, low = struct.unpack_from(">IH", data, at)
            (number,) = struct.unpack_from("<q", data, at + _KEY_BYTES)
            key = top << 16 | low
            if leaves and key <= leaves[-1][0]:
                raise _corrupt(at, f"key {key} follows key {leaves[-1][0]}, but keys must ascend")
            leaves.append((key, number))
            at += _KEY_BYTES + 8
        elif kind > _LEAF or not 0 < children <= _CHILDREN[kind] or path_length >= _KEY_BYTES:
            raise _corrupt(
                at - 4, f"no valid node: kind {kind}, {children} children, a path of {counted(path_length, 'byte')}"
            )
        else:
            at += path_length + _BODY_BYTES[kind]
            open_nodes += children
        open_nodes -= 1
    if len(leaves) != key_count:
        raise _corrupt(1, f"the header says {counted(key_count, 'key')}, but the tree has {len(leaves)}")
    return leaves, at


def _read_containers(data: bytes, at: int) -> tuple[dict[int, _Container], int]:
    """Reads the containers, which begin at offset `at`. Returns each container by its number, and the offset at which
    the last container ends.
    """
    containers: dict[int, _Container] = {}
    (array_count,) = struct.unpack_from("<i", data, at)
    at += 4
    for array in range(array_count):
        mark, place_count = struct.unpack_from("<ci", data, at)
        if mark != _NOT_TRIMMED:
            raise _corrupt(at, f"a container array begins with {mark.hex()}")
        at += 5
        for place in range(place_count):
            (present,) = struct.unpack_from("<B", data, at)
            at += 1
            if present:
                containers[array << 32 | place], at = _read_container(data, at)
    return containers, at


def _read_container(data: bytes, at: int) -> tuple[_Container, int]:
    code, cardinality = struct.unpack_from("<Bi", data, at)
    start = at + 5
    if code > _Kind.ARRAY or not 0 < cardinality <= 1 << 16:
        raise _corrupt(at, f"a container of kind {code} with {cardinality} values")
    kind = _Kind(code)
    if kind is _Kind.ARRAY and cardinality > _MOST_ARRAY:
        raise _corrupt(at, f"a list of {cardinality} values is longer than {_MOST_ARRAY}")
    container, at = _container_at(data, start, kind, cardinality)
    if len(container.payload) != at - start:
        raise struct.error
    if kind is _Kind.BITS and cardinality <= _MOST_ARRAY:
        # The portable format distinguishes the two kinds only by the number of values.
        bits = np.unpackbits(np.frombuffer(container.payload, np.uint8), bitorder="little")
        values = np.flatnonzero(bits).astype("<u2")
        if len(values) != cardinality:
            raise _corrupt(start, f"{len(values)} bits are set, not {cardinality}")
        container = _Container(_Kind.ARRAY, cardinality, values.tobytes())
    return container, at


def _container_at(data: bytes, at: int, kind: _Kind, cardinality: int) -> tuple[_Container, int]:
    """Reads a container: a part of a Roaring bitmap, with up to 65,536 values. The bytes of the container begin at
    offset `at`. `cardinality` is the number of its values, and `kind` is the form in which they are stored. Returns the
    container and the offset at which its bytes end. If the data end too early, the bytes of the container are cut
    short.
    """
    if kind is _Kind.RUN:
        (run_count,) = struct.unpack_from("<H", data, at)
        end = at + 2 + 4 * run_count
    else:
        end = at + (_BITS_BYTES if kind is _Kind.BITS else 2 * cardinality)
    return _Container(kind, cardinality, data[at:end]), end


def _write_node(keys: Sequence[bytes], start: int, end: int, depth: int, parts: list[bytes]) -> None:
    """Writes a part of the tree that stores the bitmap: appends to `parts` the bytes of the subtree for the keys from
    `start` up to `end`. These keys have their first `depth` bytes in common.
    """
    first, last = keys[start], keys[end - 1]
    if end - start == 1:
        parts.append(struct.pack("<BHB", _LEAF, 0, 0) + first + struct.pack("<q", start))
        return
    split = next(i for i in range(depth, _KEY_BYTES) if first[i] != last[i])
    borders = [start]
    borders += [i for i in range(start + 1, end) if keys[i][split] != keys[i - 1][split]]
    kind = next(i for i, most in enumerate(_CHILDREN) if len(borders) <= most)
    parts.append(struct.pack("<BHB", kind, len(borders), split - depth) + first[depth:split])
    parts.append(_branch_body(kind, bytes(keys[i][split] for i in borders)))
    for lower, upper in zip(borders, [*borders[1:], end], strict=True):
        _write_node(keys, lower, upper, split + 1, parts)


def _branch_body(kind: int, key_bytes: bytes) -> bytes:
    if kind == 3:
        return sum(1 << key_byte for key_byte in key_bytes).to_bytes(32, "little")
    if kind == 2:
        places = bytearray(b"\xff" * 256)
        for place, key_byte in enumerate(key_bytes):
            places[key_byte] = place
        return _turned(bytes(places), 8)
    return _turned(key_bytes.ljust(_CHILDREN[kind], b"\x00"), 4 if kind == 0 else 8)


def _turned(data: bytes, group: int) -> bytes:
    return b"".join(data[i : i + group][::-1] for i in range(0, len(data), group))


def _write_portable(containers: Sequence[tuple[int, _Container]]) -> bytes:
    """Takes the containers in the order of their keys, and returns a bitmap in the portable 64-bit format: the number
    of bitmaps, and for each bitmap the high 32 bits and a 32-bit bitmap.
    """
    parts = [b""]
    for high, group in groupby(containers, key=lambda entry: entry[0] >> 16):
        parts.append(struct.pack("<I", high) + _write_portable32([(key & 0xFFFF, c) for key, c in group]))
    parts[0] = struct.pack("<q", len(parts) - 1)
    return b"".join(parts)


def _write_portable32(containers: Sequence[tuple[int, _Container]]) -> bytes:
    count = len(containers)
    runs = sum(1 << i for i, (_, c) in enumerate(containers) if c.kind is _Kind.RUN)
    if runs:
        head = struct.pack("<I", _RUNS | (count - 1) << 16) + runs.to_bytes((count + 7) // 8, "little")
    else:
        head = struct.pack("<II", _NO_RUNS, count)
    head += b"".join(struct.pack("<HH", key, c.cardinality - 1) for key, c in containers)
    payloads = [c.payload for _, c in containers]
    if not runs or count >= _OFFSETS_FROM:
        sizes = [len(head) + 4 * count, *map(len, payloads[:-1])]
        head += np.cumsum(sizes).astype("<u4").tobytes()
    return head + b"".join(payloads)


def _read_portable(data: bytes) -> list[tuple[int, _Container]]:
    """Splits a bitmap in the portable 64-bit format into its containers, and returns each with the high 48 bits of its
    values, in ascending order. The bitmap must be one that this process has just serialized.
    """
    containers: list[tuple[int, _Container]] = []
    (bitmap_count,) = struct.unpack_from("<q", data)
    at = 8
    for _ in range(bitmap_count):
        high, cookie = struct.unpack_from("<II", data, at)
        at += 8
        runs = 0
        if cookie & 0xFFFF == _RUNS:
            count = (cookie >> 16) + 1
            size = (count + 7) // 8
            runs = int.from_bytes(data[at : at + size], "little")
            at += size
        else:
            (count,) = struct.unpack_from("<I", data, at)
            at += 4
        heads = list(struct.iter_unpack("<HH", data[at : at + 4 * count]))
        at += 4 * count + (4 * count if not runs or count >= _OFFSETS_FROM else 0)
        for i, (low, fewer) in enumerate(heads):
            full = _Kind.BITS if fewer >= _MOST_ARRAY else _Kind.ARRAY
            container, at = _container_at(data, at, _Kind.RUN if runs >> i & 1 else full, fewer + 1)
            containers.append((high << 16 | low, container))
    return containers


def _corrupt(offset: int, reason: str) -> CorruptFileError:
    return CorruptFileError(
        f"the bytes are no 64-bit Roaring bitmap as Java stores it: at offset {offset}: {reason}", offset=offset
    )
