"""The statements, as frozen values.

Names are as written; which catalog and database they mean is decided when a statement is run.
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
    """A table as a query names it: at which version, with which options, and where it stands in the text."""

    name: TableReference
    start: int
    end: int
    """One after the last sign of its names, version and options."""

    options: Mapping[str, str] = field(default_factory=dict)
    has_alias: bool = False
    """Whether an alias follows, or TABLESAMPLE, before which no alias may stand."""


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT. `tree` is the tree that sqlglot makes. `relations` are its tables, with their versions and hints; the
    text has blanks in place of versions and hints.
    """

    text: str
    tree: exp.Expression
    relations: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE. `columns` is column text, None where the columns come from `like` or `query`.

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
    """Whether an existing table of that name is replaced. If there is none, `created` says whether it is created."""

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
    CURRENT DATABASE or CURRENT CATALOG. `partition` are the values that shown partitions have, `key` the one option to
    show.
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
    """ALTER TABLE. With `missing_ok` it is no error if there is no such table; with `column_missing_ok`, if a column to
    be dropped does not exist.
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
    """Creates or moves a tag. `snapshot` is an id, None for the newest; `retained` a duration as text. With `replaces`
    an existing tag of that name is moved; if there is none, it is created, unless `created` is False, which makes it an
    error.
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
    """Empties the partitions that match one of the mappings from column to value; `missing_ok`: there may be none."""

    name: TableReference
    partitions: tuple[Mapping[str, str | None], ...]
    missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """SET of an option of the session. Without a value the option is shown, without a key all options are."""

    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Reset:
    """Sets one option of the session, or all options, back to the default."""

    key: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A procedure with its arguments as texts; None is NULL. `catalog` is the catalog of tables in the arguments that
    name no catalog.
    """

    procedure: str
    positional: tuple[str | None, ...]
    named: Mapping[str, str | None]
    catalog: str | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows for a table. `columns` are the columns that get values; None stands for all columns. `partition` has the
    partition columns that are given with a value, `dynamic` those whose values come with the rows, in the table's
    order.
    """

    table: Relation
    columns: tuple[str, ...] | None
    partition: Mapping[str, str | None]
    dynamic: tuple[str, ...]
    overwrite: bool
    by_name: bool
    query: Query


SetValues: TypeAlias = Mapping[tuple[str, ...], exp.Expression]
"""What a SET says: columns, or fields inside of columns by their paths, and their values."""


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE. `relations` are all tables that the statement names: the one to change, and those of queries in it."""

    table: Relation
    alias: str
    assignments: SetValues
    where: exp.Expression | None
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE. `relations` are all tables that the statement names: the one to change, and those of queries in it."""

    table: Relation
    alias: str
    where: exp.Expression | None
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeAction:
    """What a clause of MERGE does with a row for which the condition is true. `verb` is update, delete or insert.

    `values` maps columns, and in an update also fields inside of them, to expressions. It is None for `UPDATE SET *`
    and `INSERT *`. The values of `INSERT VALUES` come in the order of the table's columns.
    """

    verb: str
    values: SetValues | Sequence[exp.Expression] | None = None
    condition: exp.Expression | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE. `source` is a table or a query in brackets. `source_columns` are the names that its columns get; empty if
    they keep their own.

    For each row the first clause of its kind whose condition is true decides what happens. A row for which there is
    none stays as it is.
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
    """Takes all rows out of a table, or those of the partitions that match."""

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
