"""Carries out MERGE INTO by `Table.merge`.

For the join, the values that ON compares with columns of the table are added to the source, under the names of these
columns. The source also keeps its own columns, for conditions and values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.expression import SOURCE, TARGET, SqlExpression, evaluate
from bucketline.state.sql.compute.filters import translate_filter
from bucketline.state.sql.dialect import DIALECT, refused, sql_text
from bucketline.state.sql.statement import Merge, MergeAction
from bucketline.state.store.engine.engine import ShapedFrame, SpreadEngine
from bucketline.state.store.sql.assigned import values_by_column
from bucketline.state.store.sql.merge_names import MergeNames, own_columns
from bucketline.state.store.sql.newest_partition import NewestPartitions
from bucketline.state.store.sql.queries import Queries, engine_of
from bucketline.state.store.sql.relation import bind_columns, is_literal, literal_of, named, refuse_subqueries
from bucketline.state.store.sql.results import snapshot_result
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.merge import merge_by_clauses
from bucketline.state.store.table.merge_clauses import DeleteClause, InsertClause, MergeClauses, UpdateClause
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.types.arrow import with_types
from bucketline.state.types.timestamp_text import plain_value

RenamesColumns: TypeAlias = Callable[[exp.Expression], exp.Expression]
"""A function that takes a node of a clause. If the node is the name of a column, the function returns the column that
the name means; otherwise it returns the node.
"""

KeyValue: TypeAlias = SqlExpression | pa.Scalar
"""The value with which ON compares a column of the table, computed from the source's columns."""


def merge(session: SqlSession, statement: Merge, queries: Queries) -> pa.Table:
    """Carries out MERGE INTO in one commit. The clauses of the statement say which rows of the table are updated or
    deleted, and which source rows are inserted. Returns the id of the newest snapshot, as a table of one row.
    """
    table = session.table(statement.table.name, statement.table.options, writes=True)
    engine = engine_of(queries, table)
    statement = replace(statement, source=NewestPartitions(session).in_query(statement.source))
    spread = queries.spread(session, statement.source) if isinstance(engine, SpreadEngine) else None
    rows = spread or queries.rows(session, statement.source)
    schema = named(rows.schema, statement.source_columns, "MERGE USING")
    doubled = next((n for n in schema.names if schema.names.count(n) > 1), None)
    if doubled is not None:
        raise refused(f"MERGE: the source has column {doubled!r} twice; give one of them another name", column=doubled)
    clauses = _Clauses(statement, table, schema)
    shape = _SourceShape(schema.names, clauses.key)
    source = shape.reader(rows) if isinstance(rows, pa.RecordBatchReader) else ShapedFrame(rows.frame, shape)
    planned = clauses.planned()
    return snapshot_result(merge_by_clauses(handle_of(table), source, list(clauses.key), planned, engine=engine))


