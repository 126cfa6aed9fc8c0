"""A warehouse whose folders are the catalog: `<warehouse>/<database>.db/<table>`.

A database is a folder. A table is a folder with a schema. Source: Paimon 2.0 FileSystemCatalog, AbstractCatalog.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.table_name import DATABASE_SUFFIX, TableName
from bucketline.state.store.catalog.new_schema import publish_first_schema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.folders import make_folder, rename_folder
from bucketline.state.store.warehouse.metastore import TableAddress


@dataclass(frozen=True, slots=True)
class FolderMetastore:
    """The databases and tables below a folder. `warehouse` is the path or URI of the folder, without a slash at the
    end.
    """

    warehouse: str
    storage: Mapping[str, str] = field(repr=False)
    io: FileIO
    root: str

    @staticmethod
    def at(warehouse: str, storage: Mapping[str, str]) -> "FolderMetastore":
        """Returns the metastore of a warehouse, which need not exist."""
        io, root = file_io_for(warehouse, storage)
        is_path = ":" not in warehouse.partition("/")[0]
        return FolderMetastore(root if is_path else warehouse.rstrip("/"), storage, io, root)

    def databases(self) -> list[str]:
        names = [n for n in self.io.list_names(self.root) if n.endswith(DATABASE_SUFFIX)]
        return [n.removesuffix(DATABASE_SUFFIX) for n in names if n != DATABASE_SUFFIX]

    def has_database(self, name: str) -> bool:
        return name + DATABASE_SUFFIX in self.io.list_names(self.root)

    def make_database(self, name: str) -> bool:
        if self.has_database(name):
            return False
        make_folder(self.io, self._database(name))
        return True

    def remove_database(self, name: str) -> None:
        self.io.delete_folder(self._database(name))

    def tables(self, database: str) -> list[str]:
        folder = self._database(database)
        return [n for n in self.io.list_names(folder) if self._has_schema(f"{folder}/{n}")]

    def has_table(self, name: TableName) -> bool:
        return self._has_schema(self._table(name))

    def place(self, name: TableName) -> TableAddress:
        return TableAddress(f"{self.warehouse}/{name.database}{DATABASE_SUFFIX}/{name.table}", self.storage)

    def make_table(self, name: TableName, schema: TableSchema) -> bool:
        return publish_first_schema(self.io, self._table(name), schema)

    def remove_table(self, name: TableName) -> None:
        self.io.delete_folder(self._table(name))

    def rename_table(self, name: TableName, target: TableName) -> None:
        rename_folder(self.io, self._table(name), self._table(target))

    def _has_schema(self, folder: str) -> bool:
        return Schemas(self.io, folder).latest_id() is not None

    def _database(self, name: str) -> str:
        return f"{self.root}/{name}{DATABASE_SUFFIX}"

    def _table(self, name: TableName) -> str:
        return f"{self._database(name.database)}/{name.table}"
