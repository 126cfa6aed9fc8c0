"""A condition on rows, as it is applied while rows are read. The module `plan_condition` makes conditions.

This module loads no SQL parser, because every worker that writes or reads rows loads the module.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc


class RowTest(Protocol):
    """A test of rows that no Arrow expression can make, for example a comparison of two columns."""

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns a boolean array with one value for each row: true if the row passes the test, otherwise false."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows. `expression` is applied while rows are read, and `test` afterwards; None means that all rows
    pass. `columns` are the columns that `test` uses.
    """

    expression: pc.Expression | None = None
    test: RowTest | None = None
    columns: tuple[str, ...] = ()

    def mask(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Returns a mask of the rows that meet `test`; None means all rows. `rows` have already met `expression`."""
        return None if self.test is None else self.test.mask(rows)

    def also(self, expression: pc.Expression) -> "Condition":
        """Returns a condition that rows meet if they meet both this condition and the expression."""
        whole = expression if self.expression is None else self.expression & expression
        return replace(self, expression=whole)


ALL_ROWS = Condition()
