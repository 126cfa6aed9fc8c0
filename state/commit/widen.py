"""Decides which type a column may change to: a type that holds every value of the old type exactly.

Paimon also accepts changes that cut values (BIGINT to INT), or that only some readers support. Tables with such changes
are read, but the changes are not made here.
Source: Paimon 2.0 DataTypeCasts (the implicit casts, less those that round).
"""

from bucketline.state.types.logical import DataType, TypeRoot

_WHOLE = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INT: 10, TypeRoot.BIGINT: 19}
"""Decimal digits of the whole numbers."""

_EXACT_IN = {TypeRoot.FLOAT: 5, TypeRoot.DOUBLE: 10}
"""Digits of the whole numbers that a floating-point type holds exactly."""

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_TIMES = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def narrows(old: DataType, new: DataType) -> str | None:
    """Returns the reason why not all values of `old` fit `new`; None if they do. Nullability is ignored."""
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
