"""Accepts rows that another library passes as a stream of Arrow data: Polars, pandas, DuckDB, or another table."""

from typing import Any, Protocol, TypeGuard, runtime_checkable

import pyarrow as pa


@runtime_checkable
class ArrowStream(Protocol):
    """An object that provides its rows as a stream of Arrow data."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@runtime_checkable
class ArrowArray(Protocol):
    """An object that provides its rows as one Arrow array of structs."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


def is_stream(data: object) -> TypeGuard[ArrowStream]:
    """Returns True if the rows come as a stream from a library other than pyarrow and Spark."""
    of_pyarrow = isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader)
    return isinstance(data, ArrowStream) and not of_pyarrow and not type(data).__module__.startswith("pyspark.")


def given(data: Any) -> Any:
    """Converts a stream or an array of another library to pyarrow, with types that Arrow can compute with. Returns any
    other data unchanged. A stream becomes a reader, which can be read once.
    """
    if is_stream(data):
        return _plain(pa.RecordBatchReader.from_stream(data))
    if isinstance(data, ArrowArray) and not isinstance(data, pa.RecordBatch | pa.Array):
        batch = pa.record_batch(data)
        return _plain(pa.RecordBatchReader.from_batches(batch.schema, [batch])).read_all()
    return data


def _plain(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    plain = pa.schema([field.with_type(plain_type(field.type)) for field in reader.schema])
    if plain.equals(reader.schema):
        return reader
    batches = (
        pa.RecordBatch.from_arrays(
            [_as_plain(a, f.type) for a, f in zip(batch.columns, plain, strict=True)], schema=plain
        )
        for batch in reader
    )
    return pa.RecordBatchReader.from_batches(plain, batches)


def _as_plain(array: pa.Array, plain: pa.DataType) -> pa.Array:
    if array.type == plain:
        return array
    if pa.types.is_dictionary(array.type):  # Arrow cannot decode a dictionary of views.
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain)).dictionary_decode()
    return array.cast(plain)


def plain_type(found: pa.DataType) -> pa.DataType:
    """Returns the plain type for a view type, because few functions of Arrow support views. Polars passes all strings
    as views.
    """
    if pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_binary_view(found):
        return pa.binary()
    if pa.types.is_dictionary(found):
        plain = plain_type(found.value_type)
        return found if plain == found.value_type else plain
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return pa.list_(found.value_field.with_type(plain_type(found.value_type)))
    if pa.types.is_map(found):
        return pa.map_(
            found.key_field.with_type(plain_type(found.key_type)),
            found.item_field.with_type(plain_type(found.item_type)),
        )
    if pa.types.is_struct(found):
        return pa.struct([field.with_type(plain_type(field.type)) for field in found])
    return found
