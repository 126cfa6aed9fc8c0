"""The interface through which statements run queries: in this process, or in a Spark session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bucketline.state.sql.statement import Query
from bucketline.state.store.engine.engine import Engine, SparkFrame
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.sql.newest_partition import NewestPartitions
from bucketline.state.store.sql.select import run_select
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.store.table.write_result import WriteResult


@dataclass(frozen=True, slots=True)
class QueryTarget:
    """The table into which the rows of a query go.

    - `names` are the columns of the table into which the columns of the query go, in this order. If `names` is None,
      each column of the query goes into the column with its own name.
    - `constants` holds values for other columns of the table. All columns that are left become null.
    - With `overwrites`, the new rows replace the rows of the partitions that match `partition`. If `partition` is None,
      the new rows replace the same rows as in `Table.overwrite`.
    """

    table: Table
    names: Sequence[str] | None
    constants: Mapping[str, pa.Scalar]
    overwrites: bool = False
    partition: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class SpreadRows:
    """The rows of a query, stored where tasks can read them."""

    schema: pa.Schema
    frame: SparkFrame


class Queries(Protocol):
    """What runs the queries of statements: this process, or a Spark session."""

    @property
    def engine(self) -> Engine:
        """Returns the engine by which statements change and compact tables."""
        ...

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        """Returns the rows of a query. Raises OptionError for a query that is not supported here."""
        ...

    def check(self, session: SqlSession, query: Query) -> None:
        """Checks that a query can be run, without running it. Raises the errors of `rows`."""
        ...

    def spread(self, session: SqlSession, query: Query) -> SpreadRows | None:
        """Returns the rows of a query in a form that tasks compute and read by themselves, so that this process never
        holds the rows. Returns None if queries run in this process. Raises the errors of `rows`.
        """
        ...

    def write(self, session: SqlSession, query: Query, target: QueryTarget) -> WriteResult | None:
        """Writes the rows of a query into a table, and returns the result. The tasks that compute the rows also write
        the rows. If queries run in this process, writes nothing and returns None.
        """
        ...

    def set_option(self, key: str, value: str) -> bool:
        """Sets an option of the process or session that runs the queries. Returns False if there is no such option."""
        ...

    def option(self, key: str) -> str | None:
        """Returns an option of the process or session that runs the queries; None if there is no such option."""
        ...


class LocalQueries:
    """Runs queries in this process: on one table, without joins."""

    engine: Engine = LOCAL_ENGINE

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        return run_select(session, NewestPartitions(session).in_query(query))

    def check(self, session: SqlSession, query: Query) -> None:
        run_select(session, NewestPartitions(session).in_query(query), reads=False)

    def spread(self, session: SqlSession, query: Query) -> SpreadRows | None:
        del session, query
        return None

    def write(self, session: SqlSession, query: Query, target: QueryTarget) -> WriteResult | None:
        del session, query, target
        return None

    def set_option(self, key: str, value: str) -> bool:
        del key, value
        return False

    def option(self, key: str) -> str | None:
        del key
        return None


LOCAL_QUERIES = LocalQueries()


def engine_of(queries: Queries, table: Table) -> Engine:
    """Returns the engine that changes rows of a table. This is the engine of `queries`, with one exception: if readers
    of the table also see the rows in the postpone bucket, this process changes the rows itself, because no other engine
    can read the postpone bucket.
    """
    reading = handle_of(table).table_schema.settings.reading
    return LOCAL_ENGINE if reading.sees_postponed else queries.engine
