"""Carries out queries inside UPDATE and DELETE: either the rows of the queries become literals in the statement, or
Spark finds the rows of the table to change.

Source: Paimon 2.0 DeleteFromPaimonTableCommand, UpdatePaimonTableCommand; Spark's IN, EXISTS and scalar subqueries.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.wording import counted
from bucketline.state.sql.dialect import DIALECT, quoted_column, refused
from bucketline.state.sql.queries import read_query
from bucketline.state.sql.relations import start_of
from bucketline.state.sql.statement import Delete, Merge, MergeAction, Query, Relation, Update
from bucketline.state.store.sql.queries import LOCAL_QUERIES, Queries
from bucketline.state.store.sql.session import SqlSession

MOST_VALUES = 10_000
"""The largest number of rows of a query after IN. Larger queries need MERGE, which joins the rows."""

_SOURCE = "bucketline_changed"


def has_query(node: exp.Expression | None) -> bool:
    """Returns True if a value or condition contains a query."""
    return node is not None and node.find(exp.Select, exp.Subquery, exp.Exists) is not None


def computed_by_merge(statement: Update | Delete, primary_key: Sequence[str]) -> Merge:
    """Returns a MERGE that does the same as the statement, for a table with a primary key. The source of the MERGE is
    a query for the keys of the rows to change, and for their new values.
    """
    changes = statement.assignments if isinstance(statement, Update) else {}
    names = {path: f"value_{at}" for at, path in enumerate(changes)}
    table = _read_alone(statement)
    picked = [quoted_column(name, statement.alias).as_(f"key_{at}") for at, name in enumerate(primary_key)]
    picked += [exp.alias_(node.copy(), names[path]) for path, node in changes.items()]
    where = "" if statement.where is None else f" WHERE {statement.where.sql(DIALECT, identify=True)}"
    columns = ", ".join(node.sql(DIALECT, identify=True) for node in picked)
    target = exp.to_identifier(statement.alias, quoted=True).sql(DIALECT)
    text = f"SELECT {columns} FROM {_name(table)} AS {target}{where}"
    inside = [t for node in changes.values() for t in _tables(node)]
    relations = [_relation(statement, t) for t in inside] + [table]
    relations += [_relation(statement, t) for t in (_tables(statement.where) if statement.where is not None else [])]
    on = exp.and_(
        *(
            exp.EQ(this=quoted_column(name, statement.alias), expression=quoted_column(f"key_{at}", _SOURCE))
            for at, name in enumerate(primary_key)
        )
    )
    set_to = {path: quoted_column(name, _SOURCE) for path, name in names.items()}
    action = MergeAction("update", set_to) if isinstance(statement, Update) else MergeAction("delete")
    return Merge(statement.table, statement.alias, _query(text, relations), _SOURCE, (), on, (action,), (), ())


def with_literals(
    session: SqlSession, node: exp.Expression, statement: Update | Delete, queries: Queries
) -> exp.Expression:
    """Runs the queries inside a value or condition. Returns the value or condition with the result of each query in
    place of the query. For example, `id IN (SELECT ...)` becomes `id IN (1, 2)`.

    Raises OptionError for a query that uses columns of the row to change, and for a query that finds too many rows.
    """
    copied = exp.Paren(this=node.copy())
    for place in list(copied.find_all(exp.In, exp.Exists, exp.Subquery)):
        if place.find_ancestor(exp.Select):
            continue  # The node is inside a query that was, or will be, run as a whole.
        inner = place.args.get("query") if isinstance(place, exp.In) else place
        if inner is None or place.root() is not copied:
            continue
        if isinstance(place, exp.Subquery) and isinstance(place.parent, exp.In) and place.arg_key == "query":
            continue
        rows = _rows(session, inner, statement, queries, is_exists=isinstance(place, exp.Exists))
        if isinstance(place, exp.Exists):
            place.replace(exp.Boolean(this=rows.num_rows > 0))
        elif isinstance(place, exp.In):
            place.replace(_among(place, _single(rows, inner)))
        else:
            values = _single(rows, inner)
            if len(values) > 1:
                raise refused(
                    f"{inner.sql(DIALECT)} returns {counted(len(values), 'row')}, but one value is needed here; let "
                    "the query return one row"
                )
            place.replace(_literals(values)[0] if len(values) else exp.null())
    return copied


def _rows(
    session: SqlSession, inner: exp.Expression, statement: Update | Delete, queries: Queries, *, is_exists: bool
) -> pa.Table:
    select = inner.this if isinstance(inner, exp.Subquery | exp.Exists) else inner
    query = _query(select.sql(DIALECT, identify=True), [_relation(statement, t) for t in _tables(select)])
    try:
        reader = queries.rows(session, query)
    except OptionError as e:
        hint = (
            ""
            if queries is not LOCAL_QUERIES
            else " The query runs before the statement, so it cannot use columns of the changed row."
        )
        raise refused(
            f"the query {select.sql(DIALECT)!r} inside {type(statement).__name__.upper()} cannot be run: "
            f"{e.message}.{hint} Use MERGE INTO ... USING (SELECT ...), which joins rows"
        ) from e
    found, count = [], 0
    for batch in reader:
        found.append(batch)
        count += batch.num_rows
        if is_exists and count:
            break
        if count > MOST_VALUES:
            raise refused(
                f"the query {select.sql(DIALECT)!r} returns more than {counted(MOST_VALUES, 'row')}; use MERGE INTO "
                "... USING (SELECT ...), which joins rows"
            )
    return pa.Table.from_batches(found, schema=reader.schema)


def _single(rows: pa.Table, inner: exp.Expression) -> pa.ChunkedArray:
    """Returns the only column of `rows`. Raises OptionError for several columns, and for values that cannot be
    compared.
    """
    if rows.num_columns != 1:
        raise refused(
            f"{inner.sql(DIALECT)} returns {counted(rows.num_columns, 'column')}, but one value is needed here; select "
            "one column"
        )
    kind = rows.schema.field(0).type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise refused(
            f"{inner.sql(DIALECT)} returns {kind}, which cannot be compared; use MERGE INTO ... USING (SELECT ...)"
        )
    return rows.column(0)


def _among(place: exp.In, values: pa.ChunkedArray) -> exp.Expression:
    """Returns `x IN (...)` with these values. Without values the result is false, even if x is null."""
    if not len(values):
        return exp.false()
    return exp.In(this=place.this.copy(), expressions=_literals(pc.unique(values)))


def _literals(values: pa.Array | pa.ChunkedArray) -> list[exp.Expression]:
    """Returns each value as a literal. Arrow writes dates and times, because Python has no nanoseconds, and no years
    but 1 to 9999.
    """
    kind = values.type
    if pa.types.is_date(kind):
        return [_dated(text.as_py(), "DATE") for text in values.cast(pa.string())]
    if pa.types.is_timestamp(kind):
        times = values.cast(pa.timestamp(kind.unit, "UTC")) if kind.tz else values
        return [_dated(text.as_py(), "TIMESTAMPNTZ") for text in times.cast(pa.string())]
    return [_literal(value.as_py()) for value in values]


def _literal(value: object) -> exp.Expression:
    if value is None or isinstance(value, bool | int | float | str):
        return exp.convert(value)
    if isinstance(value, Decimal):
        number = exp.Literal.number(format(value.copy_abs(), "f"))  # With an exponent the literal would be a double.
        return exp.Neg(this=number) if value.is_signed() else number
    return _dated(str(value), type(value).__name__.upper())


def _dated(text: str | None, sql_type: str) -> exp.Expression:
    """Returns the date or time as a literal of the SQL type; NULL for None."""
    return exp.null() if text is None else exp.cast(exp.Literal.string(text), sql_type)


def _tables(node: exp.Expression) -> list[exp.Table]:
    """Returns the tables that the expression `node` names anywhere inside, in the order in which they occur in the
    statement.
    """
    tables = [t for t in node.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
    return sorted(tables, key=start_of)


def _relation(statement: Update | Delete, table: exp.Table) -> Relation | None:
    """Returns the relation for a table that is named in a query of the statement; None if the name stands for a query
    in WITH.
    """
    start = start_of(table)
    return next((r for r in statement.relations if r.start == start), None)


def _read_alone(statement: Update | Delete) -> Relation:
    """Returns the table of an UPDATE or DELETE as a table for a query, without the options that the statement gives:
    these options are meant for the change and not for reading.
    """
    return replace(statement.table, options={})


def _query(text: str, relations: Sequence[Relation | None]) -> Query:
    """Parses a query, and gives its tables the options of `relations` in order: the first table gets the options of the
    first relation. A None (for the name of a query in WITH) is skipped.
    """
    query = read_query(text)
    options = [r.options for r in relations if r is not None]
    with_options = [replace(relation, options=given) for relation, given in zip(query.relations, options, strict=True)]
    return replace(query, relations=tuple(with_options))


def _name(relation: Relation) -> str:
    return ".".join(exp.to_identifier(part, quoted=True).sql(DIALECT) for part in _parts(relation))


def _parts(relation: Relation) -> list[str]:
    name = relation.name
    last = name.table if name.branch is None else f"{name.table}$branch_{name.branch}"
    return [part for part in (name.catalog, name.database, last) if part is not None]
