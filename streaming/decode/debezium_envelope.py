"""Reads Debezium's envelope: the text of its payload, and the schema of the payload's values.

Kafka Connect's JSON converter writes `{"schema": ..., "payload": ...}`, or bare payloads with `schemas.enable=false`.
All events of a table have the same schema, which is many times longer than the row. So its text is parsed once, and
removed from all records that begin with the same bytes; records with equivalent schemas are read together. Records of
any other layout are read one by one.
Source: Kafka 4.0 JsonConverter; Debezium 3 change event keys and values.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS, MessageOptions, TypeMapping
from bucketline.state.types.logical import DataField
from bucketline.streaming.decode.json_values.json_blocks import Objects, read_objects
from bucketline.streaming.decode.json_values.json_declared import as_declared, nodes_of, with_signs
from bucketline.streaming.decode.json_values.json_exact import NO_OBJECT, Failures, build_array, parse_json
from bucketline.streaming.decode.json_values.json_shape import (
    SOURCE_PARTS,
    Shape,
    SourceSchema,
    Writing,
    envelope_shape,
    row_shape,
)
from bucketline.streaming.decode.other_messages import Skipped, foreign, no_event, no_row, skipped_kind
from bucketline.streaming.decode.row_changes import chosen, table_names, true_of
from bucketline.streaming.decode.schema_needs import (
    NO_NEED,
    WatchFor,
    declared_need,
    joined,
    joined_all,
    need_of,
    part_of,
)
from bucketline.streaming.decode.texts.prefix_groups import PrefixGroup, group_by_prefix, rests_of

_MOST_HEADS = 1000
_MOST_LENGTHS = 100
_MOST_NULL_BYTES = 64
_HEAD = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_MIDDLE = re.compile(r'\s*,\s*"payload"\s*:\s*')
_ENVELOPED = r'^\s*\{\s*"schema"\s*:'
_NULL = r"^\s*null\s*$"
_NO_SCHEMA: SourceSchema = {}


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Records whose schemas give their rows the same shape: the schemas, the positions of the records, and their
    payloads.
    """

    sources: tuple[SourceSchema, ...]
    shape: Shape
    positions: npt.NDArray[np.int64]
    payloads: pa.Array


