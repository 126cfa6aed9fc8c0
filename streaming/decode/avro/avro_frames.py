"""Finds the schema of each record. The record names it in a frame before its body, or in one of its headers.

A frame is byte 0 and the schema's id (four bytes, highest first), or byte 1 and the schema's GUID. Some serializers
write these bytes as a header and leave the body without a frame. The header is then put before the body, so that all
other code sees one form.
Source: Confluent's wire format; confluent-kafka 2.16 SchemaId; Apicurio 2.6 DefaultIdHandler, whose ids are global ids
unless configured otherwise; AWS Glue's AWSSchemaRegistryConstants.
"""

import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.streaming.decode.avro.avro_cursor import Longs

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
_ID_FRAME, _GUID_FRAME, _LONG_ID_FRAME, _GLUE_FRAME = 5, 17, 9, 18
_FIRST_ID, _FIRST_GUID = b"\x00", b"\x01"
_NO_FRAME = (
    "not in the frame of a schema registry (byte 0, then the schema's id in four bytes); was it written by another "
    "serializer? Ids in headers are read with source.options.includeHeaders set to true"
)
_APICURIO = (
    "in the frame of Apicurio's serializers with an id of eight bytes, which cannot be read, because the id may not "
    "be one of the registry's Confluent API; configure the serializers to write content ids in four bytes "
    "(apicurio.registry.as-confluent=true and apicurio.registry.use-id=contentId)"
)
_GLUE = "in the frame of AWS Glue's serializers, which cannot be read"
_LAST_ID = b"\x7f\xff\xff\xff"
"""The largest id. Registries use signed integers, so a larger id means that the record is damaged."""
_NO_ID = b"\x00" * 4
"""No registry uses the id 0. These bytes are the beginning of a longer id."""
_GLUE_STARTS = (b"\x03\x00", b"\x03\x05")

SchemaName = int | uuid.UUID
"""The name of a schema in records: its id in the registry, or its GUID."""


@dataclass(frozen=True, slots=True)
class Group:
    """Avro records with the same schema. `positions` are the positions of these records in the batch, in ascending
    order. `begin` is the number of bytes before the body of each record: the frame, which names the schema.
    """

    name: SchemaName
    positions: Longs
    begin: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Records grouped by the schema that they name. `bad` has the records that name no schema: the position of the
    record, and the reason why the record is bad.
    """

    groups: tuple[Group, ...]
    bad: dict[int, str]


def with_frames(records: pa.Array, headers: pa.Array | None, name: str) -> pa.Array:
    """Returns the records as binary values. The header `name` of a record may hold the frame that names the record's
    schema (for example byte 0 and the schema's id). Then the bytes of this header are put before the record. Nulls stay
    nulls.

    `headers` are the lists of headers of the records; None if the source has no headers.
    """
    if headers is None or headers.null_count == len(headers):
        return records
    entries = headers.flatten()
    named = pc.fill_null(pc.equal(pc.struct_field(entries, ["key"]), name), False)
    at = np.flatnonzero(named.to_numpy(zero_copy_only=False))
    if not len(at):
        return records
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
    owners = np.repeat(np.arange(len(headers), dtype=np.int64), lengths)[at]
    place = np.full(len(headers), -1, dtype=np.int64)
    place[owners] = at  # if a header occurs twice, the last one counts
    frames = pc.struct_field(entries, ["value"]).take(pa.array(place, mask=place < 0))
    return pc.binary_join_element_wise(pc.fill_null(frames.cast(pa.binary()), b""), records, b"")


def frames_of(records: pa.Array) -> Frames:
    """Groups Avro records by their schema. The schema is named in the frame: the first bytes of a record, before its
    body. The records are binary values without nulls. A record without a valid frame is in `Frames.bad`, with the
    reason.
    """
    first, lengths = pc.binary_slice(records, 0, 1), pc.binary_length(records)
    framed = pc.and_(pc.equal(first, _FIRST_ID), pc.greater_equal(lengths, _ID_FRAME))
    ids = pc.binary_slice(records, 1, _ID_FRAME)
    by_id = pc.and_(framed, pc.and_(pc.not_equal(ids, _NO_ID), pc.less_equal(ids, _LAST_ID)))
    by_guid = pc.and_(pc.equal(first, _FIRST_GUID), pc.greater_equal(lengths, _GUID_FRAME))
    groups = [*_groups(records, by_id, _ID_FRAME), *_groups(records, by_guid, _GUID_FRAME)]
    neither = np.flatnonzero(~pc.or_(by_id, by_guid).to_numpy(zero_copy_only=False))
    return Frames(tuple(groups), {at: _why_not(records[at].as_py()) for at in neither.tolist()})


def _why_not(record: bytes) -> str:
    """Takes a record that does not begin with a known frame (byte 0 and the schema's id, or byte 1 and the schema's
    GUID). Returns the reason why the record is bad.
    """
    if len(record) >= _LONG_ID_FRAME and record.startswith(_FIRST_ID + _NO_ID):
        return _APICURIO
    is_glue = len(record) >= _GLUE_FRAME and record.startswith(_GLUE_STARTS)
    return _GLUE if is_glue else _NO_FRAME


def _groups(records: pa.Array, mask: pa.Array, frame_bytes: int) -> list[Group]:
    """Returns the records that `mask` marks, grouped by schema. A frame of `frame_bytes` bytes before the Avro value
    names the schema: a byte for the kind of frame, then the schema's id or GUID.
    """
    positions = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    if not len(positions):
        return []
    names = pc.binary_slice(records.take(pa.array(positions)), 1, frame_bytes).dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    return [
        Group(_name(name), some, frame_bytes)
        for name, some in zip(names.dictionary.to_pylist(), np.split(positions[order], ends[:-1]), strict=True)
    ]


def _name(name: bytes) -> SchemaName:
    return int.from_bytes(name, "big") if len(name) < _ID_FRAME else uuid.UUID(bytes=name)
