"""The merge engine `partial-update`: the rows of a key complete each other, column by column or sequence group by
sequence group.

The columns of a sequence group change together, and have their own order: a row changes them only if its sequence is
not older than the current sequence. If the first row of a key is a -U or -D row, this row sets all values.
Source: Paimon 2.0 PartialUpdateMergeFunction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.choice import LastNonNullValue, LastRow, LastValue
from bucketline.state.lsm.aggregate.column import ColumnAggregate
from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op, take_or_null
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.tree.sort_keys import sequence_columns
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND, logical_type
from bucketline.state.types.buffers import one_array
from bucketline.state.types.row_kind import RowKind

RETRACTS_OF_PARTIAL_UPDATE = (
    "a table with merge-engine partial-update takes no -D and -U rows as it is; set 'ignore-delete' = 'true' to skip "
    "them, 'partial-update.remove-record-on-delete' = 'true' to let -D remove the row, or give the columns a "
    "'fields.<sequence column>.sequence-group' to take back values"
)


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """A sequence group of `partial-update`: the `sequence` columns, and the columns that change together with them
    (`columns`). The values of the sequence columns decide which of two rows is newer for all columns of the group.

    If `removes` is true, a -D row whose sequence is not older than the current sequence removes the whole row.
    """

    sequence: tuple[str, ...]
    columns: tuple[str, ...]
    removes: bool = False


@dataclass(frozen=True, slots=True)
class PartialUpdate(ComputedFold):
    """Merges the rows of a key so that they complete each other, column by column or by sequence groups.

    `aggregates` has the columns of sequence groups that have an aggregate function. The other columns of a group are
    overwritten.
    """

    keys: tuple[str, ...] = ()
    groups: tuple[SequenceGroup, ...] = ()
    aggregates: Mapping[str, ColumnAggregate] = field(default_factory=dict)
    ignore_delete: bool = False
    remove_on_delete: bool = False

    @property
    def aggregated(self) -> Mapping[str, ColumnAggregate]:
        return self.aggregates

    def strict(self) -> "PartialUpdate":
        return replace(self, aggregates={n: c.strict() for n, c in self.aggregates.items()})

    def removes_by_others(self, column: str) -> bool:
        if self.ignore_delete:
            return False
        return any(g.removes for g in self.groups) and any(column in g.columns for g in self.groups)

    def merge(self, table: pa.Table, starts: Indices) -> pa.Table:
        kinds = table[VALUE_KIND].to_numpy()
        retracts = (kinds & 1).astype(bool)
        if retracts.any() and not (self.ignore_delete or self.remove_on_delete or self.groups):
            raise SchemaMismatchError(RETRACTS_OF_PARTIAL_UPDATE, column=VALUE_KIND)
        seeds = np.zeros(len(kinds), bool)
        seeds[starts] = retracts[starts]
        if self.groups and not self.ignore_delete and seeds.any():
            # A -U or -D row that comes first counts twice: it sets all values, and then it takes them back like any
            # other.
            table, starts, seeds = _doubled(table, starts, seeds)
            kinds = table[VALUE_KIND].to_numpy()
            retracts = (kinds & 1).astype(bool)
        if self.remove_on_delete:
            seeds |= kinds == RowKind.DELETE
        # An ignored -U or -D row does not change the sequence of a group either.
        unheard = retracts & ~seeds if self.ignore_delete else np.zeros(len(kinds), bool)
        codes = {g: np.where(unheard, 0, c) for g, c in self._codes(table).items()}
        removals = self._removals(kinds, starts, seeds, codes)
        return self._merge(table, _Rows(Events(starts, _ops(retracts, seeds | removals)), kinds, retracts), codes)

    def _codes(self, table: pa.Table) -> dict[SequenceGroup, Indices]:
        """Returns for each sequence group an integer for each row, in the order of the group's sequences; 0 if the row
        has no sequence. Groups whose columns are not read are left out.
        """
        present = set(table.column_names)
        return {g: _sequence_codes(table, g.sequence) for g in self.groups if present.issuperset(g.sequence)}

    def _removals(
        self, kinds: np.ndarray, starts: Indices, seeds: Mask, codes: Mapping[SequenceGroup, Indices]
    ) -> Mask:
        """Returns a mask of -D rows that remove all earlier rows of their key. For each key, the mask has the last of
        these -D rows, but not always the earlier ones.
        """
        removing = [codes[g] for g in self.groups if g.removes]
        deletes = (kinds == RowKind.DELETE) & ~seeds
        removals: Mask = (kinds == RowKind.DELETE) & seeds & self.remove_on_delete
        if not removing or self.ignore_delete or not deletes.any():
            return removals
        events = Events(starts, _ops((kinds & 1).astype(bool), seeds))
        pending = np.ones(len(kinds), bool)
        while True:
            effective = np.zeros(len(kinds), bool)
            for code in removing:
                effective |= _not_older(code, starts, seeds | removals)
            effective &= deletes & pending & ~removals
            if not effective.any():
                return removals
            if len(removing) == 1:
                # When a -D row removes the row through the only group, the newest sequence of this group stays, so
                # later rows
                # are compared correctly.
                removals |= effective
                return removals
            first = events.first(effective)
            removals[first[first >= 0]] = True
            pending &= events.after(first) & (first >= 0)[events.key_of_row]

    def _merge(self, table: pa.Table, rows: "_Rows", codes: Mapping[SequenceGroup, Indices]) -> pa.Table:
        group_of = {name: g for g in self.groups for name in (*g.sequence, *g.columns)}
        chosen: dict[SequenceGroup, dict[str, Indices]] = {}
        newer: dict[SequenceGroup, Mask] = {}
        ungrouped = rows.events.with_ops(np.where(rows.retracts & (rows.events.ops != Op.SEED), 0, rows.events.ops))
        arrays = []
        for name in table.column_names:
            group, aggregate = group_of.get(name), self.aggregates.get(name)
            if name == VALUE_KIND:
                arrays.append(rows.result_kinds())
            elif name == SEQUENCE:
                arrays.append(take_or_null(one_array(table[name]), rows.last_counted(self.ignore_delete)))
            elif name in self.keys:
                arrays.append(LastRow().fold(one_array(table[name]), rows.events))
            elif group is None:
                arrays.append(LastNonNullValue().fold(one_array(table[name]), ungrouped))
            else:
                if group not in newer:
                    newer[group] = _not_older(codes[group], rows.events.starts, rows.events.ops == Op.SEED)
                    chosen[group] = _chosen(rows, newer[group])
                if aggregate is not None:
                    events = _aggregated(rows, codes[group], newer[group])
                    arrays.append(aggregate.fold(one_array(table[name]), events))
                else:
                    part = "sequence" if name in group.sequence else "columns"
                    if part == "columns" and not table.schema.field(name).nullable:
                        part = "values"
                    arrays.append(take_or_null(one_array(table[name]), chosen[group][part]))
        return pa.Table.from_arrays(arrays, schema=table.schema)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The rows of a merge. `events` says for each row what it does to its key: the row sets all values, adds values,
    or takes values back. `kinds` are the row kinds, and `retracts` marks the rows that take values back.
    """

    events: Events
    kinds: np.ndarray
    retracts: Mask

    def result_kinds(self) -> pa.Array:
        """Returns the row kind of each key's result. The kind is a delete if the last row removed everything or if no
        row added a value, and an insert otherwise.
        """
        last = self.events.starts + self.events.lengths - 1
        removed = (self.events.ops[last] == Op.SEED) & (self.kinds[last] == RowKind.DELETE)
        added = np.logical_or.reduceat(~self.retracts, self.events.starts)
        return pa.array(np.where(removed | ~added, RowKind.DELETE, RowKind.INSERT).astype(np.int8))

    def last_counted(self, ignore_delete: bool) -> Indices:
        last = self.events.starts + self.events.lengths - 1
        if not ignore_delete:
            return last
        counted = self.events.last(~self.retracts)
        return np.where(counted >= 0, counted, last)