class _Clauses:
    """The clauses of a MERGE statement, as arguments of `Table.merge`."""

    def __init__(self, statement: Merge, table: Table, source: pa.Schema) -> None:
        self._statement, self._table, self._schema = statement, table, handle_of(table).table_schema
        self._names = MergeNames(statement.alias, table.schema.names, statement.source_alias, source)
        self.key: dict[str, KeyValue] = {}
        self._rest: list[exp.Expression] = []
        refuse_subqueries(statement.on, "MERGE")
        for part in statement.on.flatten() if isinstance(statement.on, exp.And) else [statement.on]:
            if not self._joins(part.unnest()):
                self._rest.append(part)
        if not self.key:
            raise refused(
                f"MERGE: ON {statement.on.sql(DIALECT)} is not supported: it needs at least one condition "
                f"{statement.alias}.column = value of {statement.source_alias}"
                + (" for a column of the primary key" if self._inserts_by_key else "")
                + "; add other conditions with AND",
                statement="MERGE",
            )

    @property
    def _inserts_by_key(self) -> bool:
        """Returns True if the statement inserts rows into a table with a primary key. A new row then replaces a row of
        the table that has the same key, even if ON did not match the two rows.
        """
        return bool(self._statement.not_matched) and bool(self._schema.primary_keys)

    def _joins(self, part: exp.Expression) -> bool:
        """Returns True if a part of ON compares a column of the table with a value of the source, so that rows can be
        joined by the column. The column is then recorded in `key`.
        """
        if not isinstance(part, exp.EQ):
            return False
        for column, value in ((part.this, part.expression), (part.expression, part.this)):
            if not isinstance(column, exp.Column) or self._names.sides(value) - {SOURCE}:
                continue
            side, name = self._names.find(column)
            if side != TARGET or name in self.key or not self._schema.field(name).type.is_atomic:
                continue
            if self._inserts_by_key and name not in self._schema.primary_keys:
                continue
            field = self._schema.field(name)
            if is_literal(value, field):
                self.key[name] = literal_of(value, field)
            else:
                self.key[name] = SqlExpression(sql_text(value.transform(self._names.plain)))
            return True
        return False

    def planned(self) -> MergeClauses:
        statement, names = self._statement, self._names
        rest = [self._condition(part, names.both) for part in self._rest]
        return MergeClauses(
            tuple(self._change(a, names.both) for a in statement.matched),
            tuple(self._insert(a) for a in statement.not_matched),
            tuple(self._change(a, names.target) for a in statement.by_source),
            on=SqlExpression(" AND ".join(f"({part.text})" for part in rest)) if rest else None,
            target=self._target_filter(),
        )

    def _target_filter(self) -> pc.Expression | None:
        """Returns the part of ON that needs only columns of the table, as a filter on the table's rows. Returns None if
        ON has no such part, or if a clause also needs rows that do not meet this part.
        """
        if self._statement.by_source or self._inserts_by_key:
            return None
        passing = None
        for part in self._rest:
            if self._names.sides(part) != {TARGET}:
                continue
            try:
                own = translate_filter(
                    bind_columns(part, self._schema.fields, self._statement.alias), self._schema.fields
                )
            except OptionError:
                continue  # Such a condition is computed for each pair of rows.
            passing = own if passing is None else passing & own
        return passing

    def _condition(self, node: exp.Expression, names: RenamesColumns) -> SqlExpression:
        refuse_subqueries(node, "MERGE")
        return SqlExpression(sql_text(node.transform(names)))

    def _optional(self, action: MergeAction, names: RenamesColumns) -> SqlExpression | None:
        return None if action.condition is None else self._condition(action.condition, names)

    def _change(self, action: MergeAction, names: RenamesColumns) -> UpdateClause | DeleteClause:
        condition = self._optional(action, names)
        if action.verb == "delete":
            return DeleteClause(condition)
        if action.values is None:
            columns = {n: self._names.of_source(n, "UPDATE SET *") for n in self._table.schema.names}
            values = {n: node for n, node in columns.items() if n not in self.key}
        else:
            assert isinstance(action.values, Mapping), "only INSERT has values alone"
            values = values_by_column(action.values, self._schema.fields, "MERGE", self._statement.alias)
            values = {n: node for n, node in values.items() if not self._is_joined(n, node)}
        if not values:
            raise refused(
                "MERGE: UPDATE SET changes nothing: it sets only columns that ON makes equal already; set another "
                "column, or leave the clause out",
                statement="MERGE",
            )
        return UpdateClause({n: self._value(n, node, names) for n, node in values.items()}, condition)

    def _is_joined(self, name: str, node: exp.Expression) -> bool:
        """Returns True if an assignment to a column of the primary key changes nothing, because ON compares the column
        with the same value: `id = s.id` after `ON t.id = s.id`.
        """
        if name not in self._schema.primary_keys or name not in self.key or self._names.sides(node) != {SOURCE}:
            return False
        return SqlExpression(sql_text(node.transform(self._names.plain))) == self.key[name]

    def _insert(self, action: MergeAction) -> InsertClause:
        names = self._names.source
        if action.values is None:
            values = {n: self._names.of_source(n, "INSERT *") for n in self._table.schema.names}
        else:
            nodes = action.values
            if not isinstance(nodes, Mapping):
                own = self._table.schema.names
                if len(nodes) != len(own):
                    raise refused(
                        f"MERGE: INSERT has {len(nodes)} values for {len(own)} columns ({', '.join(own)})",
                        statement="MERGE",
                    )
                nodes = {(name,): node for name, node in zip(own, nodes, strict=True)}
            values = values_by_column(nodes, self._schema.fields, "MERGE")
        return InsertClause({n: self._value(n, e, names) for n, e in values.items()}, self._optional(action, names))

    def _value(self, name: str, node: exp.Expression, names: RenamesColumns) -> object:
        field = self._schema.field(name)
        if is_literal(node, field):
            return plain_value(literal_of(node, field))
        refuse_subqueries(node, "MERGE")
        return SqlExpression(sql_text(self._names.local(node.transform(names), self._table.schema.field(name).type)))


@dataclass(frozen=True, slots=True)
class _SourceShape:
    """A function for tasks that converts the rows of a MERGE's source. In the result, the columns by which rows are
    joined come first, and then the source's own columns, under the prefixed names that clauses use. `names` are the
    names of the columns before.
    """

    names: Sequence[str]
    key: Mapping[str, KeyValue]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = batch.rename_columns(list(self.names))
        known, own = dict(zip(self.names, batch.columns, strict=True)), own_columns(batch)
        values = [
            evaluate(value, known, batch.num_rows)
            if isinstance(value, SqlExpression)
            else pa.repeat(value, batch.num_rows)
            for value in self.key.values()
        ]
        return pa.RecordBatch.from_arrays([*values, *own.columns], names=[*self.key, *own.schema.names])

    def reader(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Returns a reader of the rows, which converts each batch when it is read."""
        schema = self(pa.RecordBatch.from_pylist([], schema=rows.schema)).schema
        return pa.RecordBatchReader.from_batches(schema, (with_types(self(batch), schema) for batch in rows))
