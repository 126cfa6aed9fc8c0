"""Finds what values of records need and the table does not have: unknown fields, and wider types of columns.

A need is an Arrow type. For a row it is a struct of those fields that are new, that need a wider type, or that contain
such fields: the need of a row `{"id": 1, "tip": 0.5}` in a table with only the column `id` is `struct<tip: double>`. If
nothing is needed, the need is the null type.

Needs of several values are joined. Numbers get the smallest type that holds them; whole numbers and fractions together
get float64, which holds them approximately. Timestamps get the finer type. Other kinds of values get the type string,
which holds all of them.

Whole numbers get the type int64 (decimals of 38 digits if they are larger), and fractions get float64. Strings get the
type string, even if they look like numbers or dates. Fields inside maps are ignored. An object with very many fields is
probably a map and becomes a string; so does a deeply nested value.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from enum import Enum

import numpy as np
import pyarrow as pa

from bucketline.conf.sources.message_options import SAME_TYPES, TypeMappings
from bucketline.state.commit.widen import narrows
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.schema_need import SchemaNeed
from bucketline.streaming.decode.json_values.json_declared import declared_type
from bucketline.streaming.decode.json_values.json_exact import Literal, is_unicode, parse_json
from bucketline.streaming.decode.json_values.json_shape import Shape, SourceSchema, source_fields

NO_NEED = pa.null()

_MOST_FIELDS = 1000
_DEEPEST = 20
_GIANT = pa.decimal128(38, 0)
_WHOLE_DIGITS = {pa.int8(): (3, 0), pa.int16(): (5, 0), pa.int32(): (10, 0), pa.int64(): (19, 0)}
_UNITS = ("s", "ms", "us", "ns")

_WHOLE_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32}
_DOUBLE = DataType(TypeRoot.DOUBLE)


class WatchFor(Enum):
    """What decoders look for, beside the values, while they read records: nothing, values that need a wider type than
    their column has, or also fields that the table does not have.
    """

    NOTHING = "nothing"
    WIDER = "wider"  # values that are too large for the type of a known field
    ALL = "all"  # and unknown fields


def joined(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Returns one need that covers both needs."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {f.name: f.type for f in one}
        for f in other:
            fields[f.name] = joined(fields.get(f.name, NO_NEED), f.type)
        return pa.struct(list(fields.items())) if len(fields) <= _MOST_FIELDS else pa.string()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(joined(one.value_type, other.value_type))
    return _common(one, other)


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Returns the smallest type of numbers or timestamps that holds the values of both types; string if there is no
    such type.
    """
    kinds = (one, other)
    if all(pa.types.is_timestamp(k) for k in kinds) and one.tz == other.tz:
        return max(kinds, key=lambda k: _UNITS.index(k.unit))
    sizes = [_WHOLE_DIGITS.get(k, (k.precision, k.scale) if pa.types.is_decimal(k) else None) for k in kinds]
    if all(size or pa.types.is_floating(k) for k, size in zip(kinds, sizes, strict=True)):
        known = [size for size in sizes if size]
        scale = max((scale for _, scale in known), default=0)
        if len(known) < len(kinds):
            return pa.string() if scale else pa.float64()
        if all(k in _WHOLE_DIGITS for k in kinds):
            return max(kinds, key=lambda k: _WHOLE_DIGITS[k])
        digits = scale + max(digits - own for digits, own in known)
        return pa.decimal128(digits, scale) if digits <= _GIANT.precision else pa.string()
    return pa.string()


def joined_all(needs: Iterable[pa.DataType]) -> pa.DataType:
    """Returns one need that covers all of the given needs. A need is an Arrow type with the fields and wider types that
    the table lacks (see the top of this module); it is the null type if `needs` is empty.
    """
    all_needs = NO_NEED
    for need in needs:
        all_needs = joined(all_needs, need)
    return all_needs


def pruned(need: pa.DataType) -> pa.DataType:
    """Takes a need (fields and wider types that records have and the table lacks), and returns it without the fields
    whose type is not known. These are fields that were null, `{}` or `[]` in all records.
    """
    if pa.types.is_struct(need):
        kept = [(f.name, pruned(f.type)) for f in need if not pa.types.is_null(pruned(f.type))]
        return pa.struct(kept) if kept else NO_NEED
    if pa.types.is_list(need):
        element = pruned(need.value_type)
        return NO_NEED if pa.types.is_null(element) else pa.list_(element)
    return need


def part_of(need: pa.DataType, name: str) -> pa.DataType:
    """Takes the need of a struct (the type of what the table lacks for the struct). Returns the need of the struct's
    field `name`; NO_NEED if the table lacks nothing for this field.
    """
    at = need.get_field_index(name) if pa.types.is_struct(need) else -1
    return NO_NEED if at < 0 else need.field(at).type