def _chosen(rows: _Rows, newer: Mask) -> dict[str, Indices]:
    """Chooses, for one sequence group, the row of each key from which the group's values are taken. Returns three
    arrays with the index of the chosen row of each key, or -1 for null:

    - `sequence` is for the sequence columns of the group.
    - `columns` is for nullable columns.
    - `values` is for NOT NULL columns.

    The three arrays differ only if the last row of the group is a -U or -D row. Then `sequence` has the index of this
    row, `columns` has -1, and `values` has the index of the last row before it that sets or adds values.
    """
    seeds = rows.events.ops == Op.SEED
    acts = newer & ~seeds
    ops = np.where(seeds, np.int8(Op.SEED), np.where(acts, np.int8(Op.ADD), np.int8(Op.SKIP)))
    plain = np.where(acts & rows.retracts, np.int8(Op.RETRACT), ops)
    blank = pa.nulls(0)
    return {
        "sequence": LastValue().choose(blank, rows.events.with_ops(ops)),
        "columns": LastValue().choose(blank, rows.events.with_ops(plain)),
        "values": LastValue().choose(blank, rows.events.with_ops(plain).ignoring_retracts()),
    }


def _aggregated(rows: _Rows, codes: Indices, newer: Mask) -> Events:
    seeds = rows.events.ops == Op.SEED
    acts = (codes > 0) & ~seeds
    ops = np.where(newer, np.int8(Op.ADD), np.int8(Op.ADD_BEFORE))
    ops = np.where(rows.retracts, np.int8(Op.RETRACT), ops)
    ops = np.where(acts, ops, np.int8(Op.SKIP))
    return rows.events.with_ops(np.where(seeds, np.int8(Op.SEED), ops))


