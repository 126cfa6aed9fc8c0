"""Converts the columns of a file that was written with an older schema to the types of the current schema.

Each column without nested types is converted in two steps: first to the type that the file's own schema version
declares, then to the current type. Sub-fields of a ROW are matched by field id, so a sub-field may have been renamed or
added.

Source: Paimon 2.0 ParquetSchemaConverter (what readers accept), SchemaEvolutionUtil.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.buffers import own_copy
from bucketline.state.types.decimal_bytes import decimals
from bucketline.state.types.logical import DataType, TypeRoot
from bucketline.state.types.recast import recast

Declare = Callable[[pa.Array, DataType], pa.Array]
"""A function that converts a column as a file stores it (not nested) to the Arrow type of the type that the file's
schema declares.
"""

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_COLLECTIONS = (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET)


def declared(column: pa.Array, stored: DataType) -> pa.Array:
    """Converts a column from the form in which a file stores it to the Arrow type of `stored`, which is the type of the
    column in the file's schema. The type must not be nested.

    Parquet and most other formats agree on what a stored value means, for example that a decimal is stored as
    big-endian bytes. This function follows these rules.
    """
    target = arrow_type(stored)
    if column.type.equals(target):
        return column
    if stored.root is TypeRoot.DECIMAL and _is_bytes(column.type):
        return decimals(column, target, needs_values=not stored.nullable)
    if stored.root in _TIMESTAMPS and pa.types.is_integer(column.type):
        # Integers without an annotation are microseconds for precisions 4 to 6, and milliseconds for all other
        # precisions.
        unit = "us" if 3 < (stored.precision or 0) <= 6 else "ms"
        return column.cast(pa.timestamp(unit)).cast(target)
    return column.cast(target)


def read_column(column: pa.Array, stored: DataType, wanted: DataType, *, declare: Declare = declared) -> pa.Array:
    """Returns a file's column in the Arrow type of `wanted`. Nulls stay nulls.

    `stored` is the type in the file's own schema version. `declare` converts the column to this type from the form in
    which the file format stores it.
    Raises UnsupportedTableError if this library cannot convert `stored` to `wanted`, or if `wanted` cannot hold a
    value.
    """
    try:
        return _convert(column, stored, wanted, declare)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as e:
        raise UnsupportedTableError(
            f"cannot read a column of {column.type}, declared {stored}, as {wanted}: {e}",
            stored=str(stored),
            wanted=str(wanted),
        ) from e


def _convert(column: pa.Array, stored: DataType, wanted: DataType, declare: Declare) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if declare is declared and stored == wanted and column.type.equals(arrow_type(wanted)):
        return column
    if not _has_shape(column.type, stored.root):
        raise pa.ArrowTypeError(f"{column.type} is no {stored.root.value}")
    if stored.root is TypeRoot.ROW and wanted.root is TypeRoot.ROW:
        return _convert_row(column, stored, wanted, declare)
    if stored.root is wanted.root and stored.root in _COLLECTIONS:
        return _convert_collection(column, stored, wanted, declare)
    return recast(declare(column, stored), stored, wanted)


def _has_shape(arrow: pa.DataType, root: TypeRoot) -> bool:
    """Returns True if the Arrow type has the nesting of the logical type: a struct for a ROW, a list for an ARRAY, a
    map for a MAP or MULTISET. For a type that is not nested it returns True. The footer of a damaged file may name a
    wrong type.
    """
    if root is TypeRoot.ROW:
        return bool(pa.types.is_struct(arrow))
    if root is TypeRoot.ARRAY:
        return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))
    return bool(pa.types.is_map(arrow)) if root in _COLLECTIONS else True


def _convert_row(column: pa.Array, stored: DataType, wanted: DataType, declare: Declare) -> pa.Array:
    of_id = {f.id: f for f in stored.fields}
    children = []
    for field in wanted.fields:
        old = of_id.get(field.id)
        if old is None:
            children.append(with_placeholders(pa.nulls(len(column), arrow_type(field.type))))
            continue
        position = column.type.get_field_index(old.name)
        if position < 0:
            raise pa.ArrowInvalid(f"sub-field {old.name!r} is missing in {column.type}")
        child = _convert(pc.struct_field(column, position), old.type, field.type, declare)
        if child.null_count and not field.type.nullable:
            if child.filter(column.is_valid()).null_count:
                raise pa.ArrowInvalid(f"sub-field {old.name!r} is NOT NULL and holds nulls")
            child = _without_nulls(child)
        children.append(child)
    nulls = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(wanted)), mask=nulls)


def _convert_collection(column: pa.Array, stored: DataType, wanted: DataType, declare: Declare) -> pa.Array:
    compact = own_copy(column)
    target, nulls = arrow_type(wanted), compact.is_null() if compact.null_count else None
    old, new = _children(stored), _children(wanted)
    if stored.root is TypeRoot.ARRAY:
        values = _convert(compact.values, old[0], new[0], declare)
        return pa.ListArray.from_arrays(compact.offsets, values, type=target, mask=nulls)
    keys = _convert(compact.keys, old[0], new[0], declare)
    items = _convert(compact.items, old[1], new[1], declare)
    return pa.MapArray.from_arrays(compact.offsets, keys, items, type=target, mask=nulls)


def with_placeholders(array: pa.Array) -> pa.Array:
    """Returns the array with an arbitrary value in place of a null in the NOT NULL fields of null structs. Writers of
    Arrow data refuse a null in a NOT NULL field even if the struct of the field is null.
    """
    if not pa.types.is_struct(array.type):
        return array
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(_parts(array), fields=list(array.type), mask=nulls)


def _parts(array: pa.StructArray) -> list[pa.Array]:
    parts = [with_placeholders(array.field(i)) for i in range(array.type.num_fields)]
    return [p if f.nullable or not p.null_count else _without_nulls(p) for p, f in zip(parts, array.type, strict=True)]


def _without_nulls(array: pa.Array) -> pa.Array:
    """Returns the array with an arbitrary value in place of each null. The array is a NOT NULL field of a struct, so it
    is null only where the struct is null.
    """
    if pa.types.is_struct(array.type):
        return pa.StructArray.from_arrays(_parts(array), fields=list(array.type))
    if pa.types.is_map(array.type):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=array.type)
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=array.type)
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], offset=array.offset)


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow) or pa.types.is_fixed_size_binary(arrow) or pa.types.is_large_binary(arrow))


def _children(data_type: DataType) -> tuple[DataType, ...]:
    if data_type.root is TypeRoot.MAP:
        assert data_type.key is not None and data_type.value is not None
        return data_type.key, data_type.value
    assert data_type.element is not None
    return (data_type.element, DataType(TypeRoot.INT, nullable=False))
