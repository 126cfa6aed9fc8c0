"""Finds, for each wanted column, the column of a file from which the wanted column is read. The search is made once for
all files that were written under the same schema with the same columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import TRACKED, written_fields
from bucketline.state.store.datafile.parquet_rows import TextSizes
from bucketline.state.types.arrow import SYSTEM_FIELDS, arrow_schema, key_value_fields
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataField
from bucketline.state.types.values import to_scalar

_MOST_MAPPINGS = 64


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where a wanted column comes from: a column of the file, with its stored name and type, or one value for
    all rows.
    """

    wanted: DataField
    stored: DataField | None = None
    constant: pa.Scalar | None = None


@dataclass(frozen=True, slots=True)
class FileMapping:
    """How the columns of files become the columns of a read.

    - `sources` says for each wanted column from which column of the file it comes, or which value it has in all rows.
    - `out` is the schema of the returned rows.
    - `declared` are the columns that the files should have, by the schema under which they were written; None if one of
      these columns has no Arrow type.
    - `is_plain` is True if the files hold every wanted column in the type that it has in the table.
    - `sizes` holds the sizes of strings in the files that were read with this mapping.
    """

    sources: tuple[ColumnSource, ...]
    out: pa.Schema
    declared: pa.Schema | None
    is_plain: bool
    sizes: TextSizes = field(default_factory=TextSizes, compare=False, repr=False)


class Mappings:
    """Remembers how the files of one table are read (FileMapping): from which column of a file each wanted column
    comes. Files that were written under the same schema with the same columns share a mapping.
    """

    def __init__(self) -> None:
        self._kept: dict[object, tuple[FileMapping, object]] = {}

    def __reduce__(self) -> tuple[type["Mappings"], tuple[()]]:
        # The keys contain the identities of schema objects, which differ in another process.
        return Mappings, ()

    def of(
        self, schema: TableSchema, stored: TableSchema, meta: DataFileMeta, columns: Sequence[str], partition: bytes
    ) -> FileMapping:
        """Returns the mapping for a file in a partition: it says from where each of `columns` comes, for example from a
        column of the file that has been renamed since. The file was written under the schema `stored`, and its rows are
        read as rows of `schema`. Equal calls share one mapping.
        """
        key = (id(schema), id(stored), meta.write_cols, tuple(columns), partition if schema.partition_keys else b"")
        entry = self._kept.get(key)
        if entry is None:
            if len(self._kept) >= _MOST_MAPPINGS:
                self._kept = {}
            # The entry also holds the schemas, so that no other schema object gets the same identity.
            entry = self._kept[key] = _mapping(schema, stored, meta, columns, partition), (schema, stored)
        return entry[0]


def wanted_fields(schema: TableSchema, names: Sequence[str]) -> list[DataField]:
    """Returns the columns with these names, which may be columns of the table or system columns."""
    known = {f.name: f for f in (*SYSTEM_FIELDS, *schema.fields)}
    return [known.get(name) or schema.field(name) for name in names]


def _mapping(
    schema: TableSchema, stored: TableSchema, meta: DataFileMeta, columns: Sequence[str], partition: bytes
) -> FileMapping:
    sources = _sources(schema, stored, meta, columns, partition)
    system = key_value_fields(stored) if stored.primary_keys else ()
    try:
        declared = arrow_schema((*system, *stored.fields))
    except UnsupportedTableError:
        # A column without an Arrow type may exist in the file. It is not read.
        declared = None
    return FileMapping(
        sources,
        arrow_schema([s.wanted for s in sources]),
        declared,
        all(s.stored is not None and s.stored.type == s.wanted.type for s in sources),
    )


def _sources(
    schema: TableSchema, stored: TableSchema, meta: DataFileMeta, columns: Sequence[str], partition: bytes
) -> tuple[ColumnSource, ...]:
    keys = schema.select(schema.partition_keys)
    stored_values = decode_row(partition, [k.type for k in keys]) if keys else ()
    values = dict(zip(schema.partition_keys, stored_values, strict=True))
    tracked = [f for f in TRACKED if f in stored.fields]
    of_id = {f.id: f for f in (*written_fields(stored, meta), *tracked, *key_value_fields(stored))}
    return tuple(
        ColumnSource(f, constant=to_scalar(values[f.name], f.type))
        if f.name in values
        else ColumnSource(f, stored=of_id.get(f.id))
        for f in wanted_fields(schema, columns)
    )
