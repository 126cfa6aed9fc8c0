"""Analyses a filter without reading rows: finds the columns that it needs, and the candidates (partitions, files) in
which no row can meet the filter.

A filter is an opaque `pyarrow.compute.Expression`. A candidate is described by a guarantee: an expression that is true
for every row of the candidate. Arrow's own dataset planning decides whether a guarantee contradicts the filter, so this
library interprets no expressions itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from bucketline.state.errors import CorruptFileError, SchemaMismatchError
from bucketline.state.types.char_text import padded_value, upper_bound
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.values import to_scalar

ALWAYS = pc.scalar(True)

# Arrow treats -0.0 and 0.0 as equal and cannot say "or NaN", so ranges of floats prove nothing.
_UNPROVABLE = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one column in the rows of a candidate (a partition or a file that a read may skip), which has
    `row_count` rows. The values are in internal form; None stands for an unknown bound.
    """

    low: object
    high: object
    null_count: int | None
    row_count: int


def filter_columns(schema: pa.Schema, expression: pc.Expression) -> tuple[str, ...]:
    """Returns the columns that the filter reads, in schema order.

    Raises SchemaMismatchError if the filter names a column that does not exist, compares values that cannot be
    compared, or is no condition.
    """
    empty = schema.empty_table()
    try:
        empty.filter(expression)
    except (pa.ArrowException, TypeError) as e:
        raise SchemaMismatchError(f"filter {expression} does not fit the table: {e}", filter=str(expression)) from e
    return tuple(name for name in schema.names if not filter_binds(empty.drop_columns([name]).schema, expression))


def filter_binds(schema: pa.Schema, expression: pc.Expression) -> bool:
    """Returns True if the schema has all columns that the filter reads. `schema` has some columns of a table, and the
    filter must fit the schema of the whole table.
    """
    try:
        schema.empty_table().filter(expression)
    except pa.ArrowInvalid:
        return False
    return True


def possible(
    schema: pa.Schema, expression: pc.Expression, guarantees: Sequence[pc.Expression]
) -> npt.NDArray[np.bool_]:
    """Takes guarantees: conditions that are true for all rows of a file, for example `id >= 3`. Returns a mask with one
    value for each guarantee. The value is false if the guarantee proves that no row meets the filter `expression`.
    """
    may_pass = np.zeros(len(guarantees), dtype=np.bool_)
    form, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
    # The number of the candidate serves as its path. No file is opened.
    candidates = [
        form.make_fragment(str(i), filesystem=nowhere, partition_expression=g) for i, g in enumerate(guarantees)
    ]
    for kept in ds.FileSystemDataset(candidates, schema, form, nowhere).get_fragments(filter=expression):
        may_pass[int(kept.path)] = True
    return may_pass


def pinned_values(schema: pa.Schema, expression: pc.Expression) -> dict[str, pa.Scalar]:
    """Returns the columns for which the filter allows a single value, as in `id = 7`, and that value as a scalar of the
    column's type.

    A column is left out if the value cannot be converted exactly to the column's type. Float columns are left out.
    """
    pinned: dict[str, pa.Scalar] = {}
    try:
        known = ds.get_partition_keys(expression)
    except (AssertionError, ValueError):
        # pyarrow assumes that the left side of such an equation is a column, but here it is a field inside a column; or
        # the value is a time in nanoseconds, which Python cannot hold without pandas.
        return pinned
    for name, value in known.items():
        position = schema.get_field_index(name)
        if position < 0 or value is None or pa.types.is_floating(schema.field(position).type):
            continue
        try:
            pinned[name] = pa.scalar(value).cast(schema.field(position).type)
        except (pa.ArrowException, OverflowError):
            continue
    return pinned


def guarantee(field: DataField, bounds: Bounds) -> pc.Expression | None:
    """Returns a condition that the column has in every row, judging by its bounds: for example `a >= 1 and a <= 9`.
    Returns None if nothing is known.
    """
    column = pc.field(field.name)
    if bounds.null_count is not None and bounds.null_count == bounds.row_count:
        return column.is_null()
    if field.type.root in _UNPROVABLE or bounds.low is None or bounds.high is None or not field.type.is_atomic:
        return None
    try:
        # The values are read with the blanks of a CHAR. The blanks never put a value below a bound that has no blanks.
        upper = upper_bound(bounds.high, field.type)
        if upper is None:
            return None
        low, high = to_scalar(bounds.low, field.type), to_scalar(upper, field.type)
    except CorruptFileError:
        return None
    if bounds.null_count == 0:
        return (column >= low) & (column <= high)
    # Each bound is combined with "is null" separately, because Arrow does not analyse a conjunction inside a
    # disjunction.
    return ((column >= low) | column.is_null()) & ((column <= high) | column.is_null())


def constant_guarantee(field: DataField, value: object) -> pc.Expression:
    """Returns an expression that is true for every row of a file in which the column has only this value, such as `dt =
    'a'` for the file's partition. For a FLOAT or DOUBLE column, returns an expression that is always true, because such
    values prove nothing.
    """
    column = pc.field(field.name)
    if value is None:
        return column.is_null()
    if field.type.root in _UNPROVABLE:
        return ALWAYS
    return column == to_scalar(padded_value(value, field.type), field.type)


def conjunction(parts: Sequence[pc.Expression | None]) -> pc.Expression:
    """Returns the condition that all parts are true. A part that is None is ignored. Without parts the condition is
    always true.
    """
    known = [p for p in parts if p is not None]
    if not known:
        return ALWAYS
    whole = known[0]
    for part in known[1:]:
        whole = whole & part
    return whole
