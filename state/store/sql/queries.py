"""Where the rows of a query come from: this process, or a Spark session."""

from typing import Protocol

import pyarrow as pa

from bucketline.state.sql.statement import Query
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.sql.select import run_select
from bucketline.state.store.sql.session import SqlSession


class Queries(Protocol):
    """What statements leave to whoever runs queries."""

    @property
    def engine(self) -> Engine:
        """What does the work of compactions and rescales."""
        ...

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        """The rows of a query. Raises OptionError for one that is not supported here."""
        ...

    def set_option(self, key: str, value: str) -> bool:
        """Sets an option of the queries' own; False for one that is none."""
        ...


class LocalQueries:
    """Queries in this process: one table, no joins."""

    engine: Engine = LOCAL_ENGINE

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        return run_select(session, query)

    def set_option(self, key: str, value: str) -> bool:
        del key, value
        return False


LOCAL_QUERIES = LocalQueries()
