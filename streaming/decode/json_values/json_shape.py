"""Describes which JSON values a column accepts: a tree of logical types, with the JSON forms of each.

A leaf may come in several forms, one for each kind of JSON value: a whole number as `12` or as `"12"`. If the record
contains Debezium's schema, that schema decides the forms, because only the schema has the unit of a time and the scale
of a decimal.
Source: Flink 2.0 JsonToRowDataConverters; Paimon 2.0 DebeziumSchemaUtils; Debezium 3 data type mappings; Kafka 4.0
Connect logical types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from bucketline.conf.sources.message_options import BytesForm, Infinity
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.fit import map_types
from bucketline.state.types.logical import INTEGER_ROOTS, DataField, DataType, TypeRoot


class JsonKind(Enum):
    """The kinds of JSON values, apart from null. The JSON value of a leaf (a column or field that is no row, array or
    map) has one of these kinds, for example TEXT for "2024-01-31".
    """

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"


class ValueReading(Enum):
    """The ways in which a JSON value is converted to a value of a column. `json_convert` does the conversion."""

    PLAIN = "plain"  # the JSON type that corresponds to the table type
    TEXT = "text"  # a text as a person would write it
    COUNT = "count"  # whole number of units since the epoch or midnight
    ASSUMED_COUNT = "assumed count"  # the same in the unit of the table type, if the size of the number confirms that
    # unit
    BASE64 = "base64"
    BASE64_URL = "base64 for URLs"
    HEX = "hex"
    UTF8 = "UTF-8"  # a text whose bytes are the value
    BASE64_OR_HEX = "base64 or hex"  # base64; a text that may also be hex is refused
    TEXT_OR_BYTES = "text or bytes"  # the text of a number; one that may be base64 of a number as well is refused
    BITS = "bits"  # base64 of bytes, lowest byte first
    UNSIGNED = "unsigned"  # a signed 64-bit number that stands for an unsigned number
    SIGNED_OR_NOT = "signed or not"  # a number; a negative number that may stand for an unsigned number is refused
    DECIMAL_BYTES = "decimal bytes"  # base64 of a big-endian two's complement number
    PARTS = "parts"  # {"year": 2024, "month": 2, ...}: the parts of a date or a time
    COUNT_TEXT = "count as text"  # a whole number of units as a text; infinity is a word
    VARIABLE_DECIMAL = "variable decimal"  # {"scale": int, "value": base64}
    LITERAL = "literal"  # the JSON text of a value that is not a text
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Form:
    """A form in which a program may write a value that is neither a struct nor a list, for example a timestamp as a
    number of milliseconds. `unit` is the unit of such a number: 'd', 's', 'ms', 'us' or 'ns'.

    If `reason` is not empty, values in this form are refused with this reason. If `is_null_for_infinity` is true, an
    infinite time becomes null; otherwise it is refused.
    """

    kind: JsonKind
    reading: ValueReading
    unit: str = ""
    scale: int = 0
    reason: str = ""
    is_null_for_infinity: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of the table, with the forms in which JSON may write its values. A value that is not nested has `forms`
    (for example a date as a number of days, or as text). A row has `names` and one child for each name, an array has
    one child, a map has two.

    `arrow` is the Arrow type of the values that are read; all of its parts are nullable and without field ids.
    `is_envelope` is true for the shape of a Debezium event.
    `is_late` marks a column that is read separately (`late_columns`).
    """

    type: DataType
    arrow: pa.DataType
    forms: tuple[Form, ...] = ()
    names: tuple[str, ...] = ()
    children: "tuple[Shape, ...]" = ()
    is_envelope: bool = False
    is_late: bool = False

    @property
    def is_row(self) -> bool:
        return self.type.root is TypeRoot.ROW

    @property
    def is_map(self) -> bool:
        return self.type.root in (TypeRoot.MAP, TypeRoot.MULTISET)

    def form_of(self, kind: JsonKind) -> Form | None:
        return next((form for form in self.forms if form.kind is kind), None)


@dataclass(frozen=True, slots=True)
class Writing:
    """How a program writes values that no schema describes.

    `bytes_form` is None if it is not known how the program writes bytes. `infinity` says what an infinite time becomes,
    even in values that a schema describes. If `has_longtext_bytes` is true, BYTES columns hold the texts of a LONGTEXT.
    """

    bytes_form: BytesForm | None = BytesForm.BASE64
    is_debezium: bool = False
    infinity: Infinity = Infinity.REJECT
    has_longtext_bytes: bool = False


