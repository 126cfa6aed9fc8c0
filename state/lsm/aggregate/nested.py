"""Aggregate functions over arrays of rows: nested_update and nested_partial_update.

Source: Paimon 2.0 FieldNestedUpdateAgg, FieldNestedPartialUpdateAgg. Paimon does not specify the order of the nested
rows if they have a key. This module uses the order in which the keys first appear.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.option import UNLIMITED
from bucketline.conf.table.choices import NullKeys
from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.choice import LastNonNullValue
from bucketline.state.lsm.aggregate.collections_of_rows import newest_by_code
from bucketline.state.lsm.aggregate.entries_of_rows import (
    Entries,
    arrival,
    chronology,
    entries_of,
    grouped,
    list_array,
    value_codes,
)
from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op, take_or_null, validity
from bucketline.state.lsm.aggregate.function import AggregateFunction
from bucketline.state.lsm.tree.sort_keys import sequence_columns
from bucketline.state.types.arrow import logical_type
from bucketline.state.types.logical import DataField, TypeRoot


@dataclass(frozen=True, slots=True)
class NestedUpdate(AggregateFunction):
    """Collects the nested rows of all arrays. With `key` fields, a nested row replaces the earlier nested row with the
    same key, unless `sequence` fields show that the earlier one is newer. Without `key` fields, nested rows are
    appended. At most `count_limit` nested rows are kept.

    The array of a -U or -D row says which nested rows are removed: with `key` fields the nested rows with the same
    keys, otherwise the equal nested rows. `null_keys` says what happens to a nested row with a null in the key: null is
    a value like any other (`merge`), the nested row is left out (`ignore`), or the row is refused (`error`).
    """

    column: str
    key: tuple[int, ...] = ()
    sequence: tuple[int, ...] = ()
    null_keys: NullKeys = NullKeys.MERGE
    count_limit: int = UNLIMITED

    names = ("nested_update",)
    takes = frozenset({TypeRoot.ARRAY})
    retracts = True

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        key = _sub_fields(field, "nested_update", "nested-key", options.nested_key)
        sequence = _sub_fields(field, "nested_update", "nested-sequence-field", options.nested_sequence)
        if sequence and not key:
            raise OptionError(
                f"'fields.{field.name}.nested-sequence-field' orders rows of one key, but "
                f"'fields.{field.name}.nested-key' is not set; set it",
                key=f"fields.{field.name}.nested-sequence-field",
                column=field.name,
            )
        return cls(field.name, key, sequence, options.null_keys, options.count_limit)

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        # A -U or -D row before any value has no effect.
        begin = events.first(live & (events.ops != Op.RETRACT))[events.key_of_row]
        live &= (begin >= 0) & (events.rows >= begin)
        if self.count_limit != UNLIMITED and (live & (events.ops == Op.RETRACT)).any():
            raise SchemaMismatchError(self._limited, column=self.column)
        opening = _opening(live, events)
        entries = self._usable(values, entries_of(values, live & ~_single(live, events)[events.key_of_row]))
        items = values.values.take(pa.array(entries.places))
        codes = _codes(items, self.key)
        if self.key and self.sequence:
            chosen = self._newest(items, entries, codes, events)
        elif self.key:
            chosen = newest_by_code(entries, codes, events)
        else:
            chosen = _not_taken_back(entries, codes, events)
        position = _positions(entries, codes if self.key else np.arange(len(codes)), events)
        if self.count_limit != UNLIMITED:
            first = np.isin(entries.rows, opening)
            chosen &= first | (_place_in_key(entries, position, events) < self.count_limit)
        kept = np.flatnonzero(chosen)
        kept = kept[np.lexsort((position[kept], events.key_of_row[entries.rows[kept]]))]
        return _finished(values, items.take(pa.array(kept)), entries.rows[kept], events, live)

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Yields a mask of the rows that cannot be merged, and the reason, for each of these two cases:

        - The number of nested rows is limited: the -U and -D rows.
        - A null in a nested key is an error: the rows with such a null.
        """
        bad = validity(values) & retracts
        if self.count_limit != UNLIMITED and bad.any():
            yield bad, self._limited
        if self.key and self.null_keys is NullKeys.ERROR:
            items = values.flatten()
            parts = items.flatten()
            broken = validity(items) & ~np.logical_and.reduce([validity(parts[i]) for i in self.key])
            if broken.any():
                bad = np.zeros(len(values), bool)
                bad[pc.list_parent_indices(values).to_numpy()[broken]] = True
                yield bad, self._null_key

    @property
    def _limited(self) -> str:
        return (
            f"column {self.column}: nested_update with 'fields.{self.column}.count-limit' takes no -U and -D rows; "
            f"remove the limit, or set 'fields.{self.column}.ignore-retract' = 'true'"
        )

    @property
    def _null_key(self) -> str:
        return (
            f"column {self.column}: a nested row has null in its key; give it a value, or set "
            f"'fields.{self.column}.nested-key-null-strategy' to 'merge' or 'ignore'"
        )

    def _usable(self, values: pa.Array, entries: Entries) -> Entries:
        """Returns the entries (elements of the arrays) that count. Null elements never count. If `null_keys` is IGNORE,
        elements with a null in their key do not count either; if it is ERROR, such an element raises
        SchemaMismatchError.
        """
        items = values.values.take(pa.array(entries.places))
        usable = validity(items)
        if self.key and self.null_keys is not NullKeys.MERGE:
            parts = items.flatten()
            whole = np.logical_and.reduce([validity(parts[i]) for i in self.key])
            if self.null_keys is NullKeys.ERROR and (usable & ~whole).any():
                raise SchemaMismatchError(self._null_key, column=self.column)
            usable &= whole
        return entries.keep(usable)

    def _newest(self, items: pa.Array, entries: Entries, codes: Indices, events: Events) -> Mask:
        """Returns a mask of the nested rows that stay. Of the nested rows with the same nested key (the same code), one
        stays: the row with the greatest sequence after the last -U or -D row. If sequences are equal, the later nested
        row stays.
        """
        chosen = np.zeros(len(codes), bool)
        if not len(codes):
            return chosen
        parts = items.flatten()
        columns = [parts[i] for i in self.sequence]
        ages = sequence_columns(columns, [logical_type(c.type, False) for c in columns], descending=False)
        ranks = np.zeros(len(codes), np.int64)
        if ages:
            order = np.lexsort(tuple(reversed(ages)))
            changes = np.ones(len(order), bool)
            changes[1:] = np.logical_or.reduce([a[order][1:] != a[order][:-1] for a in ages])
            ranks[order] = np.cumsum(changes)
        owners = events.key_of_row[entries.rows]
        sorted_by, groups = grouped(owners, codes, events.ops[entries.rows], arrival(events, entries.rows))
        adds = (groups.ops != Op.RETRACT) & groups.after(groups.last(groups.ops == Op.RETRACT))
        ranked = np.where(adds, ranks[sorted_by], -1)
        best = np.maximum.reduceat(ranked, groups.starts)
        newest = groups.last(adds & (ranked == best[groups.key_of_row]))
        chosen[sorted_by[newest[newest >= 0]]] = True
        return chosen


