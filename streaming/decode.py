"""The values of records → rows of a table, each with its row kind and the record it comes from; bad records apart.

*JSON*: an object a record; every one is an insert. Fields that are no columns are passed over, missing ones are null.
A record without value is passed over, as by Flink.

*Debezium JSON*, with or without the schema envelope. `c` and `r` give +I of the row after; `u` gives +U of the row
after, and before it, when the primary key has changed, -D of the row before; `d` gives -D of the row before, or,
without one, of the record's key. The -U of an update is given only if asked for: a table that keeps the newest row of
a key has no use for it. A delete is judged by its key: Postgres sends nothing else without REPLICA IDENTITY FULL, so
other NOT NULL columns that are missing in it hold zero. Tombstones and messages (`m`) are passed over; `t`, a
truncation, is bad.

A record is bad as a whole, or not at all: of an update, both rows are there or none.

Source: Flink 2.0 JsonRowDataDeserializationSchema, DebeziumJsonDeserializationSchema; Debezium 3 documentation of its
connectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.arrow import arrow_field, arrow_schema
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import DataField
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.debezium_envelope import NO_EVENT, read_events, read_keys
from bucketline.streaming.json_blocks import read_objects
from bucketline.streaming.json_shape import Shape, row_shape

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium sends instead of a large value that an update did not touch, and that the source did not log."""

_UNAVAILABLE_REASON = (
    f"{UNAVAILABLE}: the source did not send a large value that the update left as it was; set REPLICA IDENTITY FULL "
    "on the source table"
)


class UpdateBefore(Enum):
    """Whether the row before an update is given as -U."""

    DROP = "drop"
    EMIT = "emit"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows that records hold, in the order of the records.

    `rows` has the given columns in table types; `kinds` is int8, `origin` int64: for each row the index of its record,
    ascending. `bad` (int64, ascending) are the indices of bad records, `reasons` why; `skipped_count` counts records
    that hold no row and are not bad.
    """

    rows: pa.RecordBatch
    kinds: pa.Array
    origin: pa.Array
    bad: pa.Array
    reasons: pa.Array
    skipped_count: int


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows before they are judged, and the reasons against records so far."""

    structs: pa.Array
    kinds: npt.NDArray[np.int8]
    origin: npt.NDArray[np.int64]
    bad: dict[int, str]


def decode_json(values: pa.Array, fields: Sequence[DataField]) -> Decoded:
    """The rows in JSON objects, all of them inserts.

    Shapes: n binary or string values in; null values hold no row. Raises UnsupportedTableError for column types that
    JSON cannot hold.
    """
    data = _binary(values)
    live = _true(data.is_valid())
    positions = np.flatnonzero(live)
    objects = read_objects(data.filter(pa.array(live)), _json_shape(tuple(fields)))
    found = _Found(
        objects.structs,
        np.full(len(objects.structs), int(RowKind.INSERT), dtype=np.int8),
        positions[objects.positions],
        {int(positions[at]): reason for at, reason in objects.bad},
    )
    return _judge(found, tuple(fields), record_count=len(data))