SourceSchema = Mapping[str, object]
"""One node of the `schema` in a Kafka Connect envelope: a JSON object with type, name, parameters, fields, items, keys,
values.
"""

_NO_SOURCE: SourceSchema = {}
PLAIN_JSON = Writing()

_REAL = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_STAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_DECIMAL_TARGETS = frozenset({TypeRoot.DECIMAL, *INTEGER_ROOTS}) | _REAL | _TEXTS

DATES = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
TIME_UNITS = {
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
STAMP_UNITS = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
_YEARS_AND_DURATIONS = frozenset(
    {"io.debezium.time.Year", "io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration"}
)
"""The names of Debezium's types for a year and for an interval. A number of such a type is no date, time or timestamp.
"""
SOURCE_PARTS = ("db", "schema", "table")
"""The fields of an event's `source` that contain the name of its table."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
SIGNED, UNSIGNED, TEXT = "bucketline.signed", "bucketline.unsigned", "bucketline.text"
"""bucketline's own names for types that a job declares; no schema of Connect has these names."""
MAP_ENTRIES = "bucketline.map-entries"
"""The type name of a map that is written as a list of entries, each with a key and a value."""
_COLUMN_TYPE, _COLUMN_LENGTH = "__debezium.source.column.type", "__debezium.source.column.length"
LONGTEXT = "LONGTEXT"
_BITS = "io.debezium.data.Bits"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"

_BYTES_READINGS = {
    BytesForm.BASE64: ValueReading.BASE64,
    BytesForm.BASE64_URL: ValueReading.BASE64_URL,
    BytesForm.HEX: ValueReading.HEX,
}
_UNSIGNED_DIGITS = (20, 0)
"""Precision and scale of the type for BIGINT UNSIGNED."""

_TEXT = Form(JsonKind.TEXT, ValueReading.TEXT)
_NUMBER = Form(JsonKind.NUMBER, ValueReading.PLAIN)
_BOOLEAN = Form(JsonKind.BOOLEAN, ValueReading.PLAIN)
_PARTS = Form(JsonKind.OBJECT, ValueReading.PARTS)
_NO_UNIT = Form(
    JsonKind.NUMBER,
    ValueReading.REFUSED,
    reason="the unit of a number is not known here; send ISO 8601 texts, or Debezium's schema with each record",
)


def row_shape(fields: Sequence[DataField], source: SourceSchema = _NO_SOURCE, writing: Writing = PLAIN_JSON) -> Shape:
    """Returns the shape of JSON objects with these columns: the type of each field, and the forms in which its values
    may be written.

    `source` is the schema that came with the object; empty if there is none. `writing` says how the source's program
    writes values that this schema does not describe. Raises UnsupportedTableError for columns that JSON cannot hold.
    """
    return shape_of(DataType(TypeRoot.ROW, fields=tuple(fields)), source, writing)


def shape_of(data_type: DataType, source: SourceSchema = _NO_SOURCE, writing: Writing = PLAIN_JSON) -> Shape:
    """Returns the shape of JSON values of this type: the type together with the forms in which the values may be
    written (see `Shape`). `source` is the schema of the value, if there is one; see `row_shape` for `writing`.
    """
    root = data_type.root
    if root is TypeRoot.ROW:
        known = source_fields(source)
        children = tuple(shape_of(f.type, known.get(f.name, _NO_SOURCE), writing) for f in data_type.fields)
        names = tuple(f.name for f in data_type.fields)
        arrow = pa.struct([pa.field(n, c.arrow) for n, c in zip(names, children, strict=True)])
        return Shape(data_type, arrow, names=names, children=children)
    if root in (TypeRoot.ARRAY, TypeRoot.VECTOR):
        assert data_type.element is not None
        # The type that a job declares for an array column is the type of its elements.
        items = _node(source, "items") if source.get("type") == "array" else source
        child = shape_of(data_type.element, items, writing)
        return Shape(data_type, pa.list_(child.arrow), children=(child,))
    if root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key_type, value_type = map_types(data_type)
        has_entries = source.get("name") == MAP_ENTRIES
        key = shape_of(key_type, _node(source, "keys") if has_entries else _NO_SOURCE)
        value = shape_of(value_type, _node(source, "values"), writing)
        if key.form_of(JsonKind.TEXT) is None and not has_entries:
            raise UnsupportedTableError(
                f"a map with keys of type {key_type} cannot be read from JSON, whose keys are strings",
                type=str(data_type),
            )
        return Shape(data_type, pa.map_(key.arrow, value.arrow), children=(key, value))
    return Shape(data_type, arrow_type(data_type), forms=_forms(data_type, source, writing))


def envelope_shape(row: Shape, before: Shape | None = None, source_parts: Sequence[DataField] = ()) -> Shape:
    """Returns the shape of a Debezium event: the rows before and after the change, the operation, and the name of the
    table.

    `before` is the shape of the row before the change, if it differs from `row`. `source_parts` are further fields to
    read from the field `source` of the event.
    """
    names = ("before", "after", "op", "source")
    text = DataType(TypeRoot.VARCHAR, length=2**31 - 1)
    others = [part for part in source_parts if part.name not in SOURCE_PARTS]
    source = row_shape([*(DataField(0, part, text) for part in SOURCE_PARTS), *others])
    children = (row if before is None else before, row, shape_of(DataType(TypeRoot.VARCHAR, length=1)), source)
    arrow = pa.struct([pa.field(n, c.arrow) for n, c in zip(names, children, strict=True)])
    return Shape(DataType(TypeRoot.ROW), arrow, names=names, children=children, is_envelope=True)


def _forms(data_type: DataType, source: SourceSchema, writing: Writing) -> tuple[Form, ...]:
    """Returns the forms in which the value of a leaf (a column or field that is no row, array or map) may be written in
    JSON. The expected form comes first. For example, a time may be a string, a number, or an object with its parts.
    """
    root, name = data_type.root, name_of(source)
    if root in _DECIMAL_TARGETS and name == _DECIMAL:
        return _decimal_forms(source)
    if root in _DECIMAL_TARGETS and name == _VARIABLE_DECIMAL:
        return (Form(JsonKind.OBJECT, ValueReading.VARIABLE_DECIMAL),)
    if (root in INTEGER_ROOTS or root is TypeRoot.DECIMAL) and name == _BITS:
        return (Form(JsonKind.TEXT, ValueReading.BITS), _BOOLEAN)
    if root in _DECIMAL_TARGETS and is_unsigned(source):
        return (Form(JsonKind.NUMBER, ValueReading.UNSIGNED), _TEXT)
    if root is TypeRoot.BOOLEAN:
        return (Form(JsonKind.BOOLEAN, ValueReading.PLAIN), _TEXT, _NUMBER)
    if root in _TEXTS:
        if writing.infinity is Infinity.TEXT and (name in DATES or name in STAMP_UNITS):
            unit = STAMP_UNITS.get(str(name), "d")
            return (Form(JsonKind.NUMBER, ValueReading.COUNT_TEXT, unit=unit), Form(JsonKind.TEXT, ValueReading.PLAIN))
        literals = (JsonKind.NUMBER, JsonKind.BOOLEAN, JsonKind.OBJECT, JsonKind.ARRAY)
        return (Form(JsonKind.TEXT, ValueReading.PLAIN), *(Form(kind, ValueReading.LITERAL) for kind in literals))
    if root in _BYTES:
        return (Form(JsonKind.TEXT, _reading_of_bytes(source, writing)),)
    if root is TypeRoot.TIME:
        return (_TEXT, _time_form(name), _PARTS)
    if root is TypeRoot.DATE or root in _STAMPS:
        number = _date_form(name) if root is TypeRoot.DATE else _stamp_form(data_type, name)
        is_null = writing.infinity is Infinity.NULL
        return tuple(replace(form, is_null_for_infinity=is_null) for form in (_TEXT, number, _PARTS))
    forms = _number_forms(data_type, source, writing)
    may_be_bit = source.get("type", "boolean" if writing.is_debezium else None) == "boolean"
    return (*forms, _BOOLEAN) if root in INTEGER_ROOTS and may_be_bit else forms


def column_in_source(source: SourceSchema) -> str:
    """Returns the type that a column has in the source's database: in capitals, with the length in brackets.

    The result is empty if the schema lacks the type (Debezium's column.propagate.source.type).
    """
    parameters = source.get("parameters")
    declared = parameters.get(_COLUMN_TYPE) if isinstance(parameters, Mapping) else None
    if not isinstance(declared, str) or not isinstance(parameters, Mapping):
        return ""
    length = parameters.get(_COLUMN_LENGTH)
    return declared.upper() if length is None or "(" in declared else f"{declared.upper()}({length})"


def is_unsigned(source: SourceSchema) -> bool:
    """Returns True if a node is a signed 64-bit number that stands for an unsigned number.

    This is so if the job says it, or if the schema contains the type that the column has in the source's database
    (Debezium's column.propagate.source.type) and this type is BIGINT UNSIGNED.
    """
    is_declared = column_in_source(source).startswith("BIGINT UNSIGNED")
    return source.get("name") == UNSIGNED or (is_declared and source.get("type") == "int64" and not source.get("name"))


def _reading_of_bytes(source: SourceSchema, writing: Writing) -> ValueReading:
    """Returns how a string is read as bytes. If the schema declares a string, the source has already converted the
    bytes to a string, so the string itself is the value.
    """
    if writing.has_longtext_bytes and column_in_source(source).startswith(LONGTEXT):
        return ValueReading.UTF8
    if source.get("type", "string") != "string":
        return ValueReading.BASE64
    return ValueReading.BASE64_OR_HEX if writing.bytes_form is None else _BYTES_READINGS[writing.bytes_form]


def _number_forms(data_type: DataType, source: SourceSchema, writing: Writing) -> tuple[Form, ...]:
    """Returns the forms in which a program may write a number in JSON. Without a schema, Debezium may write decimals
    as base64, and unsigned numbers as signed numbers.
    """
    name, kind = name_of(source), source.get("type")
    if not writing.is_debezium or name in (SIGNED, TEXT):
        return (_NUMBER, _TEXT)
    is_wide = data_type.root is TypeRoot.DECIMAL and (data_type.precision, data_type.scale) == _UNSIGNED_DIGITS
    number = Form(JsonKind.NUMBER, ValueReading.SIGNED_OR_NOT) if is_wide and kind in (None, "int64") else _NUMBER
    if source:
        return (number, _TEXT)
    return (
        number,
        Form(JsonKind.TEXT, ValueReading.TEXT_OR_BYTES),
        Form(JsonKind.OBJECT, ValueReading.VARIABLE_DECIMAL),
    )


def _decimal_forms(source: SourceSchema) -> tuple[Form, ...]:
    parameters = source.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, Mapping) else None
    try:
        return (Form(JsonKind.TEXT, ValueReading.DECIMAL_BYTES, scale=int(str(scale))),)
    except ValueError:
        reason = f"the scale of the decimal in the record's schema is not a number: {scale!r}"
        return (Form(JsonKind.TEXT, ValueReading.REFUSED, reason=reason),)


