"""A database that is reached by the JDBC address that Paimon uses: SQLite through Python's own driver, PostgreSQL
through psycopg.

A connection is opened for one transaction and closed after it, so objects with a `SqlDatabase` can be pickled.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import parse_qs

from bucketline.conf.errors import OptionError
from bucketline.conf.secrets import mask_text
from bucketline.state.errors import StorageError

_WAIT_S = 30


class _Cursor(Protocol):
    rowcount: int

    def execute(self, sql: str, parameters: Any) -> Any: ...

    def fetchall(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class SqlTransaction:
    """One transaction. In statements, `?` stands for a value."""

    cursor: _Cursor
    mark: str

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Returns the rows of a query."""
        self.cursor.execute(sql.replace("?", self.mark), values)
        return [tuple(row) for row in self.cursor.fetchall()]

    def change(self, sql: str, *values: object) -> int:
        """Carries out a statement, and returns the number of rows that it has changed."""
        self.cursor.execute(sql.replace("?", self.mark), values)
        return self.cursor.rowcount


class RowTakenError(Exception):
    """Raised if a row to insert has the key of an existing row."""


@dataclass(frozen=True, slots=True)
class SqlDatabase:
    """The database at a JDBC address (`jdbc:sqlite:/path`, `jdbc:postgresql://host:port/name`)."""

    uri: str
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"SqlDatabase({mask_text(self.uri)!r})"

    @property
    def is_sqlite(self) -> bool:
        return self.uri.startswith("jdbc:sqlite:")

    def check(self) -> None:
        """Raises OptionError if no driver for the address is installed, or if the address cannot be used. Opens no
        connection.
        """
        path = self.uri.removeprefix("jdbc:sqlite:")
        if self.is_sqlite:
            if path in ("", ":memory:") or "mode=memory" in path or not path.removeprefix("file:").startswith("/"):
                raise OptionError(
                    f"{self.uri}: a catalog needs a file with an absolute path that all processes can reach", key="uri"
                )
            return
        if not self.uri.startswith("jdbc:postgresql://"):
            raise OptionError(
                f"{mask_text(self.uri)}: a catalog must be in SQLite (jdbc:sqlite:/path) or PostgreSQL "
                "(jdbc:postgresql://host:port/name)",
                key="uri",
            )
        if _psycopg() is None:
            raise OptionError(
                "a catalog in PostgreSQL needs psycopg: pip install 'psycopg[binary]' (the extra 'postgresql')",
                key="uri",
            )

    @contextmanager
    def session(self) -> Iterator[SqlTransaction]:
        """Opens a transaction for a `with` block. The transaction is committed at the end of the block, and rolled back
        after an error.

        Raises RowTakenError for a row that exists already, StorageError for any other error of the database.
        """
        self.check()
        driver: Any = sqlite3 if self.is_sqlite else _psycopg()
        try:
            connection = self._connect(driver)
            try:
                yield SqlTransaction(connection.cursor(), "?" if self.is_sqlite else "%s")
                connection.commit()
            finally:
                connection.close()
        except driver.IntegrityError as e:
            raise RowTakenError(str(e)) from e
        except driver.Error as e:
            raise StorageError(
                f"the catalog's database {mask_text(self.uri)}: {str(e).strip() or type(e).__name__}",
                path=mask_text(self.uri),
                retryable=True,
                missing=False,
            ) from e

    def _connect(self, driver: Any) -> Any:
        if self.is_sqlite:
            path = self.uri.removeprefix("jdbc:sqlite:")
            return driver.connect(path, timeout=_WAIT_S, uri=path.startswith("file:"))
        address, _, query = self.uri.removeprefix("jdbc:").partition("?")
        of_address = {key: values[-1] for key, values in parse_qs(query).items()}
        login = {"user": self.user, "password": self.password}
        return driver.connect(
            address,
            autocommit=False,
            connect_timeout=_WAIT_S,
            **{**of_address, **{key: text for key, text in login.items() if text is not None}},
        )


def _psycopg() -> Any:
    """Returns the driver that `bucketline[postgresql]` installs; None if it is not installed. The driver is imported
    only for a catalog in PostgreSQL.
    """
    try:
        return import_module("psycopg")
    except ModuleNotFoundError:
        return None
