"""`bl.sql`: the statements of a text, one after the other, with or without a Spark session."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from bucketline.conf.errors import OptionError
from bucketline.state.sql.parse import parse_script
from bucketline.state.sql.statement import Query, Statement
from bucketline.state.store.sql.queries import LOCAL_QUERIES, Queries
from bucketline.state.store.sql.run import run_statement
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.warehouse.catalog import Catalog, catalog

_Place = tuple[tuple[str, str], ...]
_WITHOUT_SPARK: dict[_Place, SqlSession] = {}
_OF_SPARK: WeakKeyDictionary[Any, dict[_Place, SqlSession]] = WeakKeyDictionary()


def sql(
    spark: Any,
    text: str,
    warehouse: str | Mapping[str, str] | Catalog | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Runs the SQL statements of `text`, in Flink's spelling or Spark's, and returns the result of the last statement.

    With a Spark session the result is a DataFrame, and Spark runs the queries. Without a session (`None`) the result is
    an Arrow table; definitions, changes of rows, CALL, system tables and queries over one table need no Spark.
    `warehouse` is a folder with databases, options of a catalog, or a `Catalog`; unqualified names mean the database
    `default`. The effects of USE, SET and CREATE CATALOG last as long as the Spark session, for this warehouse.

    Raises OptionError for a statement that cannot be read; then no statement is run. Raises the errors of `Table` and
    `Catalog` if a statement fails; the statements before it have been carried out.
    """
    statements = parse_script(text)
    if not statements:
        raise OptionError("SQL: the text contains no statement", key="sql")
    session = _session(spark, warehouse, storage_options)
    *before, (_, last) = statements
    if spark is None:
        for _, statement in before:
            _run_without_result(session, statement, LOCAL_QUERIES)
        return run_statement(session, last)
    queries = import_module("bucketline.streaming.sql.spark_queries").SparkQueries(spark)
    for _, statement in before:
        _run_without_result(session, statement, queries)
    if isinstance(last, Query):
        return queries.frame(session, last)
    return queries.shown(run_statement(session, last, queries))


def _run_without_result(session: SqlSession, statement: Statement, queries: Queries) -> None:
    """Runs a statement whose result is not used; a query is only checked."""
    if isinstance(statement, Query):
        queries.check(session, statement)
    else:
        run_statement(session, statement, queries)


def _session(
    spark: Any, warehouse: str | Mapping[str, str] | Catalog | None, storage_options: Mapping[str, str] | None
) -> SqlSession:
    """Returns the state of SQL (current catalog, database, options) for this Spark session and warehouse."""
    named_catalog = warehouse
    if warehouse is not None and not isinstance(warehouse, Catalog):
        named_catalog = catalog(warehouse, storage_options)
    place: _Place = ()
    if isinstance(named_catalog, Catalog):
        place = tuple(sorted({**named_catalog.settings.options, **named_catalog.settings.storage}.items()))
    sessions = _WITHOUT_SPARK if spark is None else _OF_SPARK.setdefault(spark, {})
    if place not in sessions:
        sessions[place] = SqlSession.at(named_catalog if isinstance(named_catalog, Catalog) else None)
    return sessions[place]
