"""MERGE INTO over `Table.merge`.

The source gets the table's columns by name: those of the join, and those that are inserted. Its own columns are beside
them, for the values of matched rows.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from bucketline.state.sql.dialect import DIALECT, refused, sql_text
from bucketline.state.sql.statement import Merge, MergeAction
from bucketline.state.store.sql.queries import Queries
from bucketline.state.store.sql.results import snapshot_result
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.table import Table
from bucketline.state.types.sql_expression import SOURCE, TARGET, SqlExpression, evaluate, expr

_OWN = "_source_"
"""Before the names of the source's own columns, which may be those of other columns of the table."""


def merge(session: SqlSession, found: Merge, queries: Queries) -> pa.Table:
    """Changes the rows that match, and inserts the others."""
    if found.table.name.system is not None:
        raise refused(f"{found.table.name} is a system table, which only reads", statement="MERGE")
    table = session.table(found.table.name, found.table.options, writes=True)
    rows = queries.rows(session, found.source)
    names = _Names(found, table, rows.schema)
    on = dict(names.joined(found.on))
    given = names.inserted(found.not_matched, on)
    matched: Mapping[str, object] | str | None = None
    if found.matched is not None:
        matched = "delete" if found.matched.what == "delete" else names.assigned(found.matched, on)
    source = _source(rows, given)
    done = table.merge(source, list(on), matched, None if found.not_matched is None else "insert")
    return snapshot_result(done)


class _Names:
    """Which column a name in the statement means."""

    def __init__(self, found: Merge, table: Table, source: pa.Schema) -> None:
        self._target_alias, self._source_alias = found.alias, found.source_alias
        self._target, self._source = table.schema.names, source.names

    def joined(self, condition: exp.Expression) -> Iterator[tuple[str, SqlExpression]]:
        """The table's columns of the join, each with the source's value. Raises OptionError for another condition."""
        for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
            part = part.unnest()
            sides = [self._side(n) for n in (part.this, part.expression)] if isinstance(part, exp.EQ) else []
            if {side for side, _ in sides} != {SOURCE, TARGET}:
                raise refused(
                    f"MERGE: ON {part.sql(DIALECT)} is not supported; ON compares columns of both by =, joined by AND",
                    statement="MERGE",
                )
            named = dict(sides)
            yield named[TARGET], expr(sql_text(exp.column(named[SOURCE])))

    def _side(self, node: exp.Expression) -> tuple[str, str]:
        """Whether a column is the table's or the source's, and its name there."""
        if not isinstance(node, exp.Column):
            return "", ""
        alias = node.table.lower()
        for side, own, names in (
            (TARGET, self._target_alias, self._target),
            (SOURCE, self._source_alias, self._source),
        ):
            if alias and alias != own.lower():
                continue
            spelled = [n for n in names if n == node.name] or [n for n in names if n.lower() == node.name.lower()]
            if len(spelled) == 1 and (alias or not self._is_in_both(node.name)):
                return side, spelled[0]
        raise refused(
            f"MERGE: {node.sql(DIALECT)!r} is no column of {self._target_alias} or {self._source_alias} alone; write "
            f"{self._target_alias}.column or {self._source_alias}.column",
            column=node.name,
        )

    def _is_in_both(self, name: str) -> bool:
        return all(name.lower() in (n.lower() for n in names) for names in (self._target, self._source))

    def inserted(self, action: MergeAction | None, on: Mapping[str, SqlExpression]) -> dict[str, SqlExpression]:
        """For each column of the table that the source gives, its value in terms of the source's columns."""
        if action is None:
            return dict(on)
        if action.values is None:
            missing = next((n for n in self._target if n not in on and n not in self._source), None)
            if missing is not None:
                raise refused(f"MERGE: INSERT * needs column {missing!r} in the source; list columns and values")
            return {n: expr(sql_text(exp.column(n))) for n in self._target if n not in on} | dict(on)
        given = {n: expr("NULL") for n in self._target}
        for name, node in action.values.items():
            if name not in self._target:
                raise refused(f"MERGE: unknown column {name!r}; there are {', '.join(self._target)}", column=name)
            given[name] = expr(sql_text(node.transform(self._in_source)))
        for name, value in on.items():
            if given[name] != value:
                raise refused(f"MERGE: column {name!r} is joined by, so that INSERT gives it {value.text}")
        return given

    def _in_source(self, node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        side, name = self._side(node) if node.table else (SOURCE, node.name)
        if side != SOURCE:
            raise refused(f"MERGE: INSERT takes columns of the source alone, not {node.sql(DIALECT)}")
        return exp.column(name)

    def assigned(self, action: MergeAction, on: Mapping[str, SqlExpression]) -> dict[str, object]:
        """The new values of matched rows."""
        if action.values is None:
            names = [n for n in self._target if n in self._source and n not in on]
            return {n: expr(f'{SOURCE}."{_OWN}{n}"') for n in names}
        found: dict[str, object] = {}
        for name, node in action.values.items():
            found[name] = expr(sql_text(node.transform(self._in_both_sides)))
        return found

    def _in_both_sides(self, node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        side, name = self._side(node)
        return exp.column(f"{_OWN}{name}" if side == SOURCE else name, table=side)


def _source(rows: pa.RecordBatchReader, given: Mapping[str, SqlExpression]) -> pa.RecordBatchReader:
    """The source's rows: the values for the table's columns, then its own columns."""

    def columns(batch: pa.RecordBatch) -> pa.RecordBatch:
        known = dict(zip(batch.schema.names, batch.columns, strict=True))
        values = [evaluate(value, known, batch.num_rows) for value in given.values()]
        own = [f"{_OWN}{name}" for name in batch.schema.names]
        return pa.RecordBatch.from_arrays([*values, *batch.columns], names=[*given, *own])

    schema = columns(pa.RecordBatch.from_pylist([], schema=rows.schema)).schema
    return pa.RecordBatchReader.from_batches(schema, (columns(batch).cast(schema) for batch in rows))
