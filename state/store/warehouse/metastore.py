"""The interface of what stores the names of tables: folders, a database or a REST server. The rules for names are in
`Catalog`.
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
        """Creates a database; returns False if the database exists."""
        ...

    def remove_database(self, name: str) -> None:
        """Removes a database and everything in it."""
        ...

    def tables(self, database: str) -> list[str]:
        """Returns the names of a database's tables, sorted; an empty list if there is no such database."""
        ...

    def has_table(self, name: TableName) -> bool: ...

    def place(self, name: TableName) -> TableAddress:
        """Returns the address of a table, or, if the table does not exist, the address at which it would be created.
        Raises TableNotFoundError if the address is not known before the table is created.
        """
        ...

    def make_table(self, name: TableName, schema: TableSchema) -> bool:
        """Creates a table in an existing database; returns False if the table exists."""
        ...

    def remove_table(self, name: TableName) -> None:
        """Removes a table with its files."""
        ...

    def rename_table(self, name: TableName, target: TableName) -> None:
        """Renames a table. Raises OptionError if the new name is taken."""
        ...
