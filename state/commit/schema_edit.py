"""Edits a field of a schema. The field is given by its path, which may lead into rows and collections.

Source: Paimon 2.0 SchemaManager (updateNestedColumn, updateIntermediateColumn), ReassignFieldId.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.logical import DataField, DataType, TypeRoot

ColumnPath = tuple[str, ...]
"""The path of a column or nested field: the name of the column, and then the name of a field for each ROW, `element`
for each ARRAY, and `value` for each MAP on the way.
"""


@dataclass(frozen=True, slots=True)
class First:
    """Puts a field before all other fields of the same row."""


@dataclass(frozen=True, slots=True)
class After:
    """Puts a field right after the field `name` of the same row."""

    name: str


Position = First | After


def plain_type(data_type: DataType) -> DataType:
    """Returns the type without the ids and comments of its nested fields, so that two declarations of a type can be
    compared.
    """
    return _rebuilt(data_type, lambda f: DataField(0, f.name, plain_type(f.type)))


class FreshIds:
    """Generates field ids that were never used in the table."""

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last

    def renumber(self, data_type: DataType) -> DataType:
        """Returns the type with new ids for all fields nested in it, depth first."""

        def numbered(field: DataField) -> DataField:
            field_id = self.next()
            return replace(field, id=field_id, type=self.renumber(field.type))

        return _rebuilt(data_type, numbered, self.renumber)


def _rebuilt(
    data_type: DataType,
    of_field: Callable[[DataField], DataField],
    of_child: Callable[[DataType], DataType] = lambda child: plain_type(child),
) -> DataType:
    def child(inner: DataType | None) -> DataType | None:
        return None if inner is None else of_child(inner)

    return replace(
        data_type,
        fields=tuple(of_field(f) for f in data_type.fields),
        key=child(data_type.key),
        value=child(data_type.value),
        element=child(data_type.element),
    )


def set_field(schema: TableSchema, path: ColumnPath, change: Callable[[DataField], DataField]) -> TableSchema:
    return edit_field(schema, path, lambda fields, at: [*fields[:at], change(fields[at]), *fields[at + 1 :]])


def edit_field(
    schema: TableSchema, path: ColumnPath, edit: Callable[[list[DataField], int], list[DataField]]
) -> TableSchema:
    """Changes the list of fields that contains the field at `path`: the columns of the table, or the fields of a ROW.
    Returns the changed schema. `edit` is a function that gets this list and the index of the field in it, and returns
    the new list.
    """

    def find(fields: list[DataField]) -> list[DataField]:
        at = next((i for i, f in enumerate(fields) if f.name == path[-1]), None)
        if at is None:
            refuse_column(path, f"Column {shown(path)} does not exist.")
        return edit(fields, at)

    return replace(schema, fields=tuple(edit_row(list(schema.fields), path, find)))


def edit_row(
    fields: list[DataField],
    path: ColumnPath,
    edit: Callable[[list[DataField]], list[DataField]],
    depth: int = 0,
) -> list[DataField]:
    if depth == len(path) - 1:
        return edit(fields)
    for at, field in enumerate(fields):
        if field.name == path[depth]:
            changed = replace(field, type=_edit_type(field.type, path, edit, depth + 1))
            return [*fields[:at], changed, *fields[at + 1 :]]
    refuse_column(path, f"Column {shown(path[: depth + 1])} does not exist.")


def _edit_type(
    data_type: DataType, path: ColumnPath, edit: Callable[[list[DataField]], list[DataField]], depth: int
) -> DataType:
    """Applies `edit` at the given path inside a type, and returns the changed type. `depth` is the index in `path` of
    the next name to look for.
    """
    if data_type.root is TypeRoot.ROW:
        return replace(data_type, fields=tuple(edit_row(list(data_type.fields), path, edit, depth)))
    part = path[depth]
    inner = data_type.element if data_type.root is TypeRoot.ARRAY else data_type.value
    if inner is None or part != {TypeRoot.ARRAY: "element", TypeRoot.MAP: "value"}.get(data_type.root):
        refuse_column(path, f"Column {shown(path[: depth + 1])} does not exist.")
    if depth == len(path) - 1:
        # The element is treated as the only field of a row, so that the same code can change its type and nullability.
        fields = edit([DataField(-1, part, inner)])
        if [f.name for f in fields] != [part]:
            refuse_column(path, f"Column {shown(path)} is the {part} of a collection, which can only change its type")
        changed = fields[0].type
    else:
        changed = _edit_type(inner, path, edit, depth + 1)
    return replace(data_type, element=changed) if part == "element" else replace(data_type, value=changed)


def placed(fields: list[DataField], at: int, position: Position | None, path: ColumnPath) -> list[DataField]:
    """Returns the fields with the field at index `at` moved to `position`. `path` is the path of the field, for
    errors.
    """
    field, rest = fields[at], [*fields[:at], *fields[at + 1 :]]
    if position is None:
        return [*rest[:at], field, *rest[at:]]
    if isinstance(position, First):
        return [field, *rest]
    if position.name == field.name:
        refuse_column(path, f"Cannot move itself for column {field.name}")
    for i, other in enumerate(rest):
        if other.name == position.name:
            return [*rest[: i + 1], field, *rest[i + 1 :]]
    refuse_column(path, f"Column {shown((*path[:-1], position.name))} does not exist.")


def shown(path: ColumnPath) -> str:
    return ".".join(path)


def refuse_column(path: ColumnPath, message: str) -> NoReturn:
    raise SchemaMismatchError(message, column=shown(path))
