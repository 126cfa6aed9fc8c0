"""Column defaults: the value that replaces a null when a row is written. A null in a NOT NULL column is refused before
defaults apply.
Source: Paimon 2.0 DefaultValueRow, DefaultValueUtils: the text, without the quotes around it, cast to the column's
type.
"""

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.char_text import padded_value
from bucketline.state.types.logical import DataField
from bucketline.state.types.timestamp_text import cast_text


def fill_defaults(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The rows, with the default in place of each null. Shapes: the table's columns in table types, in and out."""
    for field in schema.fields:
        position = rows.schema.get_field_index(field.name)
        if field.default_value is None or position < 0 or not rows.column(position).null_count:
            continue
        filled = pc.fill_null(rows.column(position), default_scalar(field))
        rows = rows.set_column(position, rows.schema.field(position), filled)
    return rows


def default_scalar(field: DataField) -> pa.Scalar:
    """A column's default in the column's Arrow type.

    Raises UnsupportedTableError for nested columns, and for text that does not read as the column's type.
    """
    text = str(field.default_value)
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = text[1:-1]
    try:
        if not field.type.is_atomic:
            raise pa.ArrowInvalid("the column is nested")
        return cast_text(str(padded_value(text, field.type)), arrow_type(field.type))
    except pa.ArrowException as e:
        raise UnsupportedTableError(
            f"column {field.name!r} has the default value {field.default_value!r}, which cannot be filled in for "
            f"{field.type}: {e}; change or remove the default",
            column=field.name,
        ) from e
