"""The common part of `sum` and `product`: what happens if a result does not fit into the column.

A result that the column cannot hold becomes null. A product also becomes null if a row is taken back from it and the
division by the row's value has no result, for example because the value is 0. A strict function (`is_strict`) raises an
error in both cases, at the row that causes it; Paimon fails there too. There is one exception: a decimal that overflows
becomes null in a strict function, too.

In a decimal column of more than 18 digits, an intermediate result that is too large becomes null, and the computation
starts again with the next value. In a decimal column of up to 18 digits, an intermediate result may have more digits
than the precision, as long as it fits into 64 bits; only the last result becomes null if it has too many digits.

Paimon stores a decimal of up to 18 digits even if it has more digits than the precision, and Paimon's Spark connector
shows such a decimal as null. Source: Paimon 2.0 FieldSumAgg, FieldProductAgg, DecimalUtils.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np
import pyarrow as pa

from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.events import Events, Indices, Op
from bucketline.state.lsm.aggregate.function import NUMBERS, AggregateFunction
from bucketline.state.types.logical import DataField, TypeRoot

_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}


@dataclass(frozen=True, slots=True)
class Computed(AggregateFunction):
    """Base class of `sum` and `product`, which compute a number that may not fit into the column."""

    column: str
    is_strict: bool = False

    takes = NUMBERS
    retracts = True

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        return cls(field.name)

    def strict(self) -> Self:
        return replace(self, is_strict=True)

    def limit(self, field: DataField) -> Fraction | None:
        if field.type.root in _BITS:
            return Fraction(2 ** (_BITS[field.type.root] - 1))
        if field.type.root is TypeRoot.DECIMAL and not field.type.nullable:
            # Rounding a product up may add a digit.
            precision, scale = field.type.precision or 0, field.type.scale or 0
            return Fraction(10**precision - 1, 10**scale)
        return None


Rule = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A function that takes the accumulators and the values of some rows, and returns the new accumulators and a mask of
the new accumulators that are not null.
"""


def overflow(column: str, function: str, limit: str) -> SchemaMismatchError:
    """Returns the error for a result that the column's type cannot hold."""
    return SchemaMismatchError(
        f"column {column}: the {function} of its values does not fit {limit}; give the column a wider type",
        column=column,
    )


def filled(values: pa.Array) -> np.ndarray:
    """Returns the numbers; 0 for a null."""
    numbers: np.ndarray = values.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def step(
    values: np.ndarray,
    live: np.ndarray,
    events: Events,
    add: Rule,
    retract: Rule,
    *,
    negate: bool = False,
    keys: Indices | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the accumulator of each key in `keys` (all keys if `keys` is None) from the rows in `live`. The rows of
    a key are processed one by one, for all keys at once. Returns the accumulators, and a mask of the accumulators that
    are not null.

    `add` and `retract` compute the new accumulators for rows that add a value or take a value back. If a row takes a
    value back while the accumulator is null, the accumulator stays null; if `negate` is true, the accumulator becomes
    the negated value.
    """
    keys = np.arange(events.key_count) if keys is None else keys
    order, steps = events.steps(keys)
    held = np.zeros(len(keys), values.dtype)
    valid = np.zeros(len(keys), bool)
    for rows in steps:
        going = len(rows)
        value, acts, minus = values[rows], live[rows], events.ops[rows] == Op.RETRACT
        fresh = acts & (~valid[:going] | (events.ops[rows] == Op.SEED)) & (~minus | negate)
        both = acts & valid[:going] & ~fresh
        for chosen, rule in ((np.flatnonzero(both & ~minus), add), (np.flatnonzero(both & minus), retract)):
            if len(chosen):
                held[chosen], valid[chosen] = rule(held[chosen], value[chosen])
        started = np.flatnonzero(fresh)
        held[started] = np.where(minus[started], -value[started], value[started]) if negate else value[started]
        valid[started] = True
    back_held, back_valid = np.empty_like(held), np.empty_like(valid)
    back_held[order], back_valid[order] = held, valid
    return back_held, back_valid