def decode_debezium(
    values: pa.Array,
    fields: Sequence[DataField],
    *,
    primary_key: Sequence[str] = (),
    loose: Sequence[str] | None = None,
    keys: pa.Array | None = None,
    update_before: UpdateBefore = UpdateBefore.DROP,
) -> Decoded:
    """The row changes in Debezium events.

    Shapes: n binary or string values in, and the records' n keys, where they are known. `loose` names the NOT NULL
    columns that a delete may leave out; without it, all that are not in `primary_key`.
    """
    columns = tuple(fields)
    data = _binary(values)
    live = _true(pc.and_(data.is_valid(), pc.fill_null(pc.greater(pc.binary_length(data), 0), False)))
    positions = np.flatnonzero(live)
    events = read_events(data.filter(pa.array(live)), columns)
    bad = {int(positions[at]): reason for at, reason in events.bad}
    at = positions[events.positions]
    before, after, op = (events.structs.field(name) for name in ("before", "after", "op"))
    has_before, has_after = _true(before.is_valid()), _true(after.is_valid())
    is_upsert, is_update, is_delete, is_message = (
        _true(pc.is_in(op, value_set=pa.array(codes))) for codes in (["c", "r", "u"], ["u"], ["d"], ["m"])
    )
    for i in np.flatnonzero(~(is_upsert | is_delete | is_message)):
        bad[int(at[i])] = _unknown_op(op[int(i)].as_py())
    for i in np.flatnonzero(is_upsert & ~has_after):
        bad[int(at[i])] = f"an event with op {op[int(i)].as_py()} and without after"
    moved = _key_changed(before, after, primary_key) & is_update & has_before & has_after
    retracted = moved | (is_delete & has_before)
    parts = [(before, retracted, RowKind.DELETE, 0)]
    if update_before is UpdateBefore.EMIT:
        parts.append((before, is_update & has_before & ~moved, RowKind.UPDATE_BEFORE, 0))
    parts.append((after, is_upsert & ~is_update & has_after, RowKind.INSERT, 1))
    parts.append((after, is_update & has_after, RowKind.UPDATE_AFTER, 1))
    keyed = np.flatnonzero(is_delete & ~has_before)
    images = [struct.filter(pa.array(mask)) for struct, mask, _, _ in parts]
    counts = [len(image) for image in images]
    origins = [at[mask] for _, mask, _, _ in parts]
    if len(keyed):
        by_key = _deletes_by_key(keys, at[keyed], columns, primary_key, images[0].type)
        known = _true(by_key.is_valid())
        for i in at[keyed][~known]:
            bad[int(i)] = "an event with op d and without before, whose record key does not hold the primary key"
        images.append(by_key.filter(pa.array(known)))
        counts.append(int(known.sum()))
        origins.append(at[keyed][known])
        parts.append((by_key, known, RowKind.DELETE, 0))
    kinds = np.repeat(np.array([int(kind) for _, _, kind, _ in parts], dtype=np.int8), counts)
    second = np.repeat(np.array([place for *_, place in parts]), counts)
    origin = np.concatenate(origins)
    order = np.lexsort((second, origin))
    found = _Found(pa.concat_arrays(images).take(pa.array(order)), kinds[order], origin[order], bad)
    _refuse_unavailable(found, columns, primary_key)
    may_miss = [f.name for f in columns if f.name not in primary_key] if loose is None else list(loose)
    return _judge(_filled(found, columns, may_miss), columns, record_count=len(data))


def misfits(column: pa.Array, field: DataField) -> dict[int, str]:
    """The values that the column's type does not take, with the reason, by row: found by halving what fails.

    Raises SchemaMismatchError when no array of this Arrow type would fit, and this one is empty.
    """
    found: dict[int, str] = {}
    rows = np.arange(len(column))
    if not field.type.nullable and column.null_count:
        valid = _true(column.is_valid())
        found = {int(row): f"field {field.name}: null, but the column is NOT NULL" for row in rows[~valid]}
        column, rows = column.filter(pa.array(valid)), rows[valid]
    target = arrow_field(field).type
    pending = [(0, len(column))]
    while pending:
        start, stop = pending.pop()
        try:
            fit_array(column.slice(start, stop - start), field.type, target, field.name)
        except SchemaMismatchError as e:
            if stop == start:
                raise
            if stop - start == 1:
                found[int(rows[start])] = e.message
            else:
                half = (start + stop) // 2
                pending += [(start, half), (half, stop)]
    return found


def _unknown_op(op: str | None) -> str:
    if op is None:
        return NO_EVENT
    if op == "t":
        return "an event with op t: the source table was truncated, which this table cannot follow"
    return f"an event with op {op!r}; known are c, r, u, d and m"


@lru_cache(maxsize=64)
def _json_shape(fields: tuple[DataField, ...]) -> Shape:
    return row_shape(fields)


