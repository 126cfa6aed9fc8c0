"""The aggregate function product.

Source: Paimon 2.0 FieldProductAgg; `numbers.py` has the rules of overflow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.decimal_words import from_unscaled, unscaled
from bucketline.state.lsm.aggregate.events import Events, Mask, validity
from bucketline.state.lsm.aggregate.numbers import Computed, Rule, filled, overflow, step
from bucketline.state.types.logical import DataField, TypeRoot


@dataclass(frozen=True, slots=True)
class Product(Computed):
    """The product of all values that are not null. A -U or -D row divides the product by its value."""

    # The order of rows matters, because quotients are rounded.
    names = ("product",)

    def bound(self, largest: Sequence[Fraction]) -> Fraction:
        return prod((max(Fraction(1), value) for value in largest), start=Fraction(1))

    def fails_to_retract(self, field: DataField) -> bool:
        """Returns True for integer and decimal columns: such a column may be unable to hold the quotient when a value
        is taken back.
        """
        return field.type.root not in (TypeRoot.FLOAT, TypeRoot.DOUBLE)

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Returns for each key the product of the column's values; the product is divided by values that a row takes
        back (-U, -D). If the function is strict, it raises SchemaMismatchError for integers that overflow, and for a
        division without a result, such as a division by zero.
        """
        live = validity(values) & events.live
        data_type = values.type
        if pa.types.is_decimal(data_type):
            result, seen = step(unscaled(values), live, events, *self._decimal_rules(data_type))
            return from_unscaled(result, seen, data_type)
        plain = np.where(live, filled(values), np.zeros((), data_type.to_pandas_dtype()))
        if pa.types.is_floating(data_type):
            with np.errstate(all="ignore"):
                result, seen = step(plain, live, events, *_FLOAT_RULES)
            return pa.array(result, data_type, mask=~seen)
        # Python's integers have no limit, so a product beyond the limit of the type is computed exactly and recognised.
        result, seen = step(plain.astype(object), live, events, *self._integer_rules(np.iinfo(plain.dtype)))
        return pa.array(np.where(seen, result, 0).astype(plain.dtype), data_type, mask=~seen)

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Yields a mask of the rows that take back a zero, with the reason as text: a product cannot be divided by
        zero. Yields nothing if there are no such rows, or if the values are floats.
        """
        if not pa.types.is_floating(values.type):
            is_zero = pc.fill_null(pc.equal(values, pa.scalar(0, values.type)), False)
            bad = retracts & is_zero.to_numpy(zero_copy_only=False)
            if bad.any():
                yield bad, self._zero

    def _integer_rules(self, limits: "np.iinfo[Any]") -> tuple["Rule", "Rule"]:
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

    def _decimal_rules(self, data_type: pa.Decimal128Type) -> tuple["Rule", "Rule"]:
        unit, limit = 10**data_type.scale, 10**data_type.precision

        def rounded(top: np.ndarray, bottom: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            quotients = (2 * top + bottom) // (2 * bottom) * sign
            return quotients, (abs(quotients) < limit).astype(bool)

        def multiply(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            bottom = np.full(len(held), unit, object)
            return rounded(abs(held * value), bottom, _signs(held, value))

        def divide(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            divisor, divides = self._divisor(value)
            # A quotient has a finite number of digits if its reduced denominator divides a power of ten.
            reduced = abs(divisor) // np.gcd(held, divisor)
            ends = ((10**130) % reduced == 0).astype(bool)
            if self.is_strict and not ends.all():
                raise SchemaMismatchError(
                    f"column {self.column}: a product cannot retract a value if the quotient has infinitely many "
                    f"digits; set 'fields.{self.column}.ignore-retract' = 'true' to leave the column as it is",
                    column=self.column,
                )
            quotients, fits = rounded(abs(held) * unit, abs(divisor), _signs(held, divisor))
            return quotients, fits & ends & divides

        return multiply, divide

    def _divisor(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Takes the values by which products are to be divided. Returns the values with 1 in place of 0, and a mask
        that is false for the zeros. If the function is strict, raises SchemaMismatchError for a zero.
        """
        divides = (value != 0).astype(bool)
        if self.is_strict and not divides.all():
            raise SchemaMismatchError(self._zero, column=self.column)
        return np.where(divides, value, 1), divides

    @property
    def _zero(self) -> str:
        return (
            f"column {self.column}: a product cannot retract a zero; set 'fields.{self.column}.ignore-retract' = "
            "'true' to leave the column as it is"
        )


def _float_product(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return held * value, np.ones(len(held), bool)


def _float_quotient(held: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return held / value, np.ones(len(held), bool)


_FLOAT_RULES: tuple[Rule, Rule] = (_float_product, _float_quotient)


def _signs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((a < 0) == (b < 0), 1, -1).astype(object)
