"""Names of tables on a server that speaks Paimon's REST protocol. The server also decides which state of each table is
the newest.

Source: Paimon's OpenAPI description of the REST catalog; Paimon 2.0 RESTCatalog.
"""

from dataclasses import dataclass, replace

from bucketline.conf.catalog_link import CatalogLink
from bucketline.conf.catalog_options import CatalogSettings
from bucketline.conf.errors import OptionError
from bucketline.conf.table.other_options import CATALOG_OF_TABLE
from bucketline.state.errors import DatabaseNotFoundError, TableNotFoundError
from bucketline.state.format.json_files.rest_json import new_schema_json
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.table_name import TableName
from bucketline.state.store.server.rest_client import NotThereError, RestClient, TakenError
from bucketline.state.store.server.rest_settings import configured, rest_client
from bucketline.state.store.server.rest_table import table_path
from bucketline.state.store.warehouse.metastore import TableAddress

_DATABASES = "databases"


@dataclass(frozen=True, slots=True)
class RestMetastore:
    """The names of tables in a REST catalog. The first request also asks for the server's configuration."""

    settings: CatalogSettings

    @property
    def client(self) -> RestClient:
        return rest_client(configured(self.settings).rest)

    def databases(self) -> list[str]:
        return self.client.names("databases", _DATABASES)

    def has_database(self, name: str) -> bool:
        return self._exists(_DATABASES, name)

    def make_database(self, name: str) -> bool:
        try:
            self.client.post({"name": name, "options": {}}, _DATABASES)
        except TakenError:
            return False
        return True

    def remove_database(self, name: str) -> None:
        try:
            self.client.delete(_DATABASES, name)
        except NotThereError:
            return

    def tables(self, database: str) -> list[str]:
        try:
            return self.client.names("tables", _DATABASES, database, "tables")
        except NotThereError:
            return []

    def has_table(self, name: TableName) -> bool:
        return self._exists(*table_path(name))

    def place(self, name: TableName) -> TableAddress:
        settings = configured(self.settings)
        try:
            answer = self.client.get(*table_path(name))
        except NotThereError as e:
            raise TableNotFoundError(f"there is no table {name}: {e.message}", table=str(name)) from e
        uri = str(answer.get("path") or "").rstrip("/")
        if not uri:
            raise TableNotFoundError(
                f"the catalog does not say where the table {name} is: the server's answer must have the field 'path'",
                table=str(name),
            )
        if answer.get("isExternal"):
            # The server knows only the name of such a table. As in Paimon, the table's files decide.
            return TableAddress(uri, settings.storage)
        uuid = answer.get("id")
        return TableAddress(
            uri, CatalogLink(settings, str(name), uri, None if uuid is None else str(uuid)).as_options()
        )

    def make_table(self, name: TableName, schema: TableSchema) -> bool:
        options = {**schema.options, CATALOG_OF_TABLE: self.settings.metastore.value}
        identifier = {"database": name.database, "object": name.table}
        body = {"identifier": identifier, "schema": new_schema_json(replace(schema, options=options))}
        try:
            self.client.post(body, _DATABASES, name.database, "tables")
        except TakenError:
            return False
        except NotThereError as e:
            raise DatabaseNotFoundError(f"Database {name.database} does not exist: {e.message}") from e
        return True

    def remove_table(self, name: TableName) -> None:
        try:
            self.client.delete(*table_path(name))
        except NotThereError:
            return

    def rename_table(self, name: TableName, target: TableName) -> None:
        source, destination = ({"database": n.database, "object": n.table} for n in (name, target))
        try:
            self.client.post({"source": source, "destination": destination}, "tables", "rename")
        except TakenError as e:
            raise OptionError(f"Table {target} already exists.", key="table", value=str(target)) from e
        except NotThereError as e:
            raise TableNotFoundError(f"there is no table {name}: {e.message}", table=str(name)) from e

    def _exists(self, *path: str) -> bool:
        try:
            self.client.get(*path)
        except NotThereError:
            return False
        return True
