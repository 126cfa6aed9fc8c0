"""Sums, products and logic: aggregate functions that compute a new value, with the overflow rules of Paimon.

A result that its column cannot hold is null. So is a product that cannot be divided. A function that `is_strict` raises
instead, at the row where it happens, but for decimals that overflow.

Decimals of more than 18 digits become null on the way, and the next value starts again. Those of up to 18 digits may
exceed their precision on the way, as long as 64 bits hold them; only a result that exceeds it is null.
Source: Paimon 2.0 FieldSumAgg, FieldProductAgg, FieldBoolAndAgg, FieldBoolOrAgg, DecimalUtils. Paimon fails where a
strict function raises. It stores decimals of up to 18 digits that exceed their precision; its Spark shows them as null.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.decimal_words import from_unscaled, sum_by_key, unscaled
from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op, validity
from bucketline.state.types.long_decimals import COMPACT_DIGITS

_SEQUENTIAL_ROWS = 64


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of all values that are not null; a retract subtracts. Floats are added one after the other."""

    column: str
    is_strict: bool = False
    retracts: bool = True

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Raises SchemaMismatchError for integers that overflow, if strict."""
        live = validity(values) & events.live
        if pa.types.is_decimal(values.type):
            return _sum_decimals(values, live, events)
        plain = np.where(live, _filled(values), np.zeros((), values.type.to_pandas_dtype()))
        minus = events.ops == Op.RETRACT
        seen = np.logical_or.reduceat(live, events.starts)
        if pa.types.is_floating(values.type):
            signed = np.where(minus, -plain, plain)
            return pa.array(_add_in_order(signed, live, events), mask=~seen)
        sums, fits = self._sum_integers(plain, minus, events)
        return pa.array(sums, values.type, mask=~(seen & fits))

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """The smallest integer of a type cannot be retracted: its negative does not fit."""
        if pa.types.is_integer(values.type):
            limits = np.iinfo(values.type.to_pandas_dtype())
            bad = retracts & validity(values) & (_filled(values) == limits.min)
            if bad.any():
                yield bad, overflow(self.column, "sum", f"{limits.bits} bits").message

    def _sum_integers(self, values: np.ndarray, minus: np.ndarray, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """The sum of each key, and whether it fits the type."""
        limits = np.iinfo(values.dtype)
        wide = values.astype(np.int64)
        running = np.cumsum(np.where(minus, -wide, wide))
        # 64-bit sums wrap; differences of them are right again unless a key's own sum leaves the range.
        running -= (running[events.starts] - np.where(minus, -wide, wide)[events.starts])[events.key_of_row]
        if limits.bits == 64:
            before = np.where(minus, running + wide, running - wide)
            flipped = np.where(minus, (before ^ wide) & (before ^ running), (before ^ running) & (wide ^ running))
            overflows = flipped < 0
        else:
            overflows = (running < limits.min) | (running > limits.max)
        sums: np.ndarray = running[events.starts + events.lengths - 1]
        fits = np.ones(events.key_count, bool)
        if not overflows.any():
            return sums, fits
        if self.is_strict:
            raise overflow(self.column, "sum", f"{limits.bits} bits")
        # Only keys that overflow on the way are added up without a limit.
        for key in np.flatnonzero(np.logical_or.reduceat(overflows, events.starts)):
            rows = slice(events.starts[key], events.starts[key] + events.lengths[key])
            total = int(np.where(minus[rows], -wide[rows].astype(object), wide[rows].astype(object)).sum())
            fits[key] = limits.min <= total <= limits.max
            sums[key] = total if fits[key] else 0
        return sums, fits


@dataclass(frozen=True, slots=True)
class Product:
    """The product of all values that are not null; a retract divides the product."""

    column: str
    is_strict: bool = False
    retracts: bool = True

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Raises SchemaMismatchError for integers that overflow and quotients that do not exist, if strict."""
        live = validity(values) & events.live
        data_type = values.type
        if pa.types.is_decimal(data_type):
            result, seen = _step(unscaled(values), live, events, *self._decimal_rules(data_type))
            return from_unscaled(result, seen, data_type)
        plain = np.where(live, _filled(values), np.zeros((), data_type.to_pandas_dtype()))
        if pa.types.is_floating(data_type):
            with np.errstate(all="ignore"):
                result, seen = _step(plain, live, events, *_FLOAT_RULES)
            return pa.array(result, data_type, mask=~seen)
        # Python's integers have no limit, so that it can be seen when the type's limit is passed.
        result, seen = _step(plain.astype(object), live, events, *self._integer_rules(np.iinfo(plain.dtype)))
        return pa.array(np.where(seen, result, 0).astype(plain.dtype), data_type, mask=~seen)

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """A product cannot be divided by zero; floats can."""
        if not pa.types.is_floating(values.type):
            bad = retracts & pc.fill_null(pc.equal(values, 0), False).to_numpy(zero_copy_only=False)
            if bad.any():
                yield bad, self._zero

    def _integer_rules(self, limits: "np.iinfo[Any]") -> tuple["_Rule", "_Rule"]:
        def checked(results: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            fits = ((results >= limits.min) & (results <= limits.max)).astype(bool)
            if self.is_strict and not fits.all():
                raise overflow(self.column, "product", f"{limits.bits} bits")
            return results, fits

        def divide(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            divisor, divides = self._divisor(value)
            quotients, fits = checked(abs(held) // abs(divisor) * _signs(held, divisor))
            return quotients, fits & divides

        return lambda held, value: checked(held * value), divide

    def _decimal_rules(self, data_type: pa.Decimal128Type) -> tuple["_Rule", "_Rule"]:
        unit, limit = 10**data_type.scale, 10**data_type.precision

        def rounded(top: np.ndarray, bottom: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            quotients = (2 * top + bottom) // (2 * bottom) * sign
            return quotients, (abs(quotients) < limit).astype(bool)

        def multiply(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            bottom = np.full(len(held), unit, object)
            return rounded(abs(held * value), bottom, _signs(held, value))

        def divide(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            divisor, divides = self._divisor(value)
            # A quotient has finitely many digits when its reduced denominator divides a power of ten.
            reduced = abs(divisor) // np.gcd(held, divisor)
            ends = ((10**130) % reduced == 0).astype(bool)
            if self.is_strict and not ends.all():
                raise SchemaMismatchError(
                    f"column {self.column}: a product cannot retract a value if the quotient has infinitely many "
                    "digits",
                    column=self.column,
                )
            quotients, fits = rounded(abs(held) * unit, abs(divisor), _signs(held, divisor))
            return quotients, fits & ends & divides

        return multiply, divide

    def _divisor(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values with 1 in place of 0, and whether each can divide a product."""
        divides = (value != 0).astype(bool)
        if self.is_strict and not divides.all():
            raise SchemaMismatchError(self._zero, column=self.column)
        return np.where(divides, value, 1), divides

    @property
    def _zero(self) -> str:
        return f"column {self.column}: a product cannot retract a zero"


@dataclass(frozen=True, slots=True)
class Logic:
    """Whether all values are true (`every`), or any of them, without nulls."""

    every: bool
    retracts: bool = False

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        plain = _filled(values)
        if self.every:
            holds = np.logical_and.reduceat(plain | ~live, events.starts)
        else:
            holds = np.logical_or.reduceat(plain & live, events.starts)
        return pa.array(holds, mask=~np.logical_or.reduceat(live, events.starts))


_Rule = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(accumulators, values) → (results, whether each is a value rather than null)."""


def _float_product(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return held * value, np.ones(len(held), bool)


def _float_quotient(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return held / value, np.ones(len(held), bool)


_FLOAT_RULES: tuple[_Rule, _Rule] = (_float_product, _float_quotient)


def overflow(column: str, function: str, limit: str) -> SchemaMismatchError:
    """The error for a result that the column's type cannot hold."""
    return SchemaMismatchError(
        f"column {column}: the {function} of its values does not fit {limit}; give the column a wider type",
        column=column,
    )


def _filled(values: pa.Array) -> np.ndarray:
    filled: np.ndarray = (
        values.fill_null(False) if pa.types.is_boolean(values.type) else values.fill_null(0)
    ).to_numpy(zero_copy_only=False)
    return filled


def _signs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((a < 0) == (b < 0), 1, -1).astype(object)


def _add_in_order(values: np.ndarray, live: np.ndarray, events: Events) -> np.ndarray:
    """Sums of floats in the order of rows: numpy's own sum adds in another order."""
    starts = np.add.reduceat(live, events.starts, dtype=np.int64)
    lengths, kept = starts, values[live]
    starts = np.cumsum(lengths) - lengths
    sums = np.zeros(len(lengths), values.dtype)
    keys = np.flatnonzero(lengths)
    if not len(keys):
        return sums
    packed = Events(starts[keys], np.zeros(len(kept), np.int8))
    short = keys[lengths[keys] <= _SEQUENTIAL_ROWS]
    order, steps = packed.steps(np.flatnonzero(lengths[keys] <= _SEQUENTIAL_ROWS))
    totals = np.zeros(len(short), values.dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # a sum beyond the largest number is infinite, as in Java
        for step, rows in enumerate(steps):
            # The first value is taken, not added to zero: that would lose the sign of -0.0.
            totals[: len(rows)] = kept[rows] if step == 0 else totals[: len(rows)] + kept[rows]
        sums[short[order]] = totals
        for key in keys[lengths[keys] > _SEQUENTIAL_ROWS]:
            sums[key] = np.add.accumulate(kept[starts[key] : starts[key] + lengths[key]])[-1]
    return sums


def _sum_decimals(values: pa.Array, live: np.ndarray, events: Events) -> pa.Array:
    precision = values.type.precision
    limit = 10**precision if precision > COMPACT_DIGITS else 2**63
    totals, seen, risky = sum_by_key(values, live, events, limit)
    if not risky.any():
        return from_unscaled(totals, seen & _is_within(totals, precision), values.type)
    lowest = -(2**63) if precision <= COMPACT_DIGITS else 1 - limit

    def checked(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums, ((sums >= lowest) & (sums < limit)).astype(bool)

    keys = np.flatnonzero(risky)
    stepped, valid = _step(
        unscaled(values),
        live,
        events,
        lambda held, value: checked(held + value),
        lambda held, value: checked(held - value),
        negate=True,
        keys=keys,
    )
    exact, seen = totals.copy(), seen.copy()
    exact[keys], seen[keys] = stepped, valid
    return from_unscaled(exact, seen & _is_within(exact, precision), values.type)


def _is_within(numbers: np.ndarray, precision: int) -> np.ndarray:
    """Whether unscaled decimals have at most so many digits."""
    within: np.ndarray = (np.abs(numbers) < 10**precision).astype(bool)
    return within


def _step(
    values: np.ndarray,
    live: np.ndarray,
    events: Events,
    add: _Rule,
    retract: _Rule,
    *,
    negate: bool = False,
    keys: Indices | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Accumulators after the live rows of the given keys, row after row, all keys at once; and which are not null.

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
