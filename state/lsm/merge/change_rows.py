"""Computes changelog rows, which say how the row of a key has changed, and combines them with the rows to store.

A fold (a function that merges the rows of each key) that also writes a changelog returns one table. The column PART
says for each row whether it is a row to store or a changelog row. Both kinds are in key order. In the changelog, the
old row of a key comes directly before the new row.
Source: Paimon 2.0 LookupChangelogMergeFunctionWrapper, FullChangelogMergeFunctionWrapper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.lsm.aggregate.entries_of_rows import value_codes
from bucketline.state.lsm.aggregate.events import Indices, Mask
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.buffers import one_array
from bucketline.state.types.row_kind import RowKind

LEVEL = "_LEVEL"
"""The name of an int32 column with the level of the file from which a row comes. It is never stored."""

PART = "_PART"
"""The name of an int8 column that says whether a row is to be stored, or belongs to the changelog. The column itself is
never stored.
"""

STORED, LOGGED = 0, 1


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """Says which changes get changelog rows. If `deduplicates` is true, an update gets changelog rows only if a column
    that is not in `ignored_columns` has changed.
    """

    deduplicates: bool = False
    ignored_columns: tuple[str, ...] = ()


def is_add(rows: pa.Table) -> Mask:
    """Returns a mask of the rows of kind +I and +U."""
    adds: Mask = (rows[VALUE_KIND].to_numpy() & 1) == 0
    return adds


def changes(before: pa.Table, before_at: Indices, after: pa.Table, after_at: Indices, rule: ChangeRule) -> pa.Table:
    """Returns the changelog rows of some keys. Each changelog row has the sequence number of the old or new row from
    which it is made.

    `before_at` and `after_at` have the index of each key's row in `before` and in `after`; -1 means that the key has no
    row. A row of kind -U or -D counts as no row. A new row gives +I, a removed row gives -D, and a changed row gives -U
    and +U.
    """
    old, new = _added(before, before_at), _added(after, after_at)
    both = old & new
    if rule.deduplicates and both.any():
        places = np.flatnonzero(both)
        left, right = _take(before, before_at[places]), _take(after, after_at[places])
        skipped = (SEQUENCE, VALUE_KIND, *rule.ignored_columns)
        same = equal_rows(left, right, [n for n in left.column_names if n not in skipped])
        unchanged = places[same]
        old[unchanged] = new[unchanged] = both[unchanged] = False
    kinds_before = np.where(both, RowKind.UPDATE_BEFORE, RowKind.DELETE)[old]
    kinds_after = np.where(both, RowKind.UPDATE_AFTER, RowKind.INSERT)[new]
    left = _with_kinds(_take(before, before_at[old]), kinds_before)
    right = _with_kinds(_take(after, after_at[new]), kinds_after)
    if not both.any() and (left.num_rows == 0 or right.num_rows == 0):
        return right if left.num_rows == 0 else left
    # Position 2 * i is for the row of key i before the change, and position 2 * i + 1 for the row after the change.
    places = np.concatenate([np.flatnonzero(old) * 2, np.flatnonzero(new) * 2 + 1])
    return _take(pa.concat_tables([left, right]), np.argsort(places, kind="stable"))


def marked(stored: pa.Table, logged: pa.Table | None) -> pa.Table:
    """Combines the rows to store and the changelog rows, which have the same schema, into one table with the column
    PART.
    """
    parts = np.full(stored.num_rows, STORED, np.int8)
    if logged is None or logged.num_rows == 0:
        return stored.append_column(PART, pa.array(parts))
    parts = np.concatenate([parts, np.full(logged.num_rows, LOGGED, np.int8)])
    return pa.concat_tables([stored, logged]).append_column(PART, pa.array(parts))


def split_marked(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Takes rows with the column PART, which `marked` has added. Returns the rows to store and the changelog rows, both
    without this column.
    """
    parts = rows.column(PART)
    bare = rows.drop_columns([PART])
    if len(parts) == 0 or pc.max(parts).as_py() == STORED:
        return bare, bare.slice(0, 0)
    return bare.filter(pc.equal(parts, STORED)), bare.filter(pc.equal(parts, LOGGED))


def _added(rows: pa.Table, at: Indices) -> Mask:
    adds = at >= 0
    if adds.any():
        adds[adds] = is_add(rows)[at[adds]]
    return adds


def equal_rows(left: pa.Table, right: pa.Table, names: Sequence[str]) -> Mask:
    """Returns a mask of the pairs of rows that are equal in all columns `names`, as Java compares them: NaN in a column
    that is not nested equals no value.
    """
    same = np.ones(left.num_rows, bool)
    for name in names:
        left_values, right_values = one_array(left[name]), one_array(right[name])
        if pa.types.is_nested(left_values.type):
            codes = value_codes(pa.concat_arrays([left_values, right_values]))
            same &= codes[: len(left_values)] == codes[len(left_values) :]
            continue
        equal = pc.fill_null(pc.equal(left_values, right_values), False)
        if left_values.null_count and right_values.null_count:
            equal = pc.or_(equal, pc.and_(left_values.is_null(), right_values.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _with_kinds(rows: pa.Table, kinds: Indices) -> pa.Table:
    position = rows.schema.get_field_index(VALUE_KIND)
    return rows.set_column(position, rows.schema.field(position), pa.array(kinds, pa.int8()))


def _take(rows: pa.Table, at: Indices) -> pa.Table:
    return rows.take(pa.array(at, pa.int64()))
