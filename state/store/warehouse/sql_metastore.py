"""Names of tables in a database, as Paimon's JDBC catalog stores them. The tables are in the folders of the warehouse.

Source: Paimon 2.0 JdbcCatalog.
"""

from dataclasses import dataclass

from bucketline.conf.catalog_link import CatalogLink
from bucketline.conf.catalog_options import CatalogSettings
from bucketline.conf.errors import OptionError
from bucketline.state.errors import TableNotFoundError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.table_name import DATABASE_SUFFIX, TableName
from bucketline.state.format.table_properties import table_properties
from bucketline.state.store.catalog.new_schema import publish_first_schema
from bucketline.state.store.server.sql_names import SqlNames
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.warehouse.folders import FolderMetastore
from bucketline.state.store.warehouse.metastore import TableAddress


@dataclass(frozen=True, slots=True)
class SqlMetastore:
    """The metastore of a JDBC catalog: names of tables in a database, and tables in the folders of a warehouse."""

    settings: CatalogSettings
    names: SqlNames
    folders: FolderMetastore

    @staticmethod
    def of(settings: CatalogSettings) -> "SqlMetastore":
        """Returns the metastore of a JDBC catalog. Raises OptionError if there is no driver for the
        database's address.
        """
        names = SqlNames.of(settings.jdbc)
        names.database.check()
        return SqlMetastore(settings, names, FolderMetastore.at(settings.warehouse, settings.storage))

    def databases(self) -> list[str]:
        return self.names.databases()

    def has_database(self, name: str) -> bool:
        return self.names.has_database(name)

    def make_database(self, name: str) -> bool:
        location = f"{self.folders.warehouse}/{name}{DATABASE_SUFFIX}"
        return self.names.add_database(name, {"exists": "true", "location": location})

    def remove_database(self, name: str) -> None:
        self.names.remove_database(name)

    def tables(self, database: str) -> list[str]:
        return self.names.tables(database)

    def has_table(self, name: TableName) -> bool:
        return self.names.has_table(name)

    def place(self, name: TableName) -> TableAddress:
        if not self.has_table(name):
            raise TableNotFoundError(f"there is no table {name} in the catalog", table=str(name))
        return self._place(name)

    def make_table(self, name: TableName, schema: TableSchema) -> bool:
        if self.has_table(name):
            return False
        place = self._place(name)
        if not publish_first_schema(*file_io_for(place.uri, place.storage), schema):
            if self.has_table(name):
                return False
            raise OptionError(
                f"there is a table at {place.uri} that the catalog does not know: another program is creating it, or "
                "was interrupted while it created it; register the table with Paimon's repair procedure, or move it "
                "away",
                key="table",
                path=place.uri,
            )
        properties = table_properties(schema) if self.settings.jdbc.syncs_properties else {}
        return self.names.add_table(name, properties)

    def remove_table(self, name: TableName) -> None:
        self.names.remove_table(name)
        self.folders.remove_table(name)

    def rename_table(self, name: TableName, target: TableName) -> None:
        with self.names.renaming(name, target):
            self.folders.rename_table(name, target)

    def _place(self, name: TableName) -> TableAddress:
        uri = self.folders.place(name).uri
        return TableAddress(uri, CatalogLink(self.settings, str(name), uri).as_options())
