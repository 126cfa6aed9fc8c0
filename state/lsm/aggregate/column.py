"""The aggregation of one column of a table: its function, and whether -U and -D rows count for it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op, take_or_null
from bucketline.state.lsm.aggregate.function import AggregateFunction


@dataclass(frozen=True, slots=True)
class ColumnAggregate:
    """How one column is aggregated. If `ignores_retracts` is true, -U and -D rows leave the column unchanged.

    If `is_strict` is true, an error is raised for rows whose merging has no result that the column can hold. Strict
    aggregates are for new rows, which can still be refused. Rows that are in the table already must be merged in any
    case.
    """

    column: str
    name: str
    function: AggregateFunction
    ignores_retracts: bool = False
    is_nullable: bool = True
    is_strict: bool = False

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Returns one value for each key. If the function cannot take back the value of a -U or -D row, the row leaves
        the column unchanged. If a NOT NULL column would become null, the column gets the newest value that was added. A
        strict aggregate raises SchemaMismatchError in both cases.
        """
        if self.ignores_retracts:
            events = events.ignoring_retracts()
        elif not self.function.retracts and (events.ops == Op.RETRACT).any():
            if self.is_strict:
                raise SchemaMismatchError(self._cannot_retract, column=self.column)
            events = events.ignoring_retracts()
        folded = self.function.fold(values, events)
        if self.is_nullable or not folded.null_count:
            return folded
        if self.is_strict:
            raise SchemaMismatchError(null_result(self.column), column=self.column)
        return pc.coalesce(folded, take_or_null(values, _newest(events)))

    def strict(self) -> "ColumnAggregate":
        """Returns a variant of the aggregate for rows that are not in the table yet. If merging these rows has no
        result, the variant raises an error instead of returning null.
        """
        return replace(self, function=self.function.strict(), is_strict=True)

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Yields the rows that this column can never merge: for each reason, a mask of the rows and the text of the
        reason.
        """
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


def _newest(events: Events) -> Indices:
    """Returns for each key the index of the newest row that sets or adds a value, or of the last row if no row does."""
    rows = events.last(events.is_any(Op.ADD, Op.SEED))
    return np.where(rows >= 0, rows, events.starts + events.lengths - 1)


def null_result(column: str) -> str:
    """Returns the error message for rows whose merging leaves null in a NOT NULL column."""
    return (
        f"column {column} is NOT NULL, but merging its rows leaves null, because there is no result that the column "
        f'can hold: make the column nullable, with alter_column("{column}", nullable=True), or give it a wider type'
    )