def _date_form(name: object) -> Form:
    if name in DATES:
        return Form(JsonKind.NUMBER, ValueReading.COUNT, unit="d")
    if _is_time_like(name):
        return _mismatch(name, "a date")
    return Form(JsonKind.NUMBER, ValueReading.ASSUMED_COUNT, unit="d")


def _time_form(name: object) -> Form:
    if name in TIME_UNITS:
        return Form(JsonKind.NUMBER, ValueReading.COUNT, unit=TIME_UNITS[str(name)])
    return _mismatch(name, "a time of day") if _is_time_like(name) else _NO_UNIT


def _stamp_form(data_type: DataType, name: object) -> Form:
    if name in STAMP_UNITS:
        return Form(JsonKind.NUMBER, ValueReading.COUNT, unit=STAMP_UNITS[str(name)])
    if name in DATES:
        return Form(JsonKind.NUMBER, ValueReading.COUNT, unit="d")
    if _is_time_like(name):
        return _mismatch(name, "a timestamp")
    return Form(JsonKind.NUMBER, ValueReading.ASSUMED_COUNT, unit=arrow_type(data_type).unit)


def _is_time_like(name: object) -> bool:
    return name in DATES or name in TIME_UNITS or name in STAMP_UNITS or name in _YEARS_AND_DURATIONS


def _mismatch(name: object, wanted: str) -> Form:
    return Form(JsonKind.NUMBER, ValueReading.REFUSED, reason=f"the source sends {name}, which is not {wanted}")


def name_of(source: SourceSchema) -> str | None:
    """Returns the name of a type in the schema of a record, for example `io.debezium.time.Date`. Returns None if the
    type has no name, or a name that is not a string.
    """
    name = source.get("name")
    return name if isinstance(name, str) else None


def source_fields(source: SourceSchema) -> dict[str, SourceSchema]:
    """Returns the fields of a struct's node, by name."""
    fields = source.get("fields")
    if not isinstance(fields, Sequence):
        return {}
    return {str(f.get("field")): f for f in fields if isinstance(f, Mapping)}


def _node(source: SourceSchema, name: str) -> SourceSchema:
    node = source.get(name)
    return node if isinstance(node, Mapping) else _NO_SOURCE
