"""Reads and writes Avro object containers, the file format of manifests, manifest lists and index manifests.

The framing of the container is written here, because fastavro would need another package for each codec. fastavro
decodes and encodes the records, with one call for each block. fastavro gets a block as one Avro array, which differs
from the bytes of the block only in the item count.

Source: Avro 1.11 specification, object container files; Paimon 2.0 AvroFileFormat, AvroSchemaConverter.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO

import fastavro

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.codec import is_read, pack_block, unpack_block
from bucketline.state.format.avro.schema import (
    MALFORMED,
    AvroRecordFormat,
    Json,
    holds_records,
    reading_schema,
    record_fields,
)

Record = dict[str, object]

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
BLOCK_RECORDS = 2048
_HEADER_BYTES = 1 << 16
_MAX_VARINT_BYTES = 10
DEFAULT_CODEC = "zstandard"
_CHECKSUM = "bucketline.crc32"
"""The header entry that holds a checksum of the schema and the codec. Other readers ignore it."""


@dataclass(frozen=True, slots=True)
class Block:
    """One unpacked block of a container. `offset` is where the block begins in the file, and `count` its number of
    records.
    """

    offset: int
    count: int
    body: bytes


class BlockReader:
    """Iterates over the blocks of a container from front to back, with one block in memory at a time.

    `read(n)` returns the next n bytes, and fewer only at the end of the file; `size` is the length of the file. The
    reader raises the same errors as `open_container`.
    """

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self._read, self._size = read, size
        self._at, self._data = 0, b""
        head = _HEADER_BYTES
        while True:
            self._fill(head)
            try:
                entries, after = _container_header(self._data)
                break
            except CorruptFileError:
                if head >= size or self._data[: len(MAGIC)] != MAGIC:
                    raise
                head *= 2
        self.schema_text, self._codec = _schema_and_codec(entries)
        self._sync = self._data[after - SYNC_BYTES : after]
        self._drop(after)
        self._block_at = self._at

    @property
    def offset(self) -> int:
        """Returns the position in bytes of the block that was returned last; before that, the position of the first
        block.
        """
        return self._block_at

    def __iter__(self) -> Iterator[Block]:
        while self._at < self._size:
            start = self._at
            self._fill(2 * _MAX_VARINT_BYTES)
            count, at = self._shifted(_read_varint, 0)
            length, at = self._shifted(_read_varint, at)
            if count < 0 or not 0 <= length <= self._size - start - at - SYNC_BYTES:
                raise CorruptFileError(
                    f"the block at offset {start} says that it has {counted(count, 'record')} in "
                    f"{counted(length, 'byte')}, which is impossible",
                    offset=start,
                )
            self._fill(at + length + SYNC_BYTES)
            body, end = self._data[at : at + length], at + length + SYNC_BYTES
            if self._data[at + length : end] != self._sync:
                raise CorruptFileError(
                    f"the Avro sync marker is missing at offset {start + at + length}", offset=start + at + length
                )
            self._drop(end)
            self._block_at = start
            unpacked = unpack_block(self._codec, body, start) if body else b""
            if count:
                yield Block(start, count, unpacked)
            elif unpacked:
                raise _no_records(start, len(unpacked))

    def _shifted(self, parse: Callable[[bytes, int], tuple[int, int]], at: int) -> tuple[int, int]:
        try:
            return parse(self._data, at)
        except CorruptFileError as e:
            raise CorruptFileError(
                f"the bytes at offset {self._at + at} are no valid Avro long", offset=self._at + at
            ) from e

    def _fill(self, count: int) -> None:
        """Reads from the file until at least `count` unread bytes are in memory, or the file ends."""
        if len(self._data) < count:
            self._data += self._read(max(count - len(self._data), _HEADER_BYTES))

    def _drop(self, count: int) -> None:
        self._data = self._data[count:]
        self._at += count


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """One block of records, which is neither unpacked nor decoded yet. `offset` is where the block begins in the file,
    and `count` its number of records.

    `fields` are the names and Avro types of the fields of a record, in the order in which the bytes of a record hold
    them. The list is empty if the block may hold nulls instead of records.
    """

    offset: int
    count: int
    fields: Sequence[tuple[str, object]]
    _codec: str
    _packed: bytes
    _items: object
    _required: Json
    """The schema in which the records are checked for nulls; None if the writer's schema allows no such nulls."""

    def body(self) -> bytes:
        """Unpacks the block, and returns the encoded records. Raises CorruptFileError if the block is damaged."""
        return unpack_block(self._codec, self._packed, self.offset)

    def records(self) -> list[Record]:
        """Returns all records of the block as dicts. Raises CorruptFileError if the block is damaged."""
        return self._decoded(self.body(), self.count)

    def records_at(self, spans: Sequence[tuple[int, int]]) -> list[Record]:
        """Returns some of the records of the block. `spans` has the start and the end of each wanted record, as byte
        positions in the unpacked block. Raises CorruptFileError if the bytes there are not one record for each span.
        """
        body = self.body()
        return self._decoded(b"".join([body[start:end] for start, end in spans]), len(spans))

    def _decoded(self, body: bytes, count: int) -> list[Record]:
        source = BytesIO(encode_varint(count) + body + b"\0")
        try:
            records: list[Record] = fastavro.schemaless_reader(source, self._items)
        except MALFORMED as e:
            raise CorruptFileError(
                f"the block at offset {self.offset} holds no valid Avro records: {e!r}", offset=self.offset
            ) from e
        if len(records) != count or source.tell() != len(source.getbuffer()):
            raise CorruptFileError(
                f"the block at offset {self.offset} does not hold exactly {counted(self.count, 'record')}, as it says",
                offset=self.offset,
            )
        if self._required is not None and not all(holds_records(record, self._required) for record in records):
            raise CorruptFileError(
                f"the block at offset {self.offset} holds a null where a record is required", offset=self.offset
            )
        return records


