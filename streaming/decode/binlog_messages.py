"""Decodes messages of Canal and Maxwell, which follow MySQL's binary log, into rows with their row kinds.

In both formats `data` is the row after a change. `old` has the old values of the columns that an update has changed.
Canal's messages have lists of rows, and all their values are strings. An insert gives +I. An update gives +U of the row
after the update; if the primary key has changed, -D of the old row comes before it. A delete gives -D. An update also
gives -U if the merge engine needs it. Changes of the schema are skipped: new columns are found in the messages of rows.
A message of a TRUNCATE is a bad record, unless the format skips it (`taking_truncates`).

If a record is bad, it gives no row at all. A wrong value in `old` that no row takes does not make its record bad. Only
the key of a delete counts, because a log with `binlog_row_image=minimal` has nothing else: the other NOT NULL columns
of the delete become zero. If the row before an update is needed, a message with `null` after `old` is parsed once more
by Python, because Arrow does not distinguish a null from a missing field.

Source: Canal 1.1 FlatMessage, also as TiCDC writes it; Maxwell 1.41 RowMap; Flink 2.0 CanalJsonDeserializationSchema
and MaxwellJsonDeserializationSchema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS, MessageOptions, TypeMappings
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.canal_needs import need_of_bad, need_of_types
from bucketline.streaming.decode.canal_values import ColumnTypes, column_of, column_types, has_labels, text_field
from bucketline.streaming.decode.decoded_rows import Decoded, judge_rows
from bucketline.streaming.decode.json_values.json_blocks import Objects, read_objects
from bucketline.streaming.decode.json_values.json_declared import as_declared
from bucketline.streaming.decode.json_values.json_exact import parse_json
from bucketline.streaming.decode.json_values.json_shape import Shape, shape_of
from bucketline.streaming.decode.other_messages import TRUNCATE_REMEDY, Skipped
from bucketline.streaming.decode.row_changes import (
    DecodedChange,
    UpdateBefore,
    as_binary,
    changed_values,
    chosen,
    has_text,
    in_order,
    table_names,
    true_of,
    with_left_out,
)
from bucketline.streaming.decode.schema_needs import NO_NEED, WatchFor, joined, joined_all, part_of
from bucketline.streaming.decode.seen import Seen
from bucketline.streaming.decode.source_metadata import (
    BINLOG_PARTS,
    SOURCE_METADATA,
    binlog_events,
    with_metadata,
    without_metadata,
)

_NULL_BEHIND_OLD = r'(?s)"old".*null'
_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)
_IS_DDL = DataField(0, "isDdl", DataType(TypeRoot.BOOLEAN))
_TABLE_NAMES = (DataField(0, "database", _TEXT), DataField(0, "table", _TEXT))


@dataclass(frozen=True, slots=True)
class BinlogFormat:
    """How a program writes the binary log.

    `inserts`, `update` and `delete` are the values of the field `type`. If `is_canal` is true, messages have lists of
    rows, and all values are strings. `skipped` maps the types of messages without rows to the kinds under which they
    are counted.
    """

    program: str
    inserts: tuple[str, ...]
    update: str
    delete: str
    skipped: Mapping[Skipped, tuple[str, ...]]
    is_canal: bool = False

    def __hash__(self) -> int:
        return hash(self.program)

    @property
    def decode(self) -> RecordFormat:
        return RecordFormat.CANAL_JSON if self.is_canal else RecordFormat.MAXWELL_JSON

    @property
    def row_types(self) -> tuple[str, ...]:
        """The types of messages with rows."""
        return (*self.inserts, self.update, self.delete)


CANAL = BinlogFormat(
    "Canal",
    inserts=("INSERT", "ROW"),
    update="UPDATE",
    delete="DELETE",
    skipped={
        Skipped.SCHEMA_CHANGE: ("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY"),
        Skipped.TRANSACTION: ("GTID", "XACOMMIT", "XAROLLBACK"),
        Skipped.HEARTBEAT: ("MHEARTBEAT", "TIDB_WATERMARK"),
    },
    is_canal=True,
)
MAXWELL = BinlogFormat(
    "Maxwell",
    inserts=("insert", "bootstrap-insert"),
    update="update",
    delete="delete",
    skipped={
        Skipped.SCHEMA_CHANGE: (
            *("table-create", "table-alter", "table-drop"),
            *("database-create", "database-alter", "database-drop"),
        ),
        Skipped.NOTIFICATION: ("bootstrap-start", "bootstrap-complete"),
        Skipped.HEARTBEAT: ("heartbeat",),
    },
)
_TRUNCATES = ("TRUNCATE", "truncate", "table-truncate")


def taking_truncates(form: BinlogFormat) -> BinlogFormat:
    """Returns the format, changed so that messages of a TRUNCATE are skipped instead of being bad records."""
    return replace(form, skipped={**form.skipped, Skipped.TRUNCATE: _TRUNCATES})


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Changed rows in the order of their messages.

    `data` has the rows after the changes, and for deletes the deleted rows. `old` has the old values of the columns
    that an update has changed, or null. `messages` and `types` have the number and the type of each row's message, and
    `ranks` the position of the row in the message.
    """

    data: pa.Array
    old: pa.Array
    messages: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    types: pa.Array

    def of_type(self, *types: str) -> npt.NDArray[np.bool_]:
        return true_of(pc.is_in(self.types, value_set=pa.array(types)))


