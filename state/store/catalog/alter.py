"""Commits changes of a table's schema. Each change is decided on the newest schema, and published under the next schema
id.

A writer that loses the race for an id decides again, on the schema that the winner has published. So concurrent changes
of different columns all succeed, and if two writers add the same column, the table has it once.

Source: Paimon 2.0 SchemaManager.commitChanges.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.state.commit.evolve import evolve_schema
from bucketline.state.commit.schema_change import (
    ChangeComment,
    ChangeNullability,
    ChangeType,
    MoveColumn,
    SchemaChange,
    change_schema,
)
from bucketline.state.commit.schema_edit import After, ColumnPath, First, Position
from bucketline.state.commit.table_rules import branches_exist, branches_read
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.format.json_files.rest_json import same_schema
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.branches import MAIN, Branches
from bucketline.state.store.catalog.new_schema import column_problems
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.table_handle import TableHandle, newest_schema
from bucketline.state.store.server.owner import TableOwner
from bucketline.state.store.storage.rest_table_io import owner_of
from bucketline.state.types.arrow import logical_type
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import DataType

Handle = TypeVar("Handle", bound=TableHandle)


def alter_table(table: Handle, changes: Sequence[SchemaChange]) -> Handle:
    """Changes the schema, and returns the table with its newest schema. All changes together make one new version of
    the schema.

    Raises SchemaMismatchError and OptionError as `change_schema` does, the errors of `check_columns` for a problem that
    the changes cause, and StorageError if it is unknown whether the change was committed.
    """
    has_snapshots = table.snapshot_store.latest_id() is not None

    def decide(newest: TableSchema) -> TableSchema | None:
        changed = change_schema(newest, changes, now_ms=table.world.clock.now_ms(), has_snapshots=has_snapshots)
        return None if changed is newest else changed

    return _commit(table, decide)


def check_replaceable(table: TableHandle, planned: TableSchema) -> None:
    """Checks that the schema of a table can be replaced by the schema `planned`.

    Raises OptionError if the partition columns differ, and UnsupportedTableError for a table whose schemas a REST
    catalog stores.
    """
    newest = newest_schema(table.io, table.metadata_path, table=table.path)
    if newest.partition_keys != planned.partition_keys:
        raise OptionError(
            f"REPLACE TABLE cannot change the partition columns from {', '.join(newest.partition_keys) or 'none'} to "
            f"{', '.join(planned.partition_keys) or 'none'}; use DROP TABLE and CREATE TABLE instead",
            key="partition",
        )
    if owner_of(table.io, table.metadata_path) is not None:
        raise UnsupportedTableError(
            "a table of a REST catalog cannot be replaced; use DROP TABLE and CREATE TABLE instead", path=table.path
        )
    check_owned(newest, table.io, table.metadata_path)


def replace_schema(table: Handle, planned: TableSchema) -> Handle:
    """Gives the table the schema `planned`, whatever its newest schema is, and returns the table with this schema.
    Older snapshots keep their schemas.

    Raises StorageError if it is unknown whether the schema was committed.
    """
    return _commit(table, lambda newest: replace(planned, id=newest.id + 1))


def evolve_table(table: Handle, incoming: pa.Schema, policy: EvolutionPolicy) -> Handle:
    """Adds the incoming columns to the table as far as the policy allows, and returns the table with its newest schema.

    Raises SchemaMismatchError as `evolve_schema` does, and the errors of `check_columns` for a problem that the new
    columns cause.
    """
    return _commit(table, lambda newest: evolve_schema(newest, incoming, policy, now_ms=table.world.clock.now_ms()))


def column_changes(
    path: ColumnPath,
    *,
    data_type: DataType | None = None,
    nullable: bool | None = None,
    comment: str | None = None,
    position: str | None = None,
) -> list[SchemaChange]:
    """Returns the schema changes that alter one column. None leaves a property unchanged; an empty comment removes the
    comment.
    """
    changes: list[SchemaChange] = []
    if data_type is not None:
        changes.append(ChangeType(path, data_type))
    if nullable is not None:
        changes.append(ChangeNullability(path, nullable))
    if comment is not None:
        changes.append(ChangeComment(path, comment or None))
    place = position_of(position)
    if place is not None:
        changes.append(MoveColumn(path, place))
    return changes


def column_path(name: str | Sequence[str]) -> ColumnPath:
    """Returns the path of a column from its name, or the path of a nested field from the names that lead to it. Raises
    OptionError for an empty path.
    """
    path = (name,) if isinstance(name, str) else tuple(name)
    if not path:
        raise OptionError("a column needs a name", key="name")
    return path


def column_type(declared: str | pa.DataType | DataType) -> DataType:
    """Returns the logical type for SQL text or an Arrow type. Raises OptionError or SchemaMismatchError for a type that
    tables do not have.
    """
    if isinstance(declared, DataType):
        return declared
    if isinstance(declared, pa.DataType):
        return logical_type(declared, True)
    (field,) = parse_columns(f"c {declared}")
    return field.type


def position_of(text: str | None) -> Position | None:
    """Returns the position that `first` or `after <column>` stands for; None if `text` is None. Raises OptionError for
    any other string.
    """
    if text is None:
        return None
    if text == "first":
        return First()
    if text.startswith("after ") and text != "after ":
        return After(text.removeprefix("after "))
    raise OptionError(f"a position must be 'first' or 'after <column>', not {text!r}", key="position", value=text)


def _commit(table: Handle, decide: Callable[[TableSchema], TableSchema | None]) -> Handle:
    owner = owner_of(table.io, table.metadata_path)
    while True:
        newest = newest_schema(table.io, table.metadata_path, table=table.path)
        wanted = decide(newest)
        if wanted is None:
            return replace(table, table_schema=table.with_read_options(newest))
        _check_columns(newest, wanted)
        _check_branches(table, newest, wanted)
        if owner is not None:
            if _changed_by(owner, table, newest, wanted):
                return table.refreshed()
            continue
        check_owned(newest, table.io, table.metadata_path)
        table.io.require_publish()
        if _publish(table, wanted):
            return replace(table, table_schema=table.with_read_options(wanted))


def _check_columns(old: TableSchema, new: TableSchema) -> None:
    """Raises the first error of `column_problems` that is new: the function yields it for the new schema, but not for
    the old schema.

    A problem with an option counts as new if the value of the option has changed.
    """
    before = {_subject(problem) for problem in column_problems(old)}
    for problem in column_problems(new):
        key = problem.key if isinstance(problem, OptionError) else None
        is_kept = key is None or old.options.get(key) == new.options.get(key)
        if not is_kept or _subject(problem) not in before:
            raise problem


def _check_branches(table: TableHandle, old: TableSchema, new: TableSchema) -> None:
    """Raises OptionError if the new schema makes the table read a branch that does not exist."""
    if not branches_read(new):
        return
    branches = (MAIN, *Branches(table.io, table.path).known())
    before = {problem.message for problem in branches_exist(old, branches)}
    for problem in branches_exist(new, branches):
        if problem.message not in before:
            raise problem


def _subject(problem: OptionError | UnsupportedTableError) -> tuple[object, object]:
    return problem.key if isinstance(problem, OptionError) else None, problem.column


def _changed_by(owner: TableOwner, table: TableHandle, newest: TableSchema, wanted: TableSchema) -> bool:
    """Asks the catalog to change the schema, and returns True if the catalog made the change. Returns False if the
    catalog refused because the schema was changed meanwhile.
    """
    try:
        owner.change_schema(newest, wanted)
        return True
    except OptionError:
        if newest_schema(table.io, table.metadata_path, table=table.path).id == newest.id:
            raise
        return False
    except StorageError as e:
        # The answer of the catalog may be lost, and not every change can be repeated.
        if e.published is False or not same_schema(
            newest_schema(table.io, table.metadata_path, table=table.path), wanted
        ):
            raise
        return True


def _publish(table: TableHandle, wanted: TableSchema) -> bool:
    """Publishes the schema under its id. Returns False if another schema has this id."""
    schemas = Schemas(table.io, table.metadata_path)
    try:
        return schemas.create(wanted)
    except StorageError:
        # The schema may have been published, and not every change can be repeated.
        try:
            return schemas.get(wanted.id) == wanted
        except StorageError as missing:
            if not missing.missing:
                raise
        raise
