"""Finds a common type for values of different types, for comparisons and for the branches of CASE."""

from collections.abc import Callable, Sequence
from datetime import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.sql.compute.calls import LOCAL_CONTEXT, Context
from bucketline.state.sql.compute.casts import cast_to
from bucketline.state.sql.compute.moments import INSTANT, by_array, instants_of, stamps_of
from bucketline.state.sql.compute.numbers import Value, common_numbers, is_number, to_number
from bucketline.state.types.arrow import logical_type
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataType, TypeRoot
from bucketline.state.types.recast import recast

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compared(sign: str, left: Value, right: Value, context: Context = LOCAL_CONTEXT) -> Value:
    """Returns the result of the comparison `left sign right`. If one side is a single string for all rows and the other
    side is a date or a time, the string is parsed as a date or a time.
    """
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.bool_())
    if not context.has_instants:
        left, right = _read_as(left, right.type), _read_as(right, left.type)
    left, right = _as_other(left, right.type, context), _as_other(_needed(right, left), left.type, context)
    target = common_type([left.type, right.type], context)
    left, right = to_common(left, target, context), to_common(right, target, context)
    holds = _COMPARE[sign](left, right)
    if not pa.types.is_floating(target):
        return holds
    # As in Spark, NaN is greater than every number, and equals itself.
    nan_left, nan_right = pc.is_nan(left), pc.is_nan(right)
    if sign in ("=", "<=", ">="):
        holds = pc.or_kleene(holds, pc.and_kleene(nan_left, nan_right))
    if sign == "<>":
        holds = pc.and_kleene(holds, pc.invert(pc.and_kleene(nan_left, nan_right)))
    if sign in (">", ">="):
        holds = pc.or_kleene(holds, pc.and_kleene(nan_left, pc.invert(nan_right)))
    if sign in ("<", "<="):
        holds = pc.or_kleene(holds, pc.and_kleene(nan_right, pc.invert(nan_left)))
    return holds


def _needed(right: Value, left: Value) -> Value:
    """Returns the strings on the right side of a comparison, with null for the rows whose left side is null. In these
    rows, as in Spark, the string is not converted, so it may be invalid.
    """
    if not (isinstance(right, pa.Array) and isinstance(left, pa.Array) and pa.types.is_string(right.type)):
        return right
    if pa.types.is_string(left.type) or not left.null_count:
        return right
    return if_else(left.is_valid(), right, None)


def _as_other(value: Value, other: pa.DataType, context: Context) -> Value:
    """Converts a string to the type `other`, with which it is compared. If `other` is a numeric type, the string
    becomes a BIGINT or DOUBLE. A value that is no string is returned unchanged.
    """
    if not pa.types.is_string(value.type) or pa.types.is_string(other):
        return value
    if pa.types.is_timestamp(other):
        if not context.has_instants:
            return value
        return by_array(value, lambda texts: stamps_of(texts, context, wanted=pa.timestamp("us", other.tz)))
    wanted = _TEXT_AS.get("i" if pa.types.is_integer(other) else "n" if is_number(other) else str(other))
    if wanted is None:
        return value
    return by_array(value, lambda texts: cast_to(texts, wanted, context))


_TEXT_AS = {
    "i": DataType(TypeRoot.BIGINT),
    "n": DataType(TypeRoot.DOUBLE),
    "bool": DataType(TypeRoot.BOOLEAN),
    "date32[day]": DataType(TypeRoot.DATE),
}


def common_type(types: Sequence[pa.DataType], context: Context = LOCAL_CONTEXT) -> pa.DataType:
    """Returns the common type to which values of these types are converted. Raises ArrowTypeError if there is none."""
    known = list(dict.fromkeys(t for t in types if not pa.types.is_null(t)))
    if not known:
        return pa.null()
    if len(known) == 1:
        return known[0]
    if all(map(is_number, known)):
        return common_numbers(known)
    if all(pa.types.is_timestamp(t) or pa.types.is_date(t) for t in known):
        stamps = [t for t in known if pa.types.is_timestamp(t)]
        if context.has_instants and any(t.tz for t in stamps):
            return INSTANT
        if len({t.tz for t in stamps}) == 1:
            return max(stamps, key=lambda t: ("s", "ms", "us", "ns").index(t.unit))
    nested = _common_nested(known, context)
    if nested is not None:
        return nested
    raise pa.ArrowTypeError(f"{' and '.join(str(t) for t in known)} have no common type; use CAST")


def _common_nested(types: Sequence[pa.DataType], context: Context) -> pa.DataType | None:
    """Returns the common type of arrays, of maps, or of structs with the same names; None for other types."""
    if all(map(pa.types.is_map, types)):
        keys = common_type([t.key_type for t in types], context)
        return pa.map_(keys, common_type([t.item_type for t in types], context))
    if all(map(pa.types.is_list, types)):
        return pa.list_(common_type([t.value_type for t in types], context))
    names = [f.name for f in types[0]] if pa.types.is_struct(types[0]) else []
    if names and all(pa.types.is_struct(t) and [f.name for f in t] == names for t in types):
        parts = zip(*([f.type for f in t] for t in types), strict=True)
        return pa.struct([pa.field(n, common_type(part, context)) for n, part in zip(names, parts, strict=True)])
    return None


def to_common(value: Value, target: pa.DataType, context: Context = LOCAL_CONTEXT) -> Value:
    """Converts a value to a type that `common_type` has returned."""
    if is_number(target) and is_number(value.type):
        return to_number(value, target)
    if context.has_instants and target == INSTANT and value.type != target and not pa.types.is_null(value.type):
        return by_array(value, lambda moments: instants_of(moments, context))
    return value if value.type == target else value.cast(target)


def _read_as(value: Value, other: pa.DataType) -> Value:
    if isinstance(value, pa.Scalar) and pa.types.is_string(value.type) and pa.types.is_time(other):
        try:
            return pa.scalar(time.fromisoformat(value.as_py()), other)
        except ValueError as e:
            raise pa.ArrowInvalid(f"'{value}' is no time") from e
    if isinstance(value, pa.Scalar) and pa.types.is_string(value.type) and pa.types.is_temporal(other):
        wanted = logical_type(other, nullable=True)
        return recast(pa.array([value.as_py()]), logical_type(value.type, nullable=True), wanted)[0]
    return value
