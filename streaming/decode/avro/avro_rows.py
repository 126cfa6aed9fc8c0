"""Converts Avro values to values of table columns, with the same rules as for values in JSON.

Whole columns are converted at a time. If that fails, the values that fail are found by halving, and their records are
bad. Fields are matched by name. A field that the schema does not have is null.
"""

import uuid
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else
from bucketline.streaming.decode.avro.avro_bodies import read_bodies
from bucketline.streaming.decode.avro.avro_cursor import Longs
from bucketline.streaming.decode.avro.avro_exact import as_text
from bucketline.streaming.decode.avro.avro_schema import UUID_BYTES, parse_avro_schema
from bucketline.streaming.decode.json_values.json_convert import NotConvertible, convert_leaf, number_of_bits, raw_type
from bucketline.streaming.decode.json_values.json_shape import Form, JsonKind, Shape, ValueReading
from bucketline.streaming.decode.values.decimals import decimals_as
from bucketline.streaming.decode.values.time_parts import parts_of

_SHOWN_CHARACTERS = 60
_BIG_DECIMAL = parse_avro_schema(
    {
        "type": "record",
        "name": "BigDecimal",
        "fields": [{"name": "value", "type": "bytes"}, {"name": "scale", "type": "int"}],
    }
)


@dataclass(slots=True)
class Misfits:
    """Collects the bad records among the records that are converted together. `reasons` has the first reason why each
    bad record is bad, by the position of the record in the input.
    """

    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, place: int, path: str, reason: str) -> None:
        self.reasons.setdefault(place, f"field {path}: {reason}" if path else f"the record: {reason}")


def columns_of(values: pa.Array, shape: Shape, misfits: Misfits) -> pa.Array:
    """Returns the values in the Arrow type of `shape` (the column's type, with the accepted forms of a value). The
    result is as long as `values`. A value that does not fit is null in the result, and its reason is added to
    `misfits`.
    """
    return _converted(values, shape, np.arange(len(values), dtype=np.int64), "", misfits)


def _converted(values: pa.Array, shape: Shape, places: Longs, path: str, misfits: Misfits) -> pa.Array:
    """Converts values of any Arrow type to the type of the column, `shape.arrow`. A value that does not fit becomes
    null, and the reason goes into `misfits`. `places` has for each value the position of its record, and `path` is the
    path of the field, for reasons.
    """
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), shape.arrow)
    if shape.is_row and pa.types.is_struct(kind):
        return _row(values, shape, places, path, misfits)
    if shape.is_map and (pa.types.is_map(kind) or _are_entries(kind)):
        return _map(values, shape, places, path, misfits)
    if shape.children and not shape.is_row and not shape.is_map and pa.types.is_list(kind):
        return _list(values, shape, places, path, misfits)
    if shape.children or shape.is_row:
        return _none(values, shape, places, path, misfits)
    return _leaf(values, shape, places, path, misfits)


def _row(values: pa.Array, shape: Shape, places: Longs, path: str, misfits: Misfits) -> pa.Array:
    if not shape.children:
        return pa.array([None if absent else {} for absent in values.is_null().to_pylist()], shape.arrow)
    present = values.is_valid()
    children = []
    for name, child in zip(shape.names, shape.children, strict=True):
        at = values.type.get_field_index(name)
        inside = f"{path}.{name}" if path else name
        inner = pa.nulls(len(values)) if at < 0 else _under(values, at)
        children.append(_converted(inner, child, places, inside, misfits))
    return pa.StructArray.from_arrays(children, fields=list(shape.arrow), mask=pc.invert(present))


def _under(values: pa.Array, at: int) -> pa.Array:
    """Returns the field with index `at` of the structs; its value is null where the struct is null."""
    return pc.struct_field(values, [at])


def _list(values: pa.Array, shape: Shape, places: Longs, path: str, misfits: Misfits) -> pa.Array:
    owners, offsets = _owners(values, places)
    child = _converted(values.flatten(), shape.children[0], owners, f"{path}[]", misfits)
    return pa.ListArray.from_arrays(offsets, child, type=shape.arrow)