def decode_binlog(
    values: pa.Array,
    fields: Sequence[DataField],
    form: BinlogFormat,
    *,
    primary_key: Sequence[str] = (),
    loose: Sequence[str] | None = None,
    update_before: UpdateBefore = UpdateBefore.DROP,
    watch: WatchFor = WatchFor.NOTHING,
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
) -> Decoded:
    """Takes messages as binary or string values, and returns the changed rows in them.

    `loose` are the names of the NOT NULL columns that a delete may leave out; by default all columns outside of
    `primary_key`. Raises UnsupportedTableError for column types that JSON cannot hold.
    """
    columns, of_source = without_metadata(form.decode, fields)
    primary_key = [name for name in primary_key if name not in SOURCE_METADATA]
    read = tuple(map(text_field, columns)) if form.is_canal else columns
    given = as_binary(values)
    live = has_text(given)
    positions = np.flatnonzero(live)
    alive = chosen(given, live)
    objects = read_objects(
        alive, _message_shape(read, read, form, bool(of_source)), WatchFor.NOTHING if form.is_canal else watch
    )
    if update_before is UpdateBefore.DROP:
        keys = tuple(f for f in read if f.name in primary_key)
        objects = _without_needless(objects, alive, _message_shape(read, keys, form, bool(of_source)))
    records = positions[objects.positions]
    bad = {int(positions[at]): reason for at, reason in objects.bad}
    rows, reasons = _rows_in(objects.structs, form)
    seen = Seen(_skipped(objects, len(given), form), table_names(objects.structs, ("database", "table")))
    bad |= {int(records[message]): reason for message, reason in reasons.items()}
    texts = alive.take(pa.array(objects.positions))
    if form.is_canal:
        asked = watch is WatchFor.ALL or bool(messages.type_mapping) or has_labels(texts, columns)
        types = column_types(texts) if asked else None
        need = NO_NEED
        if types is not None and watch is WatchFor.ALL:
            unread = alive.take(pa.array([at for at, _ in objects.bad], pa.int64()))
            need = _canal_need(types, rows, unread, columns, messages.type_mapping)
        of_old = [f.name for f in columns if update_before is UpdateBefore.EMIT or f.name in primary_key]
        rows, reasons = _converted(rows, columns, types, of_old, messages.type_mapping)
        bad = {int(records[message]): reason for message, reason in reasons.items()} | bad
    else:
        found = joined(part_of(objects.need, "data"), part_of(objects.need, "old"))
        need = as_declared(found, messages, {f.name for f in columns})
    nullable = [f.name for f in columns if f.type.nullable and f.name in primary_key]
    changes = _changes(rows, texts, primary_key, nullable, form, update_before)
    truncates: tuple[int, ...] = ()
    if Skipped.TRUNCATE in form.skipped:
        is_truncate = pc.is_in(objects.structs.field("type"), value_set=pa.array(form.skipped[Skipped.TRUNCATE]))
        truncates = tuple(records[true_of(is_truncate)].tolist())
    unjudged = replace(in_order(changes, records[rows.messages], bad, need), seen=seen, truncates=truncates)
    may_miss = [f.name for f in columns if f.name not in primary_key] if loose is None else list(loose)
    unjudged = with_left_out(unjudged, columns, may_miss)
    if of_source:
        unjudged = with_metadata(unjudged, binlog_events(objects.structs, form.decode), records, of_source)
    return judge_rows(unjudged, (*columns, *of_source))


