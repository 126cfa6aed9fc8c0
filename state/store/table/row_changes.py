"""Deletes and updates rows by a condition. The rows that meet the condition are read, and their deletes or new values
are written, in one commit.

A change is planned on one snapshot, and committed only if no other writer has written the same keys since. Otherwise
the change is planned again on the newest snapshot. So values that were computed from an old row never overwrite the
change of another writer.

Source: Paimon 2.0 DeleteFromPaimonTableCommand, UpdatePaimonTableCommand for tables with a primary key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.table.merge_options import REMOVE_RECORD_ON_SEQUENCE_GROUP
from bucketline.conf.table.read_options import POSTPONE_MERGE_ON_READ
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.entries import Operation
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_places import place_fields, places_among
from bucketline.state.format.row_ranges import TRACKED_NAMES, changed_schema, kept_schema, tracks_rows
from bucketline.state.sql.compute.condition import Condition
from bucketline.state.sql.compute.plan_condition import Filter, plan_condition
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.engine.engine import Engine, Parts
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE, LocalEngine
from bucketline.state.store.table.append_changes import FileChange, KeptAndTaken, write_append_changes
from bucketline.state.store.table.assignments import Assignments, plan_assignments
from bucketline.state.store.table.change_rules import check_delete, check_update, fixed_columns
from bucketline.state.store.table.changed_write import open_change, planned_until_first, write_changes
from bucketline.state.store.table.rows_to_change import changed_parts
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.expired_base import expiry_as_conflict
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.types.arrow import with_types
from bucketline.state.types.row_kind import SHORT_NAMES, RowKind


def delete_rows(table: TableHandle, filter: Filter, *, engine: Engine = LOCAL_ENGINE) -> WriteResult:
    """Deletes the rows that a reader of the table sees and that meet the filter, and returns the result; see
    `Table.delete`.
    """
    check_delete(table)
    check_engine(table, engine)
    condition = _planned_condition(table.table_schema, filter)
    return planned_until_first(table, partial(_delete_once, table, condition, engine))


def _planned_condition(schema: TableSchema, filter: Filter) -> Condition:
    """Returns the condition of a filter, which may also name the columns of row tracking (`_ROW_ID` and others).

    Raises OptionError if the filter is None, because a forgotten filter must not change every row. Raises OptionError
    if the filter uses a row tracking column in an expression instead of comparing the column with values, because the
    rows do not have these columns when the expression is computed.
    """
    if filter is None:
        raise OptionError(
            "a change of rows needs a filter, but the filter is None; give the filter 'true' to change all rows",
            key="filter",
        )
    condition = plan_condition(filter, kept_schema(schema).fields, place_fields(schema))
    place = next(iter(places_among(schema, condition.columns)), None)
    if place is not None and schema.primary_keys:
        raise OptionError(
            f"a change of rows of a table with a primary key cannot read '{place}'; use a condition on columns of the "
            "table",
            key="filter",
            column=place,
        )
    computed = next((name for name in condition.columns if name in TRACKED_NAMES and tracks_rows(schema)), None)
    if computed is not None:
        raise OptionError(
            f"a change of rows can only compare '{computed}' with values, as in {computed} = 7 or {computed} IN (7, 8)",
            key="filter",
            column=computed,
        )
    return condition


def _delete_once(table: TableHandle, condition: Condition, engine: Engine) -> WriteResult:
    at = open_change(table)
    if not table.primary_key:
        return _change_appended(at, condition, None, engine)
    with expiry_as_conflict(at):
        source = changed_parts(at, condition.expression, RowsToDelete(at.plan.schema, condition))
    return write_changes(at, source, Operation.DELETE, engine=engine)


def update_rows(
    table: TableHandle, filter: Filter, assignments: Mapping[str, object], *, engine: Engine = LOCAL_ENGINE
) -> WriteResult:
    """Gives new values to columns of the rows that meet the filter, and returns the result; see `Table.update`."""
    check_update(table)
    check_engine(table, engine)
    schema = table.table_schema
    condition = _planned_condition(schema, filter)
    planned = plan_assignments(schema, assignments, fixed_columns(schema))
    return planned_until_first(table, partial(_update_once, table, condition, planned.values, engine))


def _update_once(table: TableHandle, condition: Condition, values: Mapping[str, object], engine: Engine) -> WriteResult:
    at = open_change(table)
    schema = at.plan.schema
    planned = plan_assignments(schema, values, fixed_columns(schema))
    if not table.primary_key:
        return _change_appended(at, condition, planned, engine)
    with expiry_as_conflict(at):
        source = changed_parts(at, condition.expression, UpdatedRows(condition, planned))
    return write_changes(at, source, Operation.UPDATE, engine=engine)


def _change_appended(at: TableAt, condition: Condition, assignments: Assignments | None, engine: Engine) -> WriteResult:
    """Changes rows of a table without a primary key, and returns the result. The rows that meet the condition are taken
    out. If there are assignments, these rows are appended with their new values.
    """
    stored, change = KeptAndTaken(at), AppendedRows(condition, assignments)
    needs_all = assignments is not None or condition.test is not None
    keeps_ids = assignments is not None and tracks_rows(at.plan.schema)
    own = [f.name for f in (changed_schema(at.plan.schema) if keeps_ids else at.plan.schema).fields]
    own += places_among(at.plan.schema, condition.columns)
    with expiry_as_conflict(at):
        parts = stored.parts(condition.expression, own if needs_all else ())
    operation = Operation.DELETE if assignments is None else Operation.UPDATE
    source = Parts([FileChange(part, change, keeps_ids) for part in parts])
    return write_append_changes(at, stored, source, operation, engine=engine, keeps_ids=keeps_ids)


def check_engine(table: TableHandle, engine: Engine) -> None:
    """Checks that the engine can read the table's rows. Raises UnsupportedTableError if reads of the table merge
    postponed rows and the engine is not the local engine.
    """
    if table.table_schema.settings.reading.sees_postponed and not isinstance(engine, LocalEngine):
        raise UnsupportedTableError(
            f"rows of {table.path} are read with '{POSTPONE_MERGE_ON_READ.key}', which only this process can "
            "do; leave out the argument engine"
        )


@dataclass(frozen=True, slots=True)
class AppendedRows:
    """A change of rows of a table without a key: the rows that meet the condition are deleted, or get new values if
    there are assignments.
    """

    condition: Condition
    assignments: Assignments | None

    def passing(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        return passing(rows, self.condition)

    def replacing(self, taken_out: pa.RecordBatch) -> pa.Table | None:
        return None if self.assignments is None else updated(taken_out, taken_out, self.assignments)


@dataclass(frozen=True, slots=True)
class RowsToDelete:
    """A change of rows: the rows that meet the condition are deleted."""

    schema: TableSchema
    condition: Condition

    def rows(self, batch: pa.RecordBatch) -> pa.Table | None:
        kept = passing(batch, self.condition)
        if kept is None:
            return None
        check_removed(kept, self.schema)
        return with_kind(kept, RowKind.DELETE, self.schema)


@dataclass(frozen=True, slots=True)
class UpdatedRows:
    """A change of rows: the rows that meet the condition get new values."""

    condition: Condition
    assignments: Assignments

    def rows(self, batch: pa.RecordBatch) -> pa.Table | None:
        kept = passing(batch, self.condition)
        return None if kept is None else updated(kept, kept, self.assignments)


def check_removed(rows: pa.RecordBatch, schema: TableSchema) -> None:
    """Checks that a delete would remove each of the rows. Raises SchemaMismatchError for a row that would stay.

    In a table where `partial-update.remove-record-on-sequence-group` applies, a row without a sequence value is not
    removed.
    """
    names = schema.settings.merge.removing_sequences
    if names and all(schema.field(n).type.nullable for n in names):
        valid = reduce(pc.or_, [pc.is_valid(rows[name]) for name in names])
        if not pc.all(valid, min_count=0).as_py():
            raise SchemaMismatchError(
                f"a row has no value in {', '.join(names)}, and '{REMOVE_RECORD_ON_SEQUENCE_GROUP.key}' removes only "
                "rows with such a value; update the row with a value first, or leave the row out of the delete",
                columns=names,
            )


def passing(rows: pa.RecordBatch, condition: Condition) -> pa.RecordBatch | None:
    """Returns the rows that meet the condition; None if no row does."""
    mask = condition.mask(rows)
    kept = rows if mask is None else rows.filter(mask)
    return kept if kept.num_rows else None


def updated(before: pa.RecordBatch, seen: pa.RecordBatch, assignments: Assignments) -> pa.Table:
    """Returns the rows to write for updated rows. `before` are the old rows; `seen` are the same rows with all columns
    that expressions use, which may include columns of a merge's source.

    A table that logs its input also gets the old rows as -U rows, before the new rows.
    """
    schema = assignments.schema
    after = with_kind(assignments.changed(seen), RowKind.UPDATE_AFTER, schema)
    if not schema.settings.changelog.producer.logs_input or not schema.primary_keys:
        return after
    return pa.concat_tables([with_types(with_kind(before, RowKind.UPDATE_BEFORE, schema), after.schema), after])


def with_kind(rows: pa.RecordBatch, kind: RowKind, schema: TableSchema) -> pa.Table:
    """Returns the rows, each with the row kind `kind`: in the table's own column for row kinds if the table has such a
    column, otherwise in `_row_kind`.
    """
    table = pa.Table.from_batches([rows])
    if not schema.primary_keys:
        return table
    name = schema.settings.merge.row_kind_field
    if name is None:
        return table.append_column(ROW_KIND_COLUMN, pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows))
    text = next(t for t, k in SHORT_NAMES.items() if k is kind)
    position = table.schema.get_field_index(name)
    try:
        column = pa.repeat(pa.scalar(text), rows.num_rows).cast(table.schema.field(position).type)
    except pa.ArrowInvalid as e:
        raise SchemaMismatchError(f"column {name!r} cannot hold the row kind {text!r}: {e}", column=name) from e
    return table.set_column(position, table.schema.field(position), column)
