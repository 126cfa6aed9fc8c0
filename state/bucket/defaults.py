"""Column defaults: the value that replaces a null when a row is written. A null in a NOT NULL column is refused before
defaults apply.

A default is stored as text. The text, without the quotes around it, is cast to the column's type. Nested values are
written `[a, b]` or `ARRAY('a', 'b')`, `{k -> v}` or `MAP('k', 'v')`, `{a, b}` or `STRUCT('a', 'b')`. Quotes around
strings in nested values are removed, as Paimon's documentation shows.
Source: Paimon 2.0 DefaultValueRow, DefaultValueUtils, StringToArrayCastRule and the rules for maps and rows.
"""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.char_text import padded_value
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.timestamp_text import cast_text, plain_value


def fill_defaults(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Returns the rows with each null replaced by the default of its column. `rows` must have the table's columns in
    the table's types.
    """
    for field in schema.fields:
        position = rows.schema.get_field_index(field.name)
        if field.default_value is None or position < 0 or not rows.column(position).null_count:
            continue
        filled = pc.fill_null(rows.column(position), default_scalar(field))
        rows = rows.set_column(position, rows.schema.field(position), filled)
    return rows


def check_defaults(schema: TableSchema) -> None:
    """Raises UnsupportedTableError if the default of a column cannot be converted to the column's type."""
    for field in schema.fields:
        if field.default_value is not None:
            default_scalar(field)


def default_scalar(field: DataField) -> pa.Scalar:
    """Returns a column's default in the column's Arrow type.

    Raises UnsupportedTableError if the text of the default cannot be converted to the column's type.
    """
    try:
        value = _value(str(field.default_value), field.type)
        return value if isinstance(value, pa.Scalar) else pa.scalar(value, arrow_type(field.type))
    except (pa.ArrowException, TypeError) as e:
        raise UnsupportedTableError(
            f"column {field.name!r} has the default value {field.default_value!r}, which cannot be filled in for "
            f"{field.type}: {e}; change or remove the default",
            column=field.name,
        ) from e


def left_out_value(field: DataField) -> pa.Scalar:
    """Returns the value of a column that a statement leaves out: its default, or null. Raises the errors of
    `default_scalar`.
    """
    return pa.scalar(None, arrow_type(field.type)) if field.default_value is None else default_scalar(field)


def _value(text: str, data_type: DataType) -> object:
    """Converts text to a value of the given type: a value that is not nested becomes an Arrow scalar; an ARRAY, MAP or
    ROW becomes a Python object that holds Python objects. Raises pa.ArrowInvalid if the text is not a value of the
    type.
    """
    if data_type.is_atomic:
        if len(text) > 1 and text[0] == text[-1] == "'":
            text = text[1:-1]
        return cast_text(str(padded_value(text, data_type)), arrow_type(data_type))
    if data_type.root is TypeRoot.ARRAY and data_type.element is not None:
        return [_inner(part, data_type.element) for part in _parts(text, "ARRAY", "[]")]
    if data_type.root is TypeRoot.MAP and data_type.key is not None and data_type.value is not None:
        parts = list(_parts(text, "MAP", "{}"))
        if text.strip()[:1] == "{":
            parts = [side for part in parts for side in part.split("->", 1)]
        if len(parts) % 2:
            raise pa.ArrowInvalid("a map needs a value for each key")
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [(_inner(key, data_type.key), _inner(value, data_type.value)) for key, value in pairs]
    if data_type.root is TypeRoot.ROW:
        parts = list(_parts(text, "STRUCT", "{}")) or ["null"] * len(data_type.fields)
        if len(parts) != len(data_type.fields):
            raise pa.ArrowInvalid(f"{len(parts)} values for {len(data_type.fields)} fields")
        return {f.name: _inner(part, f.type) for f, part in zip(data_type.fields, parts, strict=True)}
    raise pa.ArrowInvalid(f"a default of type {data_type.root.value} is not supported")


def _inner(text: str, data_type: DataType) -> object:
    text = text.strip()
    if text.lower() == "null":
        return None
    value = _value(text, data_type)
    return plain_value(value) if isinstance(value, pa.Scalar) else value


def _parts(text: str, name: str, brackets: str) -> Iterator[str]:
    """Yields the parts of `NAME(a, b)`, or of `a, b` between the two `brackets`. Commas in quotes and in inner brackets
    do not separate parts.
    """
    whole = text.strip()
    called = re.fullmatch(rf"(?is){name}\s*\((.*)\)", whole)
    if called is None and not (whole[:1] == brackets[0] and whole[-1:] == brackets[1]):
        raise pa.ArrowInvalid(f"expected {name}(...) or {brackets}")
    inner = whole[1:-1] if called is None else called[1]
    depth, quote, start = 0, "", 0
    for at, sign in enumerate(inner):
        if quote or sign in "'\"":
            quote = "" if sign == quote else quote or sign
        elif sign == "," and depth == 0:
            yield inner[start:at]
            start = at + 1
        else:
            depth += (sign in "([{<") - (sign in ")]}>" and inner[at - 1 : at] != "-")
    if inner.strip():
        yield inner[start:]
