"""The functions of SQL expressions, by the names that Spark gives them.

The error for an unknown function names it; the error for an unsupported argument shows the call.
"""

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.sql.compute.calls import Evaluate, Function, FunctionCall, literal
from bucketline.state.sql.compute.hashes import HASH_FUNCTIONS
from bucketline.state.sql.compute.json_paths import JSON_FUNCTIONS
from bucketline.state.sql.compute.meeting import common_type, compared, to_common
from bucketline.state.sql.compute.moments import by_array
from bucketline.state.sql.compute.nested import NESTED_FUNCTIONS
from bucketline.state.sql.compute.numbers import Value, arithmetic, is_number, rounded
from bucketline.state.sql.compute.regexes import REGEX_FUNCTIONS
from bucketline.state.sql.compute.texts import TEXT_FUNCTIONS
from bucketline.state.sql.compute.times import TIME_FUNCTIONS
from bucketline.state.sql.dialect import DIALECT
from bucketline.state.types.if_else import if_else


def function_call(node: Any) -> FunctionCall | None:
    """Takes a node of sqlglot's tree. Returns the function call that the node stands for, whatever its spelling; None
    if the node is no function call.
    """
    if isinstance(node, exp.Anonymous):
        return FunctionCall(str(node.this).lower(), tuple(node.expressions), node)
    read = _SPELLED.get(type(node))
    return None if read is None else read(node)


def call_function(call: FunctionCall, value: Evaluate) -> Value:
    """Returns the result of a function. Raises OptionError for an unknown function, and for an argument that is not
    supported.
    """
    function = FUNCTIONS.get(call.name)
    if function is None:
        near = did_you_mean(call.name, FUNCTIONS) or ""
        raise OptionError(f"function {call.name} is not supported{near}", key="expression", function=call.name)
    if not function.least <= len(call.arguments) <= function.most:
        raise OptionError(
            f"{call.text!r}: {call.name} takes {function.takes}, but {len(call.arguments)} are given", key="expression"
        )
    return function.compute(call, value)


def _special(name: str, *keys: str, notes: tuple[str, ...] = ()) -> Callable[[Any], FunctionCall]:
    """Returns a function that converts a node with a special grammar, such as TRIM(BOTH 'x' FROM a), to a call of the
    function `name`. `keys` are the names of the node's parts that become the arguments, in order. `notes` are the names
    of parts that are ignored.
    """

    def read(node: Any) -> FunctionCall:
        for key, said in node.args.items():
            if said and key not in keys and key not in (*notes, *_NOTES):
                raise OptionError(f"{node.sql(DIALECT)!r} is not supported", key="expression")
        arguments = [node.args[key] for key in keys if node.args.get(key) is not None]
        flat = [n for part in arguments for n in (part if isinstance(part, list) else [part])]
        return FunctionCall(name, tuple(flat), node)

    return read


def _trim_call(node: Any) -> FunctionCall:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "btrim")
    if node.expression and not node.args.get("position") and "from" not in node.meta:
        # In the older dialect, trim(a, 'x') removed 'x' from a. In Spark it removes a from 'x'.
        text = node.sql(DIALECT)
        raise OptionError(
            f"trim of two arguments ({text}) is not supported; write trim(BOTH 'x' FROM text)", key="expression"
        )
    arguments = (node.this,) if not node.expression else (node.this, node.expression)
    return FunctionCall(name, arguments, node)


def _like_call(node: Any) -> FunctionCall:
    escape: tuple[Any, ...] = ()
    whole = node
    if isinstance(node, exp.Escape):
        escape, node = (node.expression,), node.this
    if type(node) is not exp.Like:
        raise OptionError(f"{whole.sql(DIALECT)!r} is not supported", key="expression")
    if isinstance(node.expression, exp.Any | exp.All):
        raise OptionError(f"{whole.sql(DIALECT)!r} is not supported; join several LIKE by OR", key="expression")
    return FunctionCall("not like" if node.args.get("negate") else "like", (node.this, node.expression, *escape), whole)


