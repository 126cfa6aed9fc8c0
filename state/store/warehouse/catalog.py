"""`Catalog`: the databases and tables of a warehouse, by name. The rules for names are here; a `Metastore` stores the
names.

Source: Paimon 2.0 AbstractCatalog, CatalogFactory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bucketline.conf.catalog_options import CatalogSettings, MetastoreKind, catalog_settings
from bucketline.conf.errors import OptionError
from bucketline.conf.table.external_options import EXTERNAL_PATHS
from bucketline.conf.table.read_options import BRANCH
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import DatabaseNotFoundError, TableNotFoundError, UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.table_name import (
    DEFAULT_DATABASE,
    TableName,
    check_case,
    check_database_name,
    parse_table_name,
)
from bucketline.state.store.catalog.alter import check_replaceable, replace_schema
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.store.catalog.schemas import readable_schemas
from bucketline.state.store.server.rest_settings import configured
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.overwrite import truncate_table
from bucketline.state.store.table.table import Table, handle_of, open_table
from bucketline.state.store.warehouse.folders import FolderMetastore
from bucketline.state.store.warehouse.metastore import Metastore, TableAddress
from bucketline.state.store.warehouse.rest_metastore import RestMetastore
from bucketline.state.store.warehouse.sql_metastore import SqlMetastore

_OUTSIDE = (EXTERNAL_PATHS.key, "global-index.external-path")
"""The options that put files of a table outside its folder."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Tables by name: `shop.orders` is the table `orders` of the database `shop`. A name without a dot is the name of a
    table in the database `default`.

    `catalog(...)` returns a catalog. A catalog can be pickled, and holds no connection.
    """

    settings: CatalogSettings
    metastore: Metastore
    world: World = field(default=SYSTEM_WORLD, repr=False)

    @property
    def warehouse(self) -> str:
        """Returns the path or URI of the warehouse, as it was passed to `catalog(...)`."""
        return self.settings.warehouse

    @property
    def table_defaults(self) -> dict[str, str]:
        """Returns the options that a new table gets if it does not set these options itself. A REST catalog is asked
        for its defaults.
        """
        is_rest = self.settings.metastore is MetastoreKind.REST
        return (configured(self.settings) if is_rest else self.settings).table_defaults

    def list_databases(self) -> list[str]:
        """Returns the names of all databases, sorted."""
        return sorted(self.metastore.databases())

    def create_database(self, name: str, *, exist_ok: bool = False) -> None:
        """Creates a database. Raises OptionError for an invalid name, and, unless `exist_ok`, for the name of a
        database that exists.
        """
        check_database_name(name)
        check_case_of(self.settings, TableName(name, ""))
        if not self.metastore.make_database(name) and not exist_ok:
            raise OptionError(f"Database {name} already exists.", key="database", value=name)

    def drop_database(self, name: str, *, missing_ok: bool = False, cascade: bool = False) -> None:
        """Removes a database; with `cascade` also its tables with all their rows.

        Raises DatabaseNotFoundError unless `missing_ok`; OptionError if the database has tables and `cascade` is not
        set.
        """
        check_database_name(name)
        if not self.metastore.has_database(name):
            if missing_ok:
                return
            raise _no_database(name, self)
        tables = self.metastore.tables(name)
        if tables and not cascade:
            raise OptionError(
                f"Database {name} is not empty: it has {', '.join(tables[:5])}; drop its tables first, or pass "
                "cascade=True, in SQL CASCADE",
                key="database",
                value=name,
            )
        for table in tables:
            self.drop_table(f"{name}.{table}", missing_ok=True)
        self.metastore.remove_database(name)

    def list_tables(self, database: str = DEFAULT_DATABASE) -> list[str]:
        """Returns the names of a database's tables, sorted, without the name of the database. Raises
        DatabaseNotFoundError.
        """
        check_database_name(database)
        names = self.metastore.tables(database)
        if not names and database != DEFAULT_DATABASE and not self.metastore.has_database(database):
            raise _no_database(database, self)
        return sorted(names)

    def has_table(self, name: str) -> bool:
        """Returns True if the table exists. If the name has a branch (`shop.orders$branch_test`), the table must also
        have this branch.
        """
        table_name = self._name(name)
        if not self.metastore.has_table(table_name.without_branch):
            return False
        return table_name.branch is None or table_name.branch in self.table(str(table_name.without_branch)).branches()

    def create_table(
        self,
        name: str,
        schema: pa.Schema | str,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        *,
        exist_ok: bool = False,
    ) -> Table:
        """Creates a table in a database that exists, opens the table and returns it. If the database `default` does not
        exist, it is created.

        With `exist_ok`, a table that exists is opened, whatever its columns and options. All other arguments, and the
        errors, are those of the function `create_table`; also raises DatabaseNotFoundError. All errors are raised
        before anything is written.
        """
        table_name = self._name(name, "create_table")
        planned = self._planned(schema, primary_key, partition_by, options, comment)
        if table_name.database == DEFAULT_DATABASE:
            self.metastore.make_database(DEFAULT_DATABASE)
        elif not self.metastore.has_database(table_name.database):
            raise _no_database(table_name.database, self)
        if not self.metastore.make_table(table_name, planned) and not exist_ok:
            raise OptionError(f"Table {table_name} already exists.", key="table", value=name)
        return self.table(name)

    def replace_table(
        self,
        name: str,
        schema: pa.Schema | str,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> Table:
        """Empties a table, gives it another schema with the same partition columns, and returns the table. Older
        snapshots stay.

        The replacement takes two steps. If the replacement is interrupted between the steps, the table is empty and has
        its old schema. No writer may be active. Arguments are those of `create_table`. Before anything is written,
        raises the errors of `create_table`, and TableNotFoundError.
        """
        planned = self._planned(schema, primary_key, partition_by, options, comment)
        self._name(name, "replace_table")
        handle = handle_of(self.table(name))
        check_replaceable(handle, planned)
        truncate_table(handle)
        replace_schema(handle, planned)
        return self.table(name)

    def _planned(
        self,
        schema: pa.Schema | str,
        primary_key: Sequence[str],
        partition_by: Sequence[str],
        options: Mapping[str, str] | None,
        comment: str | None,
    ) -> TableSchema:
        return plan_schema(
            schema,
            primary_key,
            partition_by,
            {**self.table_defaults, **(options or {})},
            comment,
            storage_options=self.settings.storage,
            time_ms=self.world.clock.now_ms(),
        )

    def table(self, name: str, *, options: Mapping[str, str] | None = None) -> Table:
        """Opens the table `name`, with its newest schema, and returns the table. `shop.orders$branch_test` is the
        branch `test` of the table `shop.orders`.

        `options` and errors are those of `open_table`. Also raises DatabaseNotFoundError, TableNotFoundError.
        """
        place, opening = self.place(name), self.read_options(name, options)
        try:
            return open_table(place.uri, options=opening, storage_options=place.storage, world=self.world)
        except TableNotFoundError as e:
            if not self.metastore.has_table(self._name(name).without_branch):
                raise self._no_table(self._name(name)) from e
            raise TableNotFoundError(
                f"the catalog has a table {name}, but there is no schema at {place.uri}; bring the folder of the table "
                "back, or drop the table",
                table=name,
                path=place.uri,
            ) from e

    def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """Removes a table and all its rows immediately. No writer may be active.

        Raises TableNotFoundError unless `missing_ok`; UnsupportedTableError for a table with files outside its folder.
        """
        table_name = self._name(name, "drop_table")
        if not self.metastore.has_table(table_name):
            if missing_ok:
                return
            raise self._no_table(table_name)
        place = self.metastore.place(table_name)
        for schema in readable_schemas(*file_io_for(place.uri, place.storage)):
            for key in _OUTSIDE:
                if key in schema.options:
                    raise UnsupportedTableError(
                        f"{table_name} has files outside its folder ('{key}'), which would not be removed; drop the "
                        "table with Paimon",
                        key=key,
                        path=place.uri,
                    )
        self.metastore.remove_table(table_name)

    def rename_table(self, name: str, to: str) -> None:
        """Renames a table. `to` must include the name of the database. No writer may be active.

        Raises TableNotFoundError, DatabaseNotFoundError; OptionError if the new name is taken; UnsupportedTableError on
        storage that cannot rename a folder in one step.
        """
        source, target = self._name(name, "rename_table"), self._name(to, "rename_table")
        if not self.metastore.has_table(source):
            raise self._no_table(source)
        if not self.metastore.has_database(target.database):
            raise _no_database(target.database, self)
        if self.metastore.has_table(target):
            raise OptionError(f"Table {target} already exists.", key="table", value=to)
        self.metastore.rename_table(source, target)

    def place(self, name: str) -> TableAddress:
        """Returns the address that opens a table in any process: the address of the table, or, if the table does not
        exist, the address at which the table would be created.

        Raises TableNotFoundError if the table does not exist and its address is not known before it is created.
        """
        table_name = self._name(name)
        try:
            return self.metastore.place(table_name.without_branch)
        except TableNotFoundError as e:
            raise self._no_table(table_name) from e

    def read_options(self, name: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the options with which a table is opened: `options`, and the option `branch` if the name has a
        branch.
        """
        branch, opening = self._name(name).branch, dict(options or {})
        if branch is not None:
            if opening.get(BRANCH.key, branch) != branch:
                raise OptionError(
                    f"{name!r} and '{BRANCH.key}' name two different branches; name only one branch", key=BRANCH.key
                )
            opening[BRANCH.key] = branch
        return opening

    def _name(self, text: str, action: str | None = None) -> TableName:
        """Parses the name of a table. If `action` is not None, the name may have no branch; `action` is the operation
        that the error names.
        """
        table_name = parse_table_name(text)
        check_case_of(self.settings, table_name)
        if action is not None and table_name.branch is not None:
            raise OptionError(
                f"{action} is for tables, and cannot be used for the branch {table_name.branch!r}",
                key="table",
                value=text,
            )
        return table_name

    def _no_table(self, name: TableName) -> TableNotFoundError | DatabaseNotFoundError:
        if not self.metastore.has_database(name.database):
            return _no_database(name.database, self)
        return TableNotFoundError(
            f"there is no table {name} in the warehouse {self.warehouse}; list_tables, or SHOW TABLES in SQL, "
            "names the tables",
            table=str(name),
        )


