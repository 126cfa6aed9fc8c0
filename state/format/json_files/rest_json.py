"""The JSON in which a REST catalog gets a new schema, or the changes from one schema to the next.

Fields of the two schemas are matched by id, so a renamed column is not dropped and added again. Source: Paimon 2.0
Schema, SchemaChange and its JSON.
"""

from collections.abc import Iterator, Sequence

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.logical import DataField, DataType, TypeRoot, field_to_json, type_to_json

JsonChange = dict[str, object]
_Path = tuple[str, ...]


def new_schema_json(schema: TableSchema) -> dict[str, object]:
    """Returns the JSON of the schema of a table to be created."""
    members: dict[str, object] = {
        "fields": [field_to_json(f) for f in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
    }
    return members if schema.comment is None else members | {"comment": schema.comment}


def schema_changes(before: TableSchema, wanted: TableSchema) -> list[JsonChange]:
    """Returns the JSON of the changes from the schema `before` to the schema `wanted`, in the order in which they
    apply.
    """
    changes = [*_row_changes((), before.fields, wanted.fields), *_option_changes(before.options, wanted.options)]
    if before.comment != wanted.comment:
        changes.append({"action": "updateComment", "comment": wanted.comment})
    return changes


def same_schema(one: TableSchema, other: TableSchema) -> bool:
    """Returns True if two schemas are equal, apart from the time at which they were made."""
    return (one.fields, one.partition_keys, one.primary_keys, dict(one.options), one.comment or None) == (
        other.fields,
        other.partition_keys,
        other.primary_keys,
        dict(other.options),
        other.comment or None,
    )


def _row_changes(path: _Path, before: Sequence[DataField], wanted: Sequence[DataField]) -> Iterator[JsonChange]:
    old, new = {f.id: f for f in before}, {f.id: f for f in wanted}
    for field in before:
        if field.id not in new:
            yield {"action": "dropColumn", "fieldNames": [*path, field.name]}
    order = [new[f.id].name for f in before if f.id in new]
    for field in before:
        if field.id in new and new[field.id].name != field.name:
            yield {"action": "renameColumn", "fieldNames": [*path, field.name], "newName": new[field.id].name}
    for field in wanted:
        if field.id in old:
            yield from _field_changes((*path, field.name), old[field.id], field)
        else:
            added = {"dataType": type_to_json(field.type), "comment": field.description, "move": None}
            yield {"action": "addColumn", "fieldNames": [*path, field.name], **added}
            order.append(field.name)
    for position, field in enumerate(wanted if not path else ()):
        if order[position] != field.name:
            order.remove(field.name)
            order.insert(position, field.name)
            after = wanted[position - 1].name if position else None
            move = {"fieldName": field.name, "referenceFieldName": after, "type": "AFTER" if position else "FIRST"}
            yield {"action": "updateColumnPosition", "move": move}


def _field_changes(path: _Path, before: DataField, wanted: DataField) -> Iterator[JsonChange]:
    yield from _type_changes(path, before.type, wanted.type)
    if before.description != wanted.description:
        yield {"action": "updateColumnComment", "fieldNames": [*path], "newComment": wanted.description}


def _type_changes(path: _Path, before: DataType, wanted: DataType) -> Iterator[JsonChange]:
    if before.as_nullable() != wanted.as_nullable():
        yield from _inner_changes(path, before, wanted)
    if before.nullable != wanted.nullable:
        yield {"action": "updateColumnNullability", "fieldNames": [*path], "newNullability": wanted.nullable}


def _inner_changes(path: _Path, before: DataType, wanted: DataType) -> Iterator[JsonChange]:
    if before.root is wanted.root is TypeRoot.ROW:
        yield from _row_changes(path, before.fields, wanted.fields)
    elif before.root is wanted.root is TypeRoot.ARRAY and before.element is not None and wanted.element is not None:
        yield from _type_changes((*path, "element"), before.element, wanted.element)
    elif before.root is wanted.root is TypeRoot.MAP and before.value is not None and wanted.value is not None:
        yield from _type_changes((*path, "value"), before.value, wanted.value)
    else:
        kind = type_to_json(wanted)
        yield {"action": "updateColumnType", "fieldNames": [*path], "newDataType": kind, "keepNullability": True}


def _option_changes(before: dict[str, str], wanted: dict[str, str]) -> Iterator[JsonChange]:
    for key in before:
        if key not in wanted:
            yield {"action": "removeOption", "key": key}
    for key, text in wanted.items():
        if before.get(key) != text:
            yield {"action": "setOption", "key": key, "value": text}
