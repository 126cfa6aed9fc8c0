"""`ALTER TABLE`: applies a list of changes to a schema, which gives the next version of the schema.

Old files are read by field id, and an id is never used for a second field. So a renamed column keeps its data, and a
new column that has the name of a dropped column does not get the old data. A type may only change to a type that can
hold every old value.
Source: Paimon 2.0 SchemaManager, SchemaChange, SchemaValidation. Error messages that Paimon's users know are the same
as Paimon's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bucketline.conf.durations import check_given_durations
from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, check_texts
from bucketline.conf.storage_options import refuse_storage_keys
from bucketline.conf.table.changelog_options import (
    DELETION_VECTORS,
    DELETION_VECTORS_MODIFIABLE,
)
from bucketline.conf.table.field_options import rename_in_options
from bucketline.conf.table.fixed_options import FIXED_BY_FILES, NAMING_COLUMNS
from bucketline.conf.table.new_table import table_problems
from bucketline.conf.table.table_options import (
    BUCKET,
    NULL_TO_NOT_NULL_DISABLED,
    PARTITION,
    PARTITION_DEFAULT_NAME,
    PARTITION_LEGACY_NAME,
    PRIMARY_KEY,
)
from bucketline.conf.table.table_settings import BucketSettings, ChangelogSettings
from bucketline.state.commit.schema_edit import (
    After,
    ColumnPath,
    First,
    FreshIds,
    Position,
    edit_field,
    edit_row,
    placed,
    plain_type,
    refuse_column,
    set_field,
    shown,
)
from bucketline.state.commit.widen import narrows
from bucketline.state.format.json_files.schema_json import CURRENT_VERSION, TableSchema
from bucketline.state.format.row_age import check_row_time
from bucketline.state.types.logical import DataField, DataType, all_fields

_NAMING_FOLDERS: tuple[Option[Any], ...] = (PARTITION_LEGACY_NAME, PARTITION_DEFAULT_NAME)


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Adds a nullable column or nested field. Without `position`, the column or field becomes the last one. The field
    ids in `type` are replaced by new ids.
    """

    path: ColumnPath
    type: DataType
    comment: str | None = None
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Removes a column or a nested field."""

    path: ColumnPath


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Renames a column or nested field; `name` replaces the last part of the path."""

    path: ColumnPath
    name: str


@dataclass(frozen=True, slots=True)
class ChangeType:
    """Changes a type to another type that can hold every value of the old type. Nullability does not change."""

    path: ColumnPath
    type: DataType


@dataclass(frozen=True, slots=True)
class ChangeNullability:
    """Makes a column nullable, or NOT NULL."""

    path: ColumnPath
    nullable: bool


@dataclass(frozen=True, slots=True)
class ChangeComment:
    """Sets a column's comment; None removes it."""

    path: ColumnPath
    comment: str | None


@dataclass(frozen=True, slots=True)
class ChangeDefault:
    """Sets the default of a column. The default is an SQL literal as text; None removes the default."""

    path: ColumnPath
    default: str | None


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Moves a column or nested field to another position."""

    path: ColumnPath
    position: Position


@dataclass(frozen=True, slots=True)
class SetOption:
    """Sets an option of the table."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class UnsetOption:
    """Sets an option of the table back to its default."""

    key: str


@dataclass(frozen=True, slots=True)
class SetTableComment:
    """Sets the table's comment; None removes it."""

    comment: str | None


SchemaChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ChangeType
    | ChangeNullability
    | ChangeComment
    | ChangeDefault
    | MoveColumn
    | SetOption
    | UnsetOption
    | SetTableComment
)


def change_schema(
    schema: TableSchema, changes: Sequence[SchemaChange], *, now_ms: int, has_snapshots: bool
) -> TableSchema:
    """Returns the next version of a schema, or `schema` itself if nothing changes.

    If `has_snapshots` is true, options on which existing files depend cannot change. Adding a column that exists with
    the same type changes nothing, so that two writers can both add the same column. Raises SchemaMismatchError, with
    the field `column`, for a column that does not exist, already exists, or cannot be changed this way. Raises
    OptionError for an option that cannot change, and for a result that Paimon would not accept as a table.
    """
    changed = schema
    for change in changes:
        changed = _apply(changed, _with_place(schema, change, changed.fields), has_snapshots=has_snapshots)
    if changed == schema:
        return schema
    _check(schema, changed)
    return replace(changed, id=schema.id + 1, version=CURRENT_VERSION, time_ms=now_ms)