@dataclass(frozen=True, slots=True)
class Container:
    """An opened container: the writer's schema as JSON text, and the blocks, which are not unpacked yet."""

    schema_text: bytes
    codec: str
    packed: tuple[tuple[int, int, bytes], ...]

    def blocks(self) -> Iterator[tuple[int, int, bytes]]:
        """Yields the offset in the file, the count of records and the unpacked bytes of each block, in file order."""
        for offset, count, data in self.packed:
            yield offset, count, unpack_block(self.codec, data, offset)


def encode_records(records: Sequence[Record], form: AvroRecordFormat, codec: str = DEFAULT_CODEC) -> bytes:
    """Returns the bytes of a container with the records, in order. The same records always give the same bytes.

    The sync marker is computed from the content, because this code uses no randomness.
    """
    blocks: list[tuple[int, bytes]] = []
    for start in range(0, len(records), BLOCK_RECORDS):
        chunk = list(records[start : start + BLOCK_RECORDS])
        out = BytesIO()
        fastavro.schemaless_writer(out, form.items, chunk)
        body = out.getvalue()[len(encode_varint(len(chunk))) : -1]
        blocks.append((len(chunk), pack_block(codec, body)))
    header = container_header(form.text, codec)
    digest = blake2b(header, digest_size=SYNC_BYTES)
    for _, body in blocks:
        digest.update(body)
    sync = digest.digest()
    parts = [header, sync]
    for count, body in blocks:
        parts += (encode_varint(count), _prefixed(body), sync)
    return b"".join(parts)


def container_header(schema_text: bytes, codec: str) -> bytes:
    """Returns the header of a container, with the schema, the codec and a checksum of both. The sync marker, which
    follows the header, is not included.
    """
    entries = (b"avro.schema", schema_text, b"avro.codec", codec.encode())
    checksum = (_CHECKSUM.encode(), _header_checksum(schema_text, codec.encode()))
    return b"".join((MAGIC, encode_varint(3), *(_prefixed(b) for b in (*entries, *checksum)), encode_varint(0)))


def _header_checksum(schema_text: bytes, codec: bytes) -> bytes:
    return f"{zlib.crc32(codec, zlib.crc32(schema_text)):08x}".encode()


def iterate_records(data: bytes, form: AvroRecordFormat) -> Iterator[Record]:
    """Yields the records of a container as dicts, whose keys are the field names of the *writer's* schema. A nullable
    field may be missing.

    Fields that `form` does not have are in the dicts too. A timestamp is an integer, as it is stored. Blocks are
    unpacked one by one.
    When the first record is asked for, raises CorruptFileError if the bytes are no container, or if the schema in it
    lacks a required field or has a field of another type than `form`.
    """
    for block in record_blocks(data, form):
        yield from block.records()


