"""Access to nested values: fields of structs, elements of arrays, and values of maps; and the functions that build
nested values.

Source: Spark 4.0 complexTypeExtractors.scala, GetArrayItem and ElementAt in ANSI mode.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.sql.compute.calls import Evaluate, Function, FunctionCall, literal
from bucketline.state.sql.compute.meeting import common_type
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.dialect import DIALECT


def field_of(value: Value, name: str, text: str) -> Value:
    """Returns the field `name` of a struct. If no field has exactly this name, upper and lower case are ignored. Raises
    OptionError for an unknown field.
    """
    if pa.types.is_null(value.type):
        return value
    if not pa.types.is_struct(value.type):
        raise OptionError(f"{text!r}: {value.type} has no field {name!r}", key="expression", column=name)
    names = [f.name for f in value.type]
    same = [n for n in names if n == name] or [n for n in names if n.lower() == name.lower()]
    if len(same) != 1:
        near = did_you_mean(name, names) or f"; there are {', '.join(names)}"
        raise OptionError(f"{text!r}: unknown field {name!r}{near}", key="expression", column=name)
    return pc.struct_field(value, names.index(same[0]))


def item_of(node: Any, key_node: Any, value: Evaluate, *, counts_from_one: bool) -> Value:
    """Returns an element of an array, or the value of a key in a map. If `counts_from_one` is true, elements are
    counted from 1, otherwise from 0.
    """
    items, key = value(node), value(key_node)
    if pa.types.is_map(items.type):
        if not isinstance(key, pa.Scalar) or not key.is_valid:
            raise OptionError(f"{key_node.sql(DIALECT)!r} must be a literal here", key="expression")
        return pc.map_lookup(items, key.cast(items.type.key_type), "first")
    if not pa.types.is_list(items.type):
        raise pa.ArrowTypeError(f"{node.sql(DIALECT)!r} is {items.type}, which is no array or map")
    if not pa.types.is_integer(key.type):
        raise pa.ArrowTypeError(f"{key_node.sql(DIALECT)!r} is {key.type}, but an index must be a whole number")
    count = len(items) if isinstance(items, pa.Array) else len(key) if isinstance(key, pa.Array) else 1
    items, key = (pa.repeat(v, count) if isinstance(v, pa.Scalar) else v for v in (items, key))
    return _elements(items, key, counts_from_one)


def _elements(items: pa.ListArray, places: pa.Array, counts_from_one: bool) -> pa.Array:
    is_null = np.asarray(items.is_null()) | np.asarray(places.is_null())
    offsets = np.asarray(items.offsets, np.int64)
    lengths, at = np.diff(offsets), np.asarray(places.cast(pa.int64()).fill_null(0))
    steps = at
    if counts_from_one:
        if (~is_null & (at == 0)).any():
            raise pa.ArrowInvalid("elements are counted from 1, or from the end with -1")
        steps = np.where(at > 0, at - 1, lengths + at)
    outside = ~is_null & ((steps < 0) | (steps >= lengths))
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise pa.ArrowInvalid(f"an array of {lengths[row]} elements has no element {at[row]}")
    chosen = np.where(is_null, 0, offsets[:-1] + steps)
    return items.values.take(pa.array(chosen, mask=is_null))


def _map(call: FunctionCall, value: Evaluate) -> Value:
    """Returns for each row a map; the arguments are keys and values in turn. Raises ArrowInvalid for a key that is null
    or occurs twice, as Spark does.
    """
    if len(call.arguments) % 2:
        raise OptionError(f"{call.text!r}: map needs a value for each key", key="expression")
    found = [value(node) for node in call.arguments]
    keys, items = _as_one(found[::2]), _as_one(found[1::2])
    if not keys:
        return pa.scalar([], pa.map_(pa.string(), pa.null()))
    count = next((len(v) for v in (*keys, *items) if isinstance(v, pa.Array)), 1)
    rows = [[pa.repeat(v, count) if isinstance(v, pa.Scalar) else v for v in part] for part in (keys, items)]
    # The arrays have the first pair of all rows, then the second pair, and so on. `order` puts the pairs of a row
    # together.
    order = pa.array(np.arange(len(keys) * count).reshape(len(keys), count).T.ravel())
    flat_keys, flat_items = (pa.concat_arrays(part).take(order) for part in rows)
    if flat_keys.null_count:
        raise pa.ArrowInvalid("a key of a map cannot be null")
    for at, one in enumerate(rows[0]):
        for other in rows[0][:at]:
            if pc.any(pc.equal(one, other)).as_py():
                raise pa.ArrowInvalid("a map cannot have a key twice")
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(keys))
    maps = pa.MapArray.from_arrays(offsets, flat_keys, flat_items)
    return maps if any(isinstance(v, pa.Array) for v in found) else maps[0]


def _array(call: FunctionCall, value: Evaluate) -> Value:
    """Returns for each row an array of the values of the arguments."""
    found = [value(node) for node in call.arguments]
    items = _as_one(found)
    if not items:
        return pa.scalar([], pa.list_(pa.null()))
    count = next((len(v) for v in items if isinstance(v, pa.Array)), 1)
    rows = [pa.repeat(v, count) if isinstance(v, pa.Scalar) else v for v in items]
    order = pa.array(np.arange(len(rows) * count).reshape(len(rows), count).T.ravel())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(rows))
    arrays = pa.ListArray.from_arrays(offsets, pa.concat_arrays(rows).take(order))
    return arrays if any(isinstance(v, pa.Array) for v in found) else arrays[0]


def _named_struct(call: FunctionCall, value: Evaluate) -> Value:
    """Returns for each row a struct; the arguments are names and values in turn."""
    if len(call.arguments) % 2:
        raise OptionError(f"{call.text!r}: named_struct needs a value for each name", key="expression")
    names = [literal(node, str) for node in call.arguments[::2]]
    return _struct_of(names, [value(node) for node in call.arguments[1::2]])


def _struct(call: FunctionCall, value: Evaluate) -> Value:
    """Returns for each row a struct of the values of the arguments. A field has the name of its column if the argument
    is a column, and otherwise `col1`, `col2` and so on.
    """
    names, nodes = list[str](), list[Any]()
    for at, node in enumerate(call.arguments, 1):
        is_named = isinstance(node, exp.Alias | exp.Column | exp.Dot)
        names.append(str(node.alias_or_name) if is_named else f"col{at}")
        nodes.append(node.this if isinstance(node, exp.Alias) else node)
    return _struct_of(names, [value(node) for node in nodes])


def _struct_of(names: list[str], values: list[Value]) -> Value:
    if any(isinstance(v, pa.Array) for v in values):
        return pc.make_struct(*values, field_names=names)
    fields = pa.struct([pa.field(name, v.type) for name, v in zip(names, values, strict=True)])
    # Single values become arrays of one row, because Arrow cannot build a struct of single structs or maps.
    arrays = [pa.repeat(v, 1) for v in values]
    return pa.StructArray.from_arrays(arrays, fields=list(fields))[0]


def _as_one(values: list[Value]) -> list[Value]:
    """Returns the values cast to their common type."""
    kind = common_type([v.type for v in values])
    return [v.cast(kind) for v in values]


def _element_at(call: FunctionCall, value: Evaluate) -> Value:
    return item_of(call.arguments[0], call.arguments[1], value, counts_from_one=True)


def _size(call: FunctionCall, value: Evaluate) -> Value:
    items = value(call.arguments[0])
    if pa.types.is_map(items.type) and isinstance(items, pa.Array):
        offsets = np.asarray(items.offsets, np.int32)
        return pa.array(np.diff(offsets), mask=np.asarray(items.is_null()))
    return pc.list_value_length(items).cast(pa.int32())


NESTED_FUNCTIONS: Mapping[str, Function] = {
    "map": Function(0, 254, _map),
    "array": Function(0, 254, _array),
    "struct": Function(1, 254, _struct),
    "named_struct": Function(2, 254, _named_struct),
    "element_at": Function(2, 2, _element_at),
    "size": Function(1, 1, _size),
    "cardinality": Function(1, 1, _size),
}
