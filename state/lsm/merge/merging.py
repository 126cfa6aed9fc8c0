"""The interface of merge engines: how rows are merged, and which changes of rows are allowed. `engines.py` returns the
object for a table's engine.

Source: Paimon 2.0 MergeFunctionFactory and its implementations; SupportsRowLevelOperationFlinkTableSink for which rows
may be deleted and updated.
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
    """A column that would keep its old value although a row with a new value is written, and the reason."""

    column: str
    reason: str


@dataclass(frozen=True, slots=True)
class Merging(ABC):
    """How a table merges the rows of a key, and which rules writers and changes of rows must follow.

    A method that needs the table's options raises OptionError if the options contradict each other; the message names
    the option, the column and what to do. The method raises UnsupportedTableError if the package of an aggregate
    function is not installed.
    """

    schema: TableSchema

    takes_updates: ClassVar[bool] = False
    """True if a row that is written again with new values replaces the stored row."""

    null_keeps: ClassVar[bool] = False
    """True if a null keeps the stored value. This is about columns that are in no sequence group."""

    delete_option: ClassVar[str | None] = None
    """The options that must be set so that a delete removes a row; None if no option does that."""

    @abstractmethod
    def fold(self) -> Fold:
        """Returns the fold of the table, which is the function that merges the rows of each key.

        A fold that selects rows may be applied to any part of a key's rows, and any number of times; Spark tasks use
        this to merge rows early. A fold that computes rows must get all rows of a batch, or all sorted runs of a merge,
        as in Paimon, because the result of the fold for a -U or -D row depends on the first row of the input.
        """

    def row_checks(self) -> RowChecks | None:
        """Returns the checks that each new row must pass before it is accepted. Returns None if the merge engine can
        merge every row.
        """
        return None

    def order_matters(self) -> bool:
        """Returns True if the result for a key depends on the order in which its rows arrive. Returns False if the
        table has sequence fields, because these fields order the rows, even if some rows have equal values in these
        fields.
        """
        return not self.schema.settings.merge.sequence_fields

    def columns_to_merge(self, needed: Sequence[str]) -> tuple[str, ...]:
        """Returns the columns in `needed`, and the other columns whose values decide how the columns in `needed` are
        merged. Each column is returned once.
        """
        return tuple(dict.fromkeys(needed))

    def takes_back(self) -> bool:
        """Returns True if -U and -D rows take back the values of single older rows. Then an update must be written with
        its -U row.
        """
        return False

    def takes_deletes(self) -> bool:
        """Returns True if a -D row removes the row of its key, provided that the table does not ignore deletes."""
        return False

    def counts_again(self) -> tuple[str, ...]:
        """Returns the columns in which a row that is written a second time counts twice, for example sums."""
        return ()

    def unchanged(self, before: pa.RecordBatch, after: pa.RecordBatch, names: Collection[str]) -> Unchanged | None:
        """Returns the first column in `names` that would keep its old value in some row although a new value is
        written; None if there is no such column.

        `before` has the stored rows and `after` the rows to write; row i of both has the same key. Both batches have
        all columns of the table.
        """
        return None