def record_blocks(data: bytes, form: AvroRecordFormat) -> Iterator[RecordBlock]:
    """Yields the blocks of a container whose records have the format `form`. Raises the errors of `iterate_records`,
    except those for a damaged block.
    """
    container = open_container(data)
    items, may_lack = reading_schema(container.schema_text, form)
    fields = record_fields(items)
    required = form.schema if may_lack else None
    for offset, count, packed in container.packed:
        yield RecordBlock(offset, count, fields, container.codec, packed, items, required)


def open_container(data: bytes) -> Container:
    """Checks the framing of the container in the bytes and returns the container. No block is unpacked yet.

    Raises CorruptFileError, which names the offset, for a wrong magic number, header, block size or sync marker, and
    for an unknown codec.
    """
    entries, at = _container_header(data)
    schema_text, codec = _schema_and_codec(entries)
    sync = data[at - SYNC_BYTES : at]
    packed: list[tuple[int, int, bytes]] = []
    while at < len(data):
        start = at
        count, at = _read_varint(data, at)
        body, at = _read_prefixed(data, at)
        if data[at : at + SYNC_BYTES] != sync:
            raise CorruptFileError(f"the Avro sync marker is missing at offset {at}", offset=at)
        at += SYNC_BYTES
        if count < 0:
            raise CorruptFileError(f"the block at offset {start} has a negative count", offset=start)
        if count:
            packed.append((start, count, body))
        elif body and (unpacked := unpack_block(codec, body, start)):
            raise _no_records(start, len(unpacked))
    return Container(schema_text, codec, tuple(packed))


def _no_records(offset: int, size_bytes: int) -> CorruptFileError:
    return CorruptFileError(
        f"the block at offset {offset} has {counted(size_bytes, 'byte')} and no records", offset=offset
    )


def _container_header(data: bytes) -> tuple[dict[str, bytes], int]:
    """Returns the entries of the header, and the offset of the first byte after the header's sync marker."""
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptFileError("the file is no Avro container: the first four bytes are not Obj1", offset=0)
    entries, at = _header(data, len(MAGIC))
    if len(data) < at + SYNC_BYTES:
        raise CorruptFileError("the Avro header ends before its sync marker", offset=at)
    return entries, at + SYNC_BYTES


def _schema_and_codec(entries: dict[str, bytes]) -> tuple[bytes, str]:
    if "avro.schema" not in entries:
        raise CorruptFileError("the Avro header has no entry avro.schema", offset=len(MAGIC))
    stated = entries.get(_CHECKSUM)
    if stated is not None and stated != _header_checksum(entries["avro.schema"], entries.get("avro.codec", b"")):
        raise CorruptFileError("the checksum of the Avro header does not match", offset=len(MAGIC))
    codec = entries.get("avro.codec", b"null").decode("ascii", "replace")
    if not is_read(codec):
        raise CorruptFileError(f"this release cannot read the Avro codec {codec!r}", codec=codec, offset=len(MAGIC))
    return entries["avro.schema"], codec


def _header(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    entries: dict[str, bytes] = {}
    while True:
        count, at = _read_varint(data, at)
        if count == 0:
            return entries, at
        if count < 0:
            _, at = _read_varint(data, at)
            count = -count
        for _ in range(count):
            key, at = _read_prefixed(data, at)
            value, at = _read_prefixed(data, at)
            entries[key.decode("utf-8", "replace")] = value


def encode_varint(value: int) -> bytes:
    """Returns an integer in Avro's encoding of a long."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _prefixed(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + i + 1
    raise CorruptFileError(f"the bytes at offset {at} are no valid Avro long", offset=at)


def _read_prefixed(data: bytes, at: int) -> tuple[bytes, int]:
    size, start = _read_varint(data, at)
    if not 0 <= size <= len(data) - start:
        raise CorruptFileError(
            f"the length at offset {at} is {counted(size, 'byte')}, but only {counted(len(data) - start, 'byte')} "
            "follow in the file",
            offset=at,
        )
    return data[start : start + size], start + size
