"""Reads data files of every format as rows in the table's current columns, in bounded memory.

A file is read by the column names of the schema version under which it was written, and its columns are mapped to the
current schema by field id. The ending of a file's name tells the file's format, so a table may have files of several
formats.

Source: Paimon 2.0 DataFileRecordReader, FormatReaderMapping.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError, StorageError, UnsupportedTableError
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.packed_changelog import part_of
from bucketline.state.format.paths import SCHEMA_DIR, extension_of, schema_name
from bucketline.state.store.datafile.column_mapping import ColumnSource, FileMapping, Mappings, wanted_fields
from bucketline.state.store.datafile.file_part import PartOfFile
from bucketline.state.store.datafile.formats import FileRows, format_named
from bucketline.state.store.datafile.orc_instants import check_instants, instant_bounds
from bucketline.state.store.datafile.parquet_rows import ParquetRows, RowGroup
from bucketline.state.store.datafile.stored_names import check_columns
from bucketline.state.store.datafile.stored_types import check_types
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.types.arrow import (
    SEQUENCE,
    VALUE_KIND,
    arrow_schema,
    arrow_type,
)
from bucketline.state.types.cast import Declare, read_column, with_placeholders
from bucketline.state.types.logical import DataField

BATCH_ROWS = 32768
"""The default for the largest number of rows in a record batch of a reader."""

BATCH_BYTES = 16 << 20
"""The default size of a reader's record batch, in bytes of Arrow data."""

LIBRARY_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, RecursionError, NotImplementedError)
"""The exceptions that format libraries raise for invalid bytes, besides their own error classes."""


def read_schema(schema: TableSchema, columns: Sequence[str]) -> pa.Schema:
    """Returns the Arrow schema of the batches that `read_data_file` yields for these columns, which may be system
    columns.
    """
    return arrow_schema(wanted_fields(schema, columns))


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """The size of batches: at most `rows` rows and about `bytes` bytes of Arrow data, but at least one row."""

    rows: int = BATCH_ROWS
    bytes: int = BATCH_BYTES


LIMIT = BatchLimit()

ChooseGroups: TypeAlias = Callable[[Callable[[str], list[RowGroup]]], list[RowGroup] | None]
"""The row groups of a file to read: None for all, their numbers, or a function that chooses them. The function gets
another function, which returns the row groups with the bounds of a column; the column is named as in the file.
"""


