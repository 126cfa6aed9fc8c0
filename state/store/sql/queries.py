"""The interface that runs queries: in this process, or in a Spark session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bucketline.state.sql.statement import Query
from bucketline.state.store.engine.engine import Engine, SparkFrame
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.sql.select import run_select
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.store.table.write_result import WriteResult


@dataclass(frozen=True, slots=True)
class QueryTarget:
    """Where the rows of a query go. Its columns become those of the table by position (`names`), or by their own names
    (None); other columns of the table get the constants, or are null. `overwrites` says that they replace what
    `partition` matches, or, without it, what `Table.overwrite` does by the table's options."""

    table: Table
    names: Sequence[str] | None
    constants: Mapping[str, pa.Scalar]
    overwrites: bool = False
    partition: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class SpreadRows:
    """The rows of a query where tasks can read them."""

    schema: pa.Schema
    frame: SparkFrame


class Queries(Protocol):
    """The interface of what runs the queries of statements: this process, or a Spark session."""

    @property
    def engine(self) -> Engine:
        """What does the work on tables."""
        ...

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        """The rows of a query. Raises OptionError for one that is not supported here."""
        ...

    def check(self, session: SqlSession, query: Query) -> None:
        """Returns if a query can be run. Raises as `rows`."""
        ...

    def spread(self, session: SqlSession, query: Query) -> SpreadRows | None:
        """The rows where they are computed; None where that is this process. Raises as `rows`."""
        ...

    def write(self, session: SqlSession, query: Query, target: QueryTarget) -> WriteResult | None:
        """Writes the rows of a query where they are computed; None where that is this process."""
        ...

    def set_option(self, key: str, value: str) -> bool:
        """Sets an option of the process or session that runs the queries. False if it has no such option."""
        ...

    def option(self, key: str) -> str | None:
        """An option of the process or session that runs the queries; None if it has no such option."""
        ...


class LocalQueries:
    """Queries in this process: one table, no joins."""

    engine: Engine = LOCAL_ENGINE

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        return run_select(session, query)

    def check(self, session: SqlSession, query: Query) -> None:
        run_select(session, query, reads=False)

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
    """What changes rows of a table: this process, where rows that wait in the postpone bucket are read as well."""
    reading = handle_of(table).table_schema.settings.reading
    return LOCAL_ENGINE if reading.sees_postponed else queries.engine
