"""The functions of SQL expressions, and how values of different types meet in comparisons and branches.

A function that is not here is refused by its name, one with an argument that is not supported by its text.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import time
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import whole_number
from bucketline.state.types.arrow import logical_type
from bucketline.state.types.if_else import if_else
from bucketline.state.types.recast import recast
from bucketline.state.types.sql_like import match_like
from bucketline.state.types.sql_numbers import Value, common_numbers, is_number, rounded, to_number

Evaluate = Callable[[Any], Value]
"""The value of a node."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compared(sign: str, left: Value, right: Value) -> Value:
    """`left sign right`. Text that is one value for all rows is read as a date or time where the other side is one."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.bool_())
    left, right = _read_as(left, right.type), _read_as(right, left.type)
    target = common_type([left.type, right.type])
    left, right = to_common(left, target), to_common(right, target)
    holds = _COMPARE[sign](left, right)
    if not pa.types.is_floating(target):
        return holds
    # As Spark orders them: NaN is greater than every number, and equals itself.
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


def common_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type in which values of these types meet. Raises ArrowTypeError where there is none."""
    known = list(dict.fromkeys(t for t in types if not pa.types.is_null(t)))
    if not known:
        return pa.null()
    if len(known) == 1:
        return known[0]
    if all(map(is_number, known)):
        return common_numbers(known)
    if all(pa.types.is_timestamp(t) or pa.types.is_date(t) for t in known):
        stamps = [t for t in known if pa.types.is_timestamp(t)]
        if len({t.tz for t in stamps}) == 1:
            return max(stamps, key=lambda t: ("s", "ms", "us", "ns").index(t.unit))
    raise pa.ArrowTypeError(f"{' and '.join(str(t) for t in known)} do not go together; use CAST")


def to_common(value: Value, target: pa.DataType) -> Value:
    """The value in a type that `common_type` has found."""
    if is_number(target) and is_number(value.type):
        return to_number(value, target)
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


def is_function(node: Any) -> bool:
    """Whether `call_function` knows the function."""
    return type(node) in _FUNCTIONS


def call_function(node: Any, value: Evaluate) -> Value:
    """The result of a function. Raises OptionError for an argument that is not understood."""
    allowed, call = _FUNCTIONS[type(node)]
    if any(said and key not in allowed and key not in _NOTES for key, said in node.args.items()):
        raise OptionError(f"{node.sql()!r} is not supported", key="expression")
    return call(node, value)


def _text(node: Any, value: Evaluate) -> Value:
    text = value(node)
    if pa.types.is_null(text.type):
        return pa.scalar(None, pa.string())
    if not pa.types.is_string(text.type):
        raise pa.ArrowTypeError(f"{node.sql()!r} is {text.type}, not text; use CAST(... AS STRING)")
    return text


def _of_text(function: Callable[..., Any]) -> Callable[[Any, Evaluate], Value]:
    return lambda node, value: function(_text(node.this, value))


def _upper(text: Value) -> Value:
    """The text in capitals: also those that are several signs, as SS for ß, which Arrow does not make."""
    return pc.utf8_upper(_respelled(text, _long_capitals()))


def _lower(text: Value) -> Value:
    return pc.utf8_lower(_respelled(text, _LONG_SMALL_LETTERS))


@cache
def _long_capitals() -> Mapping[str, str]:
    """The signs whose capitals are several signs; looked for when they are first needed."""
    return {sign: sign.upper() for sign in map(chr, range(0x80, 0x10000)) if len(sign.upper()) > 1}


def _respelled(text: Value, signs: Mapping[str, str]) -> Value:
    if not pc.any(pc.match_substring_regex(text, f"[{''.join(signs)}]")).as_py():
        return text
    return reduce(lambda found, sign: pc.replace_substring(found, sign, signs[sign]), signs, text)


def _concat(node: Any, value: Evaluate) -> Value:
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    return pc.binary_join_element_wise(*(_text(p, value) for p in parts), "")


