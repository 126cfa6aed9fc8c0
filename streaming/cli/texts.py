"""Turns the values of a column into strings: JSON for programs, plain text for cells.

The form is always the same: dates and timestamps as in SQL (instants in UTC, with a Z), bytes in hex, decimals and
integers with all digits, NaN and infinities by name, nested values as JSON.
"""

import json
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else

_HEX = np.array([list(b"%02x" % byte) for byte in range(256)], np.uint8)
_JSON_CONTROLS = [(chr(code), json.dumps(chr(code))[1:-1]) for code in range(0x20)]
_SHOWN_CONTROLS = [*_JSON_CONTROLS, *((chr(code), f"\\x{code:02x}") for code in range(0x7F, 0xA0))]
_ODD_FLOATS = (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"))


def json_texts(values: pa.Array) -> pa.Array:
    """Returns each value as a JSON string; a null becomes the string `null`."""
    return pc.fill_null(_json(values), "null")


def cell_texts(values: pa.Array) -> pa.Array:
    """Returns each value as plain text; nulls stay nulls."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return cell_texts(values.dictionary_decode())
    return _json(values) if pa.types.is_nested(kind) else _plain(values)


def printable_texts(texts: pa.Array) -> pa.Array:
    """Returns the strings with control characters escaped, so that data cannot move the cursor of a terminal."""
    return _spelled(texts, _SHOWN_CONTROLS)


def printable(text: str) -> str:
    """Returns a string with control characters escaped, like `printable_texts`."""
    return str(printable_texts(pa.array([text], pa.string()))[0].as_py())


def _plain(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _hex(pc.cast(values, pa.large_binary()))
    if pa.types.is_floating(kind):
        texts = pc.cast(values, pa.string())
        return reduce(lambda t, odd: if_else(pc.equal(t, odd[0]), odd[1], t), _ODD_FLOATS, texts)
    return pc.cast(values, pa.string())


def _json(values: pa.Array) -> pa.Array:
    """Returns each value as a JSON string; nulls stay null."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _json(values.dictionary_decode())
    if pa.types.is_map(kind):
        return _json_map(values)
    if pa.types.is_struct(kind):
        return _json_struct(values)
    if pa.types.is_nested(kind):
        return _json_list(pc.cast(values, pa.large_list(kind.value_type)))
    texts = _plain(values)
    if pa.types.is_floating(kind):
        return if_else(pc.is_finite(values), texts, _quoted(texts))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return texts
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return _quoted(_spelled(escaped, _JSON_CONTROLS))


def _json_list(values: pa.Array) -> pa.Array:
    offsets, parts = _span(values.offsets)
    return _enclosed("[", offsets, json_texts(values.values.slice(*parts)), values, "]")


def _json_map(values: pa.Array) -> pa.Array:
    offsets, parts = _span(values.offsets)
    names = _json(cell_texts(values.keys.slice(*parts)))
    entries = pc.binary_join_element_wise(names, json_texts(values.items.slice(*parts)), ":")
    return _enclosed("{", offsets, entries, values, "}")


def _span(offsets: pa.Array) -> tuple[pa.Array, tuple[int, int]]:
    """Returns the offsets of lists, shifted so that the first is 0; then the position of the first element of the
    lists, and the number of their elements.
    """
    start = offsets[0].as_py()
    return pc.cast(pc.subtract(offsets, offsets[0]), pa.int32()), (start, offsets[-1].as_py() - start)


def _enclosed(opening: str, offsets: pa.Array, parts: pa.Array, values: pa.Array, closing: str) -> pa.Array:
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, parts), ",")
    whole = pc.binary_join_element_wise(opening, joined, closing, "")
    return if_else(values.is_valid(), whole, pa.scalar(None, pa.string()))


def _json_struct(values: pa.Array) -> pa.Array:
    names = [values.type.field(i).name for i in range(values.type.num_fields)]
    parts: list[object] = []
    for name, child in zip(names, values.flatten(), strict=True):
        parts += [f"{',' if parts else '{'}{json.dumps(name, ensure_ascii=False)}:", json_texts(child)]
    joined = pc.binary_join_element_wise(*(parts or ["{"]), "}", "")
    return if_else(values.is_valid(), joined, pa.scalar(None, pa.string()))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _spelled(texts: pa.Array, spellings: list[tuple[str, str]]) -> pa.Array:
    signs = "".join(f"\\x{{{ord(sign):x}}}" for sign, _ in spellings)
    if not pc.any(pc.match_substring_regex(texts, f"[{signs}]")).as_py():
        return texts
    return reduce(lambda spelled, pair: pc.replace_substring(spelled, *pair), spellings, texts)


def _hex(values: pa.Array) -> pa.Array:
    offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
    data = values.buffers()[2]
    used_bytes = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    doubled = ((offsets - offsets[0]) * 2).astype(np.int64)
    texts = pa.LargeStringArray.from_buffers(
        len(values), pa.py_buffer(doubled.tobytes()), pa.py_buffer(_HEX[used_bytes].tobytes())
    )
    return if_else(values.is_valid(), texts, pa.scalar(None, pa.large_string())).cast(pa.string())
