"""Finds out from the files of a table whether the table belongs to a REST catalog."""

from bucketline.conf.table.expiry_options import refuse_unregistered
from bucketline.conf.table.other_options import CATALOG_OF_TABLE
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.rest_table_io import owned_io


def check_owned(schema: TableSchema, io: FileIO, root: str) -> None:
    """Checks that the table or branch whose metadata is at `root` may be changed without a catalog.

    Raises UnsupportedTableError if a table of a catalog was opened by its path, because the catalog would not learn of
    the change. Tables of a catalog are recognised by an option. Only tables that bucketline created in a catalog have
    this option.
    """
    if owned_io(io) is None and CATALOG_OF_TABLE in schema.options:
        raise UnsupportedTableError(
            f"{root} belongs to a REST catalog, which would not learn of a change: open the table by its name "
            f"(bl.catalog). If the table has left the catalog, unset '{CATALOG_OF_TABLE}' with Paimon",
            path=root,
        )


def check_partitions_kept(schema: TableSchema, io: FileIO, root: str) -> None:
    """Some catalogs store the partitions of a table. Raises OptionError if the catalog of this table does so and would
    not learn of new partitions.
    """
    if owned_io(io) is None:
        refuse_unregistered(schema.options, root)
