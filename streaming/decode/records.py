"""Decodes JSON and Debezium events into rows with their row kinds, and finds bad records.

*JSON*: each record has one object, which is an insert. Unknown fields are skipped, and missing fields are null. A
record without a value is skipped, as in Flink.

*Debezium JSON*, with or without the schema envelope. `c` and `r` give +I of the new row. `u` gives +U of the new row;
if the primary key has changed, -D of the old row comes first. `d` gives -D of the old row or, if the event has no old
row, of the record's key. An update also gives -U if the merge engine needs it. Only the key of a delete counts, because
Postgres sends nothing else without REPLICA IDENTITY FULL: the other NOT NULL columns of the delete become zero.
Tombstones, messages (`m`) and messages that are not events (`other_messages`) are skipped and counted. `t`, a truncate,
is bad unless the job's option `truncate` says otherwise.

If a record is bad, it gives no row at all: an update gives both rows or none. If an update gives no -U, only the
primary key columns of the old row are read. If `watch` asks for it, the decoder also finds the fields and types that
the table lacks. In Debezium events it looks at the fields of the rows, or, if the records contain a schema, at all
fields that the schema declares.

Source: Flink 2.0 JsonRowDataDeserializationSchema, DebeziumJsonDeserializationSchema; Debezium 3 documentation of its
connectors.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS, BytesForm, MessageOptions, Truncate
from bucketline.state.types.logical import DataField
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.debezium_envelope import (
    EventReader,
    Images,
    moved,
    read_events,
    read_keys,
    says_what_became,
    source_tables,
)
from bucketline.streaming.decode.decoded_rows import Decoded, Unjudged, judge_rows
from bucketline.streaming.decode.json_values.json_blocks import Objects, read_objects
from bucketline.streaming.decode.json_values.json_declared import nodes_of
from bucketline.streaming.decode.json_values.json_shape import Shape, Writing, row_shape
from bucketline.streaming.decode.moves.find_moves import key_moves
from bucketline.streaming.decode.other_messages import TRUNCATE_REMEDY, Skipped
from bucketline.streaming.decode.row_changes import (
    DecodedChange,
    UpdateBefore,
    as_binary,
    changed_values,
    chosen,
    has_text,
    in_order,
    lacks_key,
    true_of,
    with_left_out,
)
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.seen import Seen
from bucketline.streaming.decode.source_metadata import POSITION, SOURCE_METADATA, source_parts, with_metadata
from bucketline.streaming.decode.texts.json_scan import has_bytes
from bucketline.streaming.decode.unavailable import KEEPS_NOTHING, MARKS, Keeping, Placeholder, settled
from bucketline.streaming.decode.unavailable_rows import left_out_of_rows, without_placeholder

_FULL_IDENTITY = "set REPLICA IDENTITY FULL on the source table"
_WIDER_KEY = (
    "columns of the table's primary key: if they had changed, the old row would stay; set REPLICA IDENTITY FULL on "
    "the source table, or create a table with the primary key of the source, even if it then lacks partition columns"
)
_NONE: Mapping[Skipped, int] = {}
_ADDED = ("__deleted", "__op")
_ADDED_START = b'"__'
_MAYBE_FLATTENED = r'"(?:__deleted|__op)"\s*:'
_FLATTENED = (
    "a row of Debezium without an envelope (it has a field __deleted or __op); its deletes would be taken for "
    "inserts; use decode: debezium-flat-json"
)
_TOMBSTONE = (
    "a record with a key and without a value: it deletes the row with that key, which plain rows cannot do; for rows "
    "in JSON use decode: debezium-flat-json, which follows deletes"
)
_NO_KEY = "a delete (op d) without before, whose record key does not hold the primary key"


class RowReader(Protocol):
    """A reader of rows from records in a format other than JSON."""

    def rows(self, records: pa.Array, fields: tuple[DataField, ...], watch: WatchFor) -> Objects:
        """Takes records as binary values without nulls. Returns the rows with the columns `fields`, and the bad
        records. Each record gives either a row or a reason why it is bad. `watch` says which missing columns and types
        to look for.
        """


_OPS = ("c", "r", "u", "d", "m", "t")


@dataclass(frozen=True, slots=True)
class _Events:
    """Debezium events as structs of `before`, `after` and `op`, and the index of each event's record. `ops` has a
    number for the operation of each event: its position in `_OPS`, or the length of `_OPS` for an unknown operation.
    """

    structs: pa.Array
    records: npt.NDArray[np.int64]
    ops: npt.NDArray[np.int32]

    @classmethod
    def of(cls, structs: pa.Array, records: npt.NDArray[np.int64]) -> "_Events":
        ops = pc.fill_null(pc.index_in(structs.field("op"), value_set=pa.array(_OPS)), len(_OPS))
        return cls(structs, records, np.asarray(ops))

    @property
    def before(self) -> pa.Array:
        return self.structs.field("before")

    @property
    def after(self) -> pa.Array:
        return self.structs.field("after")

    @property
    def op(self) -> pa.Array:
        return self.structs.field("op")

    @property
    def has_before(self) -> npt.NDArray[np.bool_]:
        return true_of(self.before.is_valid())

    @property
    def has_after(self) -> npt.NDArray[np.bool_]:
        return true_of(self.after.is_valid())

    def is_one_of(self, *codes: str) -> npt.NDArray[np.bool_]:
        return np.array([*(op in codes for op in _OPS), False])[self.ops]


def decode_json(
    values: pa.Array,
    fields: Sequence[DataField],
    watch: WatchFor = WatchFor.NOTHING,
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
    keys: pa.Array | pa.ChunkedArray | None = None,
) -> Decoded:
    """Takes JSON objects as binary or string values, and returns their rows, all of them inserts. A null value has no
    row. `watch` says whether unknown fields and wider types are also looked for; `messages` are the job's message
    options.

    Flattened rows of Debezium are bad records, because their deletes would be taken for inserts. If `keys` has the keys
    of the records, tombstones are bad records too: a record with a key and without a value deletes a row. Raises
    UnsupportedTableError for column types that JSON cannot hold.
    """
    data = as_binary(values)
    live = true_of(data.is_valid())
    positions = np.flatnonzero(live)
    alive = chosen(data, live)
    objects = read_objects(alive, _json_shape(tuple(fields), messages), watch)
    placeholder = Placeholder(messages.unavailable_value)

    def texts(records: pa.Array, columns: tuple[DataField, ...]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        found = read_objects(records, _json_shape(columns, messages))
        return found.structs, found.positions

    in_rows = left_out_of_rows(alive, fields, placeholder.text, texts)
    objects = replace(objects, need=without_placeholder(objects.need, in_rows, placeholder.text))
    refused = {int(positions[i]): f"field {n}: {placeholder.reason}" for n, found in in_rows.items() for i in found}
    refused |= _flattened(data, fields)
    return inserts(moved(objects, positions), data, tuple(fields), messages, keys, refused)


def decode_avro(
    values: pa.Array | pa.ChunkedArray,
    fields: Sequence[DataField],
    reader: RowReader,
    *,
    watch: WatchFor = WatchFor.NOTHING,
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
    keys: pa.Array | pa.ChunkedArray | None = None,
) -> Decoded:
    """Takes Avro records, and returns their rows, all of them inserts. `reader` reads the records. The other parameters
    mean the same as in `decode_json`.
    """
    data = as_binary(values)
    live = has_text(data)
    rows = moved(reader.rows(chosen(data, live), tuple(fields), watch), np.flatnonzero(live))
    return inserts(rows, data, tuple(fields), messages, keys, {})


def inserts(
    objects: Objects,
    records: pa.Array,
    fields: tuple[DataField, ...],
    messages: MessageOptions,
    keys: pa.Array | pa.ChunkedArray | None,
    refused: Mapping[int, str],
) -> Decoded:
    """Returns the rows that were read from objects, each with the row kind +I. `records` are the records that contained
    the objects, and `keys` means the same as in `decode_json`. `refused` has further bad records, with the reasons why
    they are bad.
    """
    unjudged = Unjudged(
        objects.structs,
        np.full(len(objects.structs), int(RowKind.INSERT), dtype=np.int8),
        objects.positions,
        dict(objects.bad),
        objects.need,
        Seen(_skipped(records, objects)),
    )
    unjudged.bad.update(refused)
    unjudged = settled(unjudged, fields, (), Placeholder(messages.unavailable_value))
    if keys is not None:
        lost = np.flatnonzero(~has_text(records) & has_text(as_binary(keys)))
        unjudged.bad.update((record, _TOMBSTONE) for record in lost.tolist())
        skipped = {k: n - len(lost) if k is Skipped.TOMBSTONE else n for k, n in unjudged.seen.skipped.items()}
        unjudged = replace(unjudged, seen=Seen({kind: count for kind, count in skipped.items() if count}))
    return judge_rows(unjudged, fields)


def _flattened(records: pa.Array, fields: Sequence[DataField]) -> dict[int, str]:
    """Returns the indices of the records that are rows of Debezium without an envelope (flattened rows), each with the
    reason why it is bad.

    If the table has a column that marks flattened rows, the result is empty, and the rows are taken unchanged.
    """
    if any(f.name in _ADDED for f in fields):
        return {}
    if not has_bytes(records, _ADDED_START):
        return {}
    doubtful = pc.match_substring_regex(records, _MAYBE_FLATTENED)
    reasons = {}
    for at in np.flatnonzero(true_of(pc.fill_null(doubtful, False))).tolist():
        if says_what_became(records[at].as_py()):
            reasons[at] = _FLATTENED
    return reasons


def _skipped(records: pa.Array, objects: Objects, others: Mapping[Skipped, int] = _NONE) -> dict[Skipped, int]:
    """Returns for each kind of records without a row how many of the records are of that kind.

    A record without a value counts as a tombstone. `others` are counts that are added to the result.
    """
    empty = len(records) - len(objects.positions) - len(objects.bad) - len(objects.skipped)
    counts = Counter(kind for _, kind in objects.skipped) + Counter({Skipped.TOMBSTONE: empty})
    return dict(counts + Counter(others))


def decode_debezium(
    values: pa.Array,
    fields: Sequence[DataField],
    *,
    primary_key: Sequence[str] = (),
    loose: Sequence[str] | None = None,
    keys: pa.Array | None = None,
    update_before: UpdateBefore = UpdateBefore.DROP,
    watch: WatchFor = WatchFor.NOTHING,
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
    reader: EventReader | None = None,
    keeping: Keeping = KEEPS_NOTHING,
) -> Decoded:
    """Takes Debezium events as binary or string values, and the keys of their records, if known. Returns the changed
    rows in the events. `reader` reads events that are not JSON.

    `loose` names the NOT NULL columns that a delete may leave out; by default all columns outside of `primary_key`.
    """
    columns = tuple(f for f in fields if f.name not in SOURCE_METADATA)
    of_source = tuple(f for f in fields if f.name in SOURCE_METADATA)
    primary_key = [name for name in primary_key if name not in SOURCE_METADATA]
    placeholder = Placeholder(messages.unavailable_value)
    data = as_binary(values)
    live = has_text(data)
    positions = np.flatnonzero(live)
    alive = chosen(data, live)
    needs_all = update_before is UpdateBefore.EMIT or watch is not WatchFor.NOTHING or not primary_key
    of_key = None if needs_all else tuple(f for f in columns if f.name in primary_key)
    parts = source_parts((*(f.name for f in of_source), *((POSITION,) if keeping.keeps else ())))
    images = Images(columns, of_key, messages, reader=reader, source_parts=parts)
    objects = read_events(alive, images, watch)
    in_rows = {} if reader is not None else _left_out_of_rows(alive, images)
    objects = replace(objects, need=without_placeholder(objects.need, in_rows, placeholder.text))
    events = _Events.of(objects.structs, positions[objects.positions])
    bad = {int(positions[at]): explained(reason, placeholder) for at, reason in objects.bad} | _unfollowed(
        events, messages.truncate
    )
    bad |= _without_old_key(events, keys, primary_key, reader)
    moved = _moved(events, primary_key)
    gone = moved | (events.is_one_of("d") & events.has_before)
    deletes: list[DecodedChange] = []
    if needs_all:
        deletes.append(_taken(events, events.before, gone, RowKind.DELETE))
    elif np.any(gone):
        whole = read_events(alive.take(pa.array(objects.positions[gone])), replace(images, before=None))
        records = events.records[gone]
        deletes.append(DecodedChange(whole.structs.field("before"), records[whole.positions], RowKind.DELETE))
        bad |= {int(records[at]): explained(reason, placeholder) for at, reason in whole.bad}
    changes = [*deletes, *_changes(events, moved, update_before)]
    nameless = events.is_one_of("d") & ~events.has_before
    if np.any(nameless):
        records = events.records[nameless]
        rows = rows_of_keys(keys, records, columns, primary_key, events.after.type, messages, reader)
        known = true_of(rows.is_valid())
        bad |= {int(record): _NO_KEY for record in records[~known]}
        changes.append(DecodedChange(rows.filter(pa.array(known)), records[known], RowKind.DELETE))
    others = {Skipped.MESSAGE: int(events.is_one_of("m").sum())}
    truncates = () if messages.truncate is Truncate.REJECT else tuple(events.records[events.is_one_of("t")].tolist())
    others[Skipped.TRUNCATE] = len(truncates)
    seen = Seen(_skipped(data, objects, others), source_tables(objects.structs))
    unjudged = replace(in_order(changes, None, bad, objects.need), seen=seen, truncates=truncates)
    in_rows = {name: positions[records] for name, records in in_rows.items()}
    unjudged = settled(unjudged, columns, primary_key, placeholder, keeping, in_rows)
    if keeping.keeps:
        lacking = unjudged.lacking, unjudged.lacking_inserts
        moves = key_moves(*lacking, events.structs, events.records, moved, asks=keeping.asks)
        unjudged = replace(unjudged, moves=moves)
    marks = (MARKS,) if keeping.marks else ()
    may_miss = [f.name for f in columns if f.name not in primary_key] if loose is None else list(loose)
    columns = (*columns, *marks)
    unjudged = with_left_out(unjudged, columns, may_miss)
    unjudged = with_metadata(unjudged, events.structs, events.records, of_source)
    return judge_rows(unjudged, (*columns, *of_source))


def _left_out_of_rows(values: pa.Array, images: Images) -> dict[str, npt.NDArray[np.int64]]:
    """Returns for each column of type ROW the positions in `values` of the records that have Debezium's placeholder for
    an unavailable value in this column. Only the new row of a change is searched, not the old row.
    """

    def texts(records: pa.Array, columns: tuple[DataField, ...]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        found = read_events(records, Images(columns, messages=images.messages))
        return found.structs.field("after"), found.positions

    return left_out_of_rows(values, images.fields, images.messages.unavailable_value, texts)


def _unfollowed(events: _Events, truncate: Truncate) -> dict[int, str]:
    """Returns the indices of the records whose event should give a row and gives none, each with the reason."""
    reasons: dict[int, str] = {}
    passed_over = ("m",) if truncate is Truncate.REJECT else ("m", "t")
    for i in np.flatnonzero(~events.is_one_of("c", "r", "u", "d", *passed_over)):
        reasons[int(events.records[i])] = _unknown_op(events.op[int(i)].as_py())
    for i in np.flatnonzero(events.is_one_of("c", "r", "u") & ~events.has_after):
        reasons[int(events.records[i])] = f"an event with op {events.op[int(i)].as_py()} and without after"
    return reasons


def _without_old_key(
    events: _Events,
    keys: pa.Array | pa.ChunkedArray | None,
    primary_key: Sequence[str],
    reader: EventReader | None,
) -> dict[int, str]:
    """Returns the indices of the records that do not identify the row that they replace or delete, each with the
    reason.

    If an update has no old row, the source's key has not changed. But the table's key may have columns that are not in
    the source's key. If the value of one of these columns has changed, the old row would stay in the table.
    """
    has_key = events.has_before
    reasons: dict[int, str] = {}
    for name in primary_key:
        column = events.before.field(name)
        for i in np.flatnonzero(events.is_one_of("d") & events.has_before & true_of(column.is_null())):
            reasons.setdefault(int(events.records[i]), f"a delete without {_lacking(name)}")
        has_key &= true_of(column.is_valid())
    blind = np.flatnonzero(events.is_one_of("u") & events.has_after & ~has_key)
    if keys is None or not len(blind):
        return reasons
    records = events.records[blind]
    lacks = lacks_key if reader is None else reader.lacks_key
    for at in np.flatnonzero(lacks(as_binary(keys).take(pa.array(records)), primary_key)):
        reasons[int(records[at])] = f"an update without the row before it, whose key lacks {_WIDER_KEY}"
    return reasons


def _lacking(name: str) -> str:
    return f"the column {name} of the table's primary key; {_FULL_IDENTITY}"


def _unknown_op(op: str) -> str:
    if op == "t":
        return f"a truncate of the source table (op t); {TRUNCATE_REMEDY}"
    return f"an event with op {op!r}; known are c, r, u, d and m"


def _moved(events: _Events, primary_key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Returns True for updates that change the primary key."""
    return events.is_one_of("u") & events.has_after & events.has_before & _key_changed(events, primary_key)


