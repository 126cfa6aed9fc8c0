"""Marks to which table an external folder belongs, with a small file that is written before the first data file.

Data files in an external folder have the path of their bucket, without the table's name. If two tables shared a folder,
their files could not be told apart, and the removal of orphan files of one table would remove files of the other.
"""

from bucketline.conf.table.external_options import EXTERNAL_PATHS
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.storage.file_io import FileIO, file_io_for

_NAME = ".bucketline-table"


def claim_folders(io: FileIO, path: str, schema: TableSchema) -> None:
    """Marks each external folder for new files as a folder of this table, by writing the identity of the table into it.
    If the folder is marked already, this costs one small read.

    Raises UnsupportedTableError for a folder of another table, and for storage that cannot publish.
    """
    for folder in schema.settings.paths.external_roots:
        place, root = file_io_for(folder, schema.storage)
        file, wanted = f"{root}/{_NAME}", _identity(io, path)
        identity = place.read_optional(file)
        if identity is None:
            place.require_publish()
            if not place.publish(file, wanted):
                identity = place.read_optional(file)
        if identity is not None and identity != wanted:
            raise UnsupportedTableError(
                f"{folder} holds files of another table, as {_NAME} there says; two tables cannot share a folder of "
                f"'{EXTERNAL_PATHS.key}': give {path} a folder of its own. If the files belong to this table, which "
                f"was moved, remove the file {_NAME}",
                path=folder,
                option=EXTERNAL_PATHS.key,
            )


def own_folders(io: FileIO, path: str, schema: TableSchema) -> list[str]:
    """Returns the external folders that belong to the table at `path` and to no other table."""
    folders = []
    for folder in schema.settings.paths.external_paths:
        try:
            place, root = file_io_for(folder, schema.storage)
            if place.read_optional(f"{root}/{_NAME}") == _identity(io, path):
                folders.append(folder)
        except StorageError:
            continue
    return folders


def _identity(io: FileIO, path: str) -> bytes:
    """Returns the identity of a table: its path, and the time at which its first schema was created. A copy of the
    table, or a table that was created again, has another identity.
    """
    first = Schemas(io, path).get(min(Schemas(io, path).ids(), default=0))
    return f"{path}\n{first.time_ms}\n".encode()
