"""The name of a table in a catalog: database and table, and a branch after `$branch_`.

Source: Paimon 2.0 Identifier, CatalogUtils, Catalog.
"""

from dataclasses import dataclass, replace

from bucketline.conf.errors import OptionError

DEFAULT_DATABASE = "default"
SYSTEM_DATABASE = "sys"
DATABASE_SUFFIX = ".db"
_SYSTEM_TABLE, _BRANCH = "$", "branch_"


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table: its database, its name in the database, and a branch. `branch` is None for the branch
    `main`.
    """

    database: str
    table: str
    branch: str | None = None

    def __str__(self) -> str:
        return f"{self.database}.{self.object_name}"

    @property
    def object_name(self) -> str:
        """Returns the name within the database: `table`, or `table$branch_name`."""
        return self.table if self.branch is None else f"{self.table}{_SYSTEM_TABLE}{_BRANCH}{self.branch}"

    @property
    def without_branch(self) -> "TableName":
        return replace(self, branch=None)


def parse_table_name(text: str) -> TableName:
    """Parses `database.table` or `database.table$branch_name`. A `table` without a database is in the database
    `default`.

    Raises OptionError for a name that no folder can have, and for a system table.
    """
    database, dot, rest = text.partition(".")
    if not dot:
        database, rest = DEFAULT_DATABASE, text
    table, dollar, suffix = rest.partition(_SYSTEM_TABLE)
    branch = None
    if dollar:
        if not suffix.startswith(_BRANCH) or _SYSTEM_TABLE in suffix:
            raise OptionError(
                f"{text!r} is a system table, which cannot be opened; open {database}.{table} and call snapshots(), "
                "files() or "
                "tags()",
                key="table",
                value=text,
            )
        branch = suffix.removeprefix(_BRANCH)
    check_database_name(database)
    _check_folder_name(table, "table", text)
    return TableName(database, table, None if branch in (None, "main") else branch)


def check_database_name(name: str) -> None:
    """Raises OptionError if a database cannot have that name."""
    _check_folder_name(name, "database", name)
    if name == SYSTEM_DATABASE:
        raise OptionError(
            f"the database '{SYSTEM_DATABASE}' is reserved for system tables; choose another name",
            key="database",
            value=name,
        )
    if "." in name:
        raise OptionError(
            f"database name {name!r} must not contain '.', which separates the database from the table",
            key="database",
            value=name,
        )


def check_case(name: TableName) -> None:
    """Raises OptionError if the database or the table is not in lower case."""
    for part in (name.database, name.table):
        if part != part.lower():
            raise OptionError(
                f"{part!r} is not in lower case, and 'case-sensitive' is false; write the name in lower case",
                key="table",
                value=part,
            )


def _check_folder_name(name: str, kind: str, text: str) -> None:
    if not name.strip() or name != name.strip() or name in (".", ".."):
        raise OptionError(
            f"{text!r}: {name!r} is not a valid {kind} name; a name must not be empty, '.' or '..', and must not begin "
            "or end with a space",
            key=kind,
            value=text,
        )
    if any(sign in name for sign in "/\\\x00$"):
        raise OptionError(
            f"{text!r}: a {kind} is a folder, so its name cannot hold '/', '\\' or '$'", key=kind, value=text
        )
