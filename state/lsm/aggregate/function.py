"""The interface of aggregate functions: one class with everything that the merge engines need from a function.

Source: Paimon 2.0 FieldAggregator, FieldAggregatorFactory.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import ClassVar, Self

import pyarrow as pa

from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.lsm.aggregate.events import Events, Mask
from bucketline.state.types.logical import DataField, TypeRoot

NUMBERS = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
    }
)


class AggregateFunction(ABC):
    """An aggregate function with its parameters for one column. The function takes the values of the column and the
    events (what each row does to the column, for example add a value), and returns one value for each key.

    Objects are plain values, so that they can be sent to Spark tasks. `functions.py` lists all functions.
    """

    __slots__ = ()

    names: ClassVar[tuple[str, ...]] = ()
    """The name of the function in Paimon."""

    takes: ClassVar[frozenset[TypeRoot] | None] = None
    """The column types that the function supports; None means all types."""

    retracts: ClassVar[bool] = False
    """True if the function can take back earlier values."""

    commutes: ClassVar[bool] = False
    """True if the result does not depend on the order of the values."""

    lacks: ClassVar[str | None] = None
    """The name of a missing package, and how to install it; None if nothing is missing."""

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        """Returns the function for a column. The function must support the type of the column. Raises OptionError for
        parameters that do not fit the column; the message names the option, the column and what to do.
        """
        return cls()

    @abstractmethod
    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Aggregates the values of each key. `values` has one value for each row, and `events` says which rows belong
        to a key and what each row does. Returns one value for each key.
        """

    def strict(self) -> Self:
        """Returns a variant of the function for rows that are not in the table yet. If the rows of a key have no
        result, for example because the sum is too large for the column, the variant raises SchemaMismatchError instead
        of returning null.
        """
        return self

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Yields the values that the function can never merge: for each reason, a mask of the values and the text of
        the reason.

        `retracts` is true for values that are to be taken back.
        """
        return iter(())

    def limit(self, field: DataField) -> Fraction | None:
        """Returns the limit of a column: a result of the function always fits the column if its absolute value is
        smaller. For example, the limit of an INT column is 2**31. Returns None if every result fits.
        """
        return None

    def bound(self, largest: Sequence[Fraction]) -> Fraction:
        """Returns the largest magnitude that this function's result can have, to tell whether the result fits its
        column. `largest` has the largest magnitude of the values in each sorted run; a run has at most one value of a
        key.
        """
        return max(largest, default=Fraction(0))

    def fails_to_retract(self, field: DataField) -> bool:
        """Returns True if there may be values that the function cannot take back, although it supports taking values
        back. For example, a product cannot take back a zero.
        """
        return False