@dataclass(frozen=True, slots=True)
class NestedPartialUpdate(AggregateFunction):
    """Merges the nested rows of each nested key into one row. Each field of this row has the last value that is not
    null.
    """

    key: tuple[int, ...]

    names = ("nested_partial_update",)
    takes = frozenset({TypeRoot.ARRAY})

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        key = _sub_fields(field, "nested_partial_update", "nested-key", options.nested_key)
        if not key:
            raise OptionError(
                f"column {field.name}: nested_partial_update needs 'fields.{field.name}.nested-key'; name the key "
                "fields",
                key=f"fields.{field.name}.nested-key",
                column=field.name,
            )
        return cls(key)

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        entries = entries_of(values, live)
        items = values.values.take(pa.array(entries.places))
        entries, items = entries.keep(validity(items)), items.drop_null()
        if not len(items):
            return _finished(values, items, entries.rows, events, live)
        owners = events.key_of_row[entries.rows]
        acts = chronology(events, entries)
        order, groups = grouped(owners, _codes(items, self.key), events.ops[entries.rows], acts)
        parts = items.take(pa.array(order)).flatten()
        fields = [take_or_null(part, LastNonNullValue().choose(part, groups)) for part in parts]
        built = pa.StructArray.from_arrays(fields, fields=list(items.type))
        begins = np.minimum.reduceat(order, groups.starts)
        by_key = np.lexsort((begins, owners[order[groups.starts]]))
        rows = entries.rows[order[groups.starts]][by_key]
        return _finished(values, built.take(pa.array(by_key)), rows, events, live)