def _ops(retracts: Mask, seeds: Mask) -> np.ndarray:
    ops = np.where(retracts, np.int8(Op.RETRACT), np.int8(Op.ADD))
    return np.where(seeds, np.int8(Op.SEED), ops)


def _doubled(table: pa.Table, starts: Indices, leading: Mask) -> tuple[pa.Table, Indices, Mask]:
    """Repeats each -U or -D row that is the first row of its key (`leading`), because such a row counts twice: the
    first copy sets all values of the key, and the second copy takes the values back.

    Returns the rows, the index of the first row of each key, and a mask of the first copies.
    """
    copies = np.where(leading, 2, 1)
    order = np.repeat(np.arange(len(copies)), copies)
    place = np.cumsum(copies) - copies
    seeds = np.zeros(len(order), bool)
    seeds[place[leading]] = True
    return table.take(pa.array(order)), place[starts], seeds


def _sequence_codes(table: pa.Table, names: tuple[str, ...]) -> Indices:
    columns = [one_array(table[n]) for n in names]
    ages = sequence_columns(columns, [logical_type(c.type, False) for c in columns], descending=False)
    codes = np.zeros(table.num_rows, np.int64)
    if not ages:
        return codes
    order = np.lexsort(tuple(reversed(ages)))
    changes = np.ones(len(order), bool)
    changes[1:] = np.logical_or.reduce([a[order][1:] != a[order][:-1] for a in ages])
    codes[order] = np.cumsum(changes)
    empty = np.logical_and.reduce([c.is_null().to_numpy(zero_copy_only=False) for c in columns])
    codes[empty] = 0
    return codes


def _not_older(codes: Indices, starts: Indices, seeds: Mask) -> Mask:
    """Returns a mask of the rows whose sequence is at least as large as the sequences of all earlier rows of the same
    key. The mask is false for rows without a sequence.

    `codes` has the rank of each row's sequence; 0 stands for a row without one. `seeds` marks rows that set all
    values: a row is compared only with the rows of its key since the last such row.
    """
    borders = seeds.copy()
    borders[starts] = True
    # A number is added to the sequences of each segment, so that they are larger than those of all earlier segments.
    # Then one running maximum is enough.
    lifted = np.cumsum(borders) * (len(codes) + 2) + codes
    before = np.empty_like(lifted)
    before[1:] = np.maximum.accumulate(lifted)[:-1]
    not_older: Mask = (codes > 0) & (borders | (lifted >= before))
    return not_older
