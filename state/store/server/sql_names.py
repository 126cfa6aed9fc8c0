"""The rows that Paimon's JDBC catalog stores: tables, properties of databases and of tables, locks.

Source: Paimon 2.0 JdbcUtils, JdbcCatalog, AbstractDistributedLockDialect and its dialects.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from bucketline.conf.catalog_options import JdbcSettings
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import StorageError
from bucketline.state.format.table_name import TableName
from bucketline.state.store.server.sql_database import RowTakenError, SqlDatabase, SqlTransaction

_KEY = "catalog_key VARCHAR(255) NOT NULL"
_CREATE = {
    "paimon_tables": f"{_KEY}, database_name VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, "
    "PRIMARY KEY (catalog_key, database_name, table_name)",
    "paimon_database_properties": f"{_KEY}, database_name VARCHAR(255) NOT NULL, property_key VARCHAR(255), "
    "property_value VARCHAR(1000), PRIMARY KEY (catalog_key, database_name, property_key)",
    "paimon_table_properties": f"{_KEY}, database_name VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, "
    "property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000), "
    "PRIMARY KEY (catalog_key, database_name, table_name, property_key)",
}
_LOCKS = {
    "paimon_distributed_locks": "lock_id VARCHAR(255) NOT NULL, acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP "
    "NOT NULL, expire_time_seconds BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY (lock_id)",
}
_TABLES_WITH_PROPERTIES = ("paimon_tables", "paimon_table_properties")
_OF_DATABASE = "catalog_key = ? AND database_name = ?"
_OF_TABLE = f"{_OF_DATABASE} AND table_name = ?"
_FIRST_SLEEP_MS = 100


@dataclass(frozen=True, slots=True)
class SqlNames:
    """The databases and tables of the catalog `key`, whose names are stored in an SQL database. The SQL tables that
    hold these names are created before their first use.
    """

    database: SqlDatabase
    key: str

    @staticmethod
    def of(settings: JdbcSettings) -> "SqlNames":
        return SqlNames(SqlDatabase(settings.uri, settings.user, settings.password), settings.key)

    def databases(self) -> list[str]:
        with self._session() as session:
            names: set[str] = set()
            for table in ("paimon_tables", "paimon_database_properties"):
                rows = session.rows(f"SELECT DISTINCT database_name FROM {table} WHERE catalog_key = ?", self.key)
                names.update(str(row[0]) for row in rows)
        return sorted(names)

    def has_database(self, name: str) -> bool:
        return name in self.databases()

    def add_database(self, name: str, properties: Mapping[str, str]) -> bool:
        """Adds a database with its properties; returns False if it exists."""
        if self.has_database(name):
            return False
        with suppress(RowTakenError), self._session() as session:
            for key, text in sorted(properties.items()):
                session.change("INSERT INTO paimon_database_properties VALUES (?,?,?,?)", self.key, name, key, text)
            return True
        return False

    def remove_database(self, name: str) -> None:
        with self._session() as session:
            for table in (*_TABLES_WITH_PROPERTIES, "paimon_database_properties"):
                session.change(f"DELETE FROM {table} WHERE {_OF_DATABASE}", self.key, name)

    def tables(self, database: str) -> list[str]:
        with self._session() as session:
            rows = session.rows(f"SELECT table_name FROM paimon_tables WHERE {_OF_DATABASE}", self.key, database)
        return sorted(str(row[0]) for row in rows)

    def has_table(self, name: TableName) -> bool:
        with self._session() as session:
            return bool(session.rows(f"SELECT 1 FROM paimon_tables WHERE {_OF_TABLE}", *self._row(name)))

    def add_table(self, name: TableName, properties: Mapping[str, str]) -> bool:
        """Adds a table with its properties; returns False if it exists."""
        with suppress(RowTakenError), self._session() as session:
            session.change("INSERT INTO paimon_tables VALUES (?,?,?)", *self._row(name))
            _replace_properties(session, self._row(name), properties)
            return True
        return False

    def remove_table(self, name: TableName) -> None:
        with self._session() as session:
            for table in _TABLES_WITH_PROPERTIES:
                session.change(f"DELETE FROM {table} WHERE {_OF_TABLE}", *self._row(name))

    @contextmanager
    def renaming(self, name: TableName, target: TableName) -> Iterator[None]:
        """Renames a table in the catalog. If the `with` block, which does the other work of the renaming, fails, the
        table keeps its old name.
        """
        with self._session() as session:
            for table in _TABLES_WITH_PROPERTIES:
                session.change(
                    f"UPDATE {table} SET database_name = ?, table_name = ? WHERE {_OF_TABLE}",
                    target.database,
                    target.table,
                    *self._row(name),
                )
            yield

    def set_properties(self, name: TableName, properties: Mapping[str, str]) -> None:
        """Replaces the properties of a table."""
        with self._session() as session:
            _replace_properties(session, self._row(name), properties)

    def _row(self, name: TableName) -> tuple[str, str, str]:
        return self.key, name.database, name.table

    @contextmanager
    def _session(self) -> Iterator[SqlTransaction]:
        _make_missing(self.database, _CREATE)
        with self.database.session() as session:
            yield session


@dataclass(frozen=True, slots=True)
class SqlLock:
    """Paimon's lock of one table, in the database of a JDBC catalog. To lock the table, a process inserts a row, which
    a second process cannot insert as well. Any process may remove a row that is older than `timeout_ms`.
    """

    database: SqlDatabase
    lock_id: str
    timeout_ms: int
    longest_sleep_ms: int

    @contextmanager
    def held(self, world: World = SYSTEM_WORLD) -> Iterator[None]:
        """Holds the lock during a `with` block. Raises StorageError if the lock does not become free in time; the block
        is not run then.
        """
        _make_missing(self.database, _LOCKS)
        since, sleep_ms = world.stopwatch.elapsed_ms(), _FIRST_SLEEP_MS
        while not self._acquire():
            if world.stopwatch.elapsed_ms() - since > self.timeout_ms:
                raise StorageError(
                    f"the lock {self.lock_id!r} was not free within {self.timeout_ms} ms; if other processes hold the "
                    "lock for longer, raise 'lock-acquire-timeout'",
                    path=self.lock_id,
                    retryable=True,
                    missing=False,
                    published=False,
                )
            world.pause.wait_ms(min(sleep_ms, self.longest_sleep_ms))
            sleep_ms *= 2
        try:
            yield
        finally:
            with suppress(StorageError), self.database.session() as session:
                session.change("DELETE FROM paimon_distributed_locks WHERE lock_id = ?", self.lock_id)

    def _acquire(self) -> bool:
        age = "strftime('%s', 'now') - strftime('%s', acquired_at)"
        if not self.database.is_sqlite:
            age = "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))"
        with self.database.session() as session:
            session.change(
                f"DELETE FROM paimon_distributed_locks WHERE {age} > expire_time_seconds AND lock_id = ?", self.lock_id
            )
        with suppress(RowTakenError), self.database.session() as session:
            session.change(
                "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES (?,?)",
                self.lock_id,
                self.timeout_ms // 1000,
            )
            return True
        return False


def _replace_properties(session: SqlTransaction, row: tuple[str, str, str], properties: Mapping[str, str]) -> None:
    session.change(f"DELETE FROM paimon_table_properties WHERE {_OF_TABLE}", *row)
    for key, text in sorted(properties.items()):
        session.change("INSERT INTO paimon_table_properties VALUES (?,?,?,?,?)", *row, key, text)


def _make_missing(database: SqlDatabase, tables: Mapping[str, str]) -> None:
    """Creates the SQL tables in `tables` that do not exist in the database yet."""
    names = "sqlite_master" if database.is_sqlite else "information_schema.tables"
    column = "name" if database.is_sqlite else "table_name"
    with suppress(RowTakenError), database.session() as session:
        existing = {
            str(row[0]) for row in session.rows(f"SELECT {column} FROM {names} WHERE {column} LIKE ?", "paimon%")
        }
        for name in sorted(set(tables) - existing):
            session.change(f"CREATE TABLE IF NOT EXISTS {name}({tables[name]})")
