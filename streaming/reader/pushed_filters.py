"""Filters that Spark pushes down, as a condition that leaves out files, row groups and rows.

Spark applies its filters again to what it gets, so a condition may keep too much, never too little. Floats are left to
Spark: its NaN equals itself and is the largest. So are columns whose values Spark sees cut, and fields in values.
Source: Spark 4.1 pyspark.sql.datasource.Filter.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BOUNDARY = "\ud7ff"
"""The last character before the surrogates: the next one of any up to here is a character too."""


def condition_of(filters: Iterable[Any], columns: pa.Schema) -> pc.Expression | None:
    """What the filters together say of the table's columns; None if nothing that can be used."""
    whole: pc.Expression | None = None
    for one in filters:
        found = _condition(one, columns)
        if found is not None:
            whole = found if whole is None else whole & found
    return whole


def _condition(one: Any, columns: pa.Schema) -> pc.Expression | None:
    kind = type(one).__name__
    if kind == "Not":
        return _negated(one.child, columns)
    if len(one.attribute) != 1 or columns.get_field_index(one.attribute[0]) < 0:
        return None
    name = one.attribute[0]
    column, arrow = pc.field(name), columns.field(name).type
    if kind in ("IsNull", "IsNotNull"):
        return column.is_null() if kind == "IsNull" else column.is_valid()
    if not _is_comparable(arrow):
        return None
    if kind == "EqualNullSafe" and one.value is None:
        return column.is_null()
    if kind == "In":
        values = [_literal(v, arrow) for v in one.value if v is not None]
        known = [v.as_py() for v in values if v is not None]
        return column.isin(pa.array(known, arrow)) if len(known) == len(values) else None
    literal = _literal(one.value, arrow)
    if literal is None:
        return None
    if kind in _COMPARISONS:
        return _COMPARISONS[kind](column, literal)
    if kind in _TEXTS and pa.types.is_string(arrow) and one.value:
        found = _TEXTS[kind](column, one.value)
        return found & _starting_with(column, one.value) if kind == "StringStartsWith" else found
    return None


def _negated(child: Any, columns: pa.Schema) -> pc.Expression | None:
    """Of the negated filters those that say something of whole files."""
    kind = type(child).__name__
    if kind == "IsNull":
        return _valid(child, columns)
    if kind in ("EqualTo", "In"):
        found = _condition(child, columns)
        return None if found is None else ~found
    return None


def _valid(one: Any, columns: pa.Schema) -> pc.Expression | None:
    if len(one.attribute) != 1 or columns.get_field_index(one.attribute[0]) < 0:
        return None
    return pc.field(one.attribute[0]).is_valid()


def _starting_with(column: pc.Expression, prefix: str) -> pc.Expression:
    """The range of texts with a prefix, which the bounds of a file can rule out."""
    found = column >= prefix
    if prefix[-1] < _BOUNDARY:
        found = found & (column < prefix[:-1] + chr(ord(prefix[-1]) + 1))
    return found


def _is_comparable(arrow: pa.DataType) -> bool:
    """Whether Spark and Arrow compare values of the type alike, and Spark sees them whole."""
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
    """The value in the column's type; None where it does not fit exactly."""
    if value is None:
        return None
    given = pa.timestamp("us", arrow.tz) if pa.types.is_timestamp(arrow) else arrow
    try:
        return pa.scalar(value, given).cast(arrow)
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