def _extract_call(node: Any) -> FunctionCall:
    return FunctionCall("date_part", (exp.Literal.string(str(node.this.name)), node.expression), node)


_NOTES = ("safe", "coalesce", "ignore_nulls", "charset", "null_if_pos_overflow")
"""Parts of a node that sqlglot adds for its dialect, although the user did not write them."""


def _json_call(node: Any) -> FunctionCall:
    """Converts `payload:a.b[0]` to a function call."""
    steps = []
    for part in node.expression.expressions:
        if isinstance(part, exp.JSONPathKey) and isinstance(part.this, str):
            steps.append(f"['{part.this}']")
        elif isinstance(part, exp.JSONPathSubscript) and isinstance(part.this, int):
            steps.append(f"[{part.this}]")
        elif not isinstance(part, exp.JSONPathRoot):
            raise OptionError(f"{node.sql(DIALECT)!r} is not supported", key="expression")
    return FunctionCall("get_json_object", (node.this, exp.Literal.string("$" + "".join(steps))), node)


def _map_call(node: Any) -> FunctionCall:
    keys, items = node.args["keys"].expressions, node.args["values"].expressions
    return FunctionCall("map", tuple(part for pair in zip(keys, items, strict=True) for part in pair), node)


_SPELLED: Mapping[type[Any], Callable[[Any], FunctionCall]] = {
    exp.Trim: _trim_call,
    exp.Substring: _special("substring", "this", "start", "length"),
    exp.Like: _like_call,
    exp.Escape: _like_call,
    exp.RegexpLike: _special("rlike", "this", "expression"),
    exp.DPipe: _special("concat", "this", "expression"),
    exp.Ceil: _special("ceil", "this", "decimals"),
    exp.Floor: _special("floor", "this", "decimals"),
    exp.Extract: _extract_call,
    exp.StrPosition: _special("locate", "substr", "this", "position"),
    exp.VarMap: _map_call,
    exp.Chr: _special("chr", "expressions"),
    exp.JSONExtract: _json_call,
    exp.CurrentTimestamp: _special("current_timestamp"),
    exp.CurrentDate: _special("current_date"),
}


def _coalesce(call: FunctionCall, value: Evaluate) -> Value:
    return pc.coalesce(*_in_common(call, value))


def _nullif(call: FunctionCall, value: Evaluate) -> Value:
    left, right = (value(node) for node in call.arguments)
    same = pc.fill_null(compared("=", left, right, value.context), False)
    return if_else(same, pa.scalar(None, left.type), left)


def _nvl2(call: FunctionCall, value: Evaluate) -> Value:
    given, then, other = (value(node) for node in call.arguments)
    target = common_type([then.type, other.type], value.context)
    return if_else(pc.is_valid(given), to_common(then, target, value.context), to_common(other, target, value.context))


def _greatest(call: FunctionCall, value: Evaluate) -> Value:
    values = _in_common(call, value)
    greatest = _chosen(pc.max_element_wise, values)
    if not pa.types.is_floating(greatest.type):
        return greatest
    # Arrow ignores NaN here, but in Spark NaN is greater than every number.
    is_nan = reduce(pc.or_, [pc.fill_null(pc.is_nan(v), False) for v in values])
    return if_else(is_nan, pa.scalar(math.nan, greatest.type), greatest)


def _least(call: FunctionCall, value: Evaluate) -> Value:
    return _chosen(pc.min_element_wise, _in_common(call, value))


