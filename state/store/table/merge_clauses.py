"""The clauses of a merge. A clause says what happens to a matched pair of rows, to a source row without a match, or to
a table row without a match.

For each of these three cases, the first clause whose condition is true decides; a row that no clause takes stays
unchanged. A condition is computed only for the rows that no earlier clause has taken. Clauses are plain values that can
be sent to tasks.

Source: SQL's MERGE; Paimon 2.0 MergeIntoPaimonTable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import tracks_rows
from bucketline.state.sql.compute.expression import SOURCE, SqlExpression, assigned, condition, with_blanks
from bucketline.state.sql.compute.plan_condition import columns_of
from bucketline.state.store.table.append_changes import with_ids
from bucketline.state.store.table.assignments import Assignments, constant_scalar, plan_assignments
from bucketline.state.store.table.change_rules import fixed_columns
from bucketline.state.store.table.merge_join import Alone, Matched, UnmatchedRows
from bucketline.state.store.table.row_changes import check_removed, updated, with_kind
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.types.arrow import arrow_schema, arrow_type, conform
from bucketline.state.types.binary_row import encode_rows
from bucketline.state.types.row_kind import RowKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpdateClause:
    """Gives new values to the rows of the table that meet `condition`, as `Table.update` does; if `condition` is None,
    to every row.
    """

    values: Mapping[str, object]
    condition: SqlExpression | None = None


@dataclass(frozen=True, slots=True)
class DeleteClause:
    """Deletes the rows of the table that meet `condition`; if `condition` is None, every row."""

    condition: SqlExpression | None = None


@dataclass(frozen=True, slots=True)
class InsertClause:
    """Adds source rows to the table as new rows.

    `values` maps columns to constants or SQL expressions; columns that `values` does not name become null. Without
    `values`, each column is taken from the column of the source with the same name.
    """

    values: Mapping[str, object] | None = None
    condition: SqlExpression | None = None


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """The clauses of a merge. `on` is a condition that a pair of rows must meet in addition to equal key columns.

    `target` is a condition on rows of the table that every matched pair meets. Rows of the table that do not meet
    `target` are not read, so `target` may be set only if no clause changes these rows.
    """

    matched: Sequence[UpdateClause | DeleteClause] = ()
    not_matched: Sequence[InsertClause] = ()
    not_matched_by_source: Sequence[UpdateClause | DeleteClause] = ()
    on: SqlExpression | None = None
    target: pc.Expression | None = None

    @property
    def deletes(self) -> bool:
        return any(isinstance(c, DeleteClause) for c in (*self.matched, *self.not_matched_by_source))

    @property
    def looks_at_keys_alone(self) -> bool:
        """Returns True if the clauses need no columns of the table other than the columns by which rows are joined."""
        clauses = (*self.matched, *self.not_matched_by_source)
        return self.on is None and all(c == DeleteClause() for c in clauses)


@dataclass(frozen=True, slots=True)
class ClauseOutcome:
    """What clauses of a MERGE do with rows of the table: `before` are the rows that are updated or deleted, and
    `written` are the rows to write in place of the updated rows. `written` is None if nothing is written.
    """

    before: pa.RecordBatch
    written: pa.Table | None


@dataclass(frozen=True, slots=True)
class _Change:
    """An update or delete clause that was checked against the table. A clause without `assignments` deletes rows."""

    condition: SqlExpression | None
    assignments: Assignments | None


@dataclass(frozen=True, slots=True)
class PlannedMerge:
    """The clauses of a merge, checked against the table and the source. Rows are joined by the columns `key`."""

    schema: TableSchema
    key: tuple[str, ...]
    clauses: MergeClauses
    matched: tuple[_Change, ...]
    by_source: tuple[_Change, ...]

    @property
    def keeps_ids(self) -> bool:
        """Returns True if the merge updates rows that have row ids. The updated rows keep their row ids. So the rows
        that are given to the methods below as `target` must have the column `_ROW_ID`.
        """
        return tracks_rows(self.schema) and any(c.assignments is not None for c in (*self.matched, *self.by_source))

    def changes_alone(self) -> "PlannedMerge":
        """Returns the merge without its clauses that insert rows."""
        return replace(self, clauses=replace(self.clauses, not_matched=()))

    def inserts_alone(self) -> "PlannedMerge":
        """Returns the merge with only its clauses that insert rows."""
        clauses = replace(self.clauses, matched=(), not_matched_by_source=())
        return replace(self, clauses=clauses, matched=(), by_source=())

    def paired(self, target: pa.RecordBatch, source: pa.Table) -> Iterator[ClauseOutcome]:
        """Takes pairs of rows: row i of `target` (the table) matches row i of `source`. Yields for each clause that
        applies to some of the pairs the rows of the table that change, and the new rows.
        """
        return self._outcomes(self.matched, target, _seen(target, source))

    def alone(self, target: pa.RecordBatch) -> Iterator[ClauseOutcome]:
        """Applies the clauses WHEN NOT MATCHED BY SOURCE to the rows `target` of the table, which match no source
        row. Yields the rows that change, and the rows to write in their stead.
        """
        return self._outcomes(self.by_source, target, target)

    def passing(self, target: pa.RecordBatch, source: pa.Table) -> np.ndarray:
        """Returns a boolean for each i: whether row i of `target` and row i of `source` meet the condition `on`."""
        mask = np.ones(target.num_rows, bool)
        if self.clauses.on is not None:
            mask = np.asarray(condition(self.clauses.on, columns_of(_seen(target, source)), target.num_rows))
        return mask

    def inserted(self, source: pa.Table, is_key_in_table: np.ndarray) -> pa.Table | None:
        """Returns the rows to write for source rows without a match; None if there are none. `is_key_in_table` is true
        for each source row whose key exists in the table although the row has no match.

        Raises SchemaMismatchError for a new row that would replace a row of the table or another new row.
        """
        parts, seen = [], _of_source(source)
        for clause, rows in _first_true([(c.condition, c) for c in self.clauses.not_matched], seen):
            unmatched = source.take(rows)
            made = _new_rows(self.schema, clause, unmatched, seen.take(rows))
            if self.schema.primary_keys and clause.values is not None:
                self._refuse_other_keys(unmatched, made)
            if self.schema.primary_keys:
                self._refuse_replacing(made, is_key_in_table[np.asarray(rows)])
            parts.append(with_kind(made, RowKind.INSERT, self.schema))
        if not parts:
            return None
        written = pa.concat_tables(parts)
        _refuse_doubled(written, self.schema)
        return written

    def outcomes(self, joined: Iterable[Matched | Alone | UnmatchedRows]) -> Iterator[ClauseOutcome | pa.Table]:
        """Takes the results of joining the table's rows with the source rows, as `merge_join.join` yields them. Applies
        the clauses, and yields for each result what to do: a ClauseOutcome (rows of the table that change), or a table
        with new rows.
        """
        for rows in joined:
            match rows:
                case Matched():
                    yield from self.paired(rows.target, rows.source)
                case Alone():
                    yield from self.alone(rows.target)
                case _:
                    new = self.inserted(rows.source, rows.is_key_in_table)
                    if new is not None:
                        yield new

    def _outcomes(
        self, changes: Sequence[_Change], target: pa.RecordBatch, seen: pa.RecordBatch
    ) -> Iterator[ClauseOutcome]:
        own = [f.name for f in self.schema.fields if f.name in target.schema.names]
        for change, rows in _first_true([(c.condition, c) for c in changes], seen):
            before = target.take(rows)
            if change.assignments is not None:
                after = updated(before.select(own), seen.take(rows), change.assignments)
                yield ClauseOutcome(before, with_ids(after, before) if self.keeps_ids else after)
            elif self.schema.primary_keys:
                check_removed(before.select(own), self.schema)
                yield ClauseOutcome(before, with_kind(before.select(own), RowKind.DELETE, self.schema))
            else:
                yield ClauseOutcome(before, None)

    def _refuse_other_keys(self, source: pa.Table, made: pa.RecordBatch) -> None:
        """Raises SchemaMismatchError if the key of a new row (row i of `made`) differs from the key by which its source
        row (row i of `source`) was joined, because the join has not checked whether the table has the new key.
        """
        for name in self.key:
            joined = source[name].combine_chunks()
            new = conform(pa.table([made[name]], [name]), replace(self.schema, fields=(self.schema.field(name),)))
            same = pc.fill_null(pc.equal(joined, new[name].combine_chunks()), False)
            both_null = pc.and_(pc.is_null(joined), pc.is_null(new[name].combine_chunks()))
            if not pc.all(pc.or_(same, both_null)).as_py():
                raise SchemaMismatchError(
                    f"the merge inserts a {name!r} that differs from the value that ON compares with {name!r}, so the "
                    "new row could replace a row of the table; insert the value that ON compares",
                    column=name,
                )

    def _refuse_replacing(self, made: pa.RecordBatch, is_key_in_table: np.ndarray) -> None:
        if is_key_in_table.any():
            at = int(np.flatnonzero(is_key_in_table)[0])
            where = ", ".join(f"{name} = {made[name][at].as_py()!r}" for name in self.key)
            raise SchemaMismatchError(
                f"a source row with {where} matches no row of the table by the whole ON condition, but the table has "
                "a row with that key, which the new row would replace; let ON compare only the key, and move its "
                "other conditions to WHEN ... AND",
                columns=self.key,
            )


def plan_merge(schema: TableSchema, key: Sequence[str], clauses: MergeClauses, source: pa.Schema) -> PlannedMerge:
    """Returns the clauses, checked against the columns of the table and the source. `key` are the columns by which rows
    are joined.

    Raises SchemaMismatchError and OptionError for a clause that does not fit, before any row is read.
    """
    of_source = _of_source(source.empty_table())
    target = pa.RecordBatch.from_pylist([], schema=arrow_schema(schema.fields))
    both = _seen(target, source.empty_table())
    clauses = _with_blanks(clauses, schema)

    def planned(changes: Sequence[UpdateClause | DeleteClause], seen: pa.RecordBatch) -> tuple[_Change, ...]:
        fitting, fixed = [], fixed_columns(schema)
        more = pa.schema([f for f in seen.schema if f.name.startswith(f"{SOURCE}.")])
        for change in changes:
            _check_condition(change.condition, seen)
            values = change.values if isinstance(change, UpdateClause) else None
            fitting.append(
                _Change(change.condition, None if values is None else plan_assignments(schema, values, fixed, more))
            )
        return tuple(fitting)

    _check_condition(clauses.on, both)
    matched, by_source = planned(clauses.matched, both), planned(clauses.not_matched_by_source, target)
    for clause in clauses.not_matched:
        _check_condition(clause.condition, of_source)
        made = _new_rows(schema, clause, source.empty_table(), of_source)
        RowAcceptance(schema).accept(with_kind(made, RowKind.INSERT, schema))
    return PlannedMerge(schema, tuple(key), clauses, matched, by_source)


def _with_blanks(clauses: MergeClauses, schema: TableSchema) -> MergeClauses:
    """Returns the clauses; a string that is compared with a CHAR column of the table is padded with blanks to the
    column's length.
    """

    def fitting(test: SqlExpression | None) -> SqlExpression | None:
        return None if test is None else with_blanks(test, schema.fields)

    return replace(
        clauses,
        on=fitting(clauses.on),
        matched=tuple(replace(c, condition=fitting(c.condition)) for c in clauses.matched),
        not_matched_by_source=tuple(replace(c, condition=fitting(c.condition)) for c in clauses.not_matched_by_source),
    )


def _check_condition(test: SqlExpression | None, seen: pa.RecordBatch) -> None:
    if test is not None:
        condition(test, columns_of(seen), 0)


def _first_true(
    clauses: Sequence[tuple[SqlExpression | None, T]], seen: pa.RecordBatch
) -> Iterator[tuple[T, pa.Array]]:
    """Decides for each row of `seen` which clause applies: the first clause whose condition is true for the row.
    Yields each clause with the indices of its rows. A clause without rows is left out.
    """
    left = np.arange(seen.num_rows)
    for test, clause in clauses:
        if not len(left):
            return
        mask = np.ones(len(left), bool)
        if test is not None:
            rows = seen if len(left) == seen.num_rows else seen.take(pa.array(left))
            mask = np.asarray(condition(test, columns_of(rows), rows.num_rows))
        if mask.any():
            yield clause, pa.array(left[mask])
        left = left[~mask]


def _seen(target: pa.RecordBatch, source: pa.Table) -> pa.RecordBatch:
    """Returns a batch with the columns of the table, and the columns of the source under the prefix `source.`."""
    of_source = _of_source(source)
    names = [*target.schema.names, *of_source.schema.names]
    return pa.RecordBatch.from_arrays([*target.columns, *of_source.columns], names=names)


def _of_source(source: pa.Table) -> pa.RecordBatch:
    names = [f"{SOURCE}.{n}" for n in source.column_names]
    columns = [c.combine_chunks() for c in source.columns]
    return pa.RecordBatch.from_arrays([c if isinstance(c, pa.Array) else c.chunk(0) for c in columns], names=names)


def _new_rows(schema: TableSchema, clause: InsertClause, source: pa.Table, seen: pa.RecordBatch) -> pa.RecordBatch:
    names = [f.name for f in schema.fields]
    if clause.values is None:
        missing = next((n for n in names if n not in source.column_names), None)
        if missing is not None:
            raise SchemaMismatchError(
                f"the source has no column {missing!r} to insert; add the column, or set when_not_matched=None",
                column=missing,
            )
        return pa.RecordBatch.from_arrays([source[n].combine_chunks() for n in names], names=names)
    unknown = next((n for n in clause.values if n not in names), None)
    if unknown is not None:
        raise SchemaMismatchError(f"there is no column {unknown!r}; the columns are {', '.join(names)}", column=unknown)
    columns, known = [], columns_of(seen)
    for name, stored in zip(names, arrow_schema(schema.fields), strict=True):
        value = clause.values.get(name)
        if isinstance(value, SqlExpression):
            columns.append(assigned(value, known, seen.num_rows, schema.field(name)))
        else:
            columns.append(pa.repeat(constant_scalar(stored, value), seen.num_rows))
    return pa.RecordBatch.from_arrays(columns, names=names)


def _refuse_doubled(rows: pa.Table, schema: TableSchema) -> None:
    """Raises SchemaMismatchError if two new rows have one key, because the second row would replace the first."""
    if not schema.primary_keys or rows.num_rows < 2:
        return
    fields = schema.select(schema.primary_keys)
    columns = [rows[f.name].combine_chunks().cast(arrow_type(f.type)) for f in fields]
    keys = encode_rows(columns, [f.type.as_nullable() for f in fields], with_arity=False)
    counts = pc.value_counts(keys)
    doubled = pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1))
    if len(doubled):
        at = pc.index(keys, doubled[0]).as_py()
        where = ", ".join(f"{f.name} = {rows[f.name][at].as_py()!r}" for f in fields)
        raise SchemaMismatchError(
            f"several source rows without a match have the key {where}, so the last row would replace the other rows; "
            "keep only one of these rows in the source",
            columns=schema.primary_keys,
        )