def _trim(node: Any, value: Evaluate) -> Value:
    trim = {"LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}.get(node.args.get("position") or "", pc.utf8_trim)
    characters = " " if node.expression is None or not node.expression else _constant(node.expression, str)
    return trim(_text(node.this, value), characters=characters)


def _substring(node: Any, value: Evaluate) -> Value:
    start = _constant(node.args["start"], int)
    if start < 1:
        raise OptionError(f"{node.sql()!r}: characters are counted from 1", key="expression")
    length = node.args.get("length")
    stop = None if length is None else start - 1 + max(0, _constant(length, int))
    return pc.utf8_slice_codeunits(_text(node.this, value), start - 1, stop)


def _replace(node: Any, value: Evaluate) -> Value:
    text, old, new = _text(node.this, value), _constant(node.expression, str), node.args.get("replacement")
    if not old:
        return text  # Arrow would put the new text in for ever
    return pc.replace_substring(text, old, "" if new is None else _constant(new, str))


def _like(node: Any, value: Evaluate) -> Value:
    escape = "\\"
    if isinstance(node, exp.Escape):
        escape, node = _constant(node.expression, str), node.this
    matches = match_like(_text(node.this, value), _constant(node.expression, str), escape)
    return pc.invert(matches) if node.args.get("negate") else matches


def _coalesce(node: Any, value: Evaluate) -> Value:
    return pc.coalesce(*_in_common(node, value))


def _nullif(node: Any, value: Evaluate) -> Value:
    left, right = value(node.this), value(node.expression)
    same = pc.fill_null(compared("=", left, right), False)
    return if_else(same, pa.scalar(None, left.type), left)


def _greatest(node: Any, value: Evaluate) -> Value:
    values = _in_common(node, value)
    greatest = pc.max_element_wise(*values, skip_nulls=True)
    if not pa.types.is_floating(greatest.type):
        return greatest
    # Arrow passes over NaN, which is greater than every number, as Spark orders them.
    is_nan = reduce(pc.or_, [pc.fill_null(pc.is_nan(v), False) for v in values])
    return if_else(is_nan, pa.scalar(math.nan, greatest.type), greatest)


def _least(node: Any, value: Evaluate) -> Value:
    return pc.min_element_wise(*_in_common(node, value), skip_nulls=True)


def _in_common(node: Any, value: Evaluate) -> list[Value]:
    values = [value(n) for n in (node.this, *node.expressions)]
    target = common_type([v.type for v in values])
    return [to_common(v, target) for v in values]


def _number_of(node: Any, value: Evaluate) -> Value:
    number = value(node.this)
    if not is_number(number.type):
        raise pa.ArrowTypeError(f"{node.sql()!r} is asked of {number.type}")
    return number


def _abs(node: Any, value: Evaluate) -> Value:
    return pc.abs_checked(_number_of(node, value))


def _round(node: Any, value: Evaluate) -> Value:
    digits = node.args.get("decimals")
    return rounded(_number_of(node, value), 0 if digits is None else _constant(digits, int))


def _to_whole(mode: str) -> Callable[[Any, Evaluate], Value]:
    def call(node: Any, value: Evaluate) -> Value:
        whole = rounded(_number_of(node, value), 0, mode)
        return whole.cast(pa.int64()) if pa.types.is_floating(whole.type) else whole

    return call


def _part(function: Callable[..., Any]) -> Callable[[Any, Evaluate], Value]:
    return lambda node, value: function(_moment(node.this, value))


def _moment(node: Any, value: Evaluate) -> Value:
    # Some dialects wrap the argument of YEAR and its like.
    moment = value(node.this if isinstance(node, exp.TsOrDsToDate) else node)
    if not (pa.types.is_date(moment.type) or pa.types.is_timestamp(moment.type)):
        raise pa.ArrowTypeError(f"{node.sql()!r} is {moment.type}, not a date or a time")
    return moment


def _extract(node: Any, value: Evaluate) -> Value:
    name = str(node.this.name).upper()
    if name not in _PARTS:
        raise OptionError(f"{node.sql()!r}: {name} is not supported; there are {', '.join(_PARTS)}", key="expression")
    return _PARTS[name](_moment(node.expression, value))


def _constant(node: Any, kind: type[Any]) -> Any:
    """The literal as it stands. Raises OptionError for anything else."""
    sign = 1
    if isinstance(node, exp.Neg) and kind is int:
        sign, node = -1, node.this
    if not isinstance(node, exp.Literal) or node.is_string is not (kind is str):
        raise OptionError(f"{node.sql()!r} has to be a literal here", key="expression")
    try:
        return sign * whole_number(node.this) if kind is int else str(node.this)
    except ValueError as e:
        raise OptionError(f"{node.sql()!r} has to be a whole number here", key="expression") from e


_LONG_SMALL_LETTERS = {"\u0130": "i\u0307"}

_PARTS: Mapping[str, Callable[..., Any]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "DAY": pc.day,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}

_NOTES = ("safe", "coalesce", "ignore_nulls")
"""What sqlglot says of its dialect; nothing that the user wrote."""

_THIS = frozenset({"this"})
_TWO = frozenset({"this", "expression"})
_MANY = frozenset({"this", "expressions"})
_FUNCTIONS: Mapping[type[Any], tuple[frozenset[str], Callable[[Any, Evaluate], Value]]] = {
    exp.Upper: (_THIS, _of_text(_upper)),
    exp.Lower: (_THIS, _of_text(_lower)),
    exp.Length: (_THIS, _of_text(pc.utf8_length)),
    exp.Reverse: (_THIS, _of_text(pc.utf8_reverse)),
    exp.Concat: (_MANY, _concat),
    exp.DPipe: (_TWO, _concat),
    exp.Trim: (frozenset({"this", "expression", "position"}), _trim),
    exp.Substring: (frozenset({"this", "start", "length"}), _substring),
    exp.Replace: (frozenset({"this", "expression", "replacement"}), _replace),
    exp.Like: (frozenset({"this", "expression", "negate"}), _like),
    exp.Escape: (_TWO, _like),
    exp.Coalesce: (_MANY, _coalesce),
    exp.Nullif: (_TWO, _nullif),
    exp.Greatest: (_MANY, _greatest),
    exp.Least: (_MANY, _least),
    exp.Abs: (_THIS, _abs),
    exp.Round: (frozenset({"this", "decimals"}), _round),
    exp.Floor: (_THIS, _to_whole("down")),
    exp.Ceil: (_THIS, _to_whole("up")),
    exp.Year: (_THIS, _part(pc.year)),
    exp.Month: (_THIS, _part(pc.month)),
    exp.Day: (_THIS, _part(pc.day)),
    exp.Extract: (_TWO, _extract),
}