def _chosen(choose: Callable[..., Value], values: list[Value]) -> Value:
    """Returns in each row the greatest or least of the values, as `choose` says. Raises ArrowNotImplementedError for
    types without an order.
    """
    kind = values[0].type
    if pa.types.is_nested(kind):
        raise pa.ArrowNotImplementedError(f"the greatest and the least of {kind} are not supported")
    # Arrow's functions do not support booleans and instants, but they support the numbers as which these are stored.
    plain = pa.int8() if pa.types.is_boolean(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
    return choose(*(v.cast(plain) for v in values), skip_nulls=True).cast(kind)


def _in_common(call: FunctionCall, value: Evaluate) -> list[Value]:
    values = [value(n) for n in call.arguments]
    target = common_type([v.type for v in values], value.context)
    return [to_common(v, target, value.context) for v in values]


def _number_of(call: FunctionCall, value: Evaluate) -> Value:
    number = value(call.arguments[0])
    if pa.types.is_null(number.type):
        return number.cast(pa.float64())
    if not is_number(number.type):
        raise pa.ArrowTypeError(f"{call.text!r} does not support {number.type}; use CAST")
    return number


def _abs(call: FunctionCall, value: Evaluate) -> Value:
    return pc.abs_checked(_number_of(call, value))


def _round(call: FunctionCall, value: Evaluate) -> Value:
    digits = 0 if len(call.arguments) == 1 else literal(call.arguments[1], int)
    return rounded(_number_of(call, value), digits)


def _to_whole(mode: str) -> Callable[[FunctionCall, Evaluate], Value]:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        number = _number_of(call, value)
        if pa.types.is_integer(number.type):
            return number.cast(pa.int64())
        whole = rounded(number, 0, mode)
        return by_array(whole, _as_java_casts) if pa.types.is_floating(whole.type) else whole

    return compute


def _as_java_casts(whole: pa.Array) -> pa.Array:
    """Converts doubles to BIGINT, as Spark's FLOOR and CEIL do: NaN becomes 0, and a number that is too large becomes
    the nearest BIGINT.
    """
    is_null, numbers = np.asarray(whole.is_null()), np.nan_to_num(np.asarray(whole.fill_null(0.0)), nan=0.0)
    inside = np.clip(numbers, -(2.0**63), 2.0**63 - 1024)
    found = np.where(numbers >= 2.0**63, 2**63 - 1, inside.astype(np.int64))
    return pa.array(found, pa.int64(), mask=is_null)


def _two(sign: str) -> Callable[[FunctionCall, Evaluate], Value]:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        left, right = (value(node) for node in call.arguments)
        if pa.types.is_null(left.type) or pa.types.is_null(right.type):
            return pa.scalar(None)
        if not is_number(left.type) or not is_number(right.type):
            raise pa.ArrowTypeError(f"{call.text!r} cannot be computed with {left.type} and {right.type}; use CAST")
        return arithmetic(sign, left, right)

    return compute


def _cast_call(type_name: str) -> Callable[[FunctionCall, Evaluate], Value]:
    """Returns a function that computes `int(x)` or a similar call as CAST(x AS INT)."""

    def compute(call: FunctionCall, value: Evaluate) -> Value:
        return value(exp.cast(call.arguments[0].copy(), type_name, dialect=DIALECT))

    return compute


_CAST_NAMES = {
    name.lower(): name
    for name in "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE STRING DATE TIMESTAMP BINARY".split()  # noqa: SIM905
}

FUNCTIONS: Mapping[str, Function] = {
    "coalesce": Function(1, 255, _coalesce),
    "nvl": Function(2, 2, _coalesce),
    "ifnull": Function(2, 2, _coalesce),
    "nvl2": Function(3, 3, _nvl2),
    "nullif": Function(2, 2, _nullif),
    "isnull": Function(1, 1, lambda call, value: pc.is_null(value(call.arguments[0]))),
    "isnotnull": Function(1, 1, lambda call, value: pc.is_valid(value(call.arguments[0]))),
    "greatest": Function(2, 255, _greatest),
    "least": Function(2, 255, _least),
    "abs": Function(1, 1, _abs),
    "round": Function(1, 2, _round),
    "floor": Function(1, 1, _to_whole("down")),
    "ceil": Function(1, 1, _to_whole("up")),
    "ceiling": Function(1, 1, _to_whole("up")),
    "mod": Function(2, 2, _two("%")),
    **TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
    **REGEX_FUNCTIONS,
    **HASH_FUNCTIONS,
    **JSON_FUNCTIONS,
    **NESTED_FUNCTIONS,
    **{name: Function(1, 1, _cast_call(text)) for name, text in _CAST_NAMES.items()},
}
"""All functions, by their names in lower case."""
