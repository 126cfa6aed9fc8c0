"""Recognizes tables that belong to a REST catalog, as far as their files show it."""

from bucketline.conf.table.expiry_options import refuse_unregistered
from bucketline.conf.table.other_options import CATALOG_OF_TABLE
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.rest_table_io import owned_io


def check_owned(schema: TableSchema, io: FileIO, root: str) -> None:
    """Checks that the table or branch whose metadata is at `root` may be changed here.

    Raises UnsupportedTableError for a path to a table of a catalog, which would not learn of the change. Only tables
    that bucketline created in a catalog have the option that shows it.
    """
    if owned_io(io) is None and CATALOG_OF_TABLE in schema.options:
        raise UnsupportedTableError(
            f"{root} belongs to a REST catalog, which would not learn of a change: open the table by its name "
            f"(bl.catalog). If the table has left the catalog, unset '{CATALOG_OF_TABLE}' with Paimon",
            path=root,
        )


def check_partitions_kept(schema: TableSchema, io: FileIO, root: str) -> None:
    """Checks that a catalog that keeps the table's partitions will learn of new ones. Raises OptionError if not."""
    if owned_io(io) is None:
        refuse_unregistered(schema.options, root)
