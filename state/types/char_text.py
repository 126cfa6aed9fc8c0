"""CHAR(n): texts of exactly n characters, shorter ones with blanks at their end.

Blanks at the end of a value make no difference: `'ab'` and `'ab  '` are one value of CHAR(4).
Source: Spark 4.0 CharVarcharCodegenUtils and its setting `spark.sql.readSideCharPadding`, by which Paimon's Spark goes.
Paimon itself stores a CHAR as it is given, so that files of other writers may hold it without blanks.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, DataType, TypeRoot

_BLANK = " "


def pad(texts: pa.Array, data_type: DataType) -> pa.Array:
    """Returns the texts as a CHAR of that length is written: with blanks up to the length. A longer text first loses
    the blanks at its end.

    Nulls stay nulls. A text that is too long even without its blanks stays too long.
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
    """Returns one text, filled up with blanks as `pad` does."""
    return text.rstrip(_BLANK).ljust(data_type.length or 0, _BLANK)


def padded_value(value: object, data_type: DataType) -> object:
    """Returns an internal value of any type; a CHAR with its blanks."""
    return padded(value, data_type) if data_type.root is TypeRoot.CHAR and isinstance(value, str) else value


def is_padded(value: object, data_type: DataType) -> bool:
    """Whether an internal value is as this library writes it: a CHAR with its blanks, any other value as it is."""
    return padded_value(value, data_type) == value


def upper_bound(value: object, data_type: DataType) -> object:
    """Returns an upper bound of the values with their blanks, given an upper bound of the values as stored; None if
    nothing is known.
    """
    if data_type.root is not TypeRoot.CHAR or not isinstance(value, str):
        return value
    # A character below the blank comes before it: the value 'a' is above 'a\\t' with its blanks, and not without.
    return padded(value, data_type) if min(value, default=_BLANK) >= _BLANK else None


def chars_of(fields: Iterable[DataField]) -> dict[str, DataType]:
    """Returns the columns that are CHAR, and their types. One inside of a nested column is not looked for."""
    return {f.name: f.type for f in fields if f.type.root is TypeRoot.CHAR}


def pad_columns(batch: pa.RecordBatch, chars: Mapping[str, DataType]) -> pa.RecordBatch:
    """Returns the batch with blanks added to the texts of the CHAR columns in `chars`; one that the batch does not have
    is passed over.
    """
    for name, data_type in chars.items():
        position = batch.schema.get_field_index(name)
        if position >= 0:
            batch = batch.set_column(position, batch.schema.field(position), pad(batch.column(position), data_type))
    return batch
