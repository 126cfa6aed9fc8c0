"""The columns that tell where a row lies: in which file, at which position of the file, in which partition and bucket.

No file holds these columns, and a read returns only those that it names. A column of the table with the same name hides
the column of this module.
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
    """Returns the columns of places that rows of a table have. The partition is a struct of the partition columns."""
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
    """Returns the columns that a read of the table may name and that are not columns of the table: those of row
    tracking, if the table has it, and those of places.
    """
    return (*kept_schema(schema).fields[len(schema.fields) :], *place_fields(schema))


def places_among(schema: TableSchema, columns: Iterable[str]) -> tuple[str, ...]:
    """Returns those of the columns that tell where a row lies."""
    named = tuple(name for name in columns if name in PLACES)
    if not named:
        return ()
    own = {f.name for f in schema.fields}
    return tuple(name for name in named if name not in own)


def read_fields(schema: TableSchema, columns: tuple[str, ...]) -> tuple[DataField, ...]:
    """Returns the columns of a read, which may be hidden ones."""
    if not places_among(schema, columns):
        return kept_schema(schema).select(columns)
    known = {f.name: f for f in (*place_fields(schema), *kept_schema(schema).fields)}
    return tuple(known[name] for name in columns)