@lru_cache(maxsize=64)
def _message_shape(
    data: tuple[DataField, ...], old: tuple[DataField, ...], form: BinlogFormat, tells_source: bool
) -> Shape:
    """Returns the shape (fields with their types) of a message whose fields `data` and `old`, the rows after and before
    a change, have the given columns.

    If `tells_source` is true, the shape also has the fields that say from which table the message comes.
    """
    images = [DataType(TypeRoot.ROW, fields=columns) for columns in (data, old)]
    of_data, of_old = (DataType(TypeRoot.ARRAY, element=i) for i in images) if form.is_canal else images
    parts = [DataField(0, "data", of_data), DataField(0, "old", of_old), DataField(0, "type", _TEXT), *_TABLE_NAMES]
    parts += BINLOG_PARTS[form.decode] if tells_source else ()
    return shape_of(DataType(TypeRoot.ROW, fields=(*parts, _IS_DDL) if form.is_canal else tuple(parts)))


def _without_needless(objects: Objects, texts: pa.Array, of_keys: Shape) -> Objects:
    """Returns the objects. A message that is bad only because of a value in `old` that no row needs becomes a good
    object, whose `old` is null.

    No row needs a value in `old` if the update leaves the key unchanged. (The update may have corrected a wrong value.)
    `texts` are the messages. `of_keys` is the shape of a message with only the key columns in `old`.
    """
    doubtful = np.array([at for at, reason in objects.bad if reason.startswith("field old")], dtype=np.int64)
    if not len(doubtful):
        return objects
    again = read_objects(texts.take(pa.array(doubtful)), of_keys)
    keeps_key = np.ones(len(again.structs), dtype=bool)
    old = again.structs.field("old")
    is_list = pa.types.is_list(old.type)
    owners = pc.list_parent_indices(old).to_numpy() if is_list else np.arange(len(old))
    for key in (old.flatten() if is_list else old).flatten():
        keeps_key[owners[true_of(key.is_valid())]] = False
    kinds = list(objects.structs.type)
    children = [pa.nulls(len(old), f.type) if f.name == "old" else again.structs.field(f.name) for f in kinds]
    mended = pa.StructArray.from_arrays(children, fields=kinds).filter(pa.array(keeps_key))
    at = doubtful[again.positions[keeps_key]]
    positions, followed = np.concatenate([objects.positions, at]), set(at.tolist())
    order = np.argsort(positions)
    structs = pa.concat_arrays([objects.structs, mended]).take(pa.array(order))
    bad = tuple(pair for pair in objects.bad if pair[0] not in followed)
    return replace(objects, structs=structs, positions=positions[order], bad=bad)


def _canal_need(
    types: ColumnTypes, rows: _Rows, unread: pa.Array, fields: Sequence[DataField], mapping: TypeMappings
) -> pa.DataType:
    """Returns the columns and types that rows need and the table lacks. The columns and types are found in the types
    that the messages of the rows declare, and in the values of the messages that could not be read (`unread`).
    """
    declared = [types.types[code] for code in np.unique(types.codes[rows.messages])]
    return joined_all(
        [need_of_types(declared, fields, mapping), *(need_of_bad(text, fields) for text in unread.to_pylist())]
    )


def _rows_in(messages: pa.Array, form: BinlogFormat) -> tuple[_Rows, dict[int, str]]:
    """Returns the rows in messages. For bad messages, such as messages of an unknown type or without rows, also returns
    by the index of the message why the message is bad.
    """
    types = messages.field("type")
    is_change = true_of(pc.is_in(types, value_set=pa.array(form.row_types)))
    is_skipped = true_of(pc.is_in(types, value_set=pa.array([t for some in form.skipped.values() for t in some])))
    if form.is_canal:
        is_ddl = true_of(pc.fill_null(messages.field("isDdl"), False))
        is_truncate = true_of(pc.is_in(types, value_set=pa.array(_TRUNCATES)))
        is_change, is_skipped = is_change & ~is_ddl, is_skipped | (is_ddl & ~is_truncate)
    reasons = {int(at): _unknown(types[int(at)].as_py(), form) for at in np.flatnonzero(~is_change & ~is_skipped)}
    at = np.flatnonzero(is_change)
    data, old, types = (messages.field(name).take(pa.array(at)) for name in ("data", "old", "type"))
    if not form.is_canal:
        empty = true_of(data.is_null())
        reasons |= {int(at[i]): _no_data(types[int(i)].as_py()) for i in np.flatnonzero(empty)}
        return _Rows(data, old, at, np.zeros(len(at), dtype=np.int64), types), reasons
    counts, old_counts = _lengths(data), _lengths(old)
    parents = np.repeat(np.arange(len(at)), np.maximum(counts, 0))
    ranks = np.arange(len(parents)) - np.repeat(_starts(counts), np.maximum(counts, 0))
    rows = data.flatten()
    nulls = np.zeros(len(at), dtype=bool)
    nulls[parents[true_of(rows.is_null())]] = True
    for i in np.flatnonzero((counts <= 0) | nulls):
        reasons[int(at[i])] = _no_data(types[int(i)].as_py())
    is_update = true_of(pc.equal(types, form.update))
    for i in np.flatnonzero(is_update & (counts > 0) & (old_counts >= 0) & (counts != old_counts)):
        sizes = f"{counts[i]}, {old_counts[i]}"
        reasons[int(at[i])] = (
            f"a message of type {form.update} whose data and old have different numbers of rows: {sizes}"
        )
    has_old = ranks < old_counts[parents]
    of_old = np.where(has_old, _starts(old_counts)[parents] + ranks, 0)
    before = old.flatten().take(pa.array(of_old, mask=~has_old))
    return _Rows(rows, before, at[parents], ranks, types.take(pa.array(parents))), reasons