def _apply(schema: TableSchema, change: SchemaChange, *, has_snapshots: bool) -> TableSchema:
    match change:
        case SetOption(key, value):
            refuse_storage_keys({key: value}, "the table's options")
            check_texts({key: value}, "the table's options")
            check_given_durations({key: value})
            _check_option(schema, key, value, has_snapshots=has_snapshots)
            return replace(schema, options={**schema.options, key: value})
        case UnsetOption(key):
            if key in schema.options:
                _check_option(schema, key, None, has_snapshots=has_snapshots)
            return replace(schema, options={k: v for k, v in schema.options.items() if k != key})
        case SetTableComment(comment):
            return replace(schema, comment=comment)
        case AddColumn():
            return _add(schema, change)
        case DropColumn(path):
            return _drop(schema, path)
        case RenameColumn(path, name):
            return _rename(schema, path, name)
        case ChangeType(path, data_type):
            return _change_type(schema, path, data_type)
        case ChangeNullability(path, nullable):
            return _change_nullability(schema, path, nullable)
        case ChangeComment(path, comment):
            return set_field(schema, path, lambda field: replace(field, description=comment))
        case ChangeDefault(path, default):
            if len(path) > 1:
                refuse_column(path, f"{shown(path)} is a field inside of a column, which cannot have a default")
            return set_field(schema, path, lambda field: replace(field, default_value=default))
        case MoveColumn(path, position):
            return edit_field(schema, path, lambda fields, at: placed(fields, at, position, path))


def _with_place(schema: TableSchema, change: SchemaChange, fields: Sequence[DataField]) -> SchemaChange:
    """Returns `change`, or a changed copy of it. The copy is returned if the change adds a column without a position,
    and the table's options say that new columns come before the partition columns: it has this position.
    """
    if not (isinstance(change, AddColumn) and len(change.path) == 1 and change.position is None):
        return change
    if not schema.settings.commit.adds_before_partition:
        return change
    first = next((i for i, f in enumerate(fields) if f.name in schema.partition_keys), None)
    if first is None:
        return change
    return replace(change, position=After(fields[first - 1].name) if first else First())


def _add(schema: TableSchema, change: AddColumn) -> TableSchema:
    path = change.path
    if not change.type.nullable:
        refuse_column(
            path, f"Column {shown(path)} cannot specify NOT NULL in the table: existing rows have no value for it"
        )
    # pypaimon up to 1.4 ignores nested fields when it computes the highest field id.
    ids = FreshIds(max(schema.highest_field_id, *(f.id for f in all_fields(schema.fields))))
    field = DataField(ids.next(), path[-1], ids.renumber(change.type), description=change.comment)

    def insert(fields: list[DataField]) -> list[DataField]:
        existing = next((f for f in fields if f.name == field.name), None)
        if existing is None:
            return placed([*fields, field], len(fields), change.position, path)
        if plain_type(existing.type) != plain_type(change.type):
            refuse_column(path, f"Column {shown(path)} already exists, as {existing.type}")
        ids.last = schema.highest_field_id
        return fields

    fields = edit_row(list(schema.fields), path, insert)
    return replace(schema, fields=tuple(fields), highest_field_id=ids.last)


def _drop(schema: TableSchema, path: ColumnPath) -> TableSchema:
    if len(path) == 1 and path[0] in (*schema.partition_keys, *schema.primary_keys):
        refuse_column(path, f"Cannot drop partition key or primary key: [{path[0]}]")

    def drop(fields: list[DataField], at: int) -> list[DataField]:
        if len(fields) == 1:
            where = "table" if len(path) == 1 else shown(path[:-1])
            refuse_column(path, f"Cannot drop all fields in {where}")
        return [*fields[:at], *fields[at + 1 :]]

    return edit_field(schema, path, drop)


def _rename(schema: TableSchema, path: ColumnPath, name: str) -> TableSchema:
    old = path[-1]

    def rename(fields: list[DataField], at: int) -> list[DataField]:
        if name != old and any(f.name == name for f in fields):
            refuse_column((*path[:-1], name), f"Column {shown((*path[:-1], name))} already exists")
        return [*fields[:at], replace(fields[at], name=name), *fields[at + 1 :]]

    if len(path) > 1:
        return edit_field(schema, path, rename)
    if old in schema.partition_keys:
        refuse_column(path, f"Cannot rename partition column: [{old}]")
    renamed = edit_field(schema, path, rename)
    return replace(
        renamed,
        primary_keys=tuple(name if k == old else k for k in schema.primary_keys),
        options=rename_in_options(schema.options, old, name, naming=NAMING_COLUMNS),
    )


