"""Puts the rows of inserts, updates and deletes, which were decoded separately, into the order of their messages
again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.lsm.aggregate.entries_of_rows import value_codes
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.decoded_rows import Unjudged


class UpdateBefore(Enum):
    """Whether an update also gives the old row as -U."""

    DROP = "drop"
    EMIT = "emit"


@dataclass(frozen=True, slots=True)
class DecodedChange:
    """Rows of one kind, and for each row the index of the event from which the row comes. The indices are in ascending
    order.
    """

    rows: pa.Array
    events: npt.NDArray[np.int64]
    kind: RowKind


def in_order(
    changes: Sequence[DecodedChange], records: npt.NDArray[np.int64] | None, bad: Mapping[int, str], need: pa.DataType
) -> Unjudged:
    """Joins the rows of all `changes` into one result, sorted by event. Rows of the same event stay in the order of
    `changes`.

    `records` has for each event the index of its record; None if event i comes from record i. `bad` (the bad records)
    and `need` (the missing columns) are put into the result unchanged.
    """
    kinds = np.concatenate([np.full(len(c.rows), int(c.kind), dtype=np.int8) for c in changes])
    events = np.concatenate([c.events for c in changes])
    order = np.argsort(events, kind="stable")
    rows = pa.concat_arrays([c.rows for c in changes]).take(pa.array(order))
    origin = events[order] if records is None else records[events[order]]
    return Unjudged(rows, kinds[order], origin, dict(bad), need)


def with_left_out(unjudged: Unjudged, fields: Sequence[DataField], loose: Sequence[str]) -> Unjudged:
    """Returns the rows with values for NOT NULL columns that a delete leaves out: the value becomes zero (0, an empty
    string, and so on). `loose` are the NOT NULL columns that deletes may leave out.
    """
    is_delete = pa.array(unjudged.kinds == int(RowKind.DELETE))
    children = []
    for f, child in zip(fields, unjudged.structs.type, strict=True):
        column = unjudged.structs.field(f.name)
        if not f.type.nullable and f.name in loose and f.type.is_atomic and column.null_count:
            missing = pc.and_(column.is_null(), is_delete)
            column = if_else(missing, zero_of(child.type), column)
        children.append(column)
    structs = pa.StructArray.from_arrays(children, fields=list(unjudged.structs.type)) if children else unjudged.structs
    return replace(unjudged, structs=structs)


def zero_of(data_type: pa.DataType) -> pa.Scalar:
    """Returns the zero of an atomic type: an empty string, no bytes, false, or the number 0."""
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pa.scalar(b"").cast(data_type)
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(bytes(16))])[0]


def table_names(messages: pa.Array, parts: Sequence[str]) -> frozenset[str]:
    """Returns the distinct names of tables in messages. A name consists of the strings in the fields `parts`, joined by
    dots, for example `shop.orders`. A message without the last of these fields contains no table name.
    """
    columns = [messages.field(part) for part in parts]
    named = columns[-1].drop_null()
    if len(named) == 0:
        return frozenset()
    firsts = [column[int(np.argmax(true_of(columns[-1].is_valid())))] for column in columns]
    same = [
        pc.all(pc.or_(pc.fill_null(pc.equal(c, f), False), columns[-1].is_null())).as_py()
        for c, f in zip(columns, firsts, strict=True)
        if f.is_valid
    ]
    absent = [c.null_count == len(c) for c, f in zip(columns, firsts, strict=True) if not f.is_valid]
    if all(same) and all(absent):
        return frozenset([".".join(f.as_py() for f in firsts if f.is_valid)])
    rows = pa.table(columns, names=list(parts)).group_by(list(parts)).aggregate([]).to_pylist()
    return frozenset(".".join(t for t in (row[p] for p in parts) if t) for row in rows if row[parts[-1]] is not None)


def changed_values(old: pa.Array, new: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns for each row whether the old and the new value are known and differ. The values may be nested."""
    if not pa.types.is_nested(new.type):
        return true_of(pc.fill_null(pc.not_equal(old, new), False))
    codes = value_codes(pa.concat_arrays([old, new]))
    differs: npt.NDArray[np.bool_] = codes[: len(old)] != codes[len(old) :]
    return differs & true_of(pc.and_(old.is_valid(), new.is_valid()))


def lacks_key(keys: pa.Array, primary_key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Returns True for record keys that are JSON objects and lack one of the columns in `primary_key`. For these
    records the source has a key that differs from the key of the table.

    The keys are not parsed, which would cost too much for every record: the function searches their text for the names
    of the columns. The schema that a record's key may begin with is not searched.
    """
    given = pc.fill_null(keys, b"")
    is_object = true_of(pc.match_substring_regex(given, r"^\s*\{"))
    own = pc.replace_substring_regex(given, r'(?s)^\s*\{\s*"schema"\s*:.*"payload"\s*:', "")
    lacks = np.zeros(len(keys), dtype=bool)
    for name in primary_key:
        spellings = "|".join(re.escape(json.dumps(name, ensure_ascii=ascii)) for ascii in (True, False))
        lacks |= ~true_of(pc.match_substring_regex(own, rf"(?:{spellings})\s*:"))
    return is_object & lacks


def as_binary(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns the values of a column as one array of bytes."""
    return one_array(values).cast(pa.binary())


def has_text(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns True for values that are neither null nor empty."""
    return true_of(pc.and_(values.is_valid(), pc.fill_null(pc.greater(pc.binary_length(values), 0), False)))


def chosen(values: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    """Returns the values where the mask is true, without a copy if it is true everywhere."""
    return values if mask.all() else values.filter(pa.array(mask))


def true_of(mask: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns an Arrow array of booleans without nulls as a numpy array."""
    values: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return values
