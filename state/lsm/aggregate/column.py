"""How one column of a table is aggregated: its function, and whether it hears of retracts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.events import Events, Mask, Op
from bucketline.state.lsm.aggregate.function import AggregateFunction


@dataclass(frozen=True, slots=True)
class ColumnAggregate:
    """How one column is aggregated. `ignores_retracts`: -U and -D rows leave it unchanged. `needs_value`: null is no
    result of the column.
    """

    column: str
    name: str
    function: AggregateFunction
    ignores_retracts: bool = False
    needs_value: bool = False

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Raises SchemaMismatchError when a row retracts a value and the function cannot, or a result is null and must
        not be.
        """
        if self.ignores_retracts:
            events = events.ignoring_retracts()
        elif not self.function.retracts and (events.ops == Op.RETRACT).any():
            raise SchemaMismatchError(self._cannot_retract, column=self.column)
        folded = self.function.fold(values, events)
        if self.needs_value and folded.null_count:
            raise SchemaMismatchError(null_result(self.column), column=self.column)
        return folded

    def strict(self, *, is_nullable: bool) -> "ColumnAggregate":
        """The aggregate for rows that are not in the table yet: it refuses what gives no result, instead of null."""
        return replace(self, function=self.function.strict(), needs_value=not is_nullable)

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Rows that this column can never merge, by reason. Shapes: as `AggregateFunction.unmergeable`."""
        if self.ignores_retracts:
            retracts = np.zeros(len(retracts), bool)
        elif not self.function.retracts and retracts.any():
            yield retracts, self._cannot_retract
        yield from self.function.unmergeable(values, retracts)

    @property
    def _cannot_retract(self) -> str:
        return (
            f"column {self.column}: aggregate function '{self.name}' cannot retract the values of -U and -D rows; "
            f"set 'fields.{self.column}.ignore-retract' = 'true' to leave the column as it is, or 'ignore-delete' "
            "= 'true' to skip such rows"
        )


def null_result(column: str) -> str:
    """Why rows that leave null in a NOT NULL column are refused."""
    return (
        f"column {column} is NOT NULL, but merging its rows leaves null in it, as there is no result that it can hold: "
        f'make it nullable, with alter_column("{column}", nullable=True), or give it a wider type'
    )
