"""Handles values that the source left out.

Postgres does not log a large value that an update did not change. Debezium then sends a placeholder instead of the
value, in a form that the column's type allows.
Source: Debezium 3 UnchangedToastedPlaceholder; before 2.0 an array of numbers was [1868788].
"""

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.lsm.merge.left_out import pack_left_out, unpack_left_out
from bucketline.state.types.arrow import UNAVAILABLE
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.decoded_rows import Unjudged
from bucketline.streaming.decode.row_changes import true_of, zero_of


class LeftOut(Enum):
    """What happens to a value that the source left out."""

    REFUSED = "its record is bad"
    NULL = "null, which leaves the value of the table as it is"
    MARKED = "null, and the column UNAVAILABLE says so"


@dataclass(frozen=True, slots=True)
class Keeping:
    """Says what a table does with a value that the source left out of a record: the record is bad, or the table keeps
    the old value of the column.

    - `left_out` says which of the two happens.
    - `never` are columns whose values may not be left out.
    - `names` are all columns of the table.
    - If `asks` is true, the driver looks for rows whose key has changed. Then all rows have the column UNAVAILABLE,
      which says what was left out, whatever `left_out` is.
    """

    left_out: LeftOut = LeftOut.REFUSED
    never: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    asks: bool = False

    @property
    def keeps(self) -> bool:
        """True if values that the source left out are kept."""
        return self.left_out is not LeftOut.REFUSED

    @property
    def marks(self) -> bool:
        """True if the rows have the column UNAVAILABLE."""
        return self.left_out is LeftOut.MARKED or self.asks

    def can_miss(self, field: DataField) -> bool:
        """Returns True if the value of a column may be left out."""
        return field.type.nullable or (self.left_out is LeftOut.MARKED and field.type.is_atomic)

    def of_inputs(self, inputs: Sequence[str], kept: Sequence[DataField]) -> "Keeping":
        """Returns a copy of these settings for `inputs`, the fields from which the table's columns are computed.

        Only values of the fields in `kept` may be left out: these are fields that the table takes over unchanged.
        """
        if not self.keeps:
            return self
        missing = {f.name for f in kept if self.can_miss(f)}
        return replace(self, never=(*self.never, *(n for n in inputs if n not in missing)), names=tuple(inputs))


def marks_of_table(
    rows: pa.Table, marks: pa.Array, fields: Sequence[DataField], names: Sequence[str]
) -> tuple[pa.Array, pa.Table]:
    """Each row has a mark, which holds the positions of the columns whose values the source left out of the row. The
    positions count the columns of `rows`. Returns marks whose positions count the columns of the table, `names`.

    Also returns the rows. In columns that are NOT NULL (according to `fields`), the values that were left out are
    zeros.
    """
    bits = unpack_left_out(marks, rows.num_columns)
    left_out = {name: bits[:, at] for at, name in enumerate(rows.column_names) if bits[:, at].any()}
    for f in fields:
        if f.name in left_out and not f.type.nullable:
            column = one_array(rows[f.name])
            zeros = if_else(pa.array(left_out[f.name]), zero_of(column.type), column)
            rows = rows.set_column(rows.column_names.index(f.name), f.name, zeros)
    return pack_left_out(left_out, names, rows.num_rows), rows


KEEPS_NOTHING = Keeping()
_NONE: Mapping[str, npt.NDArray[np.int64]] = {}
MARKS = DataField(-1, UNAVAILABLE, DataType(TypeRoot.VARBINARY, length=2**31 - 1))
"""The column that says which values of a row the source left out."""

_GEOMETRIES = (
    bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1"),
    bytes.fromhex("0101000020e61000000c21e7fdff7f66401842cefbff7f5640"),
)
"""The points, in the form EWKB, that Debezium sends for a geometry or a geography that was left out."""
_OLD_NUMBERS = (1868788,)

