"""Writes Parquet data files so that Paimon Java can read and filter them without skipping a matching row.

Source: Paimon 2.0 ParquetSchemaConverter, ParquetFilters; tried with Paimon Java.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.storable import holds_nanoseconds
from bucketline.state.store.datafile.dictionary_choice import DictionaryChoice
from bucketline.state.types.arrow import KEY_PREFIX, SEQUENCE
from bucketline.state.types.buffers import own_copy

_INTEGER_DIGITS = 18
"""The number of decimal digits that 64 bits can hold. Decimals with more digits are stored as bytes."""


class ParquetSink:
    """Writes one file into an open stream. Closing this writer leaves the stream open. `first` are the first rows of
    the file; they decide which columns get dictionaries.
    """

    def __init__(
        self,
        sink: pa.NativeFile,
        schema: pa.Schema,
        *,
        codec: str,
        codec_level: int | None,
        first: pa.Table | None = None,
        dictionaries: DictionaryChoice | None = None,
    ) -> None:
        self._nested = [i for i, f in enumerate(schema) if _has_required(f.type)]
        self._writer = parquet_writer(
            sink, schema, compression=codec, compression_level=codec_level, first=first, dictionaries=dictionaries
        )

    def write(self, group: pa.Table) -> None:
        """Adds a row group of at least one row. The columns of `group` are in the order of the schema.

        Raises SchemaMismatchError for a null in a nested value that is NOT NULL.
        """
        for i in self._nested:
            column = group.column(i)
            chunks = [_filled(chunk, column.type, group.field(i).name) for chunk in column.chunks]
            group = group.set_column(i, group.field(i), pa.chunked_array(chunks, column.type))
        self._writer.write_table(group, row_group_size=group.num_rows)

    def close(self) -> None:
        """Writes the footer."""
        self._writer.close()


def parquet_writer(
    sink: pa.NativeFile,
    schema: pa.Schema,
    *,
    compression: str,
    compression_level: int | None,
    first: pa.Table | None = None,
    dictionaries: DictionaryChoice | None = None,
) -> pq.ParquetWriter:
    """Returns a writer of one file with this physical schema. Closing the writer leaves the sink open.

    Columns whose values hardly repeat in the rows `first` get no dictionary. `dictionaries` makes this choice, or uses
    the choice that it has made for earlier files.
    """
    possible = [f.name for f in schema if _has_dictionary(f)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        compression_level=compression_level,
        use_dictionary=possible if first is None else (dictionaries or DictionaryChoice()).of(possible, first),
        # Statistics of floats leave out NaN. For Java, NaN is greater than all numbers, so Java would skip matching
        # rows.
        write_statistics=[f.name for f in schema if not pa.types.is_floating(f.type)],
        store_decimal_as_integer=True,
        use_deprecated_int96_timestamps=any(holds_nanoseconds(f.type) for f in schema),
        write_page_checksum=True,
        store_schema=False,
    )


def _has_required(arrow: pa.DataType) -> bool:
    """Returns True if something inside a type is NOT NULL, apart from the keys of maps."""
    if pa.types.is_struct(arrow):
        return any(not f.nullable or _has_required(f.type) for f in arrow)
    if pa.types.is_map(arrow):
        return not arrow.item_field.nullable or _has_required(arrow.item_type)
    return pa.types.is_list(arrow) and (not arrow.value_field.nullable or _has_required(arrow.value_type))


def _filled(array: pa.Array, arrow: pa.DataType, name: str) -> pa.Array:
    """Returns the array with a value in place of each null in a NOT NULL field. Such a null is only allowed if the
    parent of the field is null; pyarrow refuses it even then. Raises SchemaMismatchError for other nulls in NOT NULL
    fields.
    """
    if not _has_required(arrow):
        return array
    if pa.types.is_struct(arrow):
        wanted = None if array.null_count == 0 else array.is_valid()
        children = [_required(array.field(i), f, wanted, name) for i, f in enumerate(arrow)]
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=array.is_null())
    if array.offset or array.null_count:
        array = own_copy(array)
    if pa.types.is_map(arrow):
        items = _required(array.items, arrow.item_field, None, name)
        contents = pa.StructArray.from_arrays([array.keys, items], fields=[arrow.key_field, arrow.item_field])
    else:
        contents = _required(array.values, arrow.value_field, None, name)
    return pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], children=[contents])


def _required(array: pa.Array, field: pa.Field, wanted: pa.Array | None, name: str) -> pa.Array:
    """Returns the array of a field, changed so that pyarrow can write it: no NOT NULL position is left without a value,
    neither in the field itself nor in nested fields. pyarrow asks for a value even where the parent is null.

    `wanted` has True where the parent has a value; None means everywhere. Raises SchemaMismatchError for a null in a
    NOT NULL field whose parent has a value.
    """
    array = _filled(array, field.type, name)
    if field.nullable or array.null_count == 0:
        return array
    missing = array.is_null() if wanted is None else pc.and_(array.is_null(), wanted)
    if pc.any(missing).as_py():
        raise SchemaMismatchError(f"column {name}: {field.name} is NOT NULL and holds nulls", column=name)
    if pa.types.is_struct(field.type):
        return pa.StructArray.from_arrays([array.field(i) for i in range(len(field.type))], fields=list(field.type))
    contents = []
    if pa.types.is_map(field.type):
        entry = [field.type.key_field, field.type.item_field]
        contents = [pa.StructArray.from_arrays([array.keys, array.items], fields=entry)]
    elif pa.types.is_list(field.type):
        contents = [array.values]
    count = 2 if contents else len(array.buffers())
    return pa.Array.from_buffers(
        field.type, len(array), [None, *array.buffers()[1:count]], 0, array.offset, children=contents
    )


def _has_dictionary(field: pa.Field) -> bool:
    """Returns True if a column may have a dictionary: its type often has repeated values, and Java can search the
    dictionary.

    For a column without repeated values, making a dictionary costs time, and pyarrow drops the dictionary in the end. A
    decimal that is stored as bytes gets no dictionary: Java searches the dictionary for the shortest form of a value's
    bytes, but the dictionary holds the full bytes. So Java would not find the value, and would skip the row group.
    """
    if field.name == SEQUENCE or field.name.startswith(KEY_PREFIX):
        return False
    return not (pa.types.is_decimal(field.type) and field.type.precision > _INTEGER_DIGITS)
