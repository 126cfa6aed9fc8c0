"""Decodes Debezium rows without an envelope, as ExtractNewRecordState makes them, into rows with their row kinds.

A row with `__deleted` "true" or `__op` "d" was deleted; its record gives -D, and only the key counts. Any other row
gives +U if `__op` is "u", otherwise +I. A tombstone, which is a record without a value, deletes the row with its key:
the transform sends nothing else for a delete unless `delete.tombstone.handling.mode` is `rewrite`.

The row before an update is missing in these records. A table needs this row if it retracts old rows, or if its key has
columns that the source's key lacks. For such a table each record must have `__deleted` and `__op`, and an update is a
bad record. A delete comes as a row with a tombstone after it; the tombstone is skipped, so that the delete counts once.
With `source-table`, tombstones are skipped as well, because a tombstone does not say its table.

Source: Debezium 3.5 ExtractNewRecordState (add.fields, delete.tombstone.handling.mode).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS, MessageOptions
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.debezium_envelope import Images, kind_of_text, read_events
from bucketline.streaming.decode.decoded_rows import Decoded, judge_rows
from bucketline.streaming.decode.moves.find_moves import key_moves
from bucketline.streaming.decode.other_messages import Skipped
from bucketline.streaming.decode.records import explained, rows_of_keys
from bucketline.streaming.decode.row_changes import (
    DecodedChange,
    UpdateBefore,
    as_binary,
    chosen,
    has_text,
    in_order,
    lacks_key,
    table_names,
    true_of,
    with_left_out,
)
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.seen import Seen
from bucketline.streaming.decode.source_metadata import (
    POSITION,
    SOURCE_METADATA,
    flat_events,
    flat_parts,
    with_metadata,
    without_metadata,
)
from bucketline.streaming.decode.unavailable import KEEPS_NOTHING, MARKS, Keeping, Placeholder, settled
from bucketline.streaming.decode.unavailable_rows import left_out_of_rows, without_placeholder

DELETED, OP = "__deleted", "__op"
FLAT_PARTS = ("__db", "__schema", "__table")
"""The added fields that say the source table of a row."""

_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)
_MAYBE_OTHER = r'"(?:data_collections|additional_data)"\s*:'
_KNOWN_OPS = pa.array(["c", "r", "u", "d"])
_NEEDED = (
    "the table needs the row before an update, has more key columns than the source, or is one of several in its "
    "topic, so each row must say whether it is an insert, update or delete"
)
_NOT_SAID = (
    f"no field {DELETED} or {OP}: {_NEEDED}; set add.fields=op and delete.tombstone.handling.mode=rewrite in the "
    "transform of the connector, or read events with their envelope (debezium-json)"
)
_UPDATE = f"an update without the row before it: {_NEEDED}; read events with their envelope (debezium-json)"
_NO_TABLE = (
    "source-table is set, but the row does not say its table; set add.fields=db,table (schema,table for Postgres) in "
    "the transform of the connector"
)
_NO_KEY = "a record without a value, whose key does not hold the primary key"

_Mask = npt.NDArray[np.bool_]


def decode_flat(
    values: pa.Array,
    fields: Sequence[DataField],
    *,
    primary_key: Sequence[str],
    loose: Sequence[str] | None = None,
    keys: pa.Array | None = None,
    update_before: UpdateBefore = UpdateBefore.DROP,
    watch: WatchFor = WatchFor.NOTHING,
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
    keeping: Keeping = KEEPS_NOTHING,
) -> Decoded:
    """Takes rows without an envelope, and returns the changed rows. See `decode_debezium` for the parameters."""
    columns, of_source = without_metadata(RecordFormat.DEBEZIUM_FLAT_JSON, fields)
    primary_key = [name for name in primary_key if name not in SOURCE_METADATA]
    placeholder = Placeholder(messages.unavailable_value)
    data = as_binary(values)
    live = has_text(data)
    others = _others(data)
    live[list(others)] = False
    positions = np.flatnonzero(live)
    known = {f.name for f in columns}
    own_parts = {name: DataField(0, name, _TEXT) for name in (DELETED, OP, *FLAT_PARTS)}
    wanted = (*(f.name for f in of_source), *((POSITION,) if keeping.keeps else ()))
    parts = own_parts | {part.name: part for part in flat_parts(wanted)}
    added = tuple(part for name, part in parts.items() if name not in known)
    images = Images((*columns, *added), messages=messages, key=tuple(primary_key))
    alive = chosen(data, live)
    objects = read_events(alive, images, watch)
    in_rows = _left_out_of_rows(alive, images)
    objects = replace(objects, need=without_placeholder(objects.need, in_rows, placeholder.text))
    records, structs = positions[objects.positions], objects.structs
    own_keys = None if keys is None else as_binary(keys)
    needs_before = np.full(len(records), update_before is UpdateBefore.EMIT)
    if own_keys is not None:
        needs_before |= lacks_key(own_keys.take(pa.array(records)), primary_key)
    bad = {int(positions[at]): explained(reason, placeholder) for at, reason in objects.bad}
    one_of_many = messages.source_table is not None
    has_to_say = needs_before | one_of_many
    bad |= {int(records[at]): reason for at, reason in _unclear(structs, needs_before, has_to_say).items()}
    if one_of_many:
        unnamed = true_of(structs.field(FLAT_PARTS[-1]).is_null())
        bad |= dict.fromkeys((int(record) for record in records[unnamed]), _NO_TABLE)
    rows = pa.StructArray.from_arrays([structs.field(f.name) for f in columns], [f.name for f in columns])
    is_delete = _is_delete(structs)
    is_update = true_of(pc.fill_null(pc.equal(structs.field(OP), "u"), False)) & ~is_delete
    changes = [
        DecodedChange(rows.filter(pa.array(mask)), records[mask], kind)
        for mask, kind in (
            (is_delete, RowKind.DELETE),
            (is_update, RowKind.UPDATE_AFTER),
            (~is_delete & ~is_update, RowKind.INSERT),
        )
    ]
    empty = _empty(len(data), records, [*bad, *others, *(int(positions[at]) for at, _ in objects.skipped)])
    skipped = Counter([*others.values(), *(kind for _, kind in objects.skipped)])
    if own_keys is not None and update_before is UpdateBefore.DROP and not one_of_many:
        gone = empty[_deletes(own_keys.take(pa.array(empty)), primary_key)]
        of_keys = rows_of_keys(own_keys, gone, columns, primary_key, rows.type, messages)
        has_key = true_of(of_keys.is_valid())
        bad |= {int(record): _NO_KEY for record in gone[~has_key]}
        changes.append(DecodedChange(of_keys.filter(pa.array(has_key)), gone[has_key], RowKind.DELETE))
        empty = np.setdiff1d(empty, gone)
    seen = Seen(dict(skipped + Counter({Skipped.TOMBSTONE: len(empty)})), table_names(structs, FLAT_PARTS))
    unjudged = replace(in_order(changes, None, bad, objects.need), seen=seen)
    in_rows = {name: positions[found] for name, found in in_rows.items()}
    unjudged = settled(unjudged, columns, primary_key, placeholder, keeping, in_rows)
    if keeping.keeps:
        facts = flat_events(structs, pa.array(is_delete))
        lacking = unjudged.lacking, unjudged.lacking_inserts
        moves = key_moves(*lacking, facts, records, np.zeros(len(records), dtype=bool), asks=keeping.asks)
        unjudged = replace(unjudged, moves=moves)
    may_miss = [f.name for f in columns if f.name not in primary_key] if loose is None else list(loose)
    columns = (*columns, *((MARKS,) if keeping.marks else ()))
    unjudged = with_left_out(unjudged, columns, may_miss)
    if of_source:
        unjudged = with_metadata(unjudged, flat_events(structs, pa.array(is_delete)), records, of_source)
    return judge_rows(unjudged, (*columns, *of_source))


def _left_out_of_rows(values: pa.Array, images: Images) -> dict[str, npt.NDArray[np.int64]]:
    """Returns for each column of type ROW the positions of the records that leave out the value of the column. In such
    a record, Debezium's placeholder is in the place of the object.
    """
    of_key = tuple(f for f in images.fields if f.name in images.key)

    def texts(records: pa.Array, columns: tuple[DataField, ...]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        found = read_events(records, replace(images, fields=(*of_key, *columns)))
        return found.structs, found.positions

    return left_out_of_rows(values, images.fields, images.messages.unavailable_value, texts)


def _others(records: pa.Array) -> dict[int, Skipped]:
    """Finds Debezium's own messages, for example about transactions, which hold no row. Such a message may have a field
    `id`, which may also be the name of a key column, so it can look like a row. Returns the kind of each of these
    messages by the number of the record.
    """
    doubtful = pc.match_substring_regex(records, _MAYBE_OTHER)
    found = {}
    for at in np.flatnonzero(true_of(pc.fill_null(doubtful, False))).tolist():
        kind = kind_of_text(records[at].as_py())
        if kind is not None:
            found[at] = kind
    return found


def _is_delete(structs: pa.Array) -> _Mask:
    said = pc.equal(pc.utf8_lower(structs.field(DELETED).cast(pa.string())), "true")
    return true_of(pc.or_(pc.fill_null(said, False), pc.fill_null(pc.equal(structs.field(OP), "d"), False)))


def _unclear(structs: pa.Array, needs_before: _Mask, has_to_say: _Mask) -> dict[int, str]:
    """Returns the reasons why rows are bad, by the index of the row. A row is bad if it has an unknown `__op`, or if it
    lacks a field that says what happened to the row.

    `needs_before` marks the rows for which the row before an update is needed; `has_to_say` marks the rows that must
    have both `__op` and `__deleted`.
    """
    op, deleted = structs.field(OP), structs.field(DELETED)
    reasons: dict[int, str] = {}
    for i in np.flatnonzero(true_of(pc.and_(op.is_valid(), pc.invert(pc.is_in(op, value_set=_KNOWN_OPS))))):
        reasons[int(i)] = f"a row with {OP} {op[int(i)].as_py()!r}; known are c, r, u and d"
    if has_to_say.any():
        for i in np.flatnonzero(has_to_say & true_of(pc.or_(op.is_null(), deleted.is_null()))):
            reasons.setdefault(int(i), _NOT_SAID)
        for i in np.flatnonzero(needs_before & true_of(pc.fill_null(pc.equal(op, "u"), False))):
            reasons.setdefault(int(i), _UPDATE)
    return reasons


def _empty(count: int, records: npt.NDArray[np.int64], others: Sequence[int]) -> npt.NDArray[np.int64]:
    """Returns the numbers of the records without a value: the numbers below `count` that are neither in `records` nor
    in `others`.
    """
    is_empty = np.ones(count, dtype=bool)
    is_empty[records] = False
    is_empty[list(others)] = False
    return np.flatnonzero(is_empty)


def _deletes(keys: pa.Array, primary_key: Sequence[str]) -> _Mask:
    """Takes the keys of tombstones (Kafka records without a value), and returns a mask of the tombstones that delete a
    row. A tombstone whose key lacks a column of the table's key deletes nothing: the record before it has `__deleted`,
    and has deleted the row already.
    """
    return has_text(keys) & ~lacks_key(keys, primary_key)
