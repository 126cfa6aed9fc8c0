"""The computed columns, conditions and expectations of a job, as a plain value that is sent to tasks."""

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from bucketline.conf.column_options import Expectation
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.state.types.logical import DataField
from bucketline.state.types.schema_need import NOTHING_NEEDED, SchemaNeed


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the table, and the expression that computes the column. If `expression` is None, the column is null.
    `is_needed` is true if the row of a delete must also have the value of the column.
    """

    field: DataField
    expression: SqlExpression | None
    is_needed: bool = False


class JudgedImages(Enum):
    """A job may have a condition that decides which rows the table gets. This value says to which rows of a change the
    condition is applied: only to new rows, or to the old row as well.
    """

    NEW = "new"
    """The condition is applied to new rows only. A row that does not meet it becomes a delete of its key, or is left
    out if it is an insert.
    """
    OWN = "own"
    """The condition is applied to each row by itself, for merge engines that retract."""
    INSERTS = "inserts"
    """The condition is applied to all rows; there are only inserts."""


@dataclass(frozen=True, slots=True)
class ComputedColumns:
    """The plan of the computed columns, the condition (`where`) and the expectations (`expect`) of a job, for one
    schema of the table. Tasks get the plan as one value.

    - `inputs` are the fields that are decoded, and `outputs` are the columns that are computed from them.
    - `keys` are the columns of keys and partitions. They are computed from the fields `key_inputs`.
    - `loose` are NOT NULL columns that a delete may leave out.
    - `plain` are the columns of the table that are copied from a field unchanged.
    - `grows` is true if new fields of messages become columns of the table. The fields `left_out` do not: nothing reads
      them.
    - `images` says whether `where` also checks the old row of a change.
    - `kept` are plain columns from which nothing else is computed. Only in these columns may the source leave out a
      value.
    - `tells_time` is true if a column or a check uses the current time.
    """

    inputs: tuple[DataField, ...]
    key_inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    keys: tuple[str, ...]
    loose: tuple[str, ...]
    plain: tuple[str, ...]
    left_out: tuple[str, ...]
    grows: bool
    where: SqlExpression | None
    expect: tuple[Expectation, ...]
    images: JudgedImages
    context: Context
    kept: tuple[str, ...] = ()
    tells_time: bool = False

    def need_of(self, need: SchemaNeed) -> SchemaNeed:
        """Takes a schema need (the columns that records have and the table lacks). Returns the need without those
        fields that the job leaves out, or only uses to compute columns.
        """
        kept = [f for f in need.columns if f.name in self.plain or f.name not in self.left_out]
        return SchemaNeed(pa.struct(kept)) if kept else NOTHING_NEEDED
