"""Can one schema have become another? The ids of fields say so: each is given once, and never again.

A field of a later schema is one of the earlier schema, or it was added since, under an id above all that were given by
then. That holds for any two schemas of a table, whatever was added, dropped and renamed between them. A name may go to
another field.
Source: Paimon 2.0 SchemaManager, SchemaMergingUtils, ReassignFieldId.
"""

from collections.abc import Iterator, Sequence

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import TRACKED
from bucketline.state.types.logical import DataField, DataType

_OF_THE_SYSTEM = frozenset(f.id for f in TRACKED)


def id_problems(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """Yields what is wrong with the field ids of `after`, seen from a `before` of the same table with a lower schema
    id.

    pypaimon counts the fields of a nested row from 0: rows that are numbered so are not compared.
    """
    if after.highest_field_id < before.highest_field_id:
        yield f"highestFieldId is {after.highest_field_id}, schema {before.id} has {before.highest_field_id}"
        return
    for name, field_id in _added_ids(before.fields, after.fields, ""):
        if field_id in _OF_THE_SYSTEM:
            continue
        if field_id <= before.highest_field_id:
            yield (
                f"column {name} has id {field_id}, which schema {before.id} does not have and which is not new: "
                f"highestFieldId was {before.highest_field_id} there"
            )
        elif field_id > after.highest_field_id:
            yield f"column {name} has id {field_id}, and highestFieldId is {after.highest_field_id}"


def _added_ids(before: Sequence[DataField], after: Sequence[DataField], row: str) -> Iterator[tuple[str, int]]:
    """Yields name and id of each field that a row did not have before, at any depth. Rows whose fields are counted from
    0 are left out.
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
