"""What a table's schema becomes when input arrives that has other columns.

Only what Paimon's own schema merging does without a cast that cuts: new columns and fields come last and nullable,
types grow to what holds both. Columns that the input lacks are left alone: that is a matter of writing.
Source: Paimon 2.0 SchemaMergingUtils.
"""

from collections.abc import Iterator

import pyarrow as pa

from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.state.commit.schema_change import AddColumn, ChangeType, SchemaChange, change_schema
from bucketline.state.commit.schema_edit import ColumnPath, shown
from bucketline.state.commit.widen import narrows
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.logical import DataType, TypeRoot


def evolve_schema(
    schema: TableSchema, incoming: pa.Schema, policy: EvolutionPolicy, *, now_ms: int = 0
) -> TableSchema | None:
    """The schema that also holds the incoming columns, as the next version; None when the table's holds them.

    `ignore` never changes the table. Raises SchemaMismatchError naming the columns: under `fail` when something is
    missing, under `evolve` when a type can neither hold nor be widened to the incoming one, or is a key's.
    """
    if policy is EvolutionPolicy.IGNORE:
        return None
    changes = list(missing_changes(schema, incoming))
    if not changes:
        return None
    if policy is EvolutionPolicy.FAIL:
        names = [shown(c.path) for c in changes]
        raise SchemaMismatchError(
            f"the input has what the table has no place for: {', '.join(map(_told, changes))}; change the table, "
            "or set the policy for schema evolution to 'evolve' or 'ignore'",
            column=names[0],
            columns=names,
        )
    found = change_schema(schema, changes, now_ms=now_ms, has_snapshots=True)
    return None if found is schema else found


def missing_changes(schema: TableSchema, incoming: pa.Schema) -> Iterator[AddColumn | ChangeType]:
    """The changes that would give the incoming columns a place, in the order of the input."""
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
    # Where neither type holds the other, the writer's own check says which value does not fit.
    if narrows(new, old) is not None and narrows(old, new) is None:
        yield ChangeType(path, new)


def _told(change: SchemaChange) -> str:
    if isinstance(change, AddColumn):
        return f"column {shown(change.path)} {change.type}"
    assert isinstance(change, ChangeType)
    return f"column {shown(change.path)} as {change.type}"