def _skipped(messages: Objects, record_count: int, form: BinlogFormat) -> dict[Skipped, int]:
    """Counts the records that hold no row: messages of types without rows, such as schema changes, and records without
    a value. Returns the number of records for each kind. `form.skipped` says which message types belong to which kind.
    """
    types = messages.structs.field("type")
    counts = {
        kind: pc.sum(pc.is_in(types, value_set=pa.array(some))).as_py() or 0 for kind, some in form.skipped.items()
    }
    if form.is_canal:
        is_ddl = true_of(pc.fill_null(messages.structs.field("isDdl"), False))
        known = true_of(
            pc.is_in(types, value_set=pa.array([*_TRUNCATES, *(t for some in form.skipped.values() for t in some)]))
        )
        counts[Skipped.SCHEMA_CHANGE] += int(np.sum(is_ddl & ~known))
    counts[Skipped.TOMBSTONE] = record_count - len(messages.positions) - len(messages.bad)
    return {kind: count for kind, count in counts.items() if count}


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the number of elements of each list; -1 for a null."""
    lengths: npt.NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), -1).to_numpy().astype(np.int64)
    return lengths


def _starts(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the position of each list's first element among the elements of all lists."""
    present = np.maximum(lengths, 0)
    return np.cumsum(present) - present


def _unknown(kind: str | None, form: BinlogFormat) -> str:
    if kind is None:
        return f"not a message of {form.program}: it has no field type"
    if kind in _TRUNCATES:
        return f"a truncate of the source table (type {kind}); {TRUNCATE_REMEDY}"
    return f"a message of {form.program} with type {kind!r}; rows come with {', '.join(form.row_types)}"


def _no_data(kind: str) -> str:
    return f"a message of type {kind} without a row in data"


def _converted(
    rows: _Rows,
    fields: tuple[DataField, ...],
    types: ColumnTypes | None,
    followed: Sequence[str],
    mapping: TypeMappings,
) -> tuple[_Rows, dict[int, str]]:
    """Converts Canal's strings to the types of the columns, and returns the rows. Also returns the reasons why messages
    are bad, by the index of the message.

    `old` has the values before an update. A wrong value in `old` makes a message bad only if the update changes a
    column in `followed`. For other updates the row before the update is not needed.
    """
    of_rows = None if types is None else ColumnTypes(types.types, types.codes[rows.messages])
    before_counts = np.zeros(len(rows.messages), dtype=bool)
    for name in followed:
        before_counts |= true_of(rows.old.field(name).is_valid())
    reasons: dict[int, str] = {}
    images = []
    for image, counts in ((rows.data, None), (rows.old, before_counts)):
        children = []
        for f in fields:
            values = column_of(image.field(f.name), f, of_rows, mapping)
            children.append(values.column)
            for row, reason in values.reasons.items():
                if counts is None or counts[row]:
                    reasons.setdefault(int(rows.messages[row]), f"field {f.name}: {reason}")
        names = [f.name for f in fields]
        mask = image.is_null()
        images.append(pa.StructArray.from_arrays(children, names, mask=mask) if children else image)
    return _Rows(images[0], images[1], rows.messages, rows.ranks, rows.types), reasons


