"""Reads JSON strings with Python's parser, a record at a time. This is the exact way to read JSON, for values that the
fast way (Arrow's reader) cannot read.

Numbers stay strings, so that the same Arrow casts convert them as in the fast way. If a value does not fit, its record
is bad, with a reason that contains the field; other records are not affected.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from bucketline.streaming.decode.json_values.json_convert import TOO_LARGE, NotConvertible, convert_leaf, raw_type
from bucketline.streaming.decode.json_values.json_shape import Form, JsonKind, Shape, ValueReading
from bucketline.streaming.decode.values.time_parts import PARTS

_REASON_CHARACTERS = 300
_SHOWN_CHARACTERS = 60
_NOT_JSON = "is not a JSON"
NO_OBJECT = f"{_NOT_JSON} object"
"""The end of the reason why a value is bad that should be an object and is not."""
_HALF = re.compile("[\ud800-\udfff]")


class Literal(str):
    """A JSON number, as it was written."""

    __slots__ = ()


class Doubled(dict[str, object]):
    """A JSON object in which a name occurs twice. The last value of the name counts, and the text of the object is kept
    as it was written.
    """

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    known = dict(pairs)
    return known if len(known) == len(pairs) else Doubled(pairs)


@dataclass(slots=True)
class Failures:
    """The first reason why each bad record is bad, by the record's number."""

    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, record: int, reason: str) -> None:
        self.reasons.setdefault(record, _shortened(reason, _REASON_CHARACTERS))


def parse_json(data: bytes) -> object:
    """Returns the value of a JSON string, with numbers as Literal. Raises ValueError with a reason."""
    try:
        return json.loads(
            data.decode("utf-8-sig"),
            parse_float=Literal,
            parse_int=Literal,
            parse_constant=Literal,
            object_pairs_hook=_object,
        )
    except RecursionError as e:
        raise ValueError("not readable as JSON: nested too deeply") from e
    except ValueError as e:
        if data[:1] == b"\0":
            # No text in JSON begins with this byte.
            raise ValueError(
                "no JSON: it begins with a zero byte, as records of a schema registry do; records in Avro are read "
                "with decode avro or debezium-avro; records of the JSON Schema and Protobuf converters are not read"
            ) from e
        raise ValueError(f"no JSON: {e}") from e


def build_array(values: Sequence[object], shape: Shape, failures: Failures) -> pa.Array:
    """Takes parsed values, and returns an array of the shape with as many values. A value that fails is null, and its
    position is noted in `failures`.
    """
    return _build(values, range(len(values)), shape, "", failures)


def kind_of(value: object) -> JsonKind:
    """Returns the kind of a parsed value that is not null."""
    return _KINDS[type(value)]


def _build(values: Sequence[object], records: Sequence[int], shape: Shape, path: str, failures: Failures) -> pa.Array:
    """Converts parsed values to an Arrow array for a column, or for a field or an element inside of a column. `shape`
    has the type. `records` has for each value the index of its record, and `path` says where in the records the values
    are; both are for error messages.
    """
    if shape.is_row:
        return _build_row(values, records, shape, path, failures)
    if shape.is_map:
        return _build_map(values, records, shape, path, failures)
    if shape.children:
        return _build_list(values, records, shape, path, failures)
    return _build_leaf(values, records, shape, path, failures)


def _build_row(
    values: Sequence[object], records: Sequence[int], shape: Shape, path: str, failures: Failures
) -> pa.Array:
    objects = [_only(dict, v, r, "object", path, failures) for v, r in zip(values, records, strict=True)]
    children = [
        _build(
            [None if o is None else o.get(name) for o in objects],
            records,
            child,
            f"{path}.{name}" if path else name,
            failures,
        )
        for name, child in zip(shape.names, shape.children, strict=True)
    ]
    absent = pa.array([o is None for o in objects], pa.bool_())
    if not children:
        return pa.array([None if o is None else {} for o in objects], shape.arrow)
    return pa.StructArray.from_arrays(children, fields=list(shape.arrow), mask=absent)


def _build_list(
    values: Sequence[object], records: Sequence[int], shape: Shape, path: str, failures: Failures
) -> pa.Array:
    lists = [_only(list, v, r, "array", path, failures) for v, r in zip(values, records, strict=True)]
    elements = [element for items in lists for element in items or ()]
    owners = [r for items, r in zip(lists, records, strict=True) for _ in items or ()]
    child = _build(elements, owners, shape.children[0], f"{path}[]", failures)
    return pa.ListArray.from_arrays(_offsets(lists), child, type=shape.arrow)


