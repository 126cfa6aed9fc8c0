"""Data files: Parquet in and out, with bounded memory, in the table's current columns.

Files are read by the column names of the schema version they were written under and mapped to the current schema by
field id. Written files carry what Paimon's readers rely on: exact first and last key, sequence range, retract count.
Source: Paimon 2.0 DataFileRecordReader, FormatReaderMapping, KeyValueDataFileWriter, RollingFileWriter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.state.errors import CorruptFileError, StorageError, UnsupportedTableError
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta
from bucketline.state.format.paths import extension_of
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.file_io import FileIO
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND, arrow_field, arrow_type, key_value_fields
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.cast import read_column
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.values import to_scalar

BATCH_ROWS = 32768
"""Rows in a record batch that a reader hands out, unless told otherwise."""

_BUFFER_BYTES = 1 << 20
"""Bytes fetched at once for one column, so that a reader never holds a whole column of a row group."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Where one wanted column comes from: a file column under its stored name and type, or the same value for all."""

    wanted: DataField
    stored: DataField | None = None
    constant: pa.Scalar | None = None


def read_schema(schema: TableSchema, columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of what `read_data_file` yields for these columns, system columns included."""
    return pa.schema([arrow_field(_field(schema, name)) for name in columns])


def read_data_file(
    io: FileIO,
    path: str,
    meta: DataFileMeta,
    schema: TableSchema,
    columns: Sequence[str],
    *,
    stored: TableSchema,
    partition: bytes = EMPTY_ROW,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The file's rows in file order, as batches of at most `batch_rows` with schema `read_schema(schema, columns)`.

    `columns` are columns of `schema` (the current one), `_SEQUENCE_NUMBER` or `_VALUE_KIND`; `stored` is the schema
    version the file was written under. Partition columns get their value from `partition`, columns the file does not
    have are null, columns of another type are cast.
    Raises CorruptFileError when the file is not what its metadata says, UnsupportedTableError for another format,
    StorageError when it cannot be fetched.
    """
    if extension_of(meta.file_name) != "parquet":
        raise UnsupportedTableError(f"{path}: only parquet data files can be read", path=path)
    sources = _sources(schema, stored, columns, partition)
    out = read_schema(schema, columns)
    with io.open_input(path) as source:
        try:
            yield from _read_batches(source, path, meta, sources, out, batch_rows)
        except (pa.ArrowException, OSError) as e:
            if isinstance(e, OSError) and e.errno is not None:
                raise StorageError(f"{path}: {e}", path=path, retryable=True) from e
            raise CorruptFileError(f"{path}: {e}", path=path) from e


def _read_batches(
    source: pa.NativeFile, path: str, meta: DataFileMeta, sources: Sequence[_Column], out: pa.Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    if source.size() != meta.file_size:
        raise CorruptFileError(
            f"{path}: {source.size()} bytes, {meta.file_size} recorded", path=path, expected=meta.file_size
        )
    file = pq.ParquetFile(
        source,
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=_int96_unit(sources),
    )
    if file.metadata.num_rows != meta.row_count:
        raise CorruptFileError(
            f"{path}: {file.metadata.num_rows} rows, {meta.row_count} recorded", path=path, expected=meta.row_count
        )
    present = set(file.schema_arrow.names)
    names = [s.stored.name for s in sources if s.stored is not None and s.stored.name in present]
    missing = [
        s.wanted.name for s in sources if s.wanted.name in (SEQUENCE, VALUE_KIND) and s.wanted.name not in present
    ]
    if missing:
        raise CorruptFileError(f"{path}: no column {missing[0]}", path=path, column=missing[0])
    for batch in (
        file.iter_batches(batch_size=batch_rows, columns=names) if names else _blank(meta.row_count, batch_rows)
    ):
        yield pa.RecordBatch.from_arrays([_read_one(batch, s) for s in sources], schema=out)


def _blank(row_count: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches that only have a row count, for reads that need no column of the file."""
    for start in range(0, row_count, batch_rows):
        rows = min(batch_rows, row_count - start)
        yield pa.record_batch([pa.nulls(rows)], names=[""])


def _read_one(batch: pa.RecordBatch, column: _Column) -> pa.Array:
    if column.constant is not None:
        return pa.repeat(column.constant, batch.num_rows)
    position = -1 if column.stored is None else batch.schema.get_field_index(column.stored.name)
    if position < 0 or column.stored is None:
        return pa.nulls(batch.num_rows, arrow_type(column.wanted.type))
    return read_column(batch.column(position), column.stored.type, column.wanted.type)


def _sources(schema: TableSchema, stored: TableSchema, columns: Sequence[str], partition: bytes) -> tuple[_Column, ...]:
    types = [f.type for f in schema.select(schema.partition_keys)]
    values = dict(zip(schema.partition_keys, decode_row(partition, types), strict=True)) if types else {}
    of_id = {f.id: f for f in (*stored.fields, *key_value_fields(stored))}
    found = []
    for name in columns:
        wanted = _field(schema, name)
        if name in values:
            found.append(_Column(wanted, constant=to_scalar(values[name], wanted.type)))
        else:
            found.append(_Column(wanted, stored=of_id.get(wanted.id)))
    return tuple(found)


def _field(schema: TableSchema, name: str) -> DataField:
    if name in (SEQUENCE, VALUE_KIND):
        return next(f for f in key_value_fields(schema) if f.name == name)
    return schema.field(name)


def _int96_unit(sources: Sequence[_Column]) -> str:
    """Nanoseconds when a column has them: only those are stored as INT96, and others must not lose far-off years."""
    return "ns" if any(s.stored is not None and _has_nanos(s.stored.type) for s in sources) else "us"


def _has_nanos(data_type: DataType) -> bool:
    children = (data_type.element, data_type.key, data_type.value, *(f.type for f in data_type.fields))
    if data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return (data_type.precision or 0) > 6
    return any(_has_nanos(c) for c in children if c is not None)
