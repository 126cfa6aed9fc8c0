"""Finds the wider types that integers and fractions in Avro values need, a whole column at a time; `schema_needs` does
this for JSON.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.commit.widen import narrows
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataType, TypeRoot
from bucketline.streaming.decode.json_values.json_shape import Shape
from bucketline.streaming.decode.schema_needs import NO_NEED

_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32}
_DOUBLE = DataType(TypeRoot.DOUBLE)
_LARGEST_FLOAT = float(np.finfo(np.float32).max)


def wider_need(values: pa.Array, shape: Shape) -> pa.DataType:
    """Returns the columns that are too narrow for a value, with the types that they need; the null type if all values
    fit.
    """
    kind = values.type
    if shape.is_row and pa.types.is_struct(kind):
        needs = []
        for name, child in zip(shape.names, shape.children, strict=True):
            at = kind.get_field_index(name)
            need = NO_NEED if at < 0 else wider_need(pc.struct_field(values, [at]), child)
            if not pa.types.is_null(need):
                needs.append((name, need))
        return pa.struct(needs) if needs else NO_NEED
    if shape.children:
        if shape.is_row or shape.is_map or not pa.types.is_list(kind):
            return NO_NEED
        need = wider_need(values.flatten(), shape.children[0])
        return NO_NEED if pa.types.is_null(need) else pa.list_(need)
    return _of_numbers(values, shape.type)


def _of_numbers(values: pa.Array, data_type: DataType) -> pa.DataType:
    bits = _BITS.get(data_type.root)
    if bits is not None and pa.types.is_integer(values.type):
        return pa.int64() if _any_outside(values, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) else NO_NEED
    if not pa.types.is_floating(values.type):
        return NO_NEED
    finite = if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    if data_type.root is TypeRoot.FLOAT:
        return pa.float64() if _any_outside(finite, -_LARGEST_FLOAT, _LARGEST_FLOAT) else NO_NEED
    if bits is not None and pc.any(pc.not_equal(pc.floor(finite), finite)).as_py():
        return pa.float64() if narrows(data_type, _DOUBLE) is None else NO_NEED
    return NO_NEED


def _any_outside(values: pa.Array, low: float, high: float) -> bool:
    ends = pc.min_max(values)
    lowest, highest = ends["min"].as_py(), ends["max"].as_py()
    return lowest is not None and (lowest < low or highest > high)
