"""SQL functions on strings."""

from collections.abc import Callable, Mapping
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.calls import Evaluate, Function, FunctionCall, literal
from bucketline.state.sql.compute.casts import text_of_values
from bucketline.state.sql.compute.like import match_like
from bucketline.state.sql.compute.moments import by_array
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.dialect import DIALECT
from bucketline.state.types.if_else import if_else


def text_of(node: Any, value: Evaluate) -> Value:
    """Returns the value of a node as a string. Raises ArrowTypeError for a type that is not implicitly converted to a
    string.
    """
    text = value(node)
    if pa.types.is_null(text.type):
        return pa.scalar(None, pa.string())
    if pa.types.is_string(text.type):
        return text
    if pa.types.is_nested(text.type) or pa.types.is_time(text.type) or pa.types.is_binary(text.type):
        raise pa.ArrowTypeError(f"{node.sql(DIALECT)!r} is {text.type}, not a string; use CAST(... AS STRING)")
    return by_array(text, lambda values: text_of_values(values, value.context))


def _of_text(function: Callable[..., Any]) -> Callable[[FunctionCall, Evaluate], Value]:
    return lambda call, value: function(text_of(call.arguments[0], value))


def _upper(text: Value) -> Value:
    """Converts strings to upper case. Unlike Arrow's function, this function supports letters whose upper case has
    several letters, such as SS for ß.
    """
    return pc.utf8_upper(_respelled(text, _long_capitals()))


def _lower(text: Value) -> Value:
    return pc.utf8_lower(_respelled(text, _LONG_SMALL_LETTERS))


@cache
def _long_capitals() -> Mapping[str, str]:
    """Returns the letters whose upper case has several letters. The letters are computed when they are first needed."""
    return {sign: sign.upper() for sign in map(chr, range(0x80, 0x10000)) if len(sign.upper()) > 1}


def _respelled(text: Value, signs: Mapping[str, str]) -> Value:
    if not pc.any(pc.match_substring_regex(text, f"[{''.join(signs)}]")).as_py():
        return text
    return reduce(lambda found, sign: pc.replace_substring(found, sign, signs[sign]), signs, text)


def _concat(call: FunctionCall, value: Evaluate) -> Value:
    return pc.binary_join_element_wise(*(text_of(p, value) for p in call.arguments), "")


def _concat_ws(call: FunctionCall, value: Evaluate) -> Value:
    """Joins the strings that are not null. Arrow's own option to skip nulls loses rows in which all strings are
    null.
    """
    separator, *parts = (text_of(p, value) for p in call.arguments)

    def joined(before: Value, text: Value) -> Value:
        return pc.coalesce(pc.binary_join_element_wise(before, text, separator), before, text)

    found = pc.coalesce(reduce(joined, parts), "")
    return if_else(pc.is_valid(separator), found, pa.scalar(None, pa.string()))


def _repeat(call: FunctionCall, value: Evaluate) -> Value:
    return pc.binary_repeat(text_of(call.arguments[0], value), max(0, literal(call.arguments[1], int)))


def _trim(function: Callable[..., Any]) -> Callable[[FunctionCall, Evaluate], Value]:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        characters = " " if len(call.arguments) == 1 else literal(call.arguments[1], str)
        return function(text_of(call.arguments[0], value), characters=characters)

    return compute


def _substring(call: FunctionCall, value: Evaluate) -> Value:
    start = literal(call.arguments[1], int)
    length = None if len(call.arguments) < 3 else max(0, literal(call.arguments[2], int))
    text = text_of(call.arguments[0], value)
    if start < 0:
        if length is None:
            return pc.utf8_slice_codeunits(text, start)
        raise OptionError(
            f"{call.text!r}: a length together with a position from the end is not supported", key="expression"
        )
    first = max(0, start - 1)  # The first character is at position 1, and 0 means the same.
    return pc.utf8_slice_codeunits(text, first, None if length is None else first + length)


def _left(call: FunctionCall, value: Evaluate) -> Value:
    return pc.utf8_slice_codeunits(text_of(call.arguments[0], value), 0, max(0, literal(call.arguments[1], int)))


def _right(call: FunctionCall, value: Evaluate) -> Value:
    count, text = literal(call.arguments[1], int), text_of(call.arguments[0], value)
    return pc.utf8_slice_codeunits(text, -count) if count > 0 else pc.utf8_slice_codeunits(text, 0, 0)


def _replace(call: FunctionCall, value: Evaluate) -> Value:
    text, old = text_of(call.arguments[0], value), literal(call.arguments[1], str)
    if not old:
        return text  # With an empty search string, Arrow's function would never end.
    return pc.replace_substring(text, old, "" if len(call.arguments) < 3 else literal(call.arguments[2], str))


def _like(call: FunctionCall, value: Evaluate) -> Value:
    text, pattern, *escape = call.arguments
    sign = literal(escape[0], str) if escape else "\\"
    if len(sign) != 1:
        raise OptionError(f"{call.text!r}: ESCAPE needs a single character", key="expression")
    return match_like(text_of(text, value), literal(pattern, str), sign)


_LONG_SMALL_LETTERS = {"\u0130": "i\u0307"}

_LENGTH = Function(1, 1, _of_text(pc.utf8_length))
TEXT_FUNCTIONS: Mapping[str, Function] = {
    "upper": Function(1, 1, _of_text(_upper)),
    "ucase": Function(1, 1, _of_text(_upper)),
    "lower": Function(1, 1, _of_text(_lower)),
    "lcase": Function(1, 1, _of_text(_lower)),
    "length": _LENGTH,
    "len": _LENGTH,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "reverse": Function(1, 1, _of_text(pc.utf8_reverse)),
    "concat": Function(1, 255, _concat),
    "concat_ws": Function(2, 255, _concat_ws),
    "repeat": Function(2, 2, _repeat),
    "btrim": Function(1, 2, _trim(pc.utf8_trim)),
    "ltrim": Function(1, 2, _trim(pc.utf8_ltrim)),
    "rtrim": Function(1, 2, _trim(pc.utf8_rtrim)),
    "substring": Function(2, 3, _substring),
    "left": Function(2, 2, _left),
    "right": Function(2, 2, _right),
    "replace": Function(2, 3, _replace),
    "like": Function(2, 3, _like),
    "not like": Function(2, 3, lambda call, value: pc.invert(_like(call, value))),
}