def catalog(warehouse: str | Mapping[str, str], storage_options: Mapping[str, str] | None = None) -> Catalog:
    """Returns the catalog of a warehouse. The warehouse is given by its path or URI, or by the options of the catalog,
    such as `{"warehouse": "s3://lake/wh"}`.

    `storage_options` say how the storage of the warehouse is reached; these options may also be among the catalog's
    options. Sends no request. Raises OptionError for unknown options.
    """
    return catalog_of(catalog_settings(warehouse, storage_options))


def catalog_of(settings: CatalogSettings) -> Catalog:
    """Returns the catalog for settings that have been checked. Sends no request."""
    if settings.metastore is MetastoreKind.JDBC:
        return Catalog(settings, SqlMetastore.of(settings))
    if settings.metastore is MetastoreKind.REST:
        return Catalog(settings, RestMetastore(settings))
    return Catalog(settings, FolderMetastore.at(settings.warehouse, settings.storage))


def check_case_of(settings: CatalogSettings, name: TableName) -> None:
    """Raises OptionError if the catalog does not allow capital letters and the name contains a capital letter."""
    if not settings.is_case_sensitive:
        check_case(name)


def _no_database(name: str, catalog: Catalog) -> DatabaseNotFoundError:
    return DatabaseNotFoundError(
        f"Database {name} does not exist in the warehouse {catalog.warehouse}; create it with create_database, or in "
        "SQL with CREATE DATABASE",
        database=name,
    )
