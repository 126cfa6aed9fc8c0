"""Tables that belong to a REST catalog, as far as their files tell it."""

from bucketline.conf.table.expiry_options import refuse_unregistered
from bucketline.conf.table.other_options import CATALOG_OF_TABLE
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.rest_table_io import owned_io


def check_owned(schema: TableSchema, io: FileIO, root: str) -> None:
    """Returns if the table or branch whose metadata is at `root` may be changed here.

    Raises UnsupportedTableError for a path to a table of a catalog, which would not learn of the change: tables that
    this library made in a catalog say so, others do not.
    """
    if owned_io(io) is None and CATALOG_OF_TABLE in schema.options:
        raise UnsupportedTableError(
            f"{root} belongs to a REST catalog, which would not learn of a change: open the table by its name "
            f"(bl.catalog). If it has left the catalog, unset '{CATALOG_OF_TABLE}' by Paimon",
            path=root,
        )


def check_partitions_kept(schema: TableSchema, io: FileIO, root: str) -> None:
    """Returns if a catalog that keeps the table's partitions learns of them. Raises OptionError."""
    if owned_io(io) is None:
        refuse_unregistered(schema.options, root)