def _sub_fields(field: DataField, function: str, suffix: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the positions that the fields `names` have in the nested rows of an array column. Raises OptionError,
    which names the column's option that ends with `suffix`, if the column or a field does not fit.
    """
    element = field.type.element
    if element is None or element.root is not TypeRoot.ROW:
        raise OptionError(
            f"'fields.{field.name}.aggregate-function' = '{function}': column {field.name} is {field.type}, but this "
            "function takes arrays of rows",
            key=f"fields.{field.name}.aggregate-function",
            column=field.name,
        )
    known = [f.name for f in element.fields]
    for name in names:
        if name not in known:
            raise OptionError(
                f"'fields.{field.name}.{suffix}': the rows of column {field.name} have no field {name}; name one of "
                f"{', '.join(known)}",
                key=f"fields.{field.name}.{suffix}",
                column=field.name,
            )
    return tuple(known.index(name) for name in names)


def _codes(items: pa.Array, key: tuple[int, ...]) -> Indices:
    """Returns an integer code for each nested row; equal rows have equal codes. Rows are compared by the fields in
    `key`, or by all fields if `key` is empty.
    """
    if not key:
        return value_codes(items)
    parts = items.flatten()
    return value_codes(pa.StructArray.from_arrays([parts[i] for i in key], names=[str(i) for i in key]))


def _opening(live: Mask, events: Events) -> Indices:
    """Returns for each key the index of the row that sets or adds a value first, in the order in which rows take effect
    (`arrival`). Keys without such a row are left out. Only rows in `live` count.
    """
    rows = np.flatnonzero(live & (events.ops != Op.RETRACT))
    order = np.lexsort((arrival(events, rows), events.key_of_row[rows]))
    _, first = np.unique(events.key_of_row[rows[order]], return_index=True)
    return rows[order][first]


def _single(live: Mask, events: Events) -> Mask:
    """Returns a mask of the keys that have exactly one live row, if this row adds its array and does not take it back.
    `live` is the mask of the rows that count.
    """
    is_single: Mask = np.add.reduceat(live, events.starts, dtype=np.int64) == 1
    return is_single & np.logical_or.reduceat(live & (events.ops != Op.RETRACT), events.starts)


def _not_taken_back(entries: Entries, codes: Indices, events: Events) -> Mask:
    chosen = np.zeros(len(codes), bool)
    if len(codes):
        owners = events.key_of_row[entries.rows]
        order, groups = grouped(owners, codes, events.ops[entries.rows], np.arange(len(codes)))
        removed = groups.last(groups.ops == Op.RETRACT)
        chosen[order] = (groups.ops != Op.RETRACT) & groups.after(removed)
    return chosen


def _positions(entries: Entries, codes: Indices, events: Events) -> Indices:
    """Returns for each nested row a number that says where it stands in the array of its key. Nested rows with smaller
    numbers come first. The numbers follow the order of arrival, and equal codes in the array of one key get the number
    of the first of them.
    """
    arrived = np.lexsort((np.arange(len(codes)), arrival(events, entries.rows)))
    place = np.empty(len(codes), np.int64)
    place[arrived] = np.arange(len(codes))
    if not len(codes):
        return place
    order, groups = grouped(events.key_of_row[entries.rows], codes, np.zeros(len(codes), np.int8), place)
    positions = np.empty(len(codes), np.int64)
    positions[order] = np.minimum.reduceat(place[order], groups.starts)[groups.key_of_row]
    return positions


def _place_in_key(entries: Entries, position: Indices, events: Events) -> Indices:
    """Returns for each nested row (an element of `entries`) its rank among the nested rows of the same table key, from
    0. The ranks follow `position`, and nested rows with the same position have the same rank.
    """
    owners = events.key_of_row[entries.rows]
    pairs, inverse = np.unique(np.stack([owners, position], axis=1), axis=0, return_inverse=True)
    begins = np.searchsorted(pairs[:, 0], pairs[:, 0], side="left")
    places: Indices = (np.arange(len(pairs)) - begins)[inverse.ravel()]
    return places


def _finished(values: pa.Array, items: pa.Array, rows: Indices, events: Events, live: Mask) -> pa.Array:
    """Returns the result of the aggregation: one list for each key. `items` are the elements of the merged lists of all
    keys, and `rows` has for each element the index of the row from which the element came. `live` is true for the rows
    that count.

    A key for which only one list was added keeps this list unchanged, including null elements and repeated nested keys.
    """
    present = np.logical_or.reduceat(live & (events.ops != Op.RETRACT), events.starts)
    lists = list_array(events.key_of_row[rows], events.key_count, items, present, values.type)
    single = _single(live, events)
    if not single.any():
        return lists
    both = pa.concat_arrays([lists, values])
    kept = np.arange(events.key_count)
    return both.take(pa.array(np.where(single, events.key_count + events.first(live), kept)))
