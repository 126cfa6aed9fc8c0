"""Finds rows that can never be merged with other rows of their key, so that they are refused.

Paimon stores these rows, and then fails at every later merge of their keys, which includes reads and compactions.
Source: Paimon 2.0 FieldAggregator.retract, FieldSumAgg, FieldProductAgg, FirstRowMergeFunction,
PartialUpdateMergeFunction: the errors that these classes throw while they merge.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.column import ColumnAggregate
from bucketline.state.lsm.aggregate.events import Mask
from bucketline.state.lsm.merge.partial_update import SequenceGroup
from bucketline.state.types.arrow import VALUE_KIND
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.row_kind import RowKind


@dataclass(frozen=True, slots=True)
class Unmergeable:
    """Some rows that cannot be merged: a mask of these rows among the input rows, the reason, and the column that is
    the cause.
    """

    rows: Mask
    reason: str
    column: str


@dataclass(frozen=True, slots=True)
class RowChecks:
    """The checks that a table's merge engine makes on single rows. The object has plain values only, so that it can be
    sent to Spark tasks.
    """

    retracts_refused: str | None = None
    columns: Mapping[str, ColumnAggregate] | None = None
    removes_on_delete: bool = False
    groups: tuple[SequenceGroup, ...] | None = None

    def find(self, rows: pa.Table, kinds: pa.Array) -> Iterator[Unmergeable]:
        """Finds the rows that cannot be merged. Yields for each reason an `Unmergeable`: a mask of the rows, the
        reason, and the column. A row may be in several masks.

        `rows` have the table's columns, and `kinds` has the row kind of each row as int8 (0 is +I, 1 is -U, 2 is +U, 3
        is -D).
        """
        codes = kinds.to_numpy()
        retracts = (codes & 1).astype(bool)
        if self.retracts_refused is not None and retracts.any():
            yield Unmergeable(retracts, self.retracts_refused, VALUE_KIND)
        if self.removes_on_delete:
            retracts &= codes != RowKind.DELETE
        for name, column in (self.columns or {}).items():
            taken_back = retracts if self.groups is None else retracts & self._reaches(name, rows, codes)
            for bad, reason in column.unmergeable(one_array(rows[name]), taken_back):
                yield Unmergeable(bad, reason, name)

    def refuse(self, rows: pa.Table, kinds: pa.Array) -> None:
        """Raises SchemaMismatchError, with the first reason, if some rows cannot be merged."""
        for unmergeable in self.find(rows, kinds):
            raise SchemaMismatchError(unmergeable.reason, column=unmergeable.column)

    def reasons(self, rows: pa.Table, kinds: pa.Array) -> pa.Array | None:
        """Returns a string for each row: the reason why the row can never be merged, or null. Returns None if all rows
        can be merged.
        """
        reasons: pa.Array | None = None
        for unmergeable in self.find(rows, kinds):
            texts = if_else(pa.array(unmergeable.rows), unmergeable.reason, pa.scalar(None, pa.string()))
            reasons = texts if reasons is None else pc.coalesce(reasons, texts)
        return reasons

    def _reaches(self, name: str, rows: pa.Table, codes: np.ndarray) -> Mask:
        """Returns a mask of the rows that change the column `name`, which belongs to one or more sequence groups. A row
        changes the column if one of these groups has a sequence in the row, that is a sequence field that is not null.
        A -D row that removes the whole row of its key does not count. `codes` has the row kind of each row.
        """
        assert self.groups is not None
        acts, removes = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
        for group in self.groups:
            present = np.logical_or.reduce(
                [one_array(rows[c]).is_valid().to_numpy(zero_copy_only=False) for c in group.sequence]
            )
            if name in group.columns:
                acts |= present
            if group.removes:
                removes |= present & (codes == RowKind.DELETE)
        return acts & ~removes
