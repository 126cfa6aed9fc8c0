"""The common part of sums and products: results that may not fit into the column, by the overflow rules of Paimon.

A result that its column cannot hold is null, and so is a product that cannot be divided. In a function that `is_strict`
both raise an error at the row where it happens; only a decimal that overflows is null there too.

A decimal column of more than 18 digits: a result in between that is too large becomes null, and the next value starts
again. A decimal column of up to 18 digits: a result in between may exceed the precision, as long as 64 bits hold it;
only the last result is null if it exceeds the precision.

Paimon fails where a strict function raises. It stores decimals of up to 18 digits that exceed their precision; its
Spark shows them as null. Source: Paimon 2.0 FieldSumAgg, FieldProductAgg, DecimalUtils.
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
    """An aggregate function that computes a number from the numbers of the rows; the result may not fit the column."""

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
            # A product is rounded up, which may add a digit.
            precision, scale = field.type.precision or 0, field.type.scale or 0
            return Fraction(10**precision - 1, 10**scale)
        return None


Rule = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(accumulators, values) → (results, whether each is a value rather than null)."""


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
    """Returns the accumulators of the given keys after all of their live rows, and a mask of those that are not null.
    Works row after row, for all keys at once.

    `negate`: a retract that meets null leaves its value negated, instead of null.
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
