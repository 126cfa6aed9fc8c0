"""Checks and computes the new values that an update gives to columns. A new value is a constant, an Arrow expression or
an SQL expression. Each new value is checked before any row is read.

A constant is a literal: a string is stored as a string, and never read as SQL. Expressions see the columns as they were
before the update.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.lsm.tree.sort_keys import is_older
from bucketline.state.sql.compute.expression import SqlExpression, assigned, with_blanks
from bucketline.state.sql.compute.plan_condition import columns_of
from bucketline.state.store.table.change_rules import sequence_description
from bucketline.state.types.arrow import arrow_schema, arrow_type, conform
from bucketline.state.types.fit import fit_array
from bucketline.state.types.struct_fields import by_name

NewValue: TypeAlias = pc.Expression | SqlExpression


@dataclass(frozen=True, slots=True)
class Assignments:
    """The new values of a table's columns, by the name of the column. The value can be sent to tasks."""

    schema: TableSchema
    values: Mapping[str, NewValue]

    def changed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows with their new values, in the columns of the table. `rows` may hold more columns: the
        columns of the source of a MERGE.

        Raises SchemaMismatchError if a value cannot be computed or does not fit its column, and if a new row would not
        replace the old row.
        """
        own = [f.name for f in self.schema.fields]
        by_arrow = {name: v for name, v in self.values.items() if isinstance(v, pc.Expression)}
        new = {name: self._with_names(name, column) for name, column in _by_arrow(rows, by_arrow).items()}
        columns = columns_of(rows)
        for name, value in self.values.items():
            if isinstance(value, SqlExpression):
                new[name] = assigned(value, columns, rows.num_rows, self.schema.field(name))
        after = pa.RecordBatch.from_arrays([new.get(name, columns[name]) for name in own], names=own)
        self._check_order(rows, after)
        return after

    def _with_names(self, name: str, column: pa.Array) -> pa.Array:
        """Returns the values of a column; the fields of structs get the names that the table's column has."""
        wanted = self.schema.field(name).type
        if wanted.is_atomic:
            return column
        return fit_array(column, wanted.as_nullable(), arrow_type(wanted), name)

    def _check_order(self, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """Checks that each new row in `after` will replace the old row in `before`, in the order that the table's
        options define. Raises SchemaMismatchError if a new row would not replace its old row.
        """
        merge = self.schema.settings.merge
        if not self.schema.primary_keys:
            return
        if not set(merge.sequence_fields).isdisjoint(self.values):
            older, newer = (before, after) if not merge.newest_is_smallest else (after, before)
            if is_older(newer, older, merge.sequence_fields).any():
                raise SchemaMismatchError(
                    f"the update gives a row an older {sequence_description(self.schema)} than the row has, so the "
                    "update would be lost; set the same or a newer value",
                    columns=merge.sequence_fields,
                )
        lost = merging_of(self.schema).unchanged(before, after, self.values)
        if lost is not None:
            raise SchemaMismatchError(
                f"column {lost.column!r} would not take its new value, because in this '{merge.engine.value}' table "
                f"{lost.reason}",
                column=lost.column,
            )


def plan_assignments(
    schema: TableSchema, assignments: Mapping[str, object], fixed: Mapping[str, str], source: pa.Schema | None = None
) -> Assignments:
    """Checks the assignments, and returns the new value of each column. `fixed` holds the columns that cannot be set,
    each with the reason; `source` holds the columns of the source of a MERGE.

    Raises SchemaMismatchError for a column that does not exist or cannot be set, and for a value that does not fit.
    Raises OptionError for an SQL expression that cannot be parsed.
    """
    if not assignments:
        raise SchemaMismatchError("an update must set at least one column")
    names, values = [f.name for f in schema.fields], dict[str, NewValue]()
    for name, value in assignments.items():
        if name not in names:
            raise SchemaMismatchError(f"there is no column {name!r}; the columns are {', '.join(names)}", column=name)
        if name in fixed:
            raise SchemaMismatchError(
                f"column {name!r} is {fixed[name]}, and cannot be set; delete the row and write a new one", column=name
            )
        if isinstance(value, SqlExpression):
            value = with_blanks(value, schema.fields)
        is_computed = isinstance(value, pc.Expression | SqlExpression)
        values[name] = (
            value if is_computed else pc.scalar(constant_scalar(arrow_schema(schema.fields).field(name), value))
        )
    planned = Assignments(schema, values)
    fields = [*arrow_schema(schema.fields), *(() if source is None else source)]
    after = planned.changed(pa.RecordBatch.from_pylist([], schema=pa.schema(fields)))
    conform(pa.Table.from_batches([after]), schema)
    return planned


def constant_scalar(field: pa.Field, value: object) -> pa.Scalar:
    """Converts a plain Python value to an Arrow scalar of the column's type.

    Raises SchemaMismatchError for a value that the column cannot hold, and for a dict whose keys differ from the field
    names of its struct.
    """
    _check_names(value, field.type, field.name)
    try:
        return pa.scalar(value, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError) as e:
        raise SchemaMismatchError(f"{value!r} is not a value of column {field.name!r}: {e}", column=field.name) from e


def _check_names(value: object, wanted: pa.DataType, path: str) -> None:
    """Checks that the dicts inside a plain Python value have the field names of their structs. Without this check Arrow
    would ignore unknown names. `path` is the name of the column or nested field, for the message.
    """
    if value is None or isinstance(value, pa.Scalar | str | bytes):
        return
    if pa.types.is_struct(wanted) and isinstance(value, Mapping):
        by_name(list(value), [f.name for f in wanted], path)
        for part in wanted:
            _check_names(value[part.name], part.type, f"{path}.{part.name}")
    elif pa.types.is_map(wanted) and isinstance(value, Iterable):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            _check_names(key, wanted.key_type, f"{path}.key")
            _check_names(item, wanted.item_type, f"{path}.value")
    elif (pa.types.is_list(wanted) or pa.types.is_fixed_size_list(wanted)) and isinstance(value, Iterable):
        for part in value:
            _check_names(part, wanted.value_type, f"{path}.element")


def _by_arrow(rows: pa.RecordBatch, values: Mapping[str, pc.Expression]) -> dict[str, pa.Array]:
    if not values:
        return {}
    try:
        table = ds.dataset(pa.Table.from_batches([rows])).to_table(columns=dict(values), use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatchError(f"a value cannot be computed from the table's rows: {e}") from e
    return dict(columns_of(table))
