"""The aggregate function sum.

Source: Paimon 2.0 FieldSumAgg; `numbers.py` has the rules of overflow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.decimal_words import from_unscaled, sum_by_key, unscaled
from bucketline.state.lsm.aggregate.events import Events, Mask, Op, validity
from bucketline.state.lsm.aggregate.numbers import Computed, filled, overflow, step
from bucketline.state.types.long_decimals import COMPACT_DIGITS

_SEQUENTIAL_ROWS = 64


@dataclass(frozen=True, slots=True)
class Sum(Computed):
    """The sum of all values that are not null. A -U or -D row subtracts its value. Floats are added in the order of the
    rows.
    """

    names = ("sum",)
    commutes = True

    def bound(self, largest: Sequence[Fraction]) -> Fraction:
        return sum(largest, Fraction(0))

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Returns for each key the sum of the column's values; values that a row takes back (-U, -D) are subtracted. If
        the function is strict, it raises SchemaMismatchError for integers that overflow; otherwise such a sum becomes
        null.
        """
        live = validity(values) & events.live
        if pa.types.is_decimal(values.type):
            return _sum_decimals(values, live, events)
        plain = np.where(live, filled(values), np.zeros((), values.type.to_pandas_dtype()))
        minus = events.ops == Op.RETRACT
        seen = np.logical_or.reduceat(live, events.starts)
        if pa.types.is_floating(values.type):
            signed = np.where(minus, -plain, plain)
            return pa.array(_add_in_order(signed, live, events), mask=~seen)
        sums, fits = self._sum_integers(plain, minus, events)
        return pa.array(sums, values.type, mask=~(seen & fits))

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Yields a mask of the -U and -D rows with the smallest integer of the type (for example -128), and the reason
        why they are refused. To take this value back, the sum would have to add its negative (128), which the type
        cannot hold.
        """
        if pa.types.is_integer(values.type):
            limits = np.iinfo(values.type.to_pandas_dtype())
            bad = retracts & validity(values) & (filled(values) == limits.min)
            if bad.any():
                yield bad, overflow(self.column, "sum", f"{limits.bits} bits").message

    def _sum_integers(self, values: np.ndarray, minus: np.ndarray, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """Adds up integers by key. Returns the sum for each key, and a mask that is true for the sums that fit into the
        type. `minus` is true for the values that are subtracted.
        """
        limits = np.iinfo(values.dtype)
        wide = values.astype(np.int64)
        running = np.cumsum(np.where(minus, -wide, wide))
        # Running sums wrap around at 64 bits. Their differences are correct unless the sum of a single key leaves the
        # range.
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
        # Only keys with an intermediate sum that overflows are added up with Python's unlimited integers.
        for key in np.flatnonzero(np.logical_or.reduceat(overflows, events.starts)):
            rows = slice(events.starts[key], events.starts[key] + events.lengths[key])
            total = int(np.where(minus[rows], -wide[rows].astype(object), wide[rows].astype(object)).sum())
            fits[key] = limits.min <= total <= limits.max
            sums[key] = total if fits[key] else 0
        return sums, fits


def _add_in_order(values: np.ndarray, live: np.ndarray, events: Events) -> np.ndarray:
    """Returns the sum of the floats of each key, added in the order of the rows. numpy's own sum adds in another order,
    which changes the rounding.
    """
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
            # The sum starts with the first value and not with zero, because 0.0 + -0.0 loses the sign.
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
    stepped, valid = step(
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
    """Returns a mask of the unscaled decimals that have at most `precision` digits."""
    within: np.ndarray = (np.abs(numbers) < 10**precision).astype(bool)
    return within
