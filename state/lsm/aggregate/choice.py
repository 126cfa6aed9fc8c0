"""Aggregate functions whose result is the value of one of the rows, for example `last_value` and `max`.

Source: Paimon 2.0 FieldLastValueAgg, FieldLastNonNullValueAgg, FieldFirstValueAgg, FieldFirstNonNullValueAgg,
FieldPrimaryKeyAgg, FieldMaxAgg, FieldMinAgg.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op, take_or_null, validity
from bucketline.state.lsm.aggregate.function import NUMBERS, AggregateFunction
from bucketline.state.types.arrow import logical_type
from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.order import normalized_keys

COMPARABLE = NUMBERS | {
    TypeRoot.CHAR,
    TypeRoot.VARCHAR,
    TypeRoot.DATE,
    TypeRoot.TIME,
    TypeRoot.TIMESTAMP,
    TypeRoot.TIMESTAMP_LTZ,
    TypeRoot.BINARY,
    TypeRoot.VARBINARY,
}


class Choice(AggregateFunction):
    """An aggregate function that chooses one row of each key and returns the row's value."""

    __slots__ = ()

    @abstractmethod
    def choose(self, values: pa.Array, events: Events) -> Indices:
        """Returns for each key the index of the row whose value is the result; -1 if the result is null. `events` says
        what each row does: for example, add its value or take it back.
        """

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        return take_or_null(values, self.choose(values, events))


@dataclass(frozen=True, slots=True)
class LastRow(Choice):
    """The value of the last row of any row kind. This function is used for key columns."""

    retracts = True

    def choose(self, values: pa.Array, events: Events) -> Indices:
        return events.starts + events.lengths - 1


@dataclass(frozen=True, slots=True)
class LastValue(Choice):
    """The last value, which may be null. After a -U or -D row the result is null."""

    names = ("last_value",)
    retracts = True

    def choose(self, values: pa.Array, events: Events) -> Indices:
        last = events.last(events.is_any(Op.ADD, Op.RETRACT, Op.SEED))
        return np.where(events.ops[last] == Op.RETRACT, -1, last)

    def fails_to_retract(self, field: DataField) -> bool:
        """A -U or -D row leaves null in the column. Returns True if the column is NOT NULL, so that it cannot hold this
        null.
        """
        return not field.type.nullable


@dataclass(frozen=True, slots=True)
class LastNonNullValue(Choice):
    """The last value that is not null. After a -U or -D row the result is null. The value of a late row (one that
    counts as older than all other rows) only replaces a null.
    """

    names = ("last_non_null_value",)
    retracts = True

    def choose(self, values: pa.Array, events: Events) -> Indices:
        valid = validity(values)
        cleared = events.last(valid & (events.ops == Op.RETRACT))
        live = valid & events.live & events.after(cleared)
        last = events.last(live & events.is_any(Op.ADD, Op.SEED))
        late = events.first(live & (events.ops == Op.ADD_BEFORE))
        return np.where(last >= 0, last, late)

    def fails_to_retract(self, field: DataField) -> bool:
        """A -U or -D row leaves null in the column. Returns True if the column is NOT NULL, so that it cannot hold this
        null.
        """
        return not field.type.nullable


@dataclass(frozen=True, slots=True)
class FirstValue(Choice):
    """The first value, which may be null. The value of a late row (a row that counts as older than all other rows)
    becomes the first value.

    A row that sets the accumulator (`Op.SEED`) replaces the first value, and later rows do not change it. But if no
    value was added before that row, the next added value becomes the first value.
    """

    names = ("first_value",)

    def choose(self, values: pa.Array, events: Events) -> Indices:
        first = events.first(events.is_any(Op.ADD, Op.ADD_BEFORE))
        late = events.ops == Op.ADD_BEFORE
        # If the first row is late, it only marks that there was a first row.
        late[first[first >= 0]] = False
        newest_late = events.last(late & events.after(events.seeds))
        opens = (first > events.seeds) & (events.ops[first] == Op.ADD)
        return np.where(newest_late >= 0, newest_late, np.where(opens, first, events.seeds))