def _build_map(
    values: Sequence[object], records: Sequence[int], shape: Shape, path: str, failures: Failures
) -> pa.Array:
    maps = [_only(dict, _unpacked(v), r, "object", path, failures) for v, r in zip(values, records, strict=True)]
    owners = [r for entries, r in zip(maps, records, strict=True) for _ in entries or ()]
    keys = _build([k for m in maps for k in m or ()], owners, shape.children[0], f"{path} key", failures)
    if keys.null_count:  # the key has failed; Arrow's maps cannot hold a null key, and the record is bad anyway
        maps = [None if r in failures.reasons else m for m, r in zip(maps, records, strict=True)]
        return _build_map(maps, records, shape, path, failures)
    items = _build([v for m in maps for v in (m or {}).values()], owners, shape.children[1], f"{path}{{}}", failures)
    return pa.MapArray.from_arrays(_offsets(maps), keys, items, type=shape.arrow)


def _unpacked(value: object) -> object:
    """Returns the object in a JSON string, because Debezium sends an hstore in this form by default; any other value is
    returned unchanged.
    """
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return value
    try:
        return parse_json(value.encode())
    except ValueError:
        return value


def _only(
    wanted: Callable[..., object], value: object, record: int, kind_name: str, path: str, failures: Failures
) -> dict[str, object] | None:
    if value is None or (isinstance(wanted, type) and isinstance(value, wanted)):
        return value  # type: ignore[return-value]  # the caller asked for what it gets
    failures.add(record, f"{_place(path)}{show(value)} {_NOT_JSON} {kind_name}")
    return None


def _offsets(collections: Sequence[Mapping[str, object] | None]) -> pa.Array:
    """Returns the offsets at which the items of each list or map begin and end, among the items of all lists or maps.
    Arrow's constructors take the offsets in this form; a null list or map has a null offset.
    """
    ends = np.cumsum([0, *(len(c or ()) for c in collections)])
    return pa.array(ends.astype(np.int32), mask=np.array([*(c is None for c in collections), False]))


def _build_leaf(
    values: Sequence[object], records: Sequence[int], shape: Shape, path: str, failures: Failures
) -> pa.Array:
    leaf: pa.Array | None = None
    for kind, at in _by_kind(values):
        form = shape.form_of(kind)
        part: Sequence[object] = [value if value is not None and kind_of(value) is kind else None for value in values]
        if form is None:
            for i in at:
                failures.add(records[i], f"{_place(path)}{show(values[i])} cannot become {shape.type}")
            continue
        if form.reading is ValueReading.LITERAL:
            part = _literals(part, records, path, failures)
        array = _convert(part, records, shape, form, path, failures)
        leaf = array if leaf is None else pa.compute.coalesce(leaf, array)
    return pa.nulls(len(values), shape.arrow) if leaf is None else leaf


def _literals(values: Sequence[object], records: Sequence[int], path: str, failures: Failures) -> list[str | None]:
    """Returns the JSON texts of the values. A value that is nested too deeply to be written is noted in `failures`."""
    texts: list[str | None] = []
    for value, record in zip(values, records, strict=True):
        try:
            texts.append(None if value is None else json_text(value))
        except RecursionError:
            failures.add(record, f"{_place(path)}a value that is nested too deeply")
            texts.append(None)
    return texts


def _by_kind(values: Sequence[object]) -> Iterator[tuple[JsonKind, list[int]]]:
    at: dict[JsonKind, list[int]] = {}
    for i, value in enumerate(values):
        if value is not None:
            at.setdefault(kind_of(value), []).append(i)
    yield from at.items()


def _convert(
    values: Sequence[object], records: Sequence[int], shape: Shape, form: Form, path: str, failures: Failures
) -> pa.Array:
    """Returns all values converted, with null for values that fail. The values are converted together; if that fails,
    the bad values are found by halving.
    """
    try:
        return convert_leaf(_raw(values, shape, form), shape, form)
    except ValueError as e:
        if len(values) == 1:
            reason = f"{e}" if isinstance(e, NotConvertible) else f"cannot become {shape.type}"
            failures.add(records[0], f"{_place(path)}{show(values[0])} {reason}")
            return pa.nulls(1, shape.arrow)
    half = len(values) // 2
    return pa.concat_arrays(
        [
            _convert(values[:half], records[:half], shape, form, path, failures),
            _convert(values[half:], records[half:], shape, form, path, failures),
        ]
    )


