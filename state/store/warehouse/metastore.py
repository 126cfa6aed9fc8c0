"""The interface of a store that keeps the names of tables: folders, a database or a REST server. The rules for names
are in `Catalog`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.table_name import TableName


@dataclass(frozen=True, slots=True)
class TableAddress:
    """The address that opens a table in any process: its URI, and storage options."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


class Metastore(Protocol):
    """Databases and tables by name. Callers have checked the names. Implementations can be pickled."""

    def databases(self) -> list[str]:
        """Returns the names of all databases, sorted."""
        ...

    def has_database(self, name: str) -> bool: ...

    def make_database(self, name: str) -> bool:
        """Makes a database; returns False if it exists."""
        ...

    def remove_database(self, name: str) -> None:
        """Removes a database and everything in it."""
        ...

    def tables(self, database: str) -> list[str]:
        """Returns the names of a database's tables, sorted; no names if there is no such database."""
        ...

    def has_table(self, name: TableName) -> bool: ...

    def place(self, name: TableName) -> TableAddress:
        """Returns the address where a table is, or would be created. Raises TableNotFoundError if only the table itself
        tells it.
        """
        ...

    def make_table(self, name: TableName, schema: TableSchema) -> bool:
        """Makes a table in an existing database; returns False if the table exists."""
        ...

    def remove_table(self, name: TableName) -> None:
        """Removes a table with its files."""
        ...

    def rename_table(self, name: TableName, target: TableName) -> None:
        """Renames a table. Raises OptionError if the new name is taken."""
        ...
