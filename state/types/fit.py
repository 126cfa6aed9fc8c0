"""Converts incoming Arrow arrays to the Arrow type of a column without loss, or raises an error that names the
column.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.char_text import pad
from bucketline.state.types.decimal_cast import cast_decimal
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataType, TypeRoot
from bucketline.state.types.struct_fields import FieldRule, by_name

_TEXT = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


Cast: TypeAlias = Callable[[pa.Array, DataType, str], pa.Array]
"""A function that converts values without nested types to a type. Its last argument is the path that errors name."""


def fit_array(
    array: pa.Array,
    data_type: DataType,
    target: pa.DataType,
    column: str,
    fields: FieldRule = by_name,
    cast: Cast | None = None,
) -> pa.Array:
    """Returns the values as an array of type `target`, the Arrow type of `data_type`. Nulls stay nulls, and are refused
    if the logical type is NOT NULL.

    - `column` is the path that errors name.
    - `fields` is the rule that matches the fields of a struct to the sub-fields of a ROW.
    - `cast` converts values without nested types before they are checked. If `cast` is None, an array whose type is of
      another kind, such as strings for a number, is refused.

    Raises SchemaMismatchError, with its fields `column`, `expected` and `found`, for a value that the logical type
    cannot hold.
    """
    array = _plain(array)
    if not data_type.nullable and array.null_count:
        raise _mismatch(column, data_type, f"{array.null_count} null values")
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if data_type.root is TypeRoot.ROW:
        return _fit_row(array, data_type, target, column, fields, cast)
    if data_type.root in (TypeRoot.ARRAY, TypeRoot.VECTOR):
        return _fit_list(array, data_type, target, column, fields, cast)
    if data_type.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        return _fit_map(array, data_type, target, column, fields, cast)
    if cast is not None:
        array = cast(array, data_type, column)
    if not _same_family(array.type, data_type):
        raise _mismatch(column, data_type, str(array.type), _about_zone(array.type, data_type))
    fitted = array if array.type == target else _cast(array, data_type, target, column)
    if data_type.root is TypeRoot.CHAR:
        fitted = pad(fitted, data_type)
    _check_length(fitted, data_type, column)
    _check_precision(fitted, data_type, column)
    return fitted


def map_types(data_type: DataType) -> tuple[DataType, DataType]:
    """Returns the key and value type of a MAP, or of a MULTISET, which is stored as a map from each element to its
    count.
    """
    if data_type.root is TypeRoot.MULTISET:
        assert data_type.element is not None
        return data_type.element, DataType(TypeRoot.INT, nullable=False)
    assert data_type.key is not None and data_type.value is not None
    return data_type.key, data_type.value


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    return array


def _same_family(arrow: pa.DataType, data_type: DataType) -> bool:
    root = data_type.root
    if root is TypeRoot.TIMESTAMP:
        return bool(pa.types.is_timestamp(arrow)) and arrow.tz is None
    if root is TypeRoot.TIMESTAMP_LTZ:
        return bool(pa.types.is_timestamp(arrow)) and arrow.tz is not None
    return _FAMILIES[root](arrow)


def _cast(array: pa.Array, data_type: DataType, target: pa.DataType, column: str) -> pa.Array:
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
            # From an integer to a decimal, Arrow checks the width of the type and not the values. A cast in between
            # checks values.
            array = array.cast(pa.decimal128(20, 0))
        is_decimal = pa.types.is_decimal(array.type) and pa.types.is_decimal(target)
        converted = cast_decimal(array, target) if is_decimal else array.cast(target, safe=True)
    except pa.ArrowInvalid as e:
        raise _mismatch(column, data_type, f"{array.type} with a value that does not fit ({e})") from e
    if pa.types.is_float32(target) and pa.types.is_float64(array.type):
        back = converted.cast(pa.float64())
        kept = pc.or_(pc.equal(back, array), pc.is_nan(array))
        if pc.all(kept).as_py() is False:
            raise _mismatch(column, data_type, f"{array.type} with a value that FLOAT cannot hold exactly")
    return converted


def _check_length(array: pa.Array, data_type: DataType, column: str) -> None:
    if data_type.root in _TEXT:
        lengths, unit = pc.utf8_length, "characters"
    elif data_type.root in _BYTES:
        lengths, unit = pc.binary_length, "bytes"
    else:
        return
    assert data_type.length is not None
    offset_limit = np.iinfo(np.int32).max
    if data_type.length == offset_limit:
        return
    longest = pc.max(lengths(array)).as_py()
    if longest is not None and longest > data_type.length:
        raise _mismatch(column, data_type, f"a value of {longest} {unit}")


def _check_precision(array: pa.Array, data_type: DataType, column: str) -> None:
    if data_type.root is not TypeRoot.TIME and data_type.root not in _STAMPS:
        return
    assert data_type.precision is not None
    unit_digits = _DIGITS[array.type.unit]
    if data_type.precision >= unit_digits:
        return
    step = 10 ** (unit_digits - data_type.precision)
    units = array.cast(pa.int32() if data_type.root is TypeRoot.TIME else pa.int64()).drop_null()
    if np.any(units.to_numpy(zero_copy_only=False) % step):
        raise _mismatch(column, data_type, "a value with more fractional digits")


def _fit_row(
    array: pa.Array, data_type: DataType, target: pa.DataType, column: str, fields: FieldRule, cast: Cast | None
) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _mismatch(column, data_type, str(array.type))
    positions = fields([f.name for f in array.type], [f.name for f in data_type.fields], column)
    absent = array.is_null()
    children = []
    for field, arrow, position in zip(data_type.fields, target, positions, strict=True):
        child = array.field(position)
        # A sub-field of an absent row has no value of its own, whatever lies in its buffer.
        required = child if field.type.nullable else child.filter(pc.invert(absent))
        path = f"{column}.{field.name}"
        if required.null_count and not field.type.nullable:
            raise _mismatch(path, field.type, f"{required.null_count} null values")
        if array.null_count:
            child = if_else(absent, pa.scalar(None, child.type), child)
        children.append(fit_array(child, field.type.as_nullable(), arrow.type, path, fields, cast))
    mask = absent if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _fit_list(
    array: pa.Array, data_type: DataType, target: pa.DataType, column: str, fields: FieldRule, cast: Cast | None
) -> pa.Array:
    arrow = array.type
    if not (pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow)):
        raise _mismatch(column, data_type, str(arrow))
    assert data_type.element is not None
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    values = fit_array(pc.list_flatten(array), data_type.element, target.value_type, f"{column}.element", fields, cast)
    mask = array.is_null() if array.null_count else None
    if data_type.root is TypeRoot.VECTOR:
        valid = lengths[array.is_valid().to_numpy(zero_copy_only=False)]
        if np.any(valid != data_type.length):
            raise _mismatch(column, data_type, "a list of another length")
        slots = np.repeat(array.is_valid().to_numpy(zero_copy_only=False), data_type.length or 0)
        places = pa.array(np.cumsum(slots) - 1, mask=~slots)
        return pa.FixedSizeListArray.from_arrays(values.take(places), type=target, mask=mask)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=mask)


def _fit_map(
    array: pa.Array, data_type: DataType, target: pa.DataType, column: str, fields: FieldRule, cast: Cast | None
) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _mismatch(column, data_type, str(array.type))
    key_type, value_type = map_types(data_type)
    # An empty array should have one offset, but other libraries, such as Spark's, may leave the offset out.
    offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, np.int32)
    start, stop = int(offsets[0]), int(offsets[-1])
    keys = array.keys.slice(start, stop - start)
    values = array.items.slice(start, stop - start)
    return pa.MapArray.from_arrays(
        pa.array(offsets - offsets[0]),
        fit_array(keys, key_type.not_null(), target.key_type, f"{column}.key", fields, cast),
        fit_array(values, value_type, target.item_type, f"{column}.value", fields, cast),
        type=target,
        mask=array.is_null() if array.null_count else None,
    )


def _about_zone(arrow: pa.DataType, data_type: DataType) -> str:
    """Returns what to do if times with a time zone come for a TIMESTAMP column, or times without one for a
    TIMESTAMP_LTZ column. Returns an empty string in all other cases.
    """
    if not pa.types.is_timestamp(arrow):
        return ""
    if data_type.root is TypeRoot.TIMESTAMP:
        return (
            "; the column has times without a time zone. For the time in UTC cast the values: "
            f"column.cast(pa.timestamp('{arrow.unit}')), in Spark CAST(... AS TIMESTAMP_NTZ). For the time in the zone "
            "of the values use pc.local_timestamp(column). Or declare the column as TIMESTAMP_LTZ"
        )
    if data_type.root is TypeRoot.TIMESTAMP_LTZ:
        return (
            "; the column has instants, so values need a time zone. Say in which zone they are: "
            "pc.assume_timezone(column, 'UTC'), in Spark CAST(... AS TIMESTAMP). Or declare the column as TIMESTAMP"
        )
    return ""


def _mismatch(column: str, data_type: DataType, found: str, remedy: str = "") -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {column}: expected {data_type}, found {found}{remedy}",
        column=column,
        expected=str(data_type),
        found=found,
    )


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow))


def _is_exact(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_decimal(arrow))


def _is_text(arrow: pa.DataType) -> bool:
    return arrow in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(arrow)) or arrow in (pa.binary(), pa.large_binary(), pa.binary_view())


_FAMILIES: dict[TypeRoot, Callable[[pa.DataType], bool]] = {
    TypeRoot.BOOLEAN: pa.types.is_boolean,
    TypeRoot.TINYINT: _is_number,
    TypeRoot.SMALLINT: _is_number,
    TypeRoot.INT: _is_number,
    TypeRoot.BIGINT: _is_number,
    TypeRoot.FLOAT: _is_number,
    TypeRoot.DOUBLE: _is_number,
    TypeRoot.DECIMAL: _is_exact,
    TypeRoot.CHAR: _is_text,
    TypeRoot.VARCHAR: _is_text,
    TypeRoot.BINARY: _is_bytes,
    TypeRoot.VARBINARY: _is_bytes,
    TypeRoot.DATE: pa.types.is_date,
    TypeRoot.TIME: pa.types.is_time,
}
