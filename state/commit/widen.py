"""Decides to which types a column may change, and whether an existing table can be used instead of a table that should
be created.

A column may change to a type that can hold every value of the old type exactly. Paimon also accepts changes that cut
values off (BIGINT to INT), or that only some readers support. This library reads tables with such changes, but does not
make such changes.
Source: Paimon 2.0 DataTypeCasts (the implicit casts, except casts that round).
"""

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.logical import DataType, TypeRoot

_WHOLE = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INT: 10, TypeRoot.BIGINT: 19}
"""The number of decimal digits of each integer type."""

_EXACT_IN = {TypeRoot.FLOAT: 5, TypeRoot.DOUBLE: 10}
"""The number of decimal digits of integers that each floating-point type can hold exactly."""

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_TIMES = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def narrows(old: DataType, new: DataType) -> str | None:
    """Returns the reason why the type `new` cannot hold all values of `old`; None if it can. Nullability is ignored."""
    if old.root in _WHOLE:
        return _whole_number(old, new)
    if old.root is TypeRoot.FLOAT and new.root is TypeRoot.DOUBLE:
        return None
    if old.root is TypeRoot.DECIMAL and new.root is TypeRoot.DECIMAL:
        return _decimal(old, new)
    for family in (_TEXTS, _BYTES):
        if old.root in family and new.root in family:
            return _length(old, new, family)
    if old.root is new.root and old.root in _TIMES:
        return _time(old, new)
    if old.root is new.root and old.root is TypeRoot.TIME:
        return None if (new.precision or 0) >= (old.precision or 0) else "the precision would shrink"
    if old.root is TypeRoot.ARRAY and new.root is TypeRoot.ARRAY:
        return _inner(old.element, new.element)
    if old.root is TypeRoot.MAP and new.root is TypeRoot.MAP:
        return _same(old.key, new.key) or _inner(old.value, new.value)
    if old.root is TypeRoot.ROW and new.root is TypeRoot.ROW:
        return "change the fields of a ROW one by one, by their paths"
    return None if old.as_nullable() == new.as_nullable() else "not every value has one of the new type"


def _whole_number(old: DataType, new: DataType) -> str | None:
    digits = _WHOLE[old.root]
    if new.root in _WHOLE:
        return None if _WHOLE[new.root] >= digits else "the range would shrink"
    if new.root in _EXACT_IN:
        return None if _EXACT_IN[new.root] >= digits else "large numbers would be rounded"
    if new.root is TypeRoot.DECIMAL:
        whole = (new.precision or 0) - (new.scale or 0)
        return None if whole >= digits else f"it needs {digits} digits before the point"
    return "not every value has one of the new type"


def _decimal(old: DataType, new: DataType) -> str | None:
    assert old.precision is not None and old.scale is not None and new.precision is not None and new.scale is not None
    if new.scale < old.scale:
        return "the scale would shrink"
    return None if new.precision - new.scale >= old.precision - old.scale else "digits before the point would be lost"


def _length(old: DataType, new: DataType, family: tuple[TypeRoot, TypeRoot]) -> str | None:
    assert old.length is not None and new.length is not None
    if new.length < old.length:
        return "the length would shrink"
    fixed, varying = family
    return "values would have to be padded" if old.root is varying and new.root is fixed else None


def _time(old: DataType, new: DataType) -> str | None:
    assert old.precision is not None and new.precision is not None
    if new.precision < old.precision:
        return "the precision would shrink"
    if new.precision > 6 >= old.precision:
        return "nanoseconds reach from 1677 to 2262 only"
    return None


def _inner(old: DataType | None, new: DataType | None) -> str | None:
    assert old is not None and new is not None
    if old.nullable and not new.nullable:
        return "elements may be null"
    return narrows(old, new)


def _same(old: DataType | None, new: DataType | None) -> str | None:
    return None if old == new else "the key of a MAP cannot change"


def misfit(there: TableSchema, wanted: TableSchema) -> str | None:
    """Returns the reason why the existing table `there` cannot take the rows of the table `wanted`; None if it can.

    The keys must be equal, and the existing table must have each column of `wanted`, with a type that can hold its
    values. A column of the existing table must be nullable if `wanted` lacks the column, or if the column is nullable
    in `wanted`.
    """
    keys = (("primary key", wanted.primary_keys, there.primary_keys),)
    for what, own, other in (*keys, ("partition", wanted.partition_keys, there.partition_keys)):
        if own != other:
            return f"its {what} is ({', '.join(other)}), and not ({', '.join(own)})"
    known = {f.name: f.type for f in there.fields}
    for column in wanted.fields:
        if column.name not in known:
            return f"it has no column {column.name}"
        if not _holds(known[column.name], column.type):
            return f"its column {column.name} is {known[column.name]}, which does not hold all values of {column.type}"
    required = {f.name for f in wanted.fields if not f.type.nullable}
    strict = [f.name for f in there.fields if not f.type.nullable and f.name not in required]
    return f"its column {strict[0]} is NOT NULL, and rows may have no value for it" if strict else None


def _holds(there: DataType, wanted: DataType) -> bool:
    """Returns True if a column of type `there` can hold all values of type `wanted`, apart from nulls."""
    if there.root is TypeRoot.ROW and wanted.root is TypeRoot.ROW:
        known = {f.name: f.type for f in there.fields}
        return all(f.name in known and _holds(known[f.name], f.type) for f in wanted.fields)
    if there.root is wanted.root and there.root is TypeRoot.ARRAY:
        assert there.element is not None and wanted.element is not None
        return _holds(there.element, wanted.element)
    if there.root is wanted.root and there.root is TypeRoot.MAP:
        assert there.key and wanted.key and there.value and wanted.value
        return _holds(there.key, wanted.key) and _holds(there.value, wanted.value)
    return narrows(wanted, there) is None
