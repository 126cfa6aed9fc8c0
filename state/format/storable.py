"""Refuses columns that the data files of a table cannot store.

A schema with a column that cannot be stored is refused before it is published. Otherwise nobody could write to the
table any more, and Paimon's Java code could not even open it if `file.format` is Avro.

Source: Paimon 2.0 SchemaValidation, AvroFileFormat, AvroSchemaVisitor.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from bucketline.conf.table.choices import FileFormat
from bucketline.conf.table.table_settings import DataFileSettings
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.avro.data_schema import data_schema, refuse_unread_by_java
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.logical import MAX_DEPTH, DataField, TypeRoot, depth_of, types_in

_NOT_IN_ORC = (TypeRoot.VARIANT, TypeRoot.BLOB, TypeRoot.VECTOR)


def check_storable(schema: TableSchema) -> None:
    """Checks that every file format in the table's options can store the table's columns so that Paimon's Java code can
    read them.

    Raises UnsupportedTableError, which names the column, if a format cannot, or if the column has too many types nested
    in each other.
    """
    for field in schema.fields:
        if depth_of(field.type) > MAX_DEPTH:
            raise UnsupportedTableError(
                f"column {field.name}: more than {MAX_DEPTH} types are nested in each other; nest fewer types",
                column=field.name,
            )
    for form in _formats(schema):
        refuse_columns(form, schema.fields)
        if form is FileFormat.AVRO:
            refuse_unread_by_java(schema.fields)


def refuse_columns(form: FileFormat, columns: Sequence[DataField], stored: Sequence[DataField] | None = None) -> None:
    """Raises UnsupportedTableError, which names the column, for a column that this release cannot write in the file
    format `form`.

    `columns` are the columns of the table. `stored` are the columns of the data file, which may have more columns than
    the table, for example `_KEY_` columns; if `stored` is None, the data file has the columns of the table.
    """
    match form:
        case FileFormat.PARQUET:
            _refuse_mixed_timestamps(columns)
        case FileFormat.ORC:
            _refuse_for_orc(columns)
        case FileFormat.AVRO:
            data_schema(columns if stored is None else stored)


def _formats(schema: TableSchema) -> list[FileFormat]:
    settings = schema.settings
    levels = range(settings.compaction.num_levels) if schema.primary_keys else range(1)
    formats = {settings.files.format_of(level) for level in levels}
    if settings.changelog.producer.writes_files:
        logged = DataFileSettings(settings.changelog.file_options)
        formats |= {logged.format_of(level) for level in levels}
    return sorted(formats, key=lambda form: form.value)


def _refuse_mixed_timestamps(columns: Iterable[DataField]) -> None:
    """Raises UnsupportedTableError for a table that has both timestamps finer than microseconds and other timestamps.

    Paimon's Java code reads TIMESTAMP(7..9) only if Parquet stores it as INT96. The Java code also reads other
    timestamps from INT96, but fails to filter by them. pyarrow can write either all timestamps of a file as INT96, or
    none.
    """
    types = [(f.name, arrow_type(f.type)) for f in columns]
    fine = [name for name, data_type in types if holds_nanoseconds(data_type)]
    coarse = [name for name, data_type in types if pa.types.is_timestamp(data_type) and data_type.unit != "ns"]
    if fine and coarse:
        raise UnsupportedTableError(
            f"column {fine[0]!r} has timestamps finer than microseconds and column {coarse[0]!r} has coarser "
            "timestamps; this release cannot write a table with both; declare all timestamps with a precision up to 6, "
            "or all with a precision from 7 to 9",
            column=fine[0],
        )


def holds_nanoseconds(data_type: pa.DataType) -> bool:
    """Returns True if a type is a timestamp finer than microseconds, or has such a timestamp nested in it."""
    if pa.types.is_timestamp(data_type):
        return bool(data_type.unit == "ns")
    return any(holds_nanoseconds(data_type.field(i).type) for i in range(data_type.num_fields))


def _refuse_for_orc(columns: Iterable[DataField]) -> None:
    for field in columns:
        unwritten = next((t for t in types_in(field.type) if t.root in _NOT_IN_ORC), None)
        if unwritten is not None:
            raise UnsupportedTableError(
                f"column {field.name}: this release cannot write {unwritten} in ORC; choose another type or file "
                "format",
                column=field.name,
            )