_OCTETS = pa.array([str(number) for number in range(256)])
"""All values of a byte as texts, each at its own position."""

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The placeholder that Debezium sends in place of a value: `unavailable.value.placeholder` of the connector."""

    text: str

    @property
    def texts(self) -> pa.Array:
        """The texts that a STRING column gets in place of a value that the source has left out, for example the
        placeholder of Debezium and its bytes in base64.
        """
        return _texts_of(self.text)

    @property
    def reason(self) -> str:
        """The reason why a record with the placeholder is bad, and what to do."""
        return f"{self._left_out}; set REPLICA IDENTITY FULL on the source table, or unavailable to keep"

    @property
    def reason_of_move(self) -> str:
        """The reason why a record that leaves out a value and changes the primary key is bad, and what to do."""
        return (
            f"{self._left_out}; the update changed the primary key, and no row with the old key is known from which "
            "the value could be taken; set REPLICA IDENTITY FULL on the source table"
        )

    @property
    def reason_of_place(self) -> str:
        """The reason why a record is bad if it leaves out a value and changes the primary key, and its offset is not
        known; and what to do.
        """
        return (
            f"{self._left_out}; the update changed the primary key, and unavailable = keep follows such a change only "
            "in records of Kafka, which have an offset; set REPLICA IDENTITY FULL on the source table"
        )

    @property
    def _left_out(self) -> str:
        return f"{self.text}: the source left out a large value that the update did not change"

    def rows(self, column: pa.Array) -> _Mask | None:
        """Returns a mask that is true for rows whose value is the placeholder, or contains it; None if there are no
        such rows.
        """
        kind = column.type
        if pa.types.is_map(kind):
            return _of_elements(_either(self.rows(column.keys), self.rows(column.items)), column)
        if pa.types.is_list(kind):
            inner = self.rows(column.values)
            return _either(_of_elements(inner, column), self._number_lists(column))
        if pa.types.is_struct(kind):
            found: _Mask | None = None
            for i in range(kind.num_fields):
                found = _either(found, self.rows(column.field(i)))
            return found
        if pa.types.is_string(kind):
            same = pc.is_in(column, value_set=self.texts)
        elif pa.types.is_binary(kind):
            same = pc.is_in(column, value_set=pa.array([self.text.encode(), *_GEOMETRIES], kind))
        else:
            return None
        return true_of(same) if pc.any(same).as_py() else None

    def _number_lists(self, lists: pa.Array) -> _Mask | None:
        """Returns a mask of the lists that stand for a value that was left out: their elements are the bytes of the
        placeholder, as whole numbers or as strings of whole numbers. Returns None if there is no such list.
        """
        elements, is_text = lists.values, pa.types.is_string(lists.type.value_type)
        if not (is_text or pa.types.is_integer(lists.type.value_type)):
            return None
        offsets = lists.offsets.to_numpy()
        found = np.zeros(len(lists), dtype=bool)
        for numbers in (tuple(self.text.encode()), _OLD_NUMBERS):
            alike = np.flatnonzero(np.diff(offsets) == len(numbers))
            if len(alike):
                at = offsets[alike][:, None] + np.arange(len(numbers))
                values = elements.take(pa.array(at.ravel()))
                values = pc.index_in(values, value_set=_OCTETS) if is_text else values
                same = pc.fill_null(values, -1).to_numpy().reshape(at.shape) == np.array(numbers)
                found[alike] |= np.all(same, axis=1)
        return found if found.any() else None


def settled(
    unjudged: Unjudged,
    fields: Sequence[DataField],
    primary_key: Sequence[str],
    placeholder: Placeholder,
    keeping: Keeping = KEEPS_NOTHING,
    in_rows: Mapping[str, npt.NDArray[np.int64]] = _NONE,
) -> Unjudged:
    """Finds the values that the source left out, and returns the rows with nulls or zeros instead of these values. A
    record is bad if it leaves out a value that the table cannot keep.

    A delete may leave out all values except the values of its key. `in_rows` is the result of `left_out_of_rows`. If
    `keeping.marks` is true, the column UNAVAILABLE, which says what was left out, is added at the end. Inserts are not
    checked here: whether an insert may leave out a value is known only later (`moves/`).
    """
    never = {*primary_key, *keeping.never}
    is_update = unjudged.kinds == int(RowKind.UPDATE_AFTER)
    is_row = is_update | (unjudged.kinds == int(RowKind.INSERT))
    may_be_kept = is_row & keeping.keeps
    bad, columns, left_out = dict(unjudged.bad), list[pa.Array](), dict[str, _Mask]()
    for f in fields:
        column = unjudged.structs.field(f.name)
        mask = placeholder.rows(column)
        if f.name in in_rows:
            mask = _either(mask, is_row & np.isin(unjudged.origin, in_rows[f.name]))
        if mask is not None:
            mask &= (unjudged.kinds != int(RowKind.DELETE)) | (f.name in primary_key)
            kept = mask & may_be_kept & (f.name not in never and keeping.can_miss(f))
            for i in np.flatnonzero(mask & ~kept):
                bad.setdefault(int(unjudged.origin[i]), f"field {f.name}: {placeholder.reason}")
            if kept.any():
                blank = pa.scalar(None, column.type) if f.type.nullable else zero_of(column.type)
                column = if_else(pa.array(kept), blank, column)
                left_out[f.name] = kept
        columns.append(column)
    if not keeping.keeps:
        return replace(unjudged, bad=bad)
    names = [f.name for f in fields]
    if keeping.marks:
        columns.append(pack_left_out(left_out, keeping.names, len(unjudged.structs)))
        names.append(MARKS.name)
    lacks = np.zeros(len(is_row), dtype=bool)
    for kept in left_out.values():
        lacks |= kept
    return replace(
        unjudged,
        bad=bad,
        structs=pa.StructArray.from_arrays(columns, names),
        lacking=unjudged.origin[lacks],
        lacking_inserts=unjudged.origin[lacks & ~is_update],
    )


@lru_cache(maxsize=16)
def _texts_of(placeholder: str) -> pa.Array:
    """Returns all strings that a STRING column may hold in place of a value that the source left out, given the
    connector's `placeholder`.

    Some of the strings are not JSON: the placeholder itself, its bytes in each `binary.handling.mode` (for example as
    base64), and a UUID that is computed from the placeholder. The other strings are JSON: an object with the
    placeholder, arrays of one string that is not JSON, arrays of numbers, and the points that stand for geometries.
    """
    octets = placeholder.encode()
    digest = hashlib.md5(octets, usedforsecurity=False).digest()
    in_bytes = [base64.b64encode(octets).decode(), base64.urlsafe_b64encode(octets).decode(), octets.hex()]
    plain = [placeholder, *in_bytes, str(uuid.UUID(bytes=digest, version=3))]
    points = [base64.b64encode(point).decode() for point in _GEOMETRIES]
    values: list[object] = [{placeholder: placeholder}, [*octets], [*_OLD_NUMBERS], *([text] for text in plain)]
    values += [{"wkb": point, "srid": srid} for point in points for srid in (None, 4326)]
    nested = [json.dumps(value, separators=signs) for value in values for signs in ((", ", ": "), (",", ":"))]
    return pa.array(dict.fromkeys([*plain, *nested]))


def _either(one: _Mask | None, other: _Mask | None) -> _Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _of_elements(inner: _Mask | None, column: pa.Array) -> _Mask | None:
    """Takes a mask of the elements of a list or map column (`inner`). Returns a mask of the rows with at least one
    element for which `inner` is true. Returns None if `inner` is None.
    """
    if inner is None:
        return None
    ends = np.concatenate([[0], np.cumsum(inner)])[column.offsets.to_numpy()]
    return np.asarray(ends[1:] > ends[:-1])
