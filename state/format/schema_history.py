"""Checks by the ids of fields whether a schema can be a later version of another schema. Each id is used for one field
only, and never again.

A field of the later schema is also in the earlier schema, or it was added afterwards and has an id larger than all ids
used before. These rules hold for any two schemas of a table, however many columns were added, dropped or renamed
between them. The name of a dropped column can be used again.
Source: Paimon 2.0 SchemaManager, SchemaMergingUtils, ReassignFieldId.
"""

from collections.abc import Iterator, Sequence

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import TRACKED
from bucketline.state.types.logical import DataField, DataType

_OF_THE_SYSTEM = frozenset(f.id for f in TRACKED)


def id_problems(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """Yields a description of each field id in `after` that is impossible if `before` is an earlier schema of the same
    table.

    pypaimon numbers the fields of a nested row from 0. Nested rows whose ids start from 0 are not compared.
    """
    if after.highest_field_id < before.highest_field_id:
        yield f"highestFieldId is {after.highest_field_id}, but in schema {before.id} it is {before.highest_field_id}"
        return
    for name, field_id in _added_ids(before.fields, after.fields, ""):
        if field_id in _OF_THE_SYSTEM:
            continue
        if field_id <= before.highest_field_id:
            yield (
                f"column {name} has id {field_id}, which schema {before.id} does not have. But it is no new id, "
                "because "
                f"highestFieldId of schema {before.id} is {before.highest_field_id}"
            )
        elif field_id > after.highest_field_id:
            yield f"column {name} has id {field_id}, which is above highestFieldId {after.highest_field_id}"


def _added_ids(before: Sequence[DataField], after: Sequence[DataField], row: str) -> Iterator[tuple[str, int]]:
    """Yields the name and id of each field that is new in `after`, at any depth of nesting. Nested rows whose fields
    are numbered from 0 are left out. `row` is a prefix of the names: the path of the nested row and a dot, or an empty
    string for the columns of the table.
    """
    known = {f.id: f for f in before}
    is_counted = bool(row) and {f.id for f in after} == set(range(len(after)))
    for field in after:
        old, name = known.get(field.id), f"{row}{field.name}"
        if old is not None:
            yield from _added_ids_in(old.type, field.type, f"{name}.")
        elif not is_counted:
            yield name, field.id


def _added_ids_in(before: DataType, after: DataType, row: str) -> Iterator[tuple[str, int]]:
    if before.fields and after.fields:
        yield from _added_ids(before.fields, after.fields, row)
    for old, new in ((before.element, after.element), (before.key, after.key), (before.value, after.value)):
        if old is not None and new is not None:
            yield from _added_ids_in(old, new, row)
