"""Groups, aggregates and orders numbers as Spark does, in the cases in which Arrow does it in another way.

NaN is one value, greater than every number; -0.0 and 0.0 are one value; a sum that its type cannot hold is an error.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else

_BELOW_SIGN = np.int64((1 << 63) - 1)
_LARGEST_ERROR = float(1 << 62)
"""The largest difference between a sum of integers and the sum of the same numbers as doubles that counts as a rounding
error. A sum that has overflowed differs by 2^64.
"""
_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of a column: `count`, `sum`, `min`, `max` or `mean`. If `column` is None, `count` counts rows."""

    function: str
    column: str | None
    distinct: bool = False


def grouped(
    rows: pa.Table, keys: Sequence[str], aggregates: Sequence[Aggregate]
) -> tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]]:
    """Returns the values of the keys and of the aggregates, each with one value per group. Without keys there is one
    group.

    Raises SchemaMismatchError for a sum that is too large for its type.
    """
    flat = [_flat(rows.column(key)) for key in keys]
    columns = {f"key {i} {at}": part for i, parts in enumerate(flat) for at, part in enumerate(parts)}
    names = list(columns)
    wanted: list[Any] = [([], "count_all")] if any(a.column is None for a in aggregates) else []
    for i, aggregate in enumerate(aggregates):
        if aggregate.column is None:
            continue
        column = rows.column(aggregate.column)
        columns[f"{i}"] = _prepared(column, aggregate)
        wanted.append((f"{i}", _function(aggregate)))
        if aggregate.function == "sum" and _can_be_too_large(column.type):
            columns[f"{i} near"] = column.cast(pa.float64(), safe=False)
            wanted.append((f"{i} near", "sum"))
    table = pa.table(columns) if columns else pa.table({"all": pa.nulls(rows.num_rows)})
    found = table.group_by(names, use_threads=False).aggregate(wanted)
    parts = iter([found.column(n) for n in names])
    values = [_whole(rows.schema.field(key).type, parts) for key in keys]
    return values, [_result(found, rows, i, a) for i, a in enumerate(aggregates)]


def sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns values that sort in the same order as the column in Spark. For FLOAT and DOUBLE the returned values are
    integers.
    """
    return _ranks(column) if pa.types.is_floating(column.type) else column


def order_keys(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Returns the sort keys (columns) by which Arrow sorts rows in the order in which Spark sorts them by `column`. The
    first key counts most. The caller must sort nulls of `column` itself by an earlier key.

    Structs are compared field by field, and a null in a field comes before every value. So each field of a struct has
    at least two sort keys: first a column that says whether the field has a value, then the keys of the field's values.
    """
    if not pa.types.is_struct(column.type):
        return [sortable(column)]
    fields = column.flatten() if column.type.num_fields else []
    return [key for field in fields for key in (pc.is_valid(field).cast(pa.int8()), *order_keys(field))]


def _flat(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Returns columns without structs that stand for `column` in GROUP BY, because Arrow cannot group by a struct.
    For a struct, these are a column that says whether the struct is not null, and the columns of its fields.
    """
    if not pa.types.is_struct(column.type):
        return [_one_value_each(column)]
    fields = column.flatten() if column.type.num_fields else []
    return [pc.is_valid(column), *(part for field in fields for part in _flat(field))]


def _whole(arrow: pa.DataType, parts: Iterator[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Returns the column of a grouping key, with the type `arrow`. `_flat` has replaced a struct by several columns,
    because Arrow cannot group by a struct; this function takes the columns from `parts` and puts the struct together
    again.
    """
    if not pa.types.is_struct(arrow):
        return next(parts)
    is_there = one_array(next(parts))
    fields = [one_array(_whole(field.type, parts)) for field in arrow]
    if not fields:
        return pa.chunked_array([pa.array([None, {}], arrow).take(is_there.cast(pa.int8()))])
    return pa.chunked_array([pa.StructArray.from_arrays(fields, fields=list(arrow), mask=pc.invert(is_there))])


def _one_value_each(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the column with 0.0 in place of -0.0, and with the same NaN in place of every NaN."""
    if not pa.types.is_floating(column.type):
        return column
    no_sign = if_else(pc.equal(column, 0.0), pa.scalar(0.0, column.type), column)
    return if_else(pc.is_nan(no_sign), pa.scalar(math.nan, column.type), no_sign)


def _prepared(column: pa.ChunkedArray, aggregate: Aggregate) -> pa.ChunkedArray:
    if aggregate.function in ("min", "max"):
        return sortable(column)
    if aggregate.function == "sum" and pa.types.is_decimal(column.type):
        # Older releases of pyarrow keep the precision of the column, so the precision is raised here.
        return column.cast(pa.decimal128(_DIGITS, column.type.scale))
    return _one_value_each(column) if aggregate.distinct else column


def _function(aggregate: Aggregate) -> str:
    return "count_distinct" if aggregate.distinct else aggregate.function


def _can_be_too_large(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_int64(arrow) or pa.types.is_decimal(arrow))


def _result(found: pa.Table, rows: pa.Table, at: int, aggregate: Aggregate) -> pa.ChunkedArray:
    if aggregate.column is None:
        return found.column("count_all")
    values, of = found.column(f"{at}_{_function(aggregate)}"), rows.schema.field(aggregate.column).type
    if aggregate.function in ("min", "max") and pa.types.is_floating(of):
        return _from_ranks(values, of)
    if aggregate.function == "sum" and _can_be_too_large(of):
        _check_sum(values, np.asarray(found.column(f"{at} near_sum").fill_null(0)), aggregate.column)
    return values


def _check_sum(values: pa.ChunkedArray, near: np.ndarray, column: str) -> None:
    """Raises SchemaMismatchError if a sum has overflowed: if it is far from the approximate sum in `near`."""
    if pa.types.is_decimal(values.type):
        # A sum of doubles is wrong by some digits near the limit. A sum of 128 bits overflows beyond 1.7 times the
        # limit.
        most = pa.scalar(Decimal((0, (9,) * _DIGITS, -values.type.scale)), values.type)
        is_above = np.asarray(pc.greater(pc.abs(values), most).fill_null(False))
        is_wrong = is_above | (np.abs(near) > 1.5 * 10.0 ** (_DIGITS - values.type.scale))
    else:
        is_wrong = np.abs(np.asarray(values.fill_null(0)).astype(np.float64) - near) > _LARGEST_ERROR
    if is_wrong.any():
        held = "38 digits" if pa.types.is_decimal(values.type) else "a BIGINT"
        raise SchemaMismatchError(f"the sum of column {column!r} is too large for {held}", column=column)


def _ranks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns for each number an integer that is made from the number's bits. The bits of negative numbers are
    inverted, so that the integers have the same order as the numbers.
    """
    bits = np.asarray(_one_value_each(column).cast(pa.float64()).fill_null(0.0)).view(np.int64)
    mask = np.asarray(column.is_null())
    return pa.chunked_array([pa.array(np.where(bits < 0, bits ^ _BELOW_SIGN, bits), pa.int64(), mask=mask)])


def _from_ranks(ranks: pa.ChunkedArray, arrow: pa.DataType) -> pa.ChunkedArray:
    whole = np.asarray(ranks.fill_null(0))
    values = np.where(whole < 0, whole ^ _BELOW_SIGN, whole).view(np.float64)
    mask = np.asarray(ranks.is_null())
    return pa.chunked_array([pa.array(values, pa.float64(), mask=mask).cast(arrow, safe=False)])
