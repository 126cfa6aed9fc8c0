"""Extracts values from JSON strings: the function get_json_object, and the syntax `payload:a.b`.

Source: Spark 4.0 jsonExpressions.scala (GetJsonObject). Numbers are written as Jackson does.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.calls import Evaluate, Function, FunctionCall, literal
from bucketline.state.sql.compute.moments import by_array
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.compute.texts import text_of
from bucketline.state.types.number_text import float_texts

_STEP = re.compile(r"\.([^.\[\]*]+)|\['([^'*]+)'\]|\[(\d+)\]")
_MISSING = object()


@lru_cache(maxsize=256)
def path_of(text: str) -> tuple[str | int, ...]:
    """Returns the steps of a path such as `$.a['b'][0]`: names of fields and indexes of elements. Raises OptionError
    for a path that is not supported, for example with *.
    """
    steps, at = list[str | int](), 1
    while at < len(text) and text.startswith("$"):
        match = _STEP.match(text, at)
        if match is None:
            break
        steps.append(int(match[3]) if match[3] is not None else match[1] or match[2])
        at = match.end()
    if at != len(text):
        raise OptionError(f"the path {text!r} is not supported: write it as $.a['b'][0]", key="expression")
    return tuple(steps)


def _get_json_object(call: FunctionCall, value: Evaluate) -> Value:
    steps = path_of(literal(call.arguments[1], str))

    return by_array(text_of(call.arguments[0], value), lambda texts: json_values(texts, steps))


def json_values(texts: pa.Array, steps: tuple[str | int, ...]) -> pa.Array:
    """Returns for each JSON string the value at a path, as a string; null if the JSON has no value there. A JSON string
    is returned without its quotes, and any other value as JSON.
    """
    # Arrow cannot extract values by path. So Python parses each distinct string once.
    coded = texts.dictionary_encode()
    values = pa.array([_value_at(text, steps) for text in coded.dictionary.to_pylist()], pa.string())
    return values.take(coded.indices)


def _value_at(text: str, steps: tuple[str | int, ...]) -> str | None:
    try:
        found: Any = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    for step in steps:
        if isinstance(step, str):
            found = found.get(step, _MISSING) if isinstance(found, dict) else _MISSING
        else:
            found = found[step] if isinstance(found, list) and step < len(found) else _MISSING
        if found is _MISSING:
            return None
    return None if found is None else found if type(found) is str else _written(found)


class _Number(str):
    """A number in JSON, kept as the text that the JSON has for the number."""


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(k)}:{_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    return {True: "true", False: "false", None: "null"}[value]


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _fraction(text: str) -> _Number:
    return _Number(float_texts(pa.array([float(text)]))[0].as_py())


def _refuse(text: str) -> Any:
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_fraction, parse_constant=_refuse)

JSON_FUNCTIONS: Mapping[str, Function] = {"get_json_object": Function(2, 2, _get_json_object)}