def _are_entries(kind: pa.DataType) -> bool:
    """Returns True if values of type `kind` are lists of structs (key, value). Connect writes maps in this form
    if their keys are not strings.
    """
    return (
        pa.types.is_list(kind)
        and pa.types.is_struct(kind.value_type)
        and [f.name for f in kind.value_type] == ["key", "value"]
    )


def _map(values: pa.Array, shape: Shape, places: Longs, path: str, misfits: Misfits) -> pa.Array:
    entries = values
    if pa.types.is_map(values.type):
        entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    owners, offsets = _owners(entries, places)
    flat = entries.flatten()
    for at in np.flatnonzero(_under(flat, 0).is_null().to_numpy(zero_copy_only=False)):
        misfits.add(int(owners[at]), path, "a key of the map is null")
    keys = _converted(_under(flat, 0), shape.children[0], owners, f"{path} key", misfits)
    if keys.null_count:  # the key has failed; Arrow's maps cannot hold a null key, and the record is bad anyway
        failed = pc.is_in(pa.array(places), value_set=pa.array(list(misfits.reasons), pa.int64()))
        return _map(if_else(failed, pa.scalar(None, values.type), values), shape, places, path, misfits)
    items = _converted(_under(flat, 1), shape.children[1], owners, f"{path}{{}}", misfits)
    return pa.MapArray.from_arrays(offsets, keys, items, type=shape.arrow)


def _owners(values: pa.Array, places: Longs) -> tuple[Longs, pa.Array]:
    """Takes lists, and the position of each list's record (`places`). Returns the position of each item's record, and
    the offsets of the lists among the items; a null list has a null offset.
    """
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    absent = np.append(values.is_null().to_numpy(zero_copy_only=False), False)
    return np.repeat(places, lengths), pa.array(ends, mask=absent)


def _leaf(values: pa.Array, shape: Shape, places: Longs, path: str, misfits: Misfits) -> pa.Array:
    form = shape.form_of(_kind_of(values.type))
    if form is None and pa.types.is_binary(values.type):  # Avro's big-decimal, whose bytes contain the scale
        form = next((one for one in shape.forms if one.reading is ValueReading.VARIABLE_DECIMAL), None)
    if form is None:
        return _none(values, shape, places, path, misfits)
    pending = [(0, len(values))]
    parts: list[tuple[int, pa.Array]] = []
    while pending:
        start, stop = pending.pop()
        part = values.slice(start, stop - start)
        try:
            parts.append((start, _convert(part, shape, form)))
        except ValueError as e:
            if stop - start > 1:
                half = (start + stop) // 2
                pending += [(half, stop), (start, half)]
                continue
            reason = str(e) if isinstance(e, NotConvertible) else f"cannot become {shape.type}"
            if part[0].is_valid:  # if no column of that type takes bytes, only the values that are not null fail
                misfits.add(int(places[start]), path, f"{_shown(part[0].as_py())} {reason}")
            parts.append((start, pa.nulls(1, shape.arrow)))
    return pa.concat_arrays([pa.nulls(0, shape.arrow), *(part for _, part in sorted(parts, key=lambda p: p[0]))])


def _kind_of(kind: pa.DataType) -> JsonKind:
    """Returns the kind of JSON value that corresponds to values of the Arrow type `kind`."""
    if pa.types.is_boolean(kind):
        return JsonKind.BOOLEAN
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return JsonKind.NUMBER
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return JsonKind.OBJECT
    return JsonKind.ARRAY if pa.types.is_list(kind) else JsonKind.TEXT


def _convert(values: pa.Array, shape: Shape, form: Form) -> pa.Array:
    """Converts Avro values that are all written in the form `form` (for example, a time as a number of milliseconds) to
    values of the column's type. Raises ValueError if any value cannot be converted.
    """
    target = shape.arrow
    if pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        return _of_bytes(values, shape, form)
    if form.reading is ValueReading.VARIABLE_DECIMAL:
        return _variable_decimal(values, target)
    if form.reading is ValueReading.PARTS:
        return convert_leaf(parts_of(values), shape, form)
    if form.reading is ValueReading.LITERAL:
        return _literals(values).cast(target)
    wanted = raw_type(shape.type, form)
    if pa.types.is_decimal(wanted):
        # The shortest text of a fraction is what was meant: 0.1, and not the nearest double.
        values = values.cast(pa.string())
    return convert_leaf(values.cast(wanted), shape, form)