def _raw(values: Sequence[object], shape: Shape, form: Form) -> pa.Array:
    wanted = raw_type(shape.type, form)
    if form.reading is ValueReading.VARIABLE_DECIMAL:
        return pa.array([None if v is None else _variable(v) for v in values], wanted)
    if form.reading is ValueReading.PARTS:
        return pa.array([None if v is None else _parts(v) for v in values], wanted)
    if pa.types.is_boolean(wanted):
        return pa.array(values, wanted)
    texts = pa.array(values, pa.string())
    if form.kind is JsonKind.NUMBER and pa.types.is_integer(wanted):
        return _whole_numbers(texts, values)
    if pa.types.is_floating(wanted):
        return _finite(texts, values)
    return texts.cast(wanted)


def _whole_numbers(texts: pa.Array, values: Sequence[object]) -> pa.Array:
    """Converts texts (`values` in Python) to 64-bit integers. `12.0` and `1.2e1` are whole numbers too, as in JSON."""
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else _whole(str(v)) for v in values], pa.int64())


def _whole(text: str) -> int:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise NotConvertible("is no whole number") from None
    if not number.is_finite() or number.adjusted() > 20 or number != number.to_integral_value():
        raise NotConvertible("is no 64-bit whole number")
    if not -(2**63) <= number < 2**63:
        raise NotConvertible("is no 64-bit whole number")
    return int(number)


def _variable(value: object) -> dict[str, object]:
    parts = value if isinstance(value, dict) else {}
    scale, number = parts.get("scale"), parts.get("value")
    if not isinstance(scale, Literal) or not isinstance(number, str):
        raise NotConvertible("is not a decimal with its scale")
    return {"scale": _whole(scale), "value": number}


def _parts(value: object) -> dict[str, object]:
    """Takes a date or time that was sent as a JSON object of its parts, such as `{"year": 2024, "month": 1, "day":
    31}`. Returns the parts that `time_parts` reads, by name. Raises NotConvertible for any other value.
    """
    given = value if isinstance(value, dict) else {}
    known = {f.name: given[f.name] for f in PARTS if given.get(f.name) is not None}
    if any(isinstance(part, Literal) is pa.types.is_string(PARTS.field(name).type) for name, part in known.items()):
        raise NotConvertible("is not an object with the parts of a date or time")
    return {n: _whole(part) if isinstance(part, Literal) else part for n, part in known.items()}


def _finite(texts: pa.Array, values: Sequence[object]) -> pa.Array:
    doubles = texts.cast(pa.float64())
    infinite = pa.compute.is_inf(doubles)
    if pa.compute.any(infinite).as_py():
        for value, is_infinite in zip(values, infinite.to_pylist(), strict=True):
            if is_infinite and "I" not in str(value):
                raise NotConvertible(TOO_LARGE)
    return doubles


def is_unicode(text: str) -> bool:
    """Returns True if a string is valid Unicode. JSON's escapes can contain one surrogate of a pair alone, which UTF-8
    cannot encode.
    """
    return text.isascii() or not _HALF.search(text)


def json_text(value: object) -> str:
    """Returns the compact JSON text of a parsed value. A string is returned unchanged, a number as it was written."""
    if isinstance(value, str):
        return str(value)
    return _nested_text(value)


def _nested_text(value: object) -> str:
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        pairs = value.pairs if isinstance(value, Doubled) else value.items()
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_nested_text(v)}" for k, v in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_nested_text(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def show(value: object) -> str:
    """Returns a parsed value as text for the reason why a record is bad; a long text is shortened. Single surrogates,
    which are not valid Unicode, are shown as escapes.
    """
    try:
        text = _shortened(_nested_text(value), _SHOWN_CHARACTERS)
        return text.encode(errors="backslashreplace").decode()
    except RecursionError:
        return "a value that is nested too deeply"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _place(path: str) -> str:
    return f"field {path}: " if path else "the record: "


_KINDS: dict[type, JsonKind] = {
    str: JsonKind.TEXT,
    Literal: JsonKind.NUMBER,
    bool: JsonKind.BOOLEAN,
    dict: JsonKind.OBJECT,
    Doubled: JsonKind.OBJECT,
    list: JsonKind.ARRAY,
}
