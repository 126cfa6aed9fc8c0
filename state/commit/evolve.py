"""Schema evolution: computes the next schema of a table if the input has other columns than the table.

The next schema is the same as in Paimon's schema merging, but without casts that lose digits. New columns and fields
are added at the end and are nullable. A column gets a type that can hold both the old and the incoming values. Columns
that the input lacks stay.
Source: Paimon 2.0 SchemaMergingUtils.
"""

from collections.abc import Iterator

import pyarrow as pa

from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.state.commit.schema_change import AddColumn, ChangeType, SchemaChange, change_schema
from bucketline.state.commit.schema_edit import ColumnPath, shown
from bucketline.state.commit.widen import narrows
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.logical import DataType, TypeRoot


def evolve_schema(
    schema: TableSchema, incoming: pa.Schema, policy: EvolutionPolicy, *, now_ms: int = 0
) -> TableSchema | None:
    """Returns the next version of the schema, with the incoming columns added; None if nothing has to change.

    With the policy `ignore`, the result is always None. With the policy `fail`, raises SchemaMismatchError if the table
    lacks a column or type. With the policy `evolve`, raises SchemaMismatchError if no type holds both the old and the
    incoming values, or if the type of a key column would have to change. The error names the columns.
    """
    if policy is EvolutionPolicy.IGNORE:
        return None
    changes = list(missing_changes(schema, incoming))
    if not changes:
        return None
    if policy is EvolutionPolicy.FAIL:
        names = [shown(c.path) for c in changes]
        raise SchemaMismatchError(
            f"the input has columns or types that the table does not have: {', '.join(map(_named, changes))}; change "
            "the table, or set 'schema-evolution' to 'evolve' or 'ignore'",
            column=names[0],
            columns=names,
        )
    evolved = change_schema(schema, changes, now_ms=now_ms, has_snapshots=True)
    return None if evolved is schema else evolved


def missing_changes(schema: TableSchema, incoming: pa.Schema) -> Iterator[AddColumn | ChangeType]:
    """Yields the schema changes that the incoming columns need, in the order of the input."""
    keys = (*schema.primary_keys, *schema.partition_keys)
    known = {f.name: f for f in schema.fields}
    for field in logical_fields(incoming):
        old = known.get(field.name)
        if old is None:
            yield AddColumn((field.name,), field.type.as_nullable())
        elif field.name not in keys:
            yield from _type_changes((field.name,), old.type, field.type)


def _type_changes(path: ColumnPath, old: DataType, new: DataType) -> Iterator[AddColumn | ChangeType]:
    if old.root is TypeRoot.ROW and new.root is TypeRoot.ROW:
        known = {f.name: f for f in old.fields}
        for field in new.fields:
            inner = known.get(field.name)
            if inner is None:
                yield AddColumn((*path, field.name), field.type.as_nullable())
            else:
                yield from _type_changes((*path, field.name), inner.type, field.type)
        return
    for root, part in ((TypeRoot.ARRAY, "element"), (TypeRoot.MAP, "value")):
        if old.root is root and new.root is root:
            before, after = (old.element, new.element) if root is TypeRoot.ARRAY else (old.value, new.value)
            assert before is not None and after is not None
            yield from _type_changes((*path, part), before, after)
            return
    # If neither type can hold the other's values, the check of incoming rows reports the value that does not fit.
    if narrows(new, old) is not None and narrows(old, new) is None:
        yield ChangeType(path, new)


def _named(change: SchemaChange) -> str:
    if isinstance(change, AddColumn):
        return f"column {shown(change.path)} {change.type}"
    assert isinstance(change, ChangeType)
    return f"column {shown(change.path)} as {change.type}"
