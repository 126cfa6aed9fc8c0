"""SQL statements as immutable objects.

Names are as in the text. Which catalog and database they mean is decided when a statement is run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from sqlglot import exp

from bucketline.state.commit.schema_change import SchemaChange


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table, one of its branches, or one of its system tables."""

    table: str
    database: str | None = None
    catalog: str | None = None
    branch: str | None = None
    system: str | None = None

    def __str__(self) -> str:
        branch = "" if self.branch is None else f"$branch_{self.branch}"
        system = "" if self.system is None else f"${self.system}"
        parts = [p for p in (self.catalog, self.database) if p is not None]
        return ".".join([*parts, f"{self.table}{branch}{system}"])


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is used in a query: its name, version and options, and its position in the text."""

    name: TableReference
    start: int
    end: int
    """The position after the last character of its name, version and options."""

    options: Mapping[str, str] = field(default_factory=dict)
    has_alias: bool = False
    """True if an alias follows, or TABLESAMPLE, before which an alias cannot be added."""


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT. `tree` is sqlglot's tree. `relations` are the tables with their versions and hints. In `text`, versions
    and hints are replaced by spaces.
    """

    text: str
    tree: exp.Expression
    relations: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE. `columns` is the list of columns as text; None if the columns come from `like` or `query`.

    There is one attribute for each clause of the statement.
    """

    name: TableReference
    columns: str | None
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    exist_ok: bool = False
    like: TableReference | None = None
    like_options: bool = True
    query: Query | None = None
    replaces: bool = False
    """True if an existing table with this name is replaced. If there is none, `created` says whether it is created."""

    created: bool = True


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    name: str
    catalog: str | None
    exist_ok: bool


@dataclass(frozen=True, slots=True)
class CreateCatalog:
    name: str
    options: Mapping[str, str]
    exist_ok: bool


class Kind(Enum):
    """The kind of object that a statement drops or uses."""

    TABLE = "TABLE"
    DATABASE = "DATABASE"
    CATALOG = "CATALOG"


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP of a table, database or catalog. `path` has the parts of the name; `cascade` drops a database with its
    tables.
    """

    kind: Kind
    path: tuple[str, ...]
    missing_ok: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    kind: Kind
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW of a `subject`: TABLES, VIEWS, DATABASES, CATALOGS, COLUMNS, PARTITIONS, CREATE TABLE, OPTIONS, TAGS,
    CURRENT DATABASE or CURRENT CATALOG. `partition` are the values of the partitions to show, and `key` is the only
    option to show.
    """

    subject: str
    path: tuple[str, ...] = ()
    like: str | None = None
    partition: Mapping[str, str | None] | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    name: TableReference


@dataclass(frozen=True, slots=True)
class Describe:
    name: TableReference


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE. If `missing_ok` is true, a missing table is no error. If `column_missing_ok` is true, it is no error
    if a column to drop does not exist.
    """

    name: TableReference
    changes: tuple[SchemaChange, ...]
    missing_ok: bool = False
    column_missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    name: TableReference
    to: TableReference
    missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class CreateTag:
    """Creates or moves a tag. `snapshot` is a snapshot id, or None for the newest snapshot. `retained` is the tag's
    lifetime as text. If `replaces` is true, an existing tag with this name is moved. If `created` is False, the tag
    must exist.
    """

    name: TableReference
    tag: str
    exist_ok: bool
    snapshot: int | None
    retained: str | None
    replaces: bool = False
    created: bool = True


@dataclass(frozen=True, slots=True)
class RenameTag:
    name: TableReference
    tag: str
    to: str


@dataclass(frozen=True, slots=True)
class DeleteTags:
    name: TableReference
    tags: tuple[str, ...]
    missing_ok: bool


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """Removes all rows of the partitions that match one of the mappings from column to value. If `missing_ok` is true,
    it is no error if no partition matches.
    """

    name: TableReference
    partitions: tuple[Mapping[str, str | None], ...]
    missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """SET of an option of the session. Without a value, the option is shown. Without a key, all options are shown."""

    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Reset:
    """Resets one option of the session, or all options, to the default."""

    key: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a procedure with its arguments as strings; None stands for NULL. If an argument names a table without a
    catalog, the table is in `catalog`.
    """

    procedure: str
    positional: tuple[str | None, ...]
    named: Mapping[str, str | None]
    catalog: str | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT of rows into a table. `columns` are the columns that get values; None means all columns. `partition` has
    the partition columns with a fixed value. `dynamic` are the partition columns whose values come with the rows, in
    the order of the table.
    """

    table: Relation
    columns: tuple[str, ...] | None
    partition: Mapping[str, str | None]
    dynamic: tuple[str, ...]
    overwrite: bool
    by_name: bool
    query: Query


SetValues: TypeAlias = Mapping[tuple[str, ...], exp.Expression]
"""The assignments of a SET clause: columns, or paths of fields inside columns, and their values."""


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE. `relations` are all tables that the statement names: the table to change, and the tables of queries in
    the statement.
    """

    table: Relation
    alias: str
    assignments: SetValues
    where: exp.Expression | None
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE. `relations` are all tables that the statement names: the table to change, and the tables of queries in
    the statement.
    """

    table: Relation
    alias: str
    where: exp.Expression | None
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeAction:
    """What a clause of MERGE does with a row for which the condition is true. `verb` is update, delete or insert.

    `values` maps columns (in an update also fields inside columns) to expressions. `values` is None for `UPDATE SET *`
    and `INSERT *`. For an `INSERT VALUES` without columns, the values are in the order of the table's columns.
    """

    verb: str
    values: SetValues | Sequence[exp.Expression] | None = None
    condition: exp.Expression | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE. `source` is a table or a query in parentheses. `source_columns` are the names that the columns of the
    source get; `source_columns` is empty if the columns keep their names.

    The first clause of the right kind whose condition is true decides what happens to a row. A row for which no clause
    applies does not change.
    """

    table: Relation
    alias: str
    source: Query
    source_alias: str
    source_columns: tuple[str, ...]
    on: exp.Expression
    matched: tuple[MergeAction, ...]
    not_matched: tuple[MergeAction, ...]
    by_source: tuple[MergeAction, ...]


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """Removes all rows of a table; if `partition` is not None, all rows of the partitions that match `partition`."""

    name: TableReference
    partition: Mapping[str, str | None] | None


Statement = (
    CreateTable
    | CreateDatabase
    | CreateCatalog
    | Drop
    | Use
    | Show
    | Describe
    | Refresh
    | AlterTable
    | RenameTable
    | DropPartitions
    | CreateTag
    | RenameTag
    | DeleteTags
    | Set
    | Reset
    | Call
    | Query
    | Insert
    | Update
    | Delete
    | Merge
    | TruncateTable
)