def inferred(value: object, depth: int = 0) -> pa.DataType:
    """Returns the type for a parsed JSON value of an unknown field; see the top of this module. `depth` is the number
    of objects and lists around the value.
    """
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return pa.string()
    if isinstance(value, dict):
        if len(value) > _MOST_FIELDS:
            return pa.string()
        return pa.struct([(name, inferred(inner, depth + 1)) for name, inner in value.items() if is_unicode(name)])
    if isinstance(value, list):
        return pa.list_(joined_all(inferred(inner, depth + 1) for inner in value))
    if isinstance(value, Literal):
        return _number(value)
    if isinstance(value, bool):
        return pa.bool_()
    return NO_NEED if value is None else pa.string()


def need_of(value: object, shape: Shape, watch: WatchFor) -> pa.DataType:
    """Returns the need of a parsed JSON value: the fields and wider types that the value has and its column does not
    have. `shape` describes the column. Fields that are null or empty are included.
    """
    if shape.is_row:
        return _need_of_row(value, shape, watch) if isinstance(value, dict) else NO_NEED
    if shape.children:
        elements = value if isinstance(value, list) and not shape.is_map else []
        need = joined_all(need_of(element, shape.children[0], watch) for element in elements)
        return need if pa.types.is_null(need) else pa.list_(need)
    return _wider(value, shape.type) if isinstance(value, Literal) else NO_NEED


def _need_of_row(value: dict[str, object], shape: Shape, watch: WatchFor) -> pa.DataType:
    needs = []
    for name, child in zip(shape.names, shape.children, strict=True):
        need = need_of(value.get(name), child, watch)
        if not pa.types.is_null(need):
            needs.append((name, need))
    if watch is WatchFor.ALL:
        unknown = [name for name in value if name not in shape.names and is_unicode(name)]
        needs.extend((name, inferred(value[name])) for name in unknown)
    return pa.struct(needs) if needs else NO_NEED


def needs_of_texts(texts: pa.Array, shape: Shape) -> pa.DataType:
    """Takes JSON strings, and returns the columns and types that all of them together need and the `shape` lacks. The
    strings are parsed one by one. A string that is not JSON needs nothing.
    """
    need = NO_NEED
    for text in texts.to_pylist():
        with suppress(ValueError):
            need = joined(need, need_of(parse_json(text), shape, WatchFor.ALL))
    return need


def declared_need(source: SourceSchema, fields: Sequence[DataField], mapping: TypeMappings = SAME_TYPES) -> pa.DataType:
    """Returns a struct type with the fields that a Kafka Connect schema (`source`) declares and the row lacks. `fields`
    are the fields that the row has. A nested row that exists is in the result with the fields that are missing inside
    it. The types are the declared types after the job's type mapping.
    """
    known = {f.name: f.type for f in fields}
    needs = []
    for name, node in source_fields(source).items():
        if name not in known:
            needs.append((name, declared_type(node, mapping)))
        elif known[name].root is TypeRoot.ROW and node.get("type") == "struct":
            needs.append((name, declared_need(node, known[name].fields)))
    return pa.struct(needs) if needs else NO_NEED


def joined_needs(needs: Iterable[SchemaNeed]) -> SchemaNeed:
    """Takes needs (columns and types that records have and the table lacks). Returns one need that covers all of them,
    without fields whose type is not known.
    """
    return SchemaNeed(joined_all(need.type for need in needs))


def _number(text: str) -> pa.DataType:
    digits = text.removeprefix("-")
    if not digits.isdigit():
        return pa.float64()
    if len(digits) < 19 or -(2**63) <= Decimal(text) < 2**63:
        return pa.int64()
    return _GIANT if len(digits) <= _GIANT.precision else pa.float64()


def _wider(text: str, data_type: DataType) -> pa.DataType:
    """Returns the type that a column of type `data_type` needs to hold the number in `text`. Returns the null type if
    the column holds the number already, or may not change to a wider type.
    """
    if data_type.root is TypeRoot.FLOAT:
        return _double_for(float(text))
    bits = _WHOLE_BITS.get(data_type.root)
    if bits is None:
        return NO_NEED
    try:
        number = Decimal(text)
    except InvalidOperation:
        return NO_NEED
    if not number.is_finite() or number.adjusted() > 20:
        return NO_NEED
    if number != number.to_integral_value():
        return pa.float64() if narrows(data_type, _DOUBLE) is None else NO_NEED
    fits = -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)
    return pa.int64() if not fits and -(2**63) <= number < 2**63 else NO_NEED


def _double_for(value: float) -> pa.DataType:
    largest = float(np.finfo(np.float32).max)
    return pa.float64() if largest < abs(value) < float("inf") else NO_NEED
