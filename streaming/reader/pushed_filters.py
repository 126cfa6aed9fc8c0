"""Turns filters that Spark pushes down into a condition that skips files, row groups and rows.

Spark applies its filters again to the rows that it gets, so the condition may keep too many rows, never too few.
Filters on floats are left to Spark, because in Spark NaN equals NaN and is the largest value. Filters on fields inside
of values are left to Spark too, and so are filters on nanoseconds, because Spark gets only microseconds.
Source: Spark 4.1 pyspark.sql.datasource.Filter.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BOUNDARY = "\ud7ff"
"""The last character before the surrogates. Up to this character, the next code point is a character too."""


def condition_of(filters: Iterable[Any], columns: pa.Schema) -> pc.Expression | None:
    """Returns the condition that the filters together put on the table's columns; None if no filter can be used."""
    whole: pc.Expression | None = None
    for spark_filter in filters:
        condition = _condition(spark_filter, columns)
        if condition is not None:
            whole = condition if whole is None else whole & condition
    return whole


def _condition(spark_filter: Any, columns: pa.Schema) -> pc.Expression | None:
    kind = type(spark_filter).__name__
    if kind == "Not":
        return _negated(spark_filter.child, columns)
    if len(spark_filter.attribute) != 1 or columns.get_field_index(spark_filter.attribute[0]) < 0:
        return None
    name = spark_filter.attribute[0]
    column, arrow = pc.field(name), columns.field(name).type
    if kind in ("IsNull", "IsNotNull"):
        return column.is_null() if kind == "IsNull" else column.is_valid()
    if not _is_comparable(arrow):
        return None
    if kind == "EqualNullSafe" and spark_filter.value is None:
        return column.is_null()
    if kind == "In":
        values = [_literal(v, arrow) for v in spark_filter.value if v is not None]
        known = [v.as_py() for v in values if v is not None]
        return column.isin(pa.array(known, arrow)) if len(known) == len(values) else None
    literal = _literal(spark_filter.value, arrow)
    if literal is None:
        return None
    if kind in _COMPARISONS:
        return _COMPARISONS[kind](column, literal)
    if kind in _TEXTS and pa.types.is_string(arrow) and spark_filter.value:
        matches = _TEXTS[kind](column, spark_filter.value)
        return matches & _starting_with(column, spark_filter.value) if kind == "StringStartsWith" else matches
    return None


def _negated(child: Any, columns: pa.Schema) -> pc.Expression | None:
    """Returns the condition for NOT `child`; None if this filter is left to Spark."""
    kind = type(child).__name__
    if kind == "IsNull":
        return _valid(child, columns)
    if kind in ("EqualTo", "In"):
        condition = _condition(child, columns)
        return None if condition is None else ~condition
    return None


def _valid(spark_filter: Any, columns: pa.Schema) -> pc.Expression | None:
    if len(spark_filter.attribute) != 1 or columns.get_field_index(spark_filter.attribute[0]) < 0:
        return None
    return pc.field(spark_filter.attribute[0]).is_valid()


def _starting_with(column: pc.Expression, prefix: str) -> pc.Expression:
    """Returns the condition that a string is in the range of strings with this prefix. The min and max of a file can
    rule out a range.
    """
    in_range = column >= prefix
    if prefix[-1] < _BOUNDARY:
        in_range = in_range & (column < prefix[:-1] + chr(ord(prefix[-1]) + 1))
    return in_range


def _is_comparable(arrow: pa.DataType) -> bool:
    """Returns True if Spark and Arrow compare values of the type in the same way, and Spark gets values of the type
    unchanged.
    """
    if pa.types.is_timestamp(arrow):
        return bool(arrow.unit != "ns")
    return bool(
        pa.types.is_integer(arrow)
        or pa.types.is_string(arrow)
        or pa.types.is_binary(arrow)
        or pa.types.is_boolean(arrow)
        or pa.types.is_date(arrow)
        or pa.types.is_decimal(arrow)
    )


def _literal(value: Any, arrow: pa.DataType) -> pa.Scalar | None:
    """Returns the value as a scalar of the column's type; None if the type cannot hold it exactly."""
    if value is None:
        return None
    literal_type = pa.timestamp("us", arrow.tz) if pa.types.is_timestamp(arrow) else arrow
    try:
        return pa.scalar(value, literal_type).cast(arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


_COMPARISONS: Mapping[str, Callable[[Any, Any], pc.Expression]] = {
    "EqualTo": lambda column, value: column == value,
    "EqualNullSafe": lambda column, value: column == value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
}
_TEXTS: Mapping[str, Callable[[pc.Expression, str], pc.Expression]] = {
    "StringStartsWith": pc.starts_with,
    "StringEndsWith": pc.ends_with,
    "StringContains": pc.match_substring,
}
