"""The interface of aggregate functions: everything that a table needs of a function, in one class.

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
    """A function with its parameters for one column: values and events of the column → one value per key.

    Objects are plain values, so that they can be sent to tasks. `functions.py` lists all functions.
    """

    __slots__ = ()

    names: ClassVar[tuple[str, ...]] = ()
    """Paimon's name of the function."""

    takes: ClassVar[frozenset[TypeRoot] | None] = None
    """The column types that the function takes; None for all."""

    retracts: ClassVar[bool] = False
    """Whether the function can take back earlier values."""

    commutes: ClassVar[bool] = False
    """Whether the result is the same for values in any order."""

    lacks: ClassVar[str | None] = None
    """A missing package, and how to install it; None if nothing is missing."""

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        """Returns the function for a column of a type it takes. Raises OptionError naming option, column and remedy for
        parameters that do not fit.
        """
        return cls()

    @abstractmethod
    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Takes a value for each row, and returns one value for each key."""

    def strict(self) -> Self:
        """Returns the function for rows that are not in the table yet: it raises SchemaMismatchError where a result
        does not exist, instead of giving null.
        """
        return self

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Yields the values that the function can never merge, by reason.

        `retracts` is true for values that are taken back. Each item has a mask of the values that the reason concerns,
        and the text of the reason.
        """
        return iter(())

    def limit(self, field: DataField) -> Fraction | None:
        """Returns the magnitude from which on a result does not fit the column; None if there is no such limit."""
        return None

    def bound(self, largest: Sequence[Fraction]) -> Fraction:
        """Returns the largest magnitude that a result can have, given the largest magnitude in each of the merged
        runs.
        """
        return max(largest, default=Fraction(0))

    def fails_to_retract(self, field: DataField) -> bool:
        """Whether some value of the column may have no result when it is taken back, even though the function can
        retract.
        """
        return False