def _change_type(schema: TableSchema, path: ColumnPath, data_type: DataType) -> TableSchema:
    if len(path) == 1:
        name = path[0]
        if name in schema.partition_keys:
            refuse_column(path, f"Cannot update partition column: [{name}]")
        if name in schema.primary_keys:
            refuse_column(path, f"Cannot update primary key: [{name}]")
        if name in (schema.settings.bucket.key or ()):
            refuse_column(path, f"Cannot update bucket key: [{name}]: its rows would belong to other buckets")

    def change(field: DataField) -> DataField:
        wanted = replace(data_type, nullable=field.type.nullable)
        if plain_type(wanted) == plain_type(field.type):
            return field
        reason = narrows(field.type, wanted)
        if reason is not None:
            refuse_column(path, f"Column type {shown(path)}[{field.type}] cannot be converted to {data_type}: {reason}")
        return replace(field, type=wanted)

    return set_field(schema, path, change)


def _change_nullability(schema: TableSchema, path: ColumnPath, nullable: bool) -> TableSchema:
    if nullable and len(path) == 1 and path[0] in schema.primary_keys:
        refuse_column(path, "Cannot change nullability of primary key")
    is_disabled = schema.settings.commit.refuses_null_to_not_null

    def change(field: DataField) -> DataField:
        if field.type.nullable and not nullable and is_disabled:
            refuse_column(
                path,
                f"Cannot update column type from nullable to non nullable for {shown(path)}. You can set table "
                f"configuration option '{NULL_TO_NOT_NULL_DISABLED.key}' = 'false' to allow converting null columns to "
                "not null",
            )
        return replace(field, type=replace(field.type, nullable=nullable))

    return set_field(schema, path, change)


def _check_option(schema: TableSchema, key: str, value: str | None, *, has_snapshots: bool) -> None:
    """Raises OptionError if the option may not be set to the value. A value of None means that the option is
    removed.
    """
    if schema.options.get(key) == value:
        return
    if key in (PRIMARY_KEY.key, PARTITION.key) or (has_snapshots and key in FIXED_BY_FILES):
        raise OptionError(f"Change '{key}' is not supported yet.", key=key, value=value)
    if has_snapshots and schema.partition_keys:
        _check_folders(schema.options, key, value)
    if has_snapshots and key == DELETION_VECTORS.key:
        _check_vectors(schema.settings.changelog, value)
    if key != BUCKET.key or not has_snapshots:
        return
    if value is None:
        raise OptionError("Cannot reset bucket.", key=key)
    wanted = BucketSettings({key: value}).count
    if schema.settings.bucket.count == wanted:
        return
    if schema.settings.bucket.count == -1:
        raise OptionError("Cannot change bucket when it is -1.", key=key, value=value)
    if wanted == -1:
        raise OptionError("Cannot change bucket to -1.", key=key, value=value)


def _check_folders(options: Mapping[str, str], key: str, value: str | None) -> None:
    given = {} if value is None else {key: value}
    for option in _NAMING_FOLDERS:
        if key == option.key and option.get(given) != option.get(options):
            raise OptionError(
                f"Change '{key}' is not supported yet. The names of partition folders depend on this option, so "
                "existing partitions would not be found any more; create a new table with the new value, and write the "
                "rows there.",
                key=key,
                value=value,
            )


def _check_vectors(settings: ChangelogSettings, value: str | None) -> None:
    wanted = ChangelogSettings({} if value is None else {DELETION_VECTORS.key: value})
    old, new = settings.deletion_vectors, wanted.deletion_vectors
    if old != new and not settings.vectors_modifiable:
        raise OptionError(
            f"Cannot change deletion vectors mode from {str(old).lower()} to {str(new).lower()}. If modifying table "
            "deletion-vectors mode without full-compaction, this may result in data duplication. If you are confident, "
            f"you can set table option '{DELETION_VECTORS_MODIFIABLE.key}' = 'true' to allow deletion vectors "
            "modification.",
            key=DELETION_VECTORS.key,
            value=value,
        )


def _check(old: TableSchema, new: TableSchema) -> None:
    """Raises OptionError if the new schema breaks a rule for tables that the old schema did not break."""
    before = {problem.message for problem in _problems(old)}
    for problem in _problems(new):
        if problem.message not in before:
            raise problem


def _problems(schema: TableSchema) -> Iterator[OptionError]:
    yield from table_problems(
        schema.options,
        columns=[f.name for f in schema.fields],
        nested=[f.name for f in schema.fields if not f.type.is_atomic],
        primary_key=schema.primary_keys,
        partition_keys=schema.partition_keys,
    )
    try:
        check_row_time(schema)
    except OptionError as e:
        yield e
