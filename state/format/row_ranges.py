"""Groups the files of a data evolution table by the rows that they hold. In a data evolution table, the columns of a
row can be in several files.

Every file has a range of row ids. Files with the same range hold different columns of the same rows, or newer values
of the same columns. A blob or vector file holds one column for a part of the range.

Source: Paimon 2.0 DataEvolutionSplitRead.mergeRangesAndSort, DataEvolutionUtils, RangeHelper, SpecialFields.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.arrow import SEQUENCE, SEQUENCE_FIELD_ID
from bucketline.state.types.logical import DataField, DataType, TypeRoot

ROW_ID = "_ROW_ID"
ROW_ID_FIELD_ID = 2**31 - 6

TRACKED = (
    DataField(ROW_ID_FIELD_ID, ROW_ID, DataType(TypeRoot.BIGINT)),
    DataField(SEQUENCE_FIELD_ID, SEQUENCE, DataType(TypeRoot.BIGINT)),
)
"""The columns that a table with row tracking has in addition to the columns of its schema."""

TRACKED_NAMES = tuple(f.name for f in TRACKED)


@dataclass(frozen=True, slots=True)
class RowRange:
    """The files of one range of row ids: `files` hold ordinary columns, newest file first, and `parts` are the blob and
    vector files.
    """

    first_row_id: int
    row_count: int
    files: tuple[DataFileMeta, ...]
    parts: tuple[DataFileMeta, ...] = ()

    @property
    def anchor(self) -> DataFileMeta:
        """Returns the file whose deletion vector counts for all files of the range. This is the oldest file with
        ordinary columns.
        """
        return min(self.files, key=lambda f: (f.max_sequence_number, f.file_name))


def with_tracked(schema: TableSchema) -> TableSchema:
    """Returns the schema with the columns of row tracking at its end."""
    return schema if has_tracked(schema) else replace(schema, fields=(*schema.fields, *TRACKED))


def has_tracked(schema: TableSchema) -> bool:
    """Returns True if the last columns of a schema are the columns of row tracking (row id and sequence number).
    Files that hold rows which were moved, but not changed, are written with such a schema.
    """
    return schema.fields[-len(TRACKED) :] == TRACKED


def has_row_ids(schema: TableSchema) -> bool:
    """Returns True if a schema has the column of row ids. Files with rows that were in the table before, changed or
    unchanged, are written with such a schema: these rows keep their row ids.
    """
    return any(field.name == ROW_ID for field in schema.fields)


def tracks_rows(schema: TableSchema) -> bool:
    """Returns True if the rows of the table have an id and a version, which readers get only if they ask for these
    columns by name.
    """
    return schema.settings.reading.row_tracking and not schema.primary_keys


def kept_schema(schema: TableSchema) -> TableSchema:
    """Returns the schema for reading rows and for writing files with unchanged rows. If the table has row tracking, the
    schema includes the columns of row tracking, because unchanged rows keep their ids and versions.
    """
    return with_tracked(schema) if tracks_rows(schema) else schema


def changed_schema(schema: TableSchema) -> TableSchema:
    """Returns the schema for writing rows that get new values. If the table has row tracking, the schema includes the
    row ids, which such rows keep, but not the versions, which come from the new file.
    """
    return replace(schema, fields=(*schema.fields, TRACKED[0])) if tracks_rows(schema) else schema


def written_fields(stored: TableSchema, file: DataFileMeta) -> tuple[DataField, ...]:
    """Returns the columns that a file holds. `stored` is the schema with which the file was written."""
    if file.write_cols is None:
        return stored.fields
    of_name = {f.name: f for f in stored.fields}
    return tuple(of_name[name] for name in file.write_cols if name in of_name)


def stats_fields(stored: TableSchema, file: DataFileMeta) -> tuple[DataField, ...]:
    """Returns the columns for which a file has statistics, in the order of the statistics. `stored` is the schema with
    which the file was written.
    """
    if file.value_stats_cols is not None:
        return with_tracked(stored).select(file.value_stats_cols)
    return written_fields(stored if file.write_cols is None else with_tracked(stored), file)


def is_blob_file(file: DataFileMeta) -> bool:
    return file.file_name.endswith(".blob")


def is_vector_file(file: DataFileMeta) -> bool:
    return ".vector." in file.file_name


def row_ranges(files: Iterable[DataFileMeta]) -> list[RowRange]:
    """Groups the files by their range of row ids, and returns the ranges in ascending order.

    Raises CorruptFileError for a file without row ids, for two different ranges that overlap, and for a range without a
    file of ordinary columns.
    """
    ordered = sorted(files, key=lambda f: (_first(f), f.row_count, f.file_name))
    groups: list[list[DataFileMeta]] = []
    end = -1
    for file in ordered:
        if groups and _first(file) < end:
            groups[-1].append(file)
        else:
            groups.append([file])
        end = max(end, _first(file) + file.row_count)
    return [_range_of(group) for group in groups]


def _range_of(group: list[DataFileMeta]) -> RowRange:
    parts = [f for f in group if is_blob_file(f) or is_vector_file(f)]
    files = sorted((f for f in group if f not in parts), key=lambda f: -f.max_sequence_number)
    if not files:
        raise CorruptFileError(f"no file holds the ordinary columns of the rows in {parts[0].file_name}")
    first, rows = _first(files[0]), files[0].row_count
    for file in files[1:]:
        if (_first(file), file.row_count) != (first, rows):
            raise CorruptFileError(
                f"{file.file_name} holds the rows {_first(file)} to {_first(file) + file.row_count - 1}, but "
                f"{files[0].file_name} holds the rows {first} to {first + rows - 1}: files that overlap must hold the "
                "same rows",
                file=file.file_name,
            )
    for part in parts:
        if _first(part) < first or _first(part) + part.row_count > first + rows:
            raise CorruptFileError(f"{part.file_name} has rows that {files[0].file_name} does not have")
    return RowRange(first, rows, tuple(files), tuple(parts))


def _first(file: DataFileMeta) -> int:
    if file.first_row_id is None:
        raise CorruptFileError(
            f"{file.file_name} has no row ids, which a table with data evolution needs", file=file.file_name
        )
    return file.first_row_id
