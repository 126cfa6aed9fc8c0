"""Computes the values of columns. Rows whose values cannot be computed are found by halving the batch, so that batches
without such rows cost nothing more.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.casts import cast_to
from bucketline.state.sql.compute.expression import SqlExpression, evaluate
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.struct_fields import by_spelling
from bucketline.streaming.decode.columns.computed_columns import Output

Columns: TypeAlias = Mapping[str, pa.Array]
Bools: TypeAlias = npt.NDArray[np.bool_]

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def value_of(output: Output, columns: Columns, row_count: int, context: Context) -> pa.Array:
    """Returns the values of a column of the table, in its type. A null stays null even if the column is NOT NULL.

    Raises SchemaMismatchError for a value that cannot be computed, or that the column cannot hold; OptionError for a
    type that cannot be stored in the column without a CAST.
    """
    field, target = output.field, arrow_type(output.field.type)
    if output.expression is None:
        return pa.nulls(row_count, target)
    values = evaluate(output.expression, columns, row_count, context)
    if values.type == target or pa.types.is_null(values.type):
        return values.cast(target)
    if not field.type.is_atomic:
        return fit_array(values, field.type.as_nullable(), target, field.name, by_spelling)
    if not _is_stored(values.type, field):
        raise OptionError(
            f"column {field.name!r} {field.type} gets values of type {values.type}; use CAST",
            key="select",
            column=field.name,
        )
    try:
        return cast_to(values, field.type.as_nullable(), context)
    except pa.ArrowInvalid as e:
        raise SchemaMismatchError(
            f"column {field.name!r} {field.type} cannot hold a value: {e}", column=field.name
        ) from e


def _is_stored(given: pa.DataType, field: DataField) -> bool:
    """Returns True if values of the type `given` are stored in the column without a CAST: numbers in numbers, times in
    times, anything in a string. These are the rules of Spark's store assignment.
    """
    root = field.type.root
    if root in _TEXTS:
        return not pa.types.is_nested(given)
    if root is TypeRoot.BOOLEAN:
        return bool(pa.types.is_boolean(given))
    if root in (*_STAMPS, TypeRoot.DATE):
        return bool(pa.types.is_timestamp(given) or pa.types.is_date(given))
    if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return bool(pa.types.is_binary(given))
    return (
        bool(pa.types.is_integer(given) or pa.types.is_floating(given) or pa.types.is_decimal(given))
        and root in _NUMBERS
    )


_NUMBERS = (
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
    TypeRoot.DECIMAL,
)


def condition_of(expression: SqlExpression, columns: Columns, row_count: int, context: Context) -> pa.Array:
    """Returns for each row whether a condition is true; null if this is unknown. Raises the errors of `value_of`."""
    truth = evaluate(expression, columns, row_count, context)
    if pa.types.is_null(truth.type):
        return truth.cast(pa.bool_())
    if not pa.types.is_boolean(truth.type):
        raise OptionError(
            f"{expression.text!r} has the type {truth.type}, so it is not a condition; compare it with a value",
            key="where",
        )
    return truth


def by_halves(
    compute: Callable[[Columns, int], pa.Array], columns: Columns, row_count: int
) -> tuple[pa.Array, dict[int, str]]:
    """Calls `compute` for the columns, and returns one value for each row. If `compute` fails, it is called for each
    half of the rows, and so on, until the rows that make it fail are found. The value of such a row is null.

    The second result maps the index of each failing row to the reason.
    """
    try:
        return compute(columns, row_count), {}
    except (SchemaMismatchError, pa.ArrowInvalid) as e:
        if row_count == 0:
            raise
        failure = e
    kind = compute({name: column.slice(0, 0) for name, column in columns.items()}, 0).type
    if row_count == 1:
        return pa.nulls(1, kind), {0: _reason(failure)}
    half, parts, reasons = row_count // 2, list[pa.Array](), dict[int, str]()
    for first, count in ((0, half), (half, row_count - half)):
        part = {name: column.slice(first, count) for name, column in columns.items()}
        values, failed = by_halves(compute, part, count)
        parts.append(values)
        reasons |= {first + row: why for row, why in failed.items()}
    return pa.concat_arrays(parts), reasons


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, SchemaMismatchError) else str(error)


def same_values(left: pa.Array, right: pa.Array) -> Bools:
    """Returns for each row whether two columns have the same value. Two nulls count as the same."""
    equal = pc.fill_null(pc.equal(left, right), False)
    return np.asarray(pc.or_(equal, pc.and_(left.is_null(), right.is_null())))