def _changes(events: _Events, moved: npt.NDArray[np.bool_], update_before: UpdateBefore) -> list[DecodedChange]:
    """Returns the rows of events that are inserts or updates. Deletes are not returned, nor are the -D rows of updates
    that change the key.
    """
    new = events.is_one_of("c", "r") & events.has_after
    update = events.is_one_of("u") & events.has_after
    changes = []
    if update_before is UpdateBefore.EMIT:
        changes.append(_taken(events, events.before, update & events.has_before & ~moved, RowKind.UPDATE_BEFORE))
    changes.append(_taken(events, events.after, new, RowKind.INSERT))
    changes.append(_taken(events, events.after, update, RowKind.UPDATE_AFTER))
    return changes


def _taken(events: _Events, images: pa.Array, mask: npt.NDArray[np.bool_], kind: RowKind) -> DecodedChange:
    return DecodedChange(images.filter(pa.array(mask)), events.records[mask], kind)


@lru_cache(maxsize=64)
def _json_shape(fields: tuple[DataField, ...], messages: MessageOptions) -> Shape:
    return row_shape(fields, nodes_of(messages.types), Writing(messages.bytes_form or BytesForm.BASE64))


def _key_changed(events: _Events, primary_key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Returns True for events whose old and new row differ in a column of `primary_key`. The change of a value to null
    counts too: `primary_key` may contain fields from which the table computes its key, and these fields may be null.
    """
    is_changed = np.zeros(len(events.records), dtype=bool)
    for name in primary_key:
        old, new = events.before.field(name), events.after.field(name)
        is_changed |= changed_values(old, new)
        is_changed |= true_of(pc.and_(old.is_valid(), new.is_null()))
    return is_changed


def rows_of_keys(
    keys: pa.Array | None,
    records: npt.NDArray[np.int64],
    fields: tuple[DataField, ...],
    primary_key: Sequence[str],
    row_type: pa.DataType,
    messages: MessageOptions,
    reader: EventReader | None = None,
) -> pa.Array:
    """Returns for each of the `records` a row of type `row_type` in which only the columns of the primary key are set,
    from the key of the record. The row is null if the key lacks a column. `reader` reads keys that are not JSON.
    """
    key_fields = tuple(f for f in fields if f.name in primary_key)
    if keys is None or not key_fields:
        return pa.nulls(len(records), row_type)
    key_rows = read_keys(as_binary(keys).take(pa.array(records)), key_fields, messages, reader)
    complete = true_of(key_rows.is_valid())
    children = [
        key_rows.field(f.name) if f in key_fields else pa.nulls(len(key_rows), child.type)
        for f, child in zip(fields, row_type, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(row_type), mask=pa.array(~complete))


def explained(reason: str, placeholder: Placeholder) -> str:
    """Returns the reason why a value is bad, with an explanation if the value is Debezium's placeholder. Debezium sends
    the placeholder in place of a large value that an update did not change.
    """
    return f"{reason}; {placeholder.reason}" if placeholder.text in reason else reason
