"""Aggregate functions over arrays and maps: collect, merge_map and merge_map_with_keytime.

Source: Paimon 2.0 FieldCollectAgg, FieldMergeMapAgg, FieldMergeMapWithKeyTimeAgg. Paimon does not specify the order of
distinct elements and of map entries. This module returns them in the order in which they first appear.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.lsm.aggregate.choice import LastNonNullValue
from bucketline.state.lsm.aggregate.entries_of_rows import (
    Entries,
    arrival,
    chronology,
    entries_of,
    grouped,
    list_array,
    map_array,
    value_codes,
)
from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op, take_or_null, validity
from bucketline.state.lsm.aggregate.function import AggregateFunction
from bucketline.state.types.logical import DataField, TypeRoot


@dataclass(frozen=True, slots=True)
class Collect(AggregateFunction):
    """Collects the elements of all arrays, in order of arrival. If `distinct` is true, equal elements are kept only
    once. A -U or -D row removes the elements of its array; of equal elements, the oldest is removed.

    A late row is a row that counts as older than all other rows. If `late_first` is true, the elements of late rows
    come before all other elements; otherwise all elements keep the order of arrival.
    """

    distinct: bool
    late_first: bool = False

    names = ("collect",)
    takes = frozenset({TypeRoot.ARRAY})
    retracts = True

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        # If -U and -D rows are ignored, Paimon puts late rows first. Otherwise it appends them like any other row.
        return cls(options.distinct, late_first=options.ignores_retracts)

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        present = np.logical_or.reduceat(live & (events.ops != Op.RETRACT), events.starts)
        entries = entries_of(values, live)
        keys, ops = events.key_of_row[entries.rows], events.ops[entries.rows]
        order = arrival(events, entries.rows) if self.late_first else entries.rows
        sequence = np.empty(len(order), np.int64)
        sequence[np.lexsort((np.arange(len(order)), order))] = np.arange(len(order))
        stays = ops != Op.RETRACT
        if len(keys) and (self.distinct or not stays.all()):
            codes = value_codes(values.values)[entries.places]
            by_value, groups = grouped(keys, codes, ops, sequence)
            stays[by_value] = _newest_adds(groups) if not self.distinct else _set_members(groups)
        kept = np.flatnonzero(stays)
        kept = kept[np.lexsort((sequence[kept], keys[kept]))]
        elements = values.values.take(pa.array(entries.places[kept]))
        lists = list_array(keys[kept], events.key_count, elements, present, values.type)
        # If a key has a single row that sets the accumulator, the array of the row is kept, with repeated elements.
        untouched = events.seeds == events.last(events.live)
        if self.distinct and (untouched & (events.seeds >= 0)).any():
            raw = take_or_null(values, np.where(untouched, events.seeds, -1))
            lists = _either(untouched & (events.seeds >= 0), raw, lists)
        return lists


@dataclass(frozen=True, slots=True)
class MergeMap(AggregateFunction):
    """Merges the entries of all maps; each map key gets its last value. A -U or -D row removes the keys of its map."""

    names = ("merge_map",)
    takes = frozenset({TypeRoot.MAP})
    retracts = True

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        present = np.logical_or.reduceat(live & (events.ops != Op.RETRACT), events.starts)
        entries = entries_of(values, live)
        codes = value_codes(values.keys)[entries.places]
        chosen = newest_by_code(entries, codes, events)
        return _map_of(values, entries.keep(chosen), events, present)


@dataclass(frozen=True, slots=True)
class MergeMapWithTime(AggregateFunction):
    """Merges the entries of all maps; each map key gets the value with the latest time. `time` is the position, in the
    value, of the field that holds the time.

    A value without a time is ignored. A null value removes the map key. If two times are equal, the older value stays.
    """

    time: int

    names = ("merge_map_with_keytime",)
    takes = frozenset({TypeRoot.MAP})

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        value = field.type.value
        key = f"fields.{field.name}.ts-field"
        if value is None or value.root is not TypeRoot.ROW or not value.fields:
            raise OptionError(
                f"'fields.{field.name}.aggregate-function' = 'merge_map_with_keytime': column {field.name} is "
                f"{field.type}, but the values of its map must be rows that hold a time",
                key=f"fields.{field.name}.aggregate-function",
                column=field.name,
            )
        names = [f.name for f in value.fields]
        name = options.time_field or names[-1]
        if name not in names:
            raise OptionError(
                f"'{key}' = '{name}': the rows of column {field.name} have no such field; name one of "
                f"{', '.join(names)}",
                key=key,
                column=field.name,
            )
        if value.fields[names.index(name)].type.root not in (TypeRoot.CHAR, TypeRoot.VARCHAR):
            raise OptionError(
                f"'{key}' = '{name}': field {name} of column {field.name} must be a string, because times are "
                "compared as strings",
                key=key,
                column=field.name,
            )
        return cls(names.index(name))

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        present = np.logical_or.reduceat(live, events.starts)
        rows = np.flatnonzero(live)
        base = np.full(events.key_count, -1, np.int64)
        ordered = rows[np.lexsort((arrival(events, rows), events.key_of_row[rows]))]
        base[events.key_of_row[ordered][::-1]] = ordered[::-1]
        entries = entries_of(values, live)
        if not len(entries.rows):
            return _map_of(values, entries, events, present)
        items = values.items.take(pa.array(entries.places))
        times = items.field(self.time)
        timed = validity(items) & validity(times)
        # The first map stays unchanged: its values may be null and need no time.
        first = entries.rows == base[events.key_of_row[entries.rows]]
        ops = np.where(validity(items) | first, np.int8(Op.ADD), np.int8(Op.RETRACT))
        codes = value_codes(values.keys)[entries.places]
        order, groups = grouped(events.key_of_row[entries.rows], codes, ops, arrival(events, entries.rows))
        after = groups.after(groups.last(groups.ops == Op.RETRACT))
        ranks = pc.rank(times.fill_null(""), tiebreaker="dense").to_numpy().astype(np.int64)[order]
        ranks = np.where(after & timed[order], ranks, 0)
        best = np.maximum.reduceat(ranks, groups.starts)
        greatest = groups.first((ranks > 0) & (ranks == best[groups.key_of_row]))
        untimed = groups.first(after & first[order])
        winners = np.where(greatest >= 0, greatest, untimed)
        chosen = np.zeros(len(order), bool)
        chosen[order[winners[winners >= 0]]] = True
        return _map_of(values, entries.keep(chosen), events, present)


def newest_by_code(entries: Entries, codes: Indices, events: Events) -> Mask:
    """Returns a mask of the list elements that are in the result. Elements of a key with the same code are duplicates
    of one another; at most one of them is chosen. This is the last element that was added after the last -U or -D row
    with the code. An element of a late row (a row that counts as older than all other rows) is chosen only if there is
    no other element with the code.
    """
    chosen = np.zeros(len(codes), bool)
    if not len(codes):
        return chosen
    acts = chronology(events, entries)
    order, groups = grouped(events.key_of_row[entries.rows], codes, events.ops[entries.rows], acts)
    newest = LastNonNullValue().choose(pa.array(np.zeros(len(codes), np.int8)), groups)
    chosen[order[newest[newest >= 0]]] = True
    return chosen


def _map_of(values: pa.Array, kept: Entries, events: Events, present: Mask) -> pa.Array:
    places = pa.array(kept.places)
    keys = events.key_of_row[kept.rows]
    return map_array(keys, events.key_count, values.keys.take(places), values.items.take(places), present, values.type)


def _newest_adds(groups: Events) -> Mask:
    """Takes the elements that rows add or take back, grouped by equal elements. Each element of a -U or -D row removes
    the oldest element of its group. Returns a mask of the elements that remain.
    """
    adds = groups.ops != Op.RETRACT
    running = np.cumsum(np.where(adds, 1, -1))
    running -= (running[groups.starts] - np.where(adds, 1, -1)[groups.starts])[groups.key_of_row]
    end = running[groups.starts + groups.lengths - 1]
    left = end - np.minimum(np.minimum.reduceat(running, groups.starts), 0)
    added = np.cumsum(adds)
    last = added[groups.starts + groups.lengths - 1][groups.key_of_row]
    stays: Mask = adds & (last - added < left[groups.key_of_row])
    return stays


def _set_members(groups: Events) -> Mask:
    """Decides which elements a set keeps. Each group has equal elements, and `groups` has an event for each element:
    the element is added or removed. Returns a mask of the elements to keep: of each group, the first element that was
    added after the last removal.
    """
    adds = groups.ops != Op.RETRACT
    first = groups.first(adds & groups.after(groups.last(~adds)))
    members = np.zeros(len(adds), bool)
    members[first[first >= 0]] = True
    return members


def _either(condition: Mask, left: pa.Array, right: pa.Array) -> pa.Array:
    """Returns `left` where the condition is true and `right` elsewhere. This function also works for nested types,
    which Arrow's `if_else` does not support.
    """
    both = pa.concat_arrays([left, right])
    rows = np.arange(len(left))
    return both.take(pa.array(np.where(condition, rows, rows + len(left))))