def _of_bytes(values: pa.Array, shape: Shape, form: Form) -> pa.Array:
    target = shape.arrow
    if form.reading is ValueReading.VARIABLE_DECIMAL:
        return _variable_decimal(_big_decimals(values), target)
    if form.reading is ValueReading.DECIMAL_BYTES:
        return decimals_as(values.cast(pa.large_binary()), form.scale, target)
    if form.reading is ValueReading.BITS:
        return number_of_bits(values.cast(pa.large_binary()), target)
    if pa.types.is_binary(target) or pa.types.is_fixed_size_binary(target):
        return values.cast(pa.binary()).cast(target)
    if pa.types.is_string(target) and values.type == UUID_BYTES:
        return pa.array([None if one is None else str(uuid.UUID(bytes=one)) for one in values.to_pylist()], target)
    if pa.types.is_string(target):
        raise NotConvertible("are bytes, but the column is STRING; declare the column as BYTES")
    raise NotConvertible(f"are bytes, which cannot become {shape.type}")


def _big_decimals(values: pa.Array) -> pa.Array:
    """Takes values of Avro's logical type big-decimal, which are bytes with a number and its scale. Returns structs
    with the number and the scale, for `_variable_decimal`.
    """
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    bodies = read_bodies(values.take(pa.array(present)), _BIG_DECIMAL)
    if bodies.bad:
        raise NotConvertible(f"is no big-decimal: {bodies.bad[0][1]}")
    places = np.full(len(values), -1, dtype=np.int64)
    places[present] = np.arange(len(present))
    return bodies.values.take(pa.array(places, mask=places < 0))


def _literals(values: pa.Array) -> pa.Array:
    """Returns numbers, booleans and nested values as JSON texts."""
    if pa.types.is_boolean(values.type) or pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values.cast(pa.string())
    return pa.array([as_text(_plain(value, values.type)) for value in values.to_pylist()], pa.string())


def _plain(value: object, kind: pa.DataType) -> object:
    """Returns a nested value as objects and lists, as JSON has them. (Arrow returns maps as lists of pairs, and UUIDs
    as bytes.)
    """
    if isinstance(value, list) and pa.types.is_map(kind):
        return {name: _plain(item, kind.item_type) for name, item in value}
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item, kind.field(name).type) for name, item in value.items()}
    return str(uuid.UUID(bytes=value)) if isinstance(value, bytes) and kind == UUID_BYTES else value


def _variable_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Converts decimals that each come with their own scale, as structs of `scale` and `value`, to decimals of the type
    `target`. All values of one scale are converted together. Source: Debezium VariableScaleDecimal.
    """
    scales, numbers = pc.struct_field(values, ["scale"]), pc.struct_field(values, ["value"]).cast(pa.large_binary())
    decimals = pa.nulls(len(values), target)
    for scale in np.unique(scales.drop_null().to_numpy()):
        has_scale = pc.fill_null(pc.equal(scales, int(scale)), False)
        of_scale = if_else(has_scale, numbers, pa.scalar(None, pa.large_binary()))
        decimals = pc.coalesce(decimals, decimals_as(of_scale, int(scale), target))
    return decimals


def _none(values: pa.Array, shape: Shape, places: Longs, path: str, misfits: Misfits) -> pa.Array:
    """Returns nulls for values whose Avro type does not fit the column (`shape`). For each value that was not null,
    adds the record, the path and the reason to `misfits`.
    """
    for at in np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)):
        misfits.add(int(places[at]), path, f"{_shown(values[int(at)].as_py())} cannot become {shape.type}")
    return pa.nulls(len(values), shape.arrow)


def _shown(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else as_text(value) or ""
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