def _key_changed(before: pa.Array, after: pa.Array, primary_key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """True where both images hold the column and differ in it, for any column of the key."""
    found = np.zeros(len(before), dtype=bool)
    for name in primary_key:
        found |= _true(pc.fill_null(pc.not_equal(before.field(name), after.field(name)), False))
    return found


def _deletes_by_key(
    keys: pa.Array | None,
    records: npt.NDArray[np.int64],
    fields: tuple[DataField, ...],
    primary_key: Sequence[str],
    row_type: pa.DataType,
) -> pa.Array:
    """Rows that hold the primary key from the records' own keys and nothing else; null where a key lacks a column."""
    key_fields = tuple(f for f in fields if f.name in primary_key)
    if keys is None or not key_fields:
        return pa.nulls(len(records), row_type)
    found = read_keys(_binary(keys).take(pa.array(records)), key_fields)
    complete = _true(found.is_valid())
    for f in key_fields:
        complete &= _true(found.field(f.name).is_valid())
    children = [
        found.field(f.name) if f in key_fields else pa.nulls(len(found), child.type)
        for f, child in zip(fields, row_type, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(row_type), mask=pa.array(~complete))


def _refuse_unavailable(found: _Found, fields: Sequence[DataField], primary_key: Sequence[str]) -> None:
    """Notes the records that hold Debezium's placeholder; a delete is judged by its key alone."""
    not_delete = found.kinds != int(RowKind.DELETE)
    for f in fields:
        mask = _unavailable(found.structs.field(f.name))
        if mask is None:
            continue
        for i in np.flatnonzero(mask & (not_delete | (f.name in primary_key))):
            found.bad.setdefault(int(found.origin[i]), f"field {f.name}: {_UNAVAILABLE_REASON}")


def _unavailable(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """True where the column, or an element of its array, is the placeholder; None when there is none."""
    if pa.types.is_list(column.type):
        inner = _unavailable(column.values)
        if inner is None:
            return None
        ends = np.concatenate([[0], np.cumsum(inner)])[column.offsets.to_numpy()]
        return np.asarray(ends[1:] > ends[:-1])
    if pa.types.is_string(column.type):
        same = pc.equal(column, UNAVAILABLE)
    elif pa.types.is_binary(column.type):
        same = pc.equal(column, UNAVAILABLE.encode())
    else:
        return None
    return _true(pc.fill_null(same, False)) if pc.any(same).as_py() else None


def _filled(found: _Found, fields: Sequence[DataField], loose: Sequence[str]) -> _Found:
    """The rows with zero in the `loose` NOT NULL columns that deletes leave out."""
    is_delete = pa.array(found.kinds == int(RowKind.DELETE))
    children = []
    for f, child in zip(fields, found.structs.type, strict=True):
        column = found.structs.field(f.name)
        if not f.type.nullable and f.name in loose and f.type.is_atomic and column.null_count:
            missing = pc.and_(column.is_null(), is_delete)
            column = pc.if_else(missing, _zero(child.type), column)
        children.append(column)
    structs = pa.StructArray.from_arrays(children, fields=list(found.structs.type)) if children else found.structs
    return _Found(structs, found.kinds, found.origin, found.bad)


def _zero(data_type: pa.DataType) -> pa.Scalar:
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pa.scalar(b"").cast(data_type)
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(bytes(16))])[0]


def _judge(found: _Found, fields: tuple[DataField, ...], *, record_count: int) -> Decoded:
    """The rows in table types, without the rows of bad records."""
    bad = dict(found.bad)
    seen = len(np.union1d(found.origin, np.fromiter(bad, dtype=np.int64, count=len(bad))))
    columns = [found.structs.field(f.name) for f in fields]
    for f, column in zip(fields, columns, strict=True):
        for row, reason in misfits(column, f).items():
            bad.setdefault(int(found.origin[row]), reason)
    kinds, origin = pa.array(found.kinds, pa.int8()), pa.array(found.origin, pa.int64())
    if bad:
        keep = pa.array(~np.isin(found.origin, np.fromiter(bad, dtype=np.int64, count=len(bad))))
        columns = [column.filter(keep) for column in columns]
        kinds, origin = kinds.filter(keep), origin.filter(keep)
    fitted = [fit_array(c, f.type, arrow_field(f).type, f.name) for c, f in zip(columns, fields, strict=True)]
    schema = arrow_schema(fields)
    rows = (
        pa.RecordBatch.from_arrays(fitted, schema=schema) if fitted else pa.RecordBatch.from_struct_array(found.structs)
    )
    told = sorted(bad.items())
    return Decoded(
        rows=rows,
        kinds=kinds,
        origin=origin,
        bad=pa.array([at for at, _ in told], pa.int64()),
        reasons=pa.array([_explained(reason) for _, reason in told], pa.string()),
        skipped_count=record_count - seen,
    )


def _explained(reason: str) -> str:
    if UNAVAILABLE in reason and _UNAVAILABLE_REASON not in reason:
        return f"{reason}; {_UNAVAILABLE_REASON}"
    return reason


def _binary(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return array.cast(pa.binary())


def _true(mask: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return found
