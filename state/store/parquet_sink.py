"""How Parquet data files are written, so that Paimon Java reads them, filters them, and skips no row it should find.

Source: Paimon 2.0 ParquetSchemaConverter, ParquetFilters; run against Paimon Java.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.types.arrow import KEY_PREFIX, SEQUENCE, arrow_type
from bucketline.state.types.logical import DataField

_INTEGER_DIGITS = 18
"""Digits of a decimal that 64 bits hold; wider ones are bytes."""


class ParquetSink:
    """One file being written; closing it leaves the sink open."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema, *, codec: str, codec_level: int | None) -> None:
        self._stored = pa.schema([f.with_type(_without_required(f.type)) for f in schema])
        self._writer = parquet_writer(sink, self._stored, compression=codec, compression_level=codec_level)

    def write(self, group: pa.Table) -> None:
        """Adds a row group of at least one row; its columns are in order."""
        stored = group if group.schema.types == self._stored.types else group.cast(self._stored)
        self._writer.write_table(stored, row_group_size=group.num_rows)

    def close(self) -> None:
        """Writes the footer."""
        self._writer.close()


def parquet_writer(
    sink: pa.NativeFile, schema: pa.Schema, *, compression: str, compression_level: int | None
) -> pq.ParquetWriter:
    """A writer of one file with this physical schema; closing it leaves the sink open."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        compression_level=compression_level,
        use_dictionary=[f.name for f in schema if _has_dictionary(f)],
        # Statistics of floats leave NaN out, but for Java NaN is above all numbers: it would skip what it is to find.
        write_statistics=[f.name for f in schema if not pa.types.is_floating(f.type)],
        store_decimal_as_integer=True,
        use_deprecated_int96_timestamps=any(_holds_nanoseconds(f.type) for f in schema),
        write_page_checksum=True,
        store_schema=False,
    )


def refuse_mixed_timestamps(fields: Iterable[DataField]) -> None:
    """Refuses columns that pyarrow cannot write so that Java reads them: it makes all timestamps INT96, or none.

    Java reads TIMESTAMP(7..9) from INT96 alone; it reads coarser ones from it too, but fails to filter by them.
    Raises UnsupportedTableError.
    """
    types = [(f.name, arrow_type(f.type)) for f in fields]
    fine = [name for name, data_type in types if _holds_nanoseconds(data_type)]
    coarse = [name for name, data_type in types if pa.types.is_timestamp(data_type) and data_type.unit != "ns"]
    if fine and coarse:
        raise UnsupportedTableError(
            f"column {fine[0]!r} has finer timestamps than microseconds and {coarse[0]!r} has not; this release writes "
            "tables with one sort of them; declare all with a precision up to 6, or all with 7 to 9",
            column=fine[0],
        )


def _without_required(found: pa.DataType) -> pa.DataType:
    """The type with every nested value optional, which no reader minds.

    pyarrow refuses what is missing from a required field also where all that the field lies in is null.
    """
    if pa.types.is_struct(found):
        return pa.struct([_optional(f) for f in found])
    if pa.types.is_map(found):
        key = found.key_field
        return pa.map_(key.with_type(_without_required(key.type)), _optional(found.item_field))
    if pa.types.is_list(found):
        return pa.list_(_optional(found.value_field))
    return found


def _optional(field: pa.Field) -> pa.Field:
    return field.with_type(_without_required(field.type)).with_nullable(True)


def _has_dictionary(field: pa.Field) -> bool:
    """Whether a column is worth a dictionary, and Java can search it.

    Dictionaries of columns without repeated values cost time and are thrown away. Java looks for a wide decimal by its
    minimal bytes, and skips the row group when they are not in the dictionary, where every value has all its bytes.
    """
    if field.name == SEQUENCE or field.name.startswith(KEY_PREFIX):
        return False
    return not (pa.types.is_decimal(field.type) and field.type.precision > _INTEGER_DIGITS)


def _holds_nanoseconds(data_type: pa.DataType) -> bool:
    """Whether there is a timestamp finer than microseconds in a type, at any depth."""
    if pa.types.is_timestamp(data_type):
        return bool(data_type.unit == "ns")
    return any(_holds_nanoseconds(data_type.field(i).type) for i in range(data_type.num_fields))