class EventReader(Protocol):
    """A reader of events from records in a format other than JSON."""

    def events(self, values: pa.Array, images: "Images", watch: WatchFor) -> Objects:
        """Returns the events in these records. See `read_events` for the parameters and the result."""

    def lacks_key(self, keys: pa.Array, primary_key: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Returns a mask that is true for record keys that lack a column of the primary key; see
        `row_changes.lacks_key`.
        """


@dataclass(frozen=True, slots=True)
class Images:
    """What is read from records.

    - `fields` are the columns to read from the row after a change.
    - `before` are the columns to read from the row before the change. If `before` is None, they are the same columns.
    - `source_parts` are the fields to read from the field `source` of events.
    - `messages` holds the job's message options.
    - `reader` reads records that are not JSON.
    - If `key` is set, records are not events but rows, as ExtractNewRecordState makes them: a record that has none of
      the key columns is not a row.
    """

    fields: tuple[DataField, ...]
    before: tuple[DataField, ...] | None = None
    messages: MessageOptions = NO_MESSAGE_OPTIONS
    key: tuple[str, ...] = ()
    reader: EventReader | None = None
    source_parts: tuple[DataField, ...] = ()

    def shape(self, source: SourceSchema) -> Shape:
        """Returns the shape (the type, and how JSON values of it may be written) in which events are read. `source` is
        the schema of the rows in the events; it is empty for events without a schema.
        """
        return _bare_shape(self) if not source else _shape_of_images(self, with_signs(source, self.messages.types))

    def row_schema(self, schema: object) -> SourceSchema:
        """Takes the schema of a record, and returns the schema of its rows."""
        if not self.key:
            return _row_schema(schema)
        return schema if isinstance(schema, Mapping) else _NO_SCHEMA

    def are_others(self, structs: pa.Array) -> npt.NDArray[np.bool_]:
        """Returns a mask of the records that are not what the job reads. If `key` is set, these are the records without
        a value in any key column; otherwise the records without `op`, the field that all change events have.
        """
        if not self.key:
            return true_of(structs.field("op").is_null())
        has_none = np.ones(len(structs), dtype=bool)
        for name in self.key:
            has_none &= true_of(structs.field(name).is_null())
        return has_none

    def is_other(self, payload: object) -> bool:
        """Returns True if the payload of a record is neither an event nor a row."""
        if not isinstance(payload, dict):
            return True
        return all(payload.get(name) is None for name in self.key or ("op",))

    def why_bad(self, payload: object) -> str:
        """Returns the reason why a record that is neither an event nor a row is bad."""
        return no_row(payload, self.key) if self.key else no_event(payload)

    def need_of_rows(self, need: pa.DataType) -> pa.DataType:
        """Takes a need (fields and wider types that records have and the table lacks) of whole Debezium events, and
        returns the need of the rows in the events. These are the parts of the need under `before` and `after`, joined.
        If the records have no envelope, the need is returned unchanged.
        """
        return need if self.key else joined(part_of(need, "before"), part_of(need, "after"))

    def declared_need(self, source: SourceSchema) -> pa.DataType:
        """Returns the columns and types that the table must have for rows with the schema `source`. The types are
        mapped as the job's `type-mapping` says.
        """
        return declared_need(source, self.fields, self.messages.type_mapping)

    def as_declared(self, need: pa.DataType) -> pa.DataType:
        """Takes the columns and types that rows need if their records contain no schema. Returns the same columns with
        their types mapped as the job's message options ask.
        """
        return as_declared(need, self.messages, {f.name for f in self.fields})


def read_events(values: pa.Array, images: Images, watch: WatchFor = WatchFor.NOTHING) -> Objects:
    """Takes records as binary values without nulls. Returns their Debezium events as structs of `before`, `after` and
    `op` (see `envelope_shape`), and the columns and types that the rows in these events need and the table lacks.

    `images` are the columns to read, and `watch` says which missing columns and types to look for. A record whose
    payload is null is neither an event nor bad. A message of a known kind that holds no row, such as a heartbeat, is
    listed in `skipped`.
    """
    if images.reader is not None:
        return images.reader.events(values, images, watch)
    unwrapped, rest = _unwrap(values, images)
    parts = [_read_unwrapped(part, images, watch) for part in unwrapped]
    bare = moved(read_objects(values.take(pa.array(rest)), images.shape(_NO_SCHEMA), watch), rest)
    no_op = images.are_others(bare.structs)
    other = bare.positions[no_op]
    need = images.as_declared(images.need_of_rows(bare.need))
    parts.append(
        replace(bare, structs=bare.structs.filter(pa.array(~no_op)), positions=bare.positions[~no_op], need=need)
    )
    parts.extend(_read_unusual(values.take(pa.array(other)), other, images, watch))
    objects = joined_objects(parts)
    return replace(objects, bad=tuple((at, _named(values, at, reason)) for at, reason in objects.bad))


def _named(values: pa.Array, position: int, reason: str) -> str:
    """Returns the reason why a record is bad. If the reason is only that the record is no Debezium event, and the
    record has another known format, such as Canal, the returned reason names this format. Otherwise returns `reason`.
    """
    if not reason.endswith(NO_OBJECT):
        return reason
    payload, _ = _payload_of(parse_json(values[position].as_py()))
    return foreign(payload) or reason


def source_tables(events: pa.Array) -> frozenset[str]:
    """Returns the names of the source's tables in the events, with database and schema in front, joined by dots."""
    return table_names(events.field("source"), SOURCE_PARTS)


def _read_unwrapped(part: Unwrapped, images: Images, watch: WatchFor) -> Objects:
    """Reads the records whose JSON contains a schema next to the event, and returns the events. Unknown fields are
    found in the schemas, which declare all fields, and not in the values.
    """
    events = part.payloads
    objects = _without_others(read_objects(events, part.shape, _only_wider(watch)), events, images)
    declared = NO_NEED
    if watch is WatchFor.ALL and len(objects.structs):
        declared = joined_all(images.declared_need(source) for source in part.sources)
    return moved(replace(objects, need=joined(images.need_of_rows(objects.need), declared)), part.positions)


def _without_others(objects: Objects, payloads: pa.Array, images: Images) -> Objects:
    """Returns `objects` with only those structs that are Debezium events. Every other object becomes skipped, if it is
    of a known kind that holds no row (such as a heartbeat), or bad.
    """
    no_op = images.are_others(objects.structs)
    if not no_op.any():
        return objects
    bad, skipped = list(objects.bad), []
    for position in objects.positions[no_op].tolist():
        payload = parse_json(payloads[position].as_py())
        kind = skipped_kind(payload)
        if kind is None:
            bad.append((position, images.why_bad(payload)))
        else:
            skipped.append((position, kind))
    structs = objects.structs.filter(pa.array(~no_op))
    return Objects(structs, objects.positions[~no_op], tuple(sorted(bad)), objects.need, tuple(skipped))


def _only_wider(watch: WatchFor) -> WatchFor:
    return watch if watch is WatchFor.NOTHING else WatchFor.WIDER


def read_keys(
    keys: pa.Array,
    fields: tuple[DataField, ...],
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
    reader: EventReader | None = None,
) -> pa.Array:
    """Takes the keys of records as binary values. Returns the values of the columns `fields` as a struct for each key;
    null if the key lacks one of these columns.
    """
    present = np.flatnonzero(true_of(keys.is_valid()))
    images = Images(fields, messages=messages, key=tuple(f.name for f in fields), reader=reader)
    found = read_events(keys.take(pa.array(present)), images)
    complete = np.ones(len(found.structs), dtype=bool)
    for column in found.structs.flatten():
        complete &= true_of(column.is_valid())
    at = np.full(len(keys), -1)
    at[present[found.positions[complete]]] = np.flatnonzero(complete)
    return found.structs.take(pa.array(at, mask=at < 0))


def says_what_became(record: bytes) -> bool:
    """Returns True if a record is a row with a valid field `__deleted` or `__op`, in which ExtractNewRecordState says
    what happened to the row.
    """
    try:
        row = _payload_of(parse_json(record))[0]
    except ValueError:
        return False
    if not isinstance(row, dict):
        return False
    deleted = row.get("__deleted")
    return isinstance(deleted, bool) or deleted in ("true", "false") or row.get("__op") in ("c", "r", "u", "d")


def kind_of_text(record: bytes) -> Skipped | None:
    """Returns why a record gives no row although it is not bad: for example, it is a heartbeat. Returns None for every
    other record, also if it is no JSON.
    """
    try:
        return skipped_kind(_payload_of(parse_json(record))[0])
    except ValueError:
        return None


def _unwrap(values: pa.Array, images: Images) -> tuple[list[Unwrapped], npt.NDArray[np.int64]]:
    """Takes the records that have an envelope (`{"schema": ..., "payload": ...}`), and groups them by the columns and
    types that their schemas give to the rows. Returns these groups, and the positions of all other records.
    """
    heads = _heads_of(images)
    is_unwrapped = np.zeros(len(values), dtype=bool)
    by_shape: dict[int, list[tuple[_Head, PrefixGroup]]] = {}
    enveloped = np.flatnonzero(true_of(pc.match_substring_regex(values, _ENVELOPED)))
    for group in group_by_prefix(values, enveloped, lambda text: heads.prefix(text, images)):
        head = heads.known[group.prefix]
        by_shape.setdefault(id(head.shape), []).append((head, group))
    unwrapped = []
    for parts in by_shape.values():
        positions, lengths = _in_order([group for _, group in parts])
        rests = rests_of(values, positions, lengths)
        closed = true_of(pc.equal(pc.binary_slice(rests, -1, 2**31 - 1), b"}"))
        is_unwrapped[positions[closed]] = True
        payloads = pc.binary_slice(rests, 0, -1)
        is_read = closed & ~_are_null(payloads)
        sources = tuple(head.source for head, _ in parts)
        unwrapped.append(Unwrapped(sources, parts[0][0].shape, positions[is_read], chosen(payloads, is_read)))
    return unwrapped, np.flatnonzero(~is_unwrapped)


def _in_order(groups: Sequence[PrefixGroup]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Takes groups of records, where all records of a group begin with the same bytes (the prefix of the group).
    Returns the positions of all records in ascending order, and for each record the length of its prefix.
    """
    places = np.concatenate([group.positions for group in groups])
    lengths = np.repeat([len(group.prefix) for group in groups], [len(group.positions) for group in groups])
    order = np.argsort(places, kind="stable")
    return places[order], lengths[order]


def _are_null(payloads: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns a mask that is true for payloads that are JSON's null."""
    short = true_of(pc.less(pc.binary_length(payloads), _MOST_NULL_BYTES))
    if short.any():
        short[short] = true_of(pc.match_substring_regex(payloads.filter(pa.array(short)), _NULL))
    return short


@dataclass(frozen=True, slots=True)
class _Head:
    """What the bytes before the payload of a Debezium message say: the schema of the rows, and which JSON values rows
    with this schema have (the shape).
    """

    source: SourceSchema
    shape: Shape


class _Heads:
    """The known heads of Debezium records, for records that are read into the same columns. The head of a record is the
    part of the text before the payload; it holds the schema, and is the same in most records. Schemas that give rows
    the same shape share one shape object.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, _Head] = {}
        self._lengths: set[int] = set()

    def prefix(self, text: bytes, images: Images) -> bytes | None:
        """Returns the head of a record: the bytes before its payload, which hold the schema. The head and its schema
        are remembered for later records. Returns None for a record of another layout.
        """
        for length in self._lengths:
            if text[:length] in self.known:
                return text[:length]
        found = _envelope_head(text, images)
        if found is None:
            return None
        prefix, source = found
        if prefix not in self.known:
            if len(self.known) >= _MOST_HEADS:
                self.known.clear()
                self._lengths.clear()
            shape = images.shape(source)
            same = next((head.shape for head in self.known.values() if head.shape == shape), shape)
            self.known[prefix] = _Head(source, same)
            if len(self._lengths) < _MOST_LENGTHS:
                self._lengths.add(len(prefix))
        return prefix


@lru_cache(maxsize=16)
def _heads_of(images: Images) -> _Heads:
    return _Heads()


def _envelope_head(value: bytes, images: Images) -> tuple[bytes, SourceSchema] | None:
    """Takes a Debezium event with its schema: `{"schema": ..., "payload": ...}`. Returns the bytes before the payload,
    and the schema of a row of the source's table, which is a part of the event's schema. Returns None for a record of
    another layout.
    """
    try:
        text = value.decode()
        start = _HEAD.match(text)
        if start is None:
            return None
        schema, end = json.JSONDecoder().raw_decode(text, start.end())
    except (ValueError, RecursionError):
        return None
    middle = _MIDDLE.match(text, end)
    if middle is None or not (schema is None or isinstance(schema, dict)):
        return None
    return text[: middle.end()].encode(), images.row_schema(schema)


def _row_schema(schema: object) -> SourceSchema:
    """Returns the schema that the rows before and after a change have, from the schema of an event."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list):
        return _NO_SCHEMA
    images = {str(f.get("field")): f for f in fields if isinstance(f, Mapping)}
    row_schema = images.get("after", images.get("before", _NO_SCHEMA))
    return row_schema if isinstance(row_schema, Mapping) else _NO_SCHEMA


def _read_unusual(
    values: pa.Array, positions: npt.NDArray[np.int64], images: Images, watch: WatchFor
) -> Iterator[Objects]:
    """Reads records of an unusual layout one by one, and yields for each record its event, or the reason why the
    record is bad. A record without an event, for example a tombstone, yields nothing or is noted as skipped.
    """
    for value, position in zip(values.to_pylist(), positions, strict=True):
        at = np.array([position], dtype=np.int64)
        record = parse_json(value)
        payload, schema = _payload_of(record)
        if payload is None and isinstance(record, dict) and "payload" in record:
            continue
        kind = skipped_kind(payload)
        if kind is not None:
            yield replace(_nothing(images), skipped=((int(position), kind),))
            continue
        if images.is_other(payload):
            yield _bad(int(position), images.why_bad(payload), images)
            continue
        failures = Failures()
        source = images.row_schema(schema)
        shape = images.shape(source)
        structs = build_array([payload], shape, failures)
        need = _need_of_event(payload, shape, source, images, watch)
        if failures.reasons:
            is_mendable = not pa.types.is_null(_need_of_event(payload, shape, source, images, _only_wider(watch)))
            yield replace(_bad(int(position), failures.reasons[0], images), need=need if is_mendable else NO_NEED)
        else:
            yield Objects(structs, at, (), need)


def _need_of_event(payload: object, shape: Shape, source: SourceSchema, images: Images, watch: WatchFor) -> pa.DataType:
    """Returns the columns and types that one event needs. If the event has a schema, the columns are those that the
    schema declares.
    """
    if watch is WatchFor.NOTHING:
        return NO_NEED
    if not source:
        return images.as_declared(images.need_of_rows(need_of(payload, shape, watch)))
    wider = images.need_of_rows(need_of(payload, shape, WatchFor.WIDER))
    return joined(wider, images.declared_need(source)) if watch is WatchFor.ALL else wider


def _payload_of(record: object) -> tuple[object, SourceSchema]:
    """Returns the payload and the schema of a parsed record. A record that does not consist of the fields `schema` and
    `payload` is itself the payload, and has no schema.
    """
    if not isinstance(record, dict) or "payload" not in record:
        return record, _NO_SCHEMA
    schema = record.get("schema")
    return record["payload"], schema if isinstance(schema, Mapping) else _NO_SCHEMA


def _bad(position: int, reason: str, images: Images) -> Objects:
    return replace(_nothing(images), bad=((position, reason),))


def _nothing(images: Images) -> Objects:
    return Objects(pa.nulls(0, images.shape(_NO_SCHEMA).arrow), np.zeros(0, dtype=np.int64), ())


@lru_cache(maxsize=64)
def _bare_shape(images: Images) -> Shape:
    return _shape_of_images(images, nodes_of(images.messages.types))


def _shape_of_images(images: Images, source: SourceSchema) -> Shape:
    writing = _writing(images.messages)
    if images.key:
        return row_shape(images.fields, source, writing)
    before = None if images.before is None else row_shape(images.before, source, writing)
    return envelope_shape(row_shape(images.fields, source, writing), before, images.source_parts)


def _writing(messages: MessageOptions) -> Writing:
    longtext = TypeMapping.LONGTEXT_TO_BYTES in messages.type_mapping
    return Writing(messages.bytes_form, is_debezium=True, infinity=messages.infinity, has_longtext_bytes=longtext)


def moved(objects: Objects, positions: npt.NDArray[np.int64]) -> Objects:
    """Takes the objects that were read from some of the records. Returns the same objects with other record numbers:
    record i gets the number `positions[i]`, its position among all records.
    """
    bad = tuple((int(positions[at]), reason) for at, reason in objects.bad)
    skipped = tuple((int(positions[at]), kind) for at, kind in objects.skipped)
    return Objects(objects.structs, positions[objects.positions], bad, objects.need, skipped)


def joined_objects(parts: Sequence[Objects]) -> Objects:
    """Combines several results of reading (values, bad records, skipped records and missing columns) into one. The
    values are sorted by the position of their record.
    """
    structs = pa.concat_arrays([part.structs for part in parts])
    positions = np.concatenate([part.positions for part in parts])
    bad = tuple(sorted(pair for part in parts for pair in part.bad))
    skipped = tuple(sorted((pair for part in parts for pair in part.skipped), key=itemgetter(0)))
    need = joined_all(part.need for part in parts)
    if len(positions) < 2 or bool(np.all(positions[1:] > positions[:-1])):
        return Objects(structs, positions, bad, need, skipped)
    order = np.argsort(positions, kind="stable")
    return Objects(structs.take(pa.array(order)), positions[order], bad, need, skipped)