@dataclass(frozen=True, slots=True)
class FirstNonNullValue(Choice):
    """The first value that is not null."""

    names = ("first_non_null_value", "first_not_null_value")

    def choose(self, values: pa.Array, events: Events) -> Indices:
        valid = validity(values)
        first = events.first(valid & (events.ops == Op.ADD))
        chosen = np.where(first > events.seeds, first, events.seeds)
        late_keys = distinct(events.key_of_row[events.ops == Op.ADD_BEFORE])
        if len(late_keys):
            chosen[late_keys] = self._step(valid, events, late_keys)
        return np.where(chosen >= 0, np.where(valid[chosen], chosen, -1), -1)

    def _step(self, valid: np.ndarray, events: Events, keys: Indices) -> Indices:
        """Returns the index of the chosen row for each key in `keys`. The rows of a key are processed one by one, for
        all keys at once, because with late rows the result depends on every earlier row. `valid` marks the values that
        are not null.
        """
        order, steps = events.steps(keys)
        chosen = np.full(len(keys), -1, np.int64)
        settled = np.zeros(len(keys), bool)
        for rows in steps:
            going = len(rows)
            ops, present = events.ops[rows], valid[rows]
            held = (chosen[:going] >= 0) & valid[chosen[:going]]
            settled_here = settled[:going]
            opens = (ops == Op.ADD) & ~settled_here & present
            confirms = (ops == Op.ADD_BEFORE) & ~settled_here & held
            replaces = opens | (ops == Op.SEED) | ((ops == Op.ADD_BEFORE) & ~confirms)
            chosen[:going] = np.where(replaces, rows, chosen[:going])
            settled[:going] = settled_here | opens | confirms
        result = np.empty(len(keys), np.int64)
        result[order] = chosen
        return result


class _Extreme(Choice):
    """Base class of `max` and `min`: chooses the row with the greatest or the smallest value. Nulls are ignored. If
    several rows have this value, the first of them is chosen.
    """

    __slots__ = ()

    takes = COMPARABLE
    commutes = True

    def choose(self, values: pa.Array, events: Events) -> Indices:
        live = validity(values) & events.live
        if not live.any():
            return np.full(events.key_count, -1, np.int64)
        ranks = _ranks(values)
        best = self._best(ranks, live, events)
        return events.first(live & (ranks == best[events.key_of_row]))

    @abstractmethod
    def _best(self, ranks: np.ndarray, live: Mask, events: Events) -> np.ndarray:
        """Returns the greatest rank (`max`) or the smallest rank (`min`) of each key. `ranks` has an integer for each
        row; a larger value has a larger integer. `live` marks the rows that count.
        """


@dataclass(frozen=True, slots=True)
class Max(_Extreme):
    """The greatest value."""

    names = ("max",)

    def _best(self, ranks: np.ndarray, live: Mask, events: Events) -> np.ndarray:
        best: np.ndarray = np.maximum.reduceat(np.where(live, ranks, np.iinfo(np.int64).min), events.starts)
        return best


@dataclass(frozen=True, slots=True)
class Min(_Extreme):
    """The smallest value."""

    names = ("min",)

    def _best(self, ranks: np.ndarray, live: Mask, events: Events) -> np.ndarray:
        best: np.ndarray = np.minimum.reduceat(np.where(live, ranks, np.iinfo(np.int64).max), events.starts)
        return best


def _ranks(values: pa.Array) -> np.ndarray:
    """Returns an integer for each value, in the order of the values. The integer for a null is arbitrary."""
    if values.null_count:
        values = pc.fill_null(values, values.drop_null()[0])
    keys = normalized_keys([values], [logical_type(values.type, False)])
    if pa.types.is_large_binary(keys.type):
        keys = pc.rank(keys, tiebreaker="dense").cast(pa.int64())
    ranks: np.ndarray = keys.to_numpy()
    return ranks
