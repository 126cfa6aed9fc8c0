"""The interface of stores for the names of tables, as one small protocol: `Catalog` has the rules, an implementation
the storage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.table_name import TableName


@dataclass(frozen=True, slots=True)
class TableAddress:
    """What opens a table in any process: its URI, and storage options."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


class Metastore(Protocol):
    """Databases and tables by name. Names have been checked. Implementations can be pickled."""

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        ...

    def has_database(self, name: str) -> bool: ...

    def make_database(self, name: str) -> bool:
        """Makes a database; False when it is there."""
        ...

    def remove_database(self, name: str) -> None:
        """Removes a database and what is left in it."""
        ...

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; none without the database."""
        ...

    def has_table(self, name: TableName) -> bool: ...

    def place(self, name: TableName) -> TableAddress:
        """Where a table is, or would be made. Raises TableNotFoundError where only the table itself says it."""
        ...

    def make_table(self, name: TableName, schema: TableSchema) -> bool:
        """Makes a table of a database that is there; False when there is a table."""
        ...

    def remove_table(self, name: TableName) -> None:
        """Removes a table with its files."""
        ...

    def rename_table(self, name: TableName, target: TableName) -> None:
        """Gives a table another name. Raises OptionError when that is taken."""
        ...
