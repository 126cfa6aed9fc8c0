"""Finds columns by their names. SQL ignores upper and lower case in names."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from bucketline.state.commit.schema_change import (
    AddColumn,
    MoveColumn,
    SchemaChange,
    SetOption,
    SetTableComment,
    UnsetOption,
)
from bucketline.state.commit.schema_edit import After, ColumnPath, Position
from bucketline.state.sql.dialect import refused
from bucketline.state.types.logical import DataField, DataType, TypeRoot

_Value = TypeVar("_Value")


def spellings(name: str, columns: Collection[str]) -> list[str]:
    """Returns the columns that a name can mean: the column with exactly this name, or otherwise all columns whose names
    differ only in case.
    """
    return [name] if name in columns else [c for c in columns if c.lower() == name.lower()]


def spelled(names: Iterable[str], columns: Collection[str]) -> list[str]:
    """Returns the names in the spelling of the columns. A name that means no column stays unchanged.

    Raises OptionError for a name that can mean several columns.
    """
    resolved = []
    for name in names:
        meant = spellings(name, columns) or [name]
        if len(meant) > 1:
            raise refused(f"column '{name}' can mean {', '.join(meant)}; write which of them is meant", column=name)
        resolved.append(meant[0])
    return resolved


def spelled_keys(values: Mapping[str, _Value], columns: Collection[str]) -> dict[str, _Value]:
    """Returns the mapping with its keys, which are names, in the spelling of the columns. Raises the errors of
    `spelled`, and OptionError if two keys mean the same column.
    """
    names = spelled(values, columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise refused(f"column '{twice}' is given twice; name each column once", column=twice)
    return dict(zip(names, values.values(), strict=True))


def spelled_change(change: SchemaChange, fields: Sequence[DataField]) -> SchemaChange:
    """Returns the change with columns and nested fields in the spelling of the table. The name of a new column stays
    unchanged. Raises the errors of `spelled`.
    """
    if isinstance(change, SetOption | UnsetOption | SetTableComment):
        return change
    path = change.path
    is_new = isinstance(change, AddColumn)
    parents = _spelled_path(path[:-1] if is_new else path, fields)
    changed = replace(change, path=(*parents, *(path[-1:] if is_new else ())))
    if isinstance(changed, AddColumn | MoveColumn) and changed.position is not None:
        return replace(changed, position=_spelled_position(changed.position, changed.path, fields))
    return changed


def finds(path: ColumnPath, fields: Sequence[DataField]) -> bool:
    """Returns True if a table with these columns has the column or nested field, in exactly this spelling."""
    for name in path:
        found = next((f for f in fields if f.name == name), None)
        if found is None:
            return False
        fields = _parts(found.type)
    return True


def _spelled_position(position: Position, path: ColumnPath, fields: Sequence[DataField]) -> Position:
    if not isinstance(position, After):
        return position
    return After(_spelled_path((*path[:-1], position.name), fields)[-1])


def _spelled_path(path: ColumnPath, fields: Sequence[DataField]) -> ColumnPath:
    names: list[str] = []
    for name in path:
        (meant,) = spelled([name], [f.name for f in fields])
        names.append(meant)
        fields = next((_parts(f.type) for f in fields if f.name == meant), ())
    return tuple(names)


def _parts(data_type: DataType) -> Sequence[DataField]:
    """Returns the fields that a path can name inside a column of this type: the fields of a ROW, `element` of an ARRAY
    (as in `tags.element`), or `value` of a MAP. The result is empty for all other types.
    """
    if data_type.root is TypeRoot.ARRAY and data_type.element is not None:
        return (DataField(-1, "element", data_type.element),)
    if data_type.root is TypeRoot.MAP and data_type.value is not None:
        return (DataField(-1, "value", data_type.value),)
    return data_type.fields