def read_data_file(
    io: FileIO,
    path: str,
    meta: DataFileMeta,
    schema: TableSchema,
    columns: Sequence[str],
    *,
    stored: TableSchema,
    partition: bytes = EMPTY_ROW,
    limit: BatchLimit = LIMIT,
    groups: Sequence[int] | ChooseGroups | None = None,
    mappings: Mappings | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the file's rows in file order, as batches with the schema `read_schema(schema, columns)`.

    `columns` are columns of `schema` (the current schema), `_SEQUENCE_NUMBER` or `_VALUE_KIND`. `stored` is the schema
    version under which the file was written. Partition columns get their value from `partition`; columns that the file
    does not have are null; columns of another type are cast. `groups` selects the row groups of a Parquet file to read
    (None: all): a list of their numbers (see `parquet_groups`), or a function that chooses row groups by their bounds.
    `mappings` are shared by all files of one read.

    Raises CorruptFileError if the file differs from its metadata, UnsupportedTableError for an unknown format,
    StorageError if the file cannot be fetched.
    """
    with naming_file(path):
        mapping = (mappings or Mappings()).of(schema, stored, meta, columns, partition)
    sources = mapping.sources
    part = part_of(meta.file_name)
    name = extension_of(meta.file_name) if part is None else part.format
    form = format_named(name)
    if form is None:
        raise UnsupportedTableError(f"{path}: data files of format {name!r} cannot be read", path=path, format=name)
    with io.open_input(path) as file, _naming(path) as place:
        source = file if part is None else pa.PythonFile(PartOfFile(file, part.offset, part.size_bytes), mode="r")
        if source.size() != meta.file_size:
            raise CorruptFileError(
                f"it has {counted(source.size(), 'byte')}, but {meta.file_size:,} are recorded in its metadata",
                offset=min(source.size(), meta.file_size),
            )
        place.rows = form.rows(source, stored.settings.files)
        is_exact = _is_exact(place.rows, mapping.declared)
        if not is_exact:
            _check_schema(place.rows, meta, stored)
        is_plain = is_exact and mapping.is_plain
        numbers = _numbers(groups, place.rows)
        bounds = instant_bounds(meta, stored)
        for batch in _stored_batches(place.rows, meta, mapping, limit, numbers):
            if is_plain:
                arrays = [batch.column(s.stored.name) for s in sources if s.stored is not None]
            else:
                arrays = [_read_one(batch, s, place.rows.declare) for s in sources]
            for array, s in zip(arrays, sources, strict=True):
                if not s.wanted.type.nullable and array.null_count:
                    raise _unexpected_nulls(s)
                if s.stored is not None and s.stored.name in bounds:
                    check_instants(array, s.wanted.name, bounds[s.stored.name])
            yield pa.RecordBatch.from_arrays(arrays, schema=mapping.out)


def parquet_groups(
    io: FileIO, path: str, meta: DataFileMeta, column: DataField, *, stored: TableSchema
) -> list[RowGroup] | None:
    """Returns the row groups of a file with the bounds of the current column `column`; None if the file is not Parquet.
    Raises the errors of `read_data_file`.

    The bounds are left out if the column has another name or type in the file.
    """
    if extension_of(meta.file_name) != "parquet":
        return None
    before = next((f for f in stored.fields if f.id == column.id), None)
    known = before is not None and before.type.as_nullable() == column.type.as_nullable()
    with io.open_input(path) as source, _naming(path):
        return ParquetRows(source).row_groups(before.name if known and before is not None else "")


def chosen_groups(io: FileIO, path: str, meta: DataFileMeta, choose: ChooseGroups) -> list[RowGroup] | None:
    """Returns the row groups of a file that `choose` selects by their bounds; None if `choose` selects all of them, or
    if the file is not Parquet.
    """
    if extension_of(meta.file_name) != "parquet":
        return None
    with io.open_input(path) as source, _naming(path):
        return choose(ParquetRows(source).row_groups)


def _unexpected_nulls(column: ColumnSource) -> CorruptFileError | UnsupportedTableError:
    name = column.wanted.name
    if column.stored is None or not column.stored.type.nullable:
        return CorruptFileError(f"column {name} is NOT NULL and holds nulls", column=name)
    return UnsupportedTableError(
        f"column {name} became NOT NULL after this file was written, and the file holds nulls in it: make the column "
        f"nullable again, with alter_column('{name}', nullable=True), and give these rows values first",
        column=name,
    )


@dataclass(slots=True)
class _Place:
    rows: FileRows | None = None

    @property
    def offset(self) -> int:
        return 0 if self.rows is None else self.rows.offset


@contextmanager
def _naming(path: str) -> Iterator[_Place]:
    """Adds the path of a data file, and the offset that its reader has reached, to errors that are raised in the `with`
    block. The block gets an object in which it stores the open file, so that the offset can be found.
    """
    place = _Place()
    try:
        yield place
    except CorruptFileError as e:
        with naming_file(path):
            raise (e.reworded(e.message, offset=place.offset) if e.offset is None else e) from e
    except UnsupportedTableError as e:
        raise e.reworded(f"{path}: {e.message}", path=e.path or path) from e
    except (*LIBRARY_ERRORS, pa.ArrowException, OSError) as e:
        if isinstance(e, OSError) and e.errno is not None:
            raise StorageError(f"{path}: {e}", path=path, retryable=True, missing=False) from e
        with naming_file(path):
            raise CorruptFileError(str(e), offset=place.offset) from e


def _is_exact(rows: FileRows, declared: pa.Schema | None) -> bool:
    """Returns True if an open file has exactly the columns, field ids and types in `declared`."""
    if not isinstance(rows, ParquetRows) or rows.int96_paths or rows.schema.metadata:
        return False
    return declared is not None and bool(rows.schema.equals(declared, check_metadata=True))


def _check_schema(rows: FileRows, meta: DataFileMeta, stored: TableSchema) -> None:
    """Raises CorruptFileError if the data file cannot have been written under the schema `stored`. The message names
    the schema file.
    """
    try:
        if meta.write_cols is None:
            check_columns(rows.names, rows.ids, stored.fields)
        check_types(rows.types, stored.fields, has_units=rows.has_units)
    except CorruptFileError as e:
        raise e.reworded(f"{e.message} ({SCHEMA_DIR}/{schema_name(stored.id)})") from e


def _numbers(groups: Sequence[int] | ChooseGroups | None, rows: FileRows) -> Sequence[int] | None:
    """Returns the numbers (from 0) of the row groups to read; None for all."""
    if groups is None or not callable(groups):
        return groups
    chosen = groups(rows.row_groups) if isinstance(rows, ParquetRows) else None
    return None if chosen is None else [g.number for g in chosen]


def _stored_batches(
    rows: FileRows,
    meta: DataFileMeta,
    mapping: FileMapping,
    limit: BatchLimit,
    groups: Sequence[int] | None,
) -> Iterator[pa.RecordBatch]:
    """Yields the wanted columns of an open file as they are stored. Raises CorruptFileError if the number of rows
    differs from the number in the manifest.
    """
    if rows.row_count is not None and rows.row_count != meta.row_count:
        raise CorruptFileError(
            f"it holds {counted(rows.row_count, 'row')}, but {meta.row_count:,} are recorded in its metadata",
            offset=rows.offset,
        )
    present, sources = set(rows.names), mapping.sources
    wanted = [s.stored.name for s in sources if s.stored is not None and s.stored.name in present]
    for s in sources:
        is_needed = s.wanted.name in (SEQUENCE, VALUE_KIND) and not s.wanted.type.nullable
        if is_needed and s.wanted.name not in present:
            raise CorruptFileError(f"no column {s.wanted.name}", column=s.wanted.name, offset=rows.offset)
    read = partial(rows.batches, wanted, limit.rows, limit.bytes)
    if isinstance(rows, ParquetRows):
        read = partial(rows.batches, wanted, limit.rows, limit.bytes, groups, sizes=mapping.sizes)
        if groups is not None:
            yield from read()
            return
    if not wanted and rows.row_count is not None:
        yield from _blank(meta.row_count, limit.rows)
        return
    seen = 0
    for batch in read():
        seen += batch.num_rows
        yield batch
    if seen != meta.row_count:
        raise CorruptFileError(
            f"it holds {counted(seen, 'row')}, but {meta.row_count:,} are recorded in its metadata", offset=rows.offset
        )


def _blank(row_count: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yields batches that have only a row count, for reads that need no column of the file."""
    for start in range(0, row_count, batch_rows):
        rows = min(batch_rows, row_count - start)
        yield pa.record_batch([pa.nulls(rows)], names=[""])


def _read_one(batch: pa.RecordBatch, column: ColumnSource, declare: Declare) -> pa.Array:
    if column.constant is not None:
        return pa.repeat(column.constant, batch.num_rows)
    position = -1 if column.stored is None else batch.schema.get_field_index(column.stored.name)
    if position < 0 or column.stored is None:
        return with_placeholders(pa.nulls(batch.num_rows, arrow_type(column.wanted.type)))
    try:
        return read_column(batch.column(position), column.stored.type, column.wanted.type, declare=declare)
    except UnsupportedTableError as e:
        raise UnsupportedTableError(f"column {column.wanted.name}: {e.message}", column=column.wanted.name) from e
