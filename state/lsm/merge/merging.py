"""The interface of merge engines: what each must say about its table. `engines.py` gives the object of a table's
engine.

Source: Paimon 2.0 MergeFunctionFactory and its implementations; SupportsRowLevelOperationFlinkTableSink for what may be
deleted and updated.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.fold import Fold
from bucketline.state.lsm.merge.row_checks import RowChecks


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A column that would keep its older value when a row is written with a new one, and why."""

    column: str
    reason: str


@dataclass(frozen=True, slots=True)
class Merging(ABC):
    """How one table merges the rows of a key, and which rules writers and changes of rows must keep.

    Every method raises OptionError naming option, column and remedy for settings that contradict each other,
    UnsupportedTableError for aggregate functions whose package is not installed, where it has to look at them.
    """

    schema: TableSchema

    takes_updates: ClassVar[bool] = False
    """Whether a row that is written again with some new values replaces the stored one."""

    null_keeps: ClassVar[bool] = False
    """Whether a null keeps the stored value, in columns that are in no sequence group."""

    delete_option: ClassVar[str | None] = None
    """The options that a table needs for a delete to remove a row; None if no option does that."""

    @abstractmethod
    def fold(self) -> Fold:
        """Returns the fold of the table.

        Folds that select rows may be applied to any part of a key's rows, any number of times; map tasks do so. Folds
        that compute rows must get all rows of a flush, or all sorted runs of a merge, as in Paimon: their result for a
        retract depends on where the input starts.
        """

    def row_checks(self) -> RowChecks | None:
        """Returns the checks of single rows; None if every row can be merged."""
        return None

    def order_matters(self) -> bool:
        """Whether the order in which the rows of a key arrive decides what the table shows of the key.

        Rows with equal values of their sequence fields count as ordered.
        """
        return not self.schema.settings.merge.sequence_fields

    def columns_to_merge(self, needed: Sequence[str]) -> tuple[str, ...]:
        """Returns the requested columns and those that merging them needs, each once."""
        return tuple(dict.fromkeys(needed))

    def takes_back(self) -> bool:
        """Whether -U and -D rows take back the values of single older rows, so that an update is lost without them."""
        return False

    def takes_deletes(self) -> bool:
        """Whether a -D row removes the row of its key, where deletes are not ignored."""
        return False

    def counts_again(self) -> tuple[str, ...]:
        """Returns the columns in which a row counts once more when it is written again."""
        return ()

    def unchanged(self, before: pa.RecordBatch, after: pa.RecordBatch, names: Collection[str]) -> Unchanged | None:
        """Returns the first of the named columns that keeps the value of `before` in some row although `after` is
        written; None if there is no such column.

        Both batches have all columns of the table. Row i of `after` is the next row of the key of row i of `before`.
        """
        return None
