"""Reads Avro records into the values that `records.py` works on.

Each record contains the id of the schema with which it was written, so the records of a batch may have several schemas.
The records are read by schema, and the results are put back into order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketline.state.types.logical import DataField
from bucketline.streaming.decode.avro.avro_bodies import Bodies, read_bodies
from bucketline.streaming.decode.avro.avro_cursor import Longs
from bucketline.streaming.decode.avro.avro_frames import SchemaName, frames_of
from bucketline.streaming.decode.avro.avro_needs import wider_need
from bucketline.streaming.decode.avro.avro_rows import Misfits, columns_of
from bucketline.streaming.decode.avro.avro_schema import AvroKind, AvroSchema, Node, only_fields
from bucketline.streaming.decode.avro.avro_source import source_of, value_node
from bucketline.streaming.decode.debezium_envelope import Images, joined_objects, moved
from bucketline.streaming.decode.json_values.json_blocks import Objects
from bucketline.streaming.decode.json_values.json_shape import SOURCE_PARTS, Shape, row_shape
from bucketline.streaming.decode.other_messages import Skipped, skipped_kind
from bucketline.streaming.decode.row_changes import has_text
from bucketline.streaming.decode.schema_needs import NO_NEED, WatchFor, declared_need, joined

_SAYS_WHAT_BECAME = ("__deleted", "__op")
_OF_SOURCE: dict[str, object] = {"source": {part: {} for part in SOURCE_PARTS}}
_FLATTENED = (
    "a row of Debezium without an envelope (its schema has a field __deleted or __op), whose deletes would be taken "
    "for inserts; remove the transform ExtractNewRecordState from the connector, and use decode: debezium-avro"
)


class KnownSchemas(Protocol):
    """A source of schemas."""

    def schema(self, name: SchemaName) -> AvroSchema | str:
        """Returns the schema with that id or GUID, or a string that says why records with this schema are bad.

        Raises RegistryError if the registry does not answer, because this makes no record bad.
        """


@dataclass(frozen=True, slots=True)
class _Group:
    """The records with one schema. `positions` has the positions of these records in the input, in ascending order. The
    Avro value of each record begins at byte `begin`, after the bytes that name the schema.
    """

    schema: AvroSchema
    positions: Longs
    records: pa.Array
    begin: int

    @property
    def row(self) -> Node | None:
        """Returns the node of the schema that describes the fields of the values, if the values are Avro records or
        nulls; otherwise None.
        """
        node = value_node(self.schema.root)
        return node if node.kind is AvroKind.RECORD else None

    def read(self, wanted: Mapping[str, object]) -> Bodies:
        return read_bodies(self.records, only_fields(self.schema, wanted), self.begin)


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Reads Avro records, for `debezium_envelope` and `records`. Two readers always count as equal, even if their
    `schemas` differ. So what was cached for one reader is also found with a later reader.
    """

    schemas: KnownSchemas = field(compare=False)

    def rows(self, records: pa.Array, fields: tuple[DataField, ...], watch: WatchFor = WatchFor.NOTHING) -> Objects:
        """Takes records as binary values without nulls. Returns the rows with the columns `fields`, and the bad
        records. Each record gives either a row or a reason why it is bad. `watch` says which missing columns and types
        to look for.
        """
        groups, bad = self._groups(records)
        known = {f.name for f in fields}
        parts = [_nothing(bad, row_shape(fields).arrow)]
        for group in groups:
            row = group.row
            shape = row_shape(fields, source_of(group.schema))
            if row is None:
                parts.append(_refused(group, _no_record(group), shape.arrow))
            elif any(name in row.names and name not in known for name in _SAYS_WHAT_BECAME):
                parts.append(_refused(group, _FLATTENED, shape.arrow))
            else:
                read = group.read(_names(fields))
                need = _need(read, shape, group, fields, watch)
                parts.append(moved(_fitting(read, shape, need), group.positions))
        return joined_objects(parts)

    def events(self, values: pa.Array, images: Images, watch: WatchFor = WatchFor.NOTHING) -> Objects:
        """Returns the Debezium events in Avro records. See `debezium_envelope.read_events` for the parameters and the
        result.
        """
        groups, bad = self._groups(values)
        parts = [_nothing(bad, images.shape({}).arrow)]
        for group in groups:
            row = group.row
            if row is None or not set(images.key or ("op",)) <= set(row.names):
                parts.append(moved(_others(group, images), group.positions))
                continue
            source = images.row_schema(source_of(group.schema))
            shape = images.shape(source)
            read = group.read(_wanted(images))
            need = NO_NEED
            if watch is not WatchFor.NOTHING and len(read.values):
                need = images.need_of_rows(wider_need(read.values, shape))
                need = joined(need, images.declared_need(source)) if watch is WatchFor.ALL else need
            parts.append(moved(_fitting(read, shape, need), group.positions))
        return joined_objects(parts)

    def sources(self, values: pa.Array, shape: Shape) -> Objects:
        """Reads only the field `source` of Debezium's events, which says from where an event comes. Returns for each
        event a struct with this one field, in the given shape. Records without a field `source` are left out.
        """
        parts = [_nothing({}, shape.arrow)]
        for group in self._groups(values)[0]:
            if group.row is not None and "source" in group.row.names:
                parts.append(moved(_fitting(group.read(_OF_SOURCE), shape, NO_NEED), group.positions))
        return joined_objects(parts)

    def lacks_key(self, keys: pa.Array, primary_key: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Takes record keys as binary values, and returns a mask that is true for keys that are Avro records and lack
        a column of `primary_key`.
        """
        lacks = np.zeros(len(keys), dtype=bool)
        live = np.flatnonzero(has_text(keys))
        for group in self._groups(keys.take(pa.array(live)))[0]:
            lacks[live[group.positions]] = group.row is not None and not set(primary_key) <= set(group.row.names)
        return lacks

    def _groups(self, records: pa.Array) -> tuple[list[_Group], dict[int, str]]:
        """Returns the records grouped by schema. For records without a schema, returns by position why they are bad."""
        frames = frames_of(records)
        groups, bad = [], dict(frames.bad)
        for group in frames.groups:
            schema = self.schemas.schema(group.name)
            if isinstance(schema, str):
                bad |= dict.fromkeys(group.positions.tolist(), schema)
            else:
                groups.append(_Group(schema, group.positions, records.take(pa.array(group.positions)), group.begin))
        return groups, bad


def _names(fields: Sequence[DataField]) -> Mapping[str, object]:
    """Returns the names of the fields to read. Without fields, returns a name that no field has, because an empty map
    means all fields.
    """
    return {f.name: {} for f in fields} or {"": {}}


def _wanted(images: Images) -> Mapping[str, object]:
    if images.key:
        return _names(images.fields)
    before = images.fields if images.before is None else images.before
    source: dict[str, object] = {part: {} for part in (*SOURCE_PARTS, *(f.name for f in images.source_parts))}
    return {"before": _names(before), "after": _names(images.fields), "op": {}, "source": source}


def _need(read: Bodies, shape: Shape, group: _Group, fields: Sequence[DataField], watch: WatchFor) -> pa.DataType:
    """Returns the wider types that the values of a group need. With WatchFor.ALL, also returns the columns that the
    group's schema declares and the table lacks. Nothing is needed if the group has no values, whatever its schema
    declares.
    """
    if watch is WatchFor.NOTHING or not len(read.values):
        return NO_NEED
    need = wider_need(read.values, shape)
    return joined(need, declared_need(source_of(group.schema), fields)) if watch is WatchFor.ALL else need


def _fitting(read: Bodies, shape: Shape, need: pa.DataType) -> Objects:
    """Takes the bodies that were read from Avro records, and returns the rows whose values all fit their columns. A
    record with a value that does not fit is bad; the result has the reason. `need` is passed on in the result.
    """
    misfits = Misfits()
    structs = columns_of(read.values, shape, misfits)
    bad = dict(read.bad) | {int(read.positions[place]): reason for place, reason in misfits.reasons.items()}
    good = np.ones(len(structs), dtype=bool)
    good[list(misfits.reasons)] = False
    kept = structs.filter(pa.array(good)) if misfits.reasons else structs
    return Objects(kept, read.positions[good], tuple(sorted(bad.items())), need)


def _others(group: _Group, images: Images) -> Objects:
    """Returns the result for records that are neither events nor rows, judging by their schema: Debezium's messages
    without a row are skipped, and all other records are bad.
    """
    read = read_bodies(group.records, group.schema, group.begin)
    bad, skipped = dict(read.bad), list[tuple[int, Skipped]]()
    for position, value in zip(read.positions.tolist(), read.values.to_pylist(), strict=True):
        kind = skipped_kind(value)
        if kind is None:
            bad[position] = images.why_bad(value)
        else:
            skipped.append((position, kind))
    return replace(_nothing(bad, images.shape({}).arrow), skipped=tuple(skipped))


def _no_record(group: _Group) -> str:
    return f"a value of type {value_node(group.schema.root).kind.value}, but a row must be an Avro record"


def _refused(group: _Group, reason: str, arrow: pa.DataType) -> Objects:
    return _nothing(dict.fromkeys(group.positions.tolist(), reason), arrow)


def _nothing(bad: Mapping[int, str], arrow: pa.DataType) -> Objects:
    return Objects(pa.nulls(0, arrow), np.zeros(0, dtype=np.int64), tuple(sorted(bad.items())))
