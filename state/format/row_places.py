"""The columns that say where a row is stored: its file, its position in the file, its partition and its bucket.

No file contains these columns, and a read returns such a column only if the column is asked for by name. A column of
the table with the same name hides the column of this module.
Source: Paimon 2.0 PaimonMetadataColumn (Spark).
"""

from collections.abc import Iterable

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import TRACKED_NAMES, kept_schema
from bucketline.state.types.logical import MAX_LENGTH, DataField, DataType, TypeRoot

FILE_PATH = "__paimon_file_path"
ROW_INDEX = "__paimon_row_index"
PARTITION = "__paimon_partition"
BUCKET = "__paimon_bucket"

PLACES = (BUCKET, PARTITION, FILE_PATH, ROW_INDEX)

HIDDEN_NAMES = (*TRACKED_NAMES, *PLACES)
"""The columns that `*` does not include."""

_FIRST_ID = 2**31 - 1 - 103


def place_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """Returns the columns that say where a row of the table is stored, such as `__paimon_bucket`. The column for the
    partition is a struct of the partition columns. Names that the table uses for own columns are left out.
    """
    partition = DataType(TypeRoot.ROW, fields=schema.select(schema.partition_keys))
    types = {
        BUCKET: DataType(TypeRoot.INT),
        PARTITION: partition,
        FILE_PATH: DataType(TypeRoot.VARCHAR, length=MAX_LENGTH),
        ROW_INDEX: DataType(TypeRoot.BIGINT),
    }
    own = {f.name for f in schema.fields}
    return tuple(
        DataField(_FIRST_ID + n, name, kind) for n, (name, kind) in enumerate(types.items()) if name not in own
    )


def hidden_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """Returns the columns that a read may name although they are no columns of the table: the columns of this module
    and, if the table has row tracking, the columns of row tracking.
    """
    return (*kept_schema(schema).fields[len(schema.fields) :], *place_fields(schema))


def places_among(schema: TableSchema, columns: Iterable[str]) -> tuple[str, ...]:
    """Returns the names in `columns` that mean a place of a row, such as `__paimon_bucket` or `__paimon_file_path`. A
    name is left out if the table has a column with this name.
    """
    named = tuple(name for name in columns if name in PLACES)
    if not named:
        return ()
    own = {f.name for f in schema.fields}
    return tuple(name for name in named if name not in own)


def read_fields(schema: TableSchema, columns: tuple[str, ...]) -> tuple[DataField, ...]:
    """Returns the field of each column in `columns`, in this order. `columns` may also have hidden columns
    (`hidden_fields`).
    """
    if not places_among(schema, columns):
        return kept_schema(schema).select(columns)
    known = {f.name: f for f in (*place_fields(schema), *kept_schema(schema).fields)}
    return tuple(known[name] for name in columns)
