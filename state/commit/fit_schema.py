"""Checks whether a table that another process has created can be used in place of the table that should be created."""

from bucketline.state.commit.widen import narrows
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.logical import DataType, TypeRoot


def misfit(there: TableSchema, wanted: TableSchema) -> str | None:
    """Returns why rows for the wanted table cannot go into the existing one; None if they can.

    The keys must be equal, and the existing table must have each wanted column with a type that holds its values. A
    column may not be NOT NULL if the wanted table lacks it or has it nullable.
    """
    keys = (("primary key", wanted.primary_keys, there.primary_keys),)
    for what, own, other in (*keys, ("partition", wanted.partition_keys, there.partition_keys)):
        if own != other:
            return f"its {what} is ({', '.join(other)}), and not ({', '.join(own)})"
    known = {f.name: f.type for f in there.fields}
    for column in wanted.fields:
        if column.name not in known:
            return f"it has no column {column.name}"
        if not _holds(known[column.name], column.type):
            return f"its column {column.name} is {known[column.name]}, which does not hold all of {column.type}"
    required = {f.name for f in wanted.fields if not f.type.nullable}
    strict = [f.name for f in there.fields if not f.type.nullable and f.name not in required]
    return f"its column {strict[0]} is NOT NULL, and rows may have no value for it" if strict else None


def _holds(there: DataType, wanted: DataType) -> bool:
    """Whether a column of that type holds all values of the wanted column, apart from nulls."""
    if there.root is TypeRoot.ROW and wanted.root is TypeRoot.ROW:
        known = {f.name: f.type for f in there.fields}
        return all(f.name in known and _holds(known[f.name], f.type) for f in wanted.fields)
    if there.root is wanted.root and there.root is TypeRoot.ARRAY:
        assert there.element is not None and wanted.element is not None
        return _holds(there.element, wanted.element)
    if there.root is wanted.root and there.root is TypeRoot.MAP:
        assert there.key and wanted.key and there.value and wanted.value
        return _holds(there.key, wanted.key) and _holds(there.value, wanted.value)
    return narrows(wanted, there) is None
