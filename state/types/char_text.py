"""CHAR(n) values: strings of exactly n characters. A shorter string is filled up with spaces at its end.

Spaces at the end do not count: `'ab'` and `'ab  '` are the same value of CHAR(4).
Source: Spark 4.0 CharVarcharCodegenUtils and its setting `spark.sql.readSideCharPadding`, which Paimon's Spark
connector follows. Paimon itself stores a CHAR without changing it, so files of other writers may hold CHAR values that
are not filled up with spaces.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, DataType, TypeRoot

_BLANK = " "


def pad(texts: pa.Array, data_type: DataType) -> pa.Array:
    """Returns the strings as they are stored in a CHAR column: filled up with spaces to the length of `data_type`.

    A string that is longer loses the spaces at its end; if it is still too long, it stays too long. Nulls stay nulls.
    """
    length = data_type.length or 0
    lengths = pc.utf8_length(texts)
    shortest, longest = pc.min_max(lengths).values()
    if longest.is_valid and longest.as_py() > length:
        texts = if_else(pc.greater(lengths, length), pc.utf8_rtrim(texts, characters=_BLANK), texts)
        return pc.utf8_rpad(texts, width=length, padding=_BLANK)
    if shortest.is_valid and shortest.as_py() < length:
        return pc.utf8_rpad(texts, width=length, padding=_BLANK)
    return texts


def padded(text: str, data_type: DataType) -> str:
    """Returns one string, filled up with spaces as `pad` does."""
    return text.rstrip(_BLANK).ljust(data_type.length or 0, _BLANK)


def padded_value(value: object, data_type: DataType) -> object:
    """Returns a string of type CHAR filled up with spaces, and every other value unchanged."""
    return padded(value, data_type) if data_type.root is TypeRoot.CHAR and isinstance(value, str) else value


def is_padded(value: object, data_type: DataType) -> bool:
    """Returns False for a CHAR value that is not filled up with spaces, and True for every other value."""
    return padded_value(value, data_type) == value


def upper_bound(value: object, data_type: DataType) -> object:
    """Takes an upper bound of the stored values of a column, and returns an upper bound of the same values after CHAR
    values are filled up with spaces. Returns None if no such bound is known.
    """
    if data_type.root is not TypeRoot.CHAR or not isinstance(value, str):
        return value
    # A character below the space sorts before it: filled up with spaces, 'a' is above 'a\\t', but as stored it is not.
    return padded(value, data_type) if min(value, default=_BLANK) >= _BLANK else None


def chars_of(fields: Iterable[DataField]) -> dict[str, DataType]:
    """Returns the names and types of the CHAR columns. A CHAR inside a nested column is not included."""
    return {f.name: f.type for f in fields if f.type.root is TypeRoot.CHAR}


def pad_columns(batch: pa.RecordBatch, chars: Mapping[str, DataType]) -> pa.RecordBatch:
    """Returns the batch with the strings of its CHAR columns filled up with spaces.
    `chars` maps the names of CHAR columns to their types. A name that the batch does not have is ignored.
    """
    for name, data_type in chars.items():
        position = batch.schema.get_field_index(name)
        if position >= 0:
            batch = batch.set_column(position, batch.schema.field(position), pad(batch.column(position), data_type))
    return batch