def _changes(
    rows: _Rows,
    texts: pa.Array,
    primary_key: Sequence[str],
    nullable: Sequence[str],
    form: BinlogFormat,
    update_before: UpdateBefore,
) -> list[DecodedChange]:
    """Returns the changed rows in several DecodedChanges, each with rows of one row kind. The delete of an old key, and
    the row before an update, come in an earlier DecodedChange than the row after the same update.
    """
    update = rows.of_type(form.update) & true_of(rows.data.is_valid())
    followed = update & true_of(rows.old.is_valid())
    moved = followed & (_key_changed(rows, primary_key) | _nulls_changed(rows, nullable, followed, texts))
    shown = followed & ~moved if update_before is UpdateBefore.EMIT else np.zeros(len(moved), dtype=bool)
    before = _before(rows, np.flatnonzero(moved | shown), texts)
    has_before = moved[moved | shown]
    has_data = true_of(rows.data.is_valid())
    parts = [
        (before.filter(pa.array(has_before)), moved, RowKind.DELETE),
        (before.filter(pa.array(~has_before)), shown, RowKind.UPDATE_BEFORE),
        *(
            (rows.data.filter(pa.array(mask)), mask, kind)
            for mask, kind in (
                (rows.of_type(form.delete) & has_data, RowKind.DELETE),
                (rows.of_type(*form.inserts) & has_data, RowKind.INSERT),
                (update, RowKind.UPDATE_AFTER),
            )
        ),
    ]
    return [DecodedChange(images, np.flatnonzero(mask), kind) for images, mask, kind in parts]


def _key_changed(rows: _Rows, primary_key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Returns a mask that is true for rows in which `old` has another value for a key column than `data` has."""
    is_changed = np.zeros(len(rows.messages), dtype=bool)
    for name in primary_key:
        is_changed |= changed_values(rows.old.field(name), rows.data.field(name))
    return is_changed


def _nulls_changed(
    rows: _Rows, nullable: Sequence[str], followed: npt.NDArray[np.bool_], texts: pa.Array
) -> npt.NDArray[np.bool_]:
    """Returns a mask that is true for rows in which a column in `nullable` has become null, or was null before the
    update. The key is computed from the columns in `nullable`. `followed` marks the updates whose `old` is not null.
    """
    is_changed = np.zeros(len(rows.messages), dtype=bool)
    may_have_been = np.zeros(len(rows.messages), dtype=bool)
    for name in nullable:
        old, new = rows.old.field(name), rows.data.field(name)
        is_changed |= true_of(pc.and_(old.is_valid(), new.is_null()))
        may_have_been |= followed & true_of(pc.and_(old.is_null(), new.is_valid()))
    wanted = np.flatnonzero(may_have_been)
    nulls = _nulls_in_old(rows, wanted, texts) if len(wanted) else {}
    for name in nullable:
        if name in nulls:
            is_changed[wanted] |= nulls[name] & true_of(rows.data.field(name).is_valid())[wanted]
    return is_changed


def _before(rows: _Rows, wanted: npt.NDArray[np.int64], texts: pa.Array) -> pa.Array:
    """Returns the rows before the updates at the positions `wanted`: the rows after the updates, with the old values
    from `old` put in.
    """
    after, old = rows.data.take(pa.array(wanted)), rows.old.take(pa.array(wanted))
    nulls = _nulls_in_old(rows, wanted, texts)
    children = []
    for child in after.type:
        column = pc.coalesce(old.field(child.name), after.field(child.name))
        if child.name in nulls:
            column = if_else(pa.array(nulls[child.name]), None, column)
        children.append(column)
    return pa.StructArray.from_arrays(children, fields=list(after.type)) if children else after


def _nulls_in_old(rows: _Rows, wanted: npt.NDArray[np.int64], texts: pa.Array) -> dict[str, npt.NDArray[np.bool_]]:
    """Takes the positions of rows (`wanted`), and finds the columns that were null before the update, which `old` shows
    by an explicit null. Returns by column a mask of the wanted rows; columns that were never null are left out.
    """
    nulls: dict[str, npt.NDArray[np.bool_]] = {}
    messages = rows.messages[wanted]
    doubtful = pc.match_substring_regex(texts.take(pa.array(messages)), _NULL_BEHIND_OLD)
    read: tuple[int, object] = (-1, None)
    for i in np.flatnonzero(true_of(doubtful)):
        at = int(messages[i])
        if read[0] != at:
            read = at, parse_json(texts[at].as_py())
        old = read[1].get("old") if isinstance(read[1], dict) else None
        row = old[int(rows.ranks[wanted[i]])] if isinstance(old, list) else old
        for name in (n for n, value in row.items() if value is None) if isinstance(row, dict) else ():
            nulls.setdefault(name, np.zeros(len(wanted), dtype=bool))[i] = True
    return nulls
